"""Loads a file: creates and changes products, and books stock and counts, each exactly once.

A load may be interrupted at any time and run again with the same file: the tables show how far it got. It recognises
products by their content, adjustments and counts by their ids, and changes of details by their times and ids.

It first creates products, then their stock at other locations; then it changes products, books stock, and books counts,
whatever the sequence of the lines.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.barcode import BarcodeKey, key_of_barcode
from inventory_orders.domain.change import OtherRequest, Update
from inventory_orders.domain.location import (
    MAX_PLACES,
    in_words,
    location_of,
    product_of,
)
from inventory_orders.domain.product import DETAILS, LIMITS, NewProduct, Product, with_limit
from inventory_orders.domain.record import AdjustmentRecord, Record, RecordKey
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    InvalidMessageError,
    LeaseHeldError,
    LeaseLostError,
    Outcome,
    OutcomeError,
    ProductNotFoundError,
    RejectedError,
    RequestInvalidError,
    StoreError,
    id_reused_error,
)
from inventory_orders.lanes.levels import estimate_levels
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import ProductCatalogue, opening_key, product_to_create
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.cancellations import barcode_taken_error
from inventory_orders.store.dynamodb import Snapshot, Store
from inventory_orders.store.rows import Key

from .catalogue_file import ATTRIBUTES, Booking, CatalogueFile, Change, Count, Line
from .creations import MAX_AT_ONCE, create_many
from .currency import Currency
from .file_errors import FileError
from .moves import Moves, read_moves

_WORKERS = 4
"""The number of transactions that are in flight at once."""

# For lines with a transaction each, so that progress shows and an interrupted load stops soon.
_SMALL_BATCH = 10

# A table that is new or was idle has to scale with the load, so throttling may last for minutes. Source: "DynamoDB
# on-demand capacity mode",
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
POLICY = RetryPolicy(max_attempts=1_000_000, base=0.05, cap=5.0)
"""How all requests of a load are repeated."""

PATIENCE_SECONDS = 300.0
"""For how long they are repeated."""

# This is also how long a line, and the rest of its batch, waits for another owner's lease.
_LEASE_SECONDS = 60.0

C = TypeVar("C", NewProduct, Change, Booking, Count)
Recorded = TypeVar("Recorded", Booking, Count)
Batch = Sequence[Line[C]]
Stored = Record | CorruptItemError | None
"""The record of an adjustment or a count, as far as there is one and it can be read."""


class Done(StrEnum):
    """The result of a valid line."""

    CREATED = "new product"
    LISTED = "new location of a product"
    THERE = "product that already existed"
    LISTED_BEFORE = "location of a product that already existed"
    CHANGED = "change"
    SAME = "no change: the product already matches the line"
    STALE = "change ignored: the product has newer details"
    BOOKED = "adjustment"
    BOOKED_BEFORE = "adjustment booked before (another one with the same numbers needs an adjustmentId of its own)"
    MOVED = "transfer"
    MOVED_BEFORE = (
        "transfer booked before (another one with the same numbers needs a transferId of its own)"
    )
    COUNTED = "count"
    COUNTED_BEFORE = "count booked before"


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a valid line was not carried out, as a code and a message."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a valid line, with a description of its effect on the product.

    Attributes:
        done: The result.
        words: The effect.
        kind: The kind of the effect, without its values.
    """

    done: Done
    words: str
    kind: str = ""


Answer = Done | Finding | Problem


class _Worker(Protocol):
    """Returns an answer for each line of a batch. May raise a StoreError, which stops the load."""

    def create(self, batch: Batch[NewProduct]) -> Sequence[Answer]: ...
    def change(self, batch: Batch[Change]) -> Sequence[Answer]: ...
    def adjust(self, batch: Batch[Booking]) -> Sequence[Answer]: ...
    def count(self, batch: Batch[Count], moves: Moves) -> Sequence[Answer]: ...


class InterruptedLoadError(Exception):
    """The load was told to stop."""


class StoppableClock(SystemClock):
    """A clock whose sleep ends as soon as the load is told to stop."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise InterruptedLoadError


class Load:
    """One load of one file.

    Args:
        file: The file's lines.
        store: The tables.
        rate: Maximum lines to write per second; None for no limit.
        on_progress: Called by one worker at a time with the number of lines done.
        on_read: Called with the number of changes read, if the file has counts.
        has_movements: Whether the stage records movements.

    Attributes:
        done: The number of valid lines so far with each result.
        bad: The lines that were not carried out, including invalid ones.
        stocked: The number of lines so far that put units at each location.
        findings: The effects of lines on their products: line number, product with its location, and the effect.
    """

    def __init__(
        self,
        file: CatalogueFile,
        store: Store,
        rate: float | None = None,
        on_progress: Callable[[int], None] = lambda _: None,
        on_read: Callable[[int], None] = lambda _: None,
        *,
        has_movements: bool = True,
    ) -> None:
        self.done: Counter[Done] = Counter()
        self.bad = list(file.bad)
        self.stocked: Counter[str] = Counter()
        self.findings: list[tuple[int, str, Finding]] = []
        self._file = file
        self._store = store
        self._rate = rate
        self._on_progress = on_progress
        self._on_read = on_read
        self._has_movements = has_movements
        self._stop = threading.Event()
        self._clock = StoppableClock(self._stop)
        self._lock = threading.Lock()
        self._next_write = 0.0

    def run(self) -> None:
        """Carry out every valid line."""
        size = MAX_AT_ONCE if self._rate is None else max(1, min(MAX_AT_ONCE, int(self._rate)))
        workers = [_Writer(self._store, self._clock, self._pace) for _ in range(_WORKERS)]
        self._carry_out(workers, size)

    def check(self) -> None:
        """Find the results that `run` would have if it ran now, without writing."""
        self._carry_out([_Checker(_Reader(self._store, self._clock))], MAX_AT_ONCE)

    def _carry_out(self, workers: Sequence[_Worker], size: int) -> None:
        file, small = self._file, min(size, _SMALL_BATCH)
        counts = [line.content for line in file.counts]
        booked = frozenset(key for line in file.adjustments for key in line.content.product_ids)
        moves = read_moves(
            *(_Reader(self._store, self._clock).client, counts, booked, self._on_read),
            has_movements=self._has_movements,
        )
        own = [line for line in file.creations if not location_of(line.content.product_id)]
        places = [line for line in file.creations if location_of(line.content.product_id)]
        of_places = _of_distinct_products(places, size)
        for batches in (_batches(own, size), of_places):
            self._side_by_side(workers, batches, lambda one, b: one.create(b))
        self._side_by_side(workers, _by_product(file.changes, small), lambda one, b: one.change(b))
        self._side_by_side(
            workers, _by_product(file.adjustments, size), lambda one, b: one.adjust(b)
        )
        self._side_by_side(
            workers, _batches(file.counts, small), lambda one, b: one.count(b, moves)
        )

    def _side_by_side(
        self,
        workers: Sequence[_Worker],
        batches: Iterator[Batch[C]],
        carry_out: Callable[[_Worker, Batch[C]], Sequence[Answer]],
    ) -> None:
        def work(worker: _Worker) -> None:
            while not self._stop.is_set():
                with self._lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                self._settle(batch, carry_out(worker, batch))

        with ThreadPoolExecutor(len(workers)) as pool:
            try:
                for future in as_completed([pool.submit(work, worker) for worker in workers]):
                    future.result()
            except BaseException:
                # This also applies after Ctrl-C: batches in flight finish, and no new ones start.
                self._stop.set()
                raise

    def _pace(self, count: int) -> None:
        """Wait until this number of lines may be written."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next_write)
            self._next_write = begin + count / self._rate
        self._clock.sleep(begin - now)

    def _settle(self, batch: Batch[C], answers: Sequence[Answer]) -> None:
        with self._lock:
            for line, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Problem):
                    self.bad.append(_bad_line(line, answer))
                elif isinstance(answer, Finding):
                    self.done[answer.done] += 1
                    self.findings.append((line.number, _name(line.content), answer))
                else:
                    self.done[answer] += 1
                if (stocked := _supplied(line.content)) and not isinstance(answer, Problem):
                    self.stocked[location_of(stocked)] += 1
            self._on_progress(len(answers))


class _Reader:
    """Reads the tables with long deadlines."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.client = RetryingClient(store, POLICY, clock)

    def read(self, keys: Sequence[Key]) -> Snapshot:
        """Read products, records and pages. Leaves out products that break their table's contract."""
        return read_all(self.client, keys, self.soon(), CommitStats())

    def compare(
        self, wanted: Iterable[NewProduct], products: Mapping[str, Product | None]
    ) -> dict[str, Answer]:
        """Find out for each existing product whether it was created with the values of its line.

        Stock keeps changing, so the comparison uses the opening stock as booked.
        """
        found = [
            (new, product)
            for new in wanted
            if (product := products.get(new.product_id)) is not None
        ]
        keys = [opening_key(product) for _, product in found]
        # This read is eventually consistent: a missing record may have been written just before.
        records = self.read(keys).records if keys else {}
        return {
            new.product_id: _compared(
                new, product, records[key] if key in records else self.record(key)
            )
            for (new, product), key in zip(found, keys, strict=True)
        }

    def soon(self) -> Deadline:
        """Create a deadline for requests that nothing but DynamoDB can delay."""
        return Deadline.after(PATIENCE_SECONDS, self.client.clock)

    def record(self, key: RecordKey) -> Record | None:
        """Read a record with strong consistency."""
        return self.client.call(lambda: self.client.store.get(key), self.soon(), CommitStats())


class _Writer:
    """Carries out one batch after another. `pace` waits until the given number of lines may be written."""

    def __init__(self, store: Store, clock: Clock, pace: Callable[[int], None]) -> None:
        self._reader = _Reader(store, clock)
        self._pace = pace
        self._products = ProductCatalogue(self._reader.client)
        self._engine = engine_with_lanes(store, POLICY, clock)

    def create(self, batch: Batch[NewProduct]) -> Sequence[Answer]:
        """Create the products of a batch that do not exist. Reading them first is cheaper than trying to create all."""
        wanted = {line.content.product_id: line.content for line in batch}
        snapshot = self._reader.read(_with_own_rows(wanted))
        products, unreadable = snapshot.products, snapshot.unreadable
        answers: dict[str, Answer] = {
            key: problem for key in wanted if (problem := _obstacle(key, products, unreadable))
        }
        missing = [
            new for key, new in wanted.items() if key not in answers and products[key] is None
        ]
        answers |= self._create_missing(missing, products)
        answers |= self._reader.compare(wanted.values(), products)
        return [answers[key] for key in wanted]

    def _create_missing(
        self, missing: Sequence[NewProduct], products: dict[str, Product | None]
    ) -> dict[str, Answer]:
        """Create products or places. Rows that a concurrent writer has just created are added to `products`."""
        answers: dict[str, Answer] = {}
        if missing:
            self._pace(len(missing))
            creations = create_many(self._reader.client, missing, self._reader.soon())
            for new, creation in zip(missing, creations, strict=True):
                if creation.error is not None:
                    answers[new.product_id] = _problem(new.product_id, creation.error)
                elif creation.created:
                    answers[new.product_id] = _created(new)
                else:
                    products[new.product_id] = creation.product
        return answers

    def change(self, batch: Batch[Change]) -> Sequence[Answer]:
        """Change products, each in a transaction of its own."""
        return [self._change(line.content) for line in batch]

    def _change(self, change: Change) -> Answer:
        self._pace(1)
        deadline = self._lease_deadline()
        try:
            update = partial(
                self._products.update_with_retry, change=change.applied_to, deadline=deadline
            )
            updates = [update(change.product_id)]
            for key in change.places(updates[0].before):
                with suppress(ProductNotFoundError):
                    updates.append(update(key))
        except _OF_ONE_LINE as error:
            return _problem(change.product_id, error)
        return _changed(change, updates)

    def adjust(self, batch: Batch[Booking]) -> Sequence[Answer]:
        """Book adjustments through the engine."""
        self._pace(len(batch))
        report = self._engine.apply([line.content for line in batch], self._lease_deadline())
        if report.failure is not None:
            raise report.failure
        return [
            _of_outcome(line.content, outcome)
            for line, outcome in zip(batch, report.outcomes, strict=True)
        ]

    def count(self, batch: Batch[Count], moves: Moves) -> Sequence[Answer]:
        """Book counts through the engine."""
        answers = self._corrections([line.content for line in batch], moves)
        changes = [each for each in answers if isinstance(each, Adjustment)]
        self._pace(len(changes))
        report = self._engine.apply(changes, self._lease_deadline())
        if report.failure is not None:
            raise report.failure
        outcomes = iter(report.outcomes)
        return [
            _of_outcome(each, next(outcomes)) if isinstance(each, Adjustment) else each
            for each in answers
        ]

    def _corrections(self, counts: Sequence[Count], moves: Moves) -> list[Adjustment | Answer]:
        """Return the change that books each count, or the answer if there is none."""
        keys = [key for count in counts for key in (count.product_id, count.record_key)]
        found = self._reader.read(keys)
        return [
            _problem(count.product_id, found.unreadable[count.product_id])
            if count.product_id in found.unreadable
            else _correction(
                *(count, found.products[count.product_id]),
                *(found.records.get(count.record_key), moves),
            )
            for count in counts
        ]

    def _lease_deadline(self) -> Deadline:
        return Deadline.after(_LEASE_SECONDS, self._reader.client.clock)


class _Checker:
    """Finds the answers that a writer would return, by applying the lines to products in memory only."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._products: dict[str, Product | None] = {}
        self._unreadable: dict[str, CorruptItemError] = {}
        self._owners: dict[str, str | None] = {}

    def create(self, batch: Batch[NewProduct]) -> Sequence[Answer]:
        own = _with_own_rows(line.content.product_id for line in batch)
        self._read(own)
        self._read(key for row in map(self._products.get, own) if row for key in row.place_keys)
        existing = self._reader.compare([line.content for line in batch], self._products)
        return self._answers(batch, lambda new: existing.get(new.product_id) or self._create(new))

    def _create(self, new: NewProduct) -> Answer:
        key = new.product_id
        if problem := _obstacle(key, self._products, self._unreadable):
            return problem
        own, location_id = self._products.get(product_of(key)), location_of(key)
        rows = [own, *map(self._products.get, own.place_keys)] if own else []
        try:
            new = with_limit(new, filter(None, rows))
        except InvalidMessageError as error:
            return _problem(key, error)
        product = product_to_create(new, timestamp(SystemClock().now()))
        if problem := self._claim(product, frozenset()):
            return problem
        self._products[key] = product
        if own is not None and location_id:
            self._products[own.product_id] = replace(own, places=own.places | {location_id})
        return _created(new)

    def change(self, batch: Batch[Change]) -> Sequence[Answer]:
        self._read(line.content.product_id for line in batch)
        self._read(key for line in batch for key in self._also_changed(line.content))
        return self._answers(batch, self._change)

    def _change(self, change: Change) -> Answer:
        product = self._products[change.product_id]
        if product is None:
            return _unknown(change.product_id)
        others = self._also_changed(change)
        if unreadable := next(filter(None, map(self._unreadable.get, others)), None):
            return _problem(change.product_id, unreadable)
        rows = [product, *filter(None, map(self._products.get, others))]
        try:
            updates = [Update(row, change.applied_to(row)) for row in rows]
        except (RejectedError, InvalidMessageError) as error:
            return _problem(change.product_id, error)
        if problem := self._claim(updates[0].after, product.barcodes):
            return problem
        self._products |= {each.after.product_id: each.after for each in updates}
        return _changed(change, updates)

    def _also_changed(self, change: Change) -> Sequence[str]:
        """Return the keys of the rows at other locations that a change to the product's own row affects."""
        own = self._products.get(change.product_id)
        return () if own is None else change.places(own)

    def _claim(self, product: Product, before: frozenset[str]) -> Problem | None:
        """Give a product its new barcodes. Returns the problem if one of them is another product's."""
        client, product_id = self._reader.client, product.product_id
        for code in sorted(key_of_barcode(each).code for each in product.barcodes - before):
            if code not in self._owners:
                row = client.ask(Store.get, self._reader.soon(), BarcodeKey(code))
                self._owners[code] = None if row is None else row["productId"]
            owner = self._owners[code]
            if owner not in (None, product_id):
                taken = barcode_taken_error({"code": code, "productId": owner})
                return _problem(product_id, taken)
        self._owners |= {key_of_barcode(each).code: None for each in before}
        self._owners |= {key_of_barcode(each).code: product_id for each in product.barcodes}
        return None

    def adjust(self, batch: Batch[Booking]) -> Sequence[Answer]:
        self._read(key for line in batch for key in line.content.product_ids)
        return self._recorded(batch, self._adjust)

    def _adjust(self, change: Booking, stored: Any) -> Answer:
        if isinstance(stored, CorruptItemError):
            return _problem(change.product_id, stored)
        if stored is not None:
            meaning = change.match(stored)
            if isinstance(meaning, Rejection):
                return _rejected(meaning)
            if isinstance(meaning, OtherRequest):
                return _id_reused(meaning, change.id_reused_code)
            return _booked_before(change)
        return self._book(change)

    def _book(self, change: Booking) -> Answer:
        if broken := [key for key in change.product_ids if key in self._unreadable]:
            return _problem(change.product_id, self._unreadable[broken[0]])
        rejection = change.rejection(self._products)
        if rejection is not None:
            return _rejected(rejection)
        for key, delta in change.deltas(self._products).items():
            if (product := self._products[key]) is not None:
                after = product.with_stock(product.stock_count + delta, product.version + 1)
                self._products[key] = replace(after, on_hand=product.on_hand + delta)
        return _booked(change)

    def count(self, batch: Batch[Count], moves: Moves) -> Sequence[Answer]:
        return self._recorded(batch, lambda count, stored: self._count(count, stored, moves))

    def _count(self, count: Count, stored: Stored, moves: Moves) -> Answer:
        change = _correction(count, self._products[count.product_id], stored, moves)
        if not isinstance(change, Adjustment):
            return change
        rejection = change.rejection(self._products)
        return _booked(change) if rejection is None else _rejected(rejection)

    def _read(
        self, product_ids: Iterable[str], keys: Sequence[RecordKey] = ()
    ) -> Mapping[RecordKey, Record | CorruptItemError]:
        """Read the rows and records that were not read before, and return the records."""
        unknown = dict.fromkeys(i for i in product_ids if i not in self._products)
        snapshot = self._reader.read([*unknown, *keys])
        self._products |= snapshot.products
        self._unreadable |= snapshot.unreadable
        # A booking reclaims the units that it needs from lanes.
        levels = estimate_levels(self._reader.client, snapshot, self._reader.soon())
        for product_id, level in levels.items():
            self._products[product_id] = replace(
                level.product,
                stock_count=level.available,
                on_hand=level.on_hand,
                lent_to=frozenset(),
            )
        return snapshot.records

    def _recorded(
        self, batch: Batch[Recorded], answer: Callable[[Recorded, Stored], Answer]
    ) -> Sequence[Answer]:
        keys = [line.content.record_key for line in batch]
        records = self._read((line.content.product_id for line in batch), keys)
        return self._answers(batch, lambda new: answer(new, records.get(new.record_key)))

    def _answers(self, batch: Batch[C], answer: Callable[[C], Answer]) -> Sequence[Answer]:
        return [
            _problem(line.content.product_id, self._unreadable[line.content.product_id])
            if line.content.product_id in self._unreadable
            else answer(line.content)
            for line in batch
        ]


_OF_ONE_LINE = (
    ProductNotFoundError,
    RejectedError,
    InvalidMessageError,
    LeaseHeldError,
    LeaseLostError,
    ContentionError,
    CorruptItemError,
    RequestInvalidError,
)
"""Errors that affect only one line."""

AGAIN = "load the file again later"
"""What to do about a line that may succeed later."""


def _problem(product_id: str, error: OutcomeError) -> Problem:
    """Convert an error to a line's problem."""
    if isinstance(error, ProductNotFoundError):
        return _unknown(product_id)
    if isinstance(error, StoreError):
        return Problem("REFUSED_BY_DYNAMODB", str(error))
    if isinstance(error, InvalidMessageError):
        return Problem(error.code, error.message)
    may_succeed = isinstance(error, LeaseHeldError | LeaseLostError | ContentionError)
    again = f"; {AGAIN}" if may_succeed else ""
    return Problem(error.code, f"{error}{again}")


def _booked(change: Booking) -> Answer:
    if isinstance(change, Transfer):
        return Done.MOVED
    if change.counted is None:
        return Done.BOOKED
    if not change.delta:
        return Done.COUNTED
    words = f"counted {change.counted:,}, corrected by {change.delta:+,}"
    return Finding(Done.COUNTED, words, "stock corrected")


def _booked_before(change: Booking) -> Done:
    if isinstance(change, Transfer):
        return Done.MOVED_BEFORE
    return Done.BOOKED_BEFORE if change.counted is None else Done.COUNTED_BEFORE


def _correction(
    count: Count, product: Product | None, stored: Stored, moves: Moves
) -> Adjustment | Answer:
    """Return the change that books a count, or the answer if there is none."""
    if stored is not None:
        return _counted_before(count, stored)
    if product is None:
        return _unknown(count.product_id)
    try:
        return moves.correction(count)
    except RejectedError as error:
        return _problem(count.product_id, error)


def _of_outcome(change: Booking, outcome: ChangeOutcome) -> Answer:
    """Convert the engine's answer to a line's result."""
    match outcome.kind:
        case Outcome.APPLIED:
            return _booked(change)
        case Outcome.REPLAYED:
            return _booked_before(change)
        case Outcome.REJECTED | Outcome.INVALID:
            return Problem(outcome.cause, outcome.detail)
    return Problem(outcome.cause, f"{outcome.detail}; {AGAIN}" if outcome.detail else AGAIN)


def _with_own_rows(keys: Iterable[str]) -> list[str]:
    """Return these keys, and the keys of their products' own rows."""
    return list(dict.fromkeys(each for key in keys for each in (key, product_of(key))))


def _obstacle(
    key: str,
    products: Mapping[str, Product | None],
    unreadable: Mapping[str, CorruptItemError],
) -> Problem | None:
    """Return the reason why a missing row cannot be created; None if it can."""
    own, product_id = products.get(product_of(key)), product_of(key)
    if error := unreadable.get(key) or (products[key] is None and unreadable.get(product_id)):
        return _problem(key, error)
    if products[key] is not None or key == product_id:
        return None
    if own is None:
        return Problem(
            "UNKNOWN_PRODUCT",
            f"there is no product {product_id}; a line without a locationId creates it",
        )
    if len(own.places) < MAX_PLACES:
        return None
    return Problem(
        "TOO_MANY_PLACES",
        f"{product_id} is already listed at the maximum of {MAX_PLACES} locations (not counting the default)",
    )


def _created(new: NewProduct) -> Done:
    """Return the result of a new row."""
    return Done.LISTED if location_of(new.product_id) else Done.CREATED


def _bad_line(line: Line[Any], problem: Problem) -> FileError:
    return FileError.in_line(line.number, problem.code, problem.message, line.ids)


def _supplied(content: NewProduct | Change | Booking | Count) -> str | None:
    """The row to which a line adds units; None if it adds none."""
    match content:
        case NewProduct():
            adds = content.opening_stock > 0
        case Adjustment():
            adds = content.delta > 0
        case Count():
            adds = content.counted > 0
        case Transfer():
            return content.target
        case _:
            adds = False
    return content.product_id if adds else None


def _name(content: NewProduct | Change | Booking | Count) -> str:
    """Name the product of a line, and the location where a count is booked."""
    key = content.product_id
    if isinstance(content, Count) and content.names_location and not location_of(key):
        return f"{key} at the default location"
    return in_words(key)


def _counted_before(count: Count, stored: Record | CorruptItemError) -> Answer:
    """Build the result of a count whose id is already stored."""
    if isinstance(stored, CorruptItemError):
        return _problem(count.product_id, stored)
    if isinstance(stored, AdjustmentRecord) and stored.counted == count.counted:
        return Done.COUNTED_BEFORE
    counted = stored.counted if isinstance(stored, AdjustmentRecord) else None
    return _id_reused(OtherRequest.between({"counted": counted}, {"counted": count.counted}))


def _is_as_asked(new: NewProduct, product: Product, attribute: str) -> bool:
    """Whether a row has the value of its line. A line that names no limit gets none, or that of the other locations."""
    asked, value = getattr(new, attribute), getattr(product, attribute)
    if asked is None and attribute in LIMITS:
        return bool(location_of(new.product_id)) or not value
    return bool(asked == value)


def _compared(new: NewProduct, product: Product, opening: Stored) -> Answer:
    """Find out whether an existing product was created with the values of its line."""
    there = Done.LISTED_BEFORE if location_of(new.product_id) else Done.THERE
    other = {
        column
        for column, attribute in ATTRIBUTES.items()
        if not _is_as_asked(new, product, attribute)
    }
    changed_at = product.details_event_time
    # If details were changed since, the product no longer shows the original ones.
    kept = other.intersection(DETAILS if changed_at else ())
    other -= kept
    if not isinstance(opening, AdjustmentRecord) or opening.delta != new.opening_stock:
        other.add("openingStock")
    if other:
        return Problem(
            "PRODUCT_EXISTS",
            f"{in_words(new.product_id)} has existed since {product.created_at} with another {', '.join(sorted(other))}; nothing was changed. "
            "Correct or remove the line. To change other columns, load a file without the column openingStock; to change the "
            "stock, use delta or counted",
        )
    if kept:
        kind = f"kept {', '.join(sorted(kept))}"
        return Finding(there, f"exists; {kind} as changed at {changed_at}", kind)
    return there


def _changed(change: Change, updates: Sequence[Update[Product]]) -> Answer:
    """Build the result of a change to a row, and to the product's rows at other locations if there are any."""
    own, *others = updates
    if change.is_stale(own.before):
        return Finding(
            Done.STALE,
            f"ignored: name or price were changed later, at {own.before.details_event_time}",
        )
    parts = [("", _differences(own.before, own.after, change.currency))]
    parts += [
        (
            f" at {location_of(other.after.product_id)}",
            _differences(other.before, other.after, change.currency),
        )
        for other in others
    ]
    words = [f"{'; '.join(found.values())}{where}" for where, found in parts if found]
    kinds = dict.fromkeys(kind for _, found in parts for kind in found)
    return Finding(Done.CHANGED, "; ".join(words), ", ".join(kinds)) if words else Done.SAME


def _written(column: str, value: Any, currency: Currency) -> str:
    """Format the value of a column; "null" if there is none."""
    if column == "price" and value is not None:
        return currency.shown(value)
    if isinstance(value, frozenset):
        value = " ".join(sorted(value)) or None
    return json.dumps(value, ensure_ascii=False)


def _differences(before: Product, after: Product, currency: Currency) -> dict[str, str]:
    """Describe the attributes that a change sets and removes, by the kind of the difference."""
    found: dict[str, str] = {}
    for column, attribute in ATTRIBUTES.items():
        old, new = (
            _written(column, getattr(each, attribute), currency) for each in (before, after)
        )
        if old == new:
            continue
        if new == "null":
            found[f"{column} removed"] = f"{column} {old} removed"
        else:
            was = "set" if old == "null" else f"from {old}"
            found[f"{column} changed"] = f"{column} {was} to {new}"
    if before.is_discontinued != after.is_discontinued:
        status = "discontinued" if after.is_discontinued else "listed again"
        found[status] = status
    return found


def _unknown(product_id: str) -> Problem:
    return _rejected(Rejection(RejectionReason.UNKNOWN_PRODUCT, product_id))


def _rejected(rejection: Rejection) -> Problem:
    return Problem(rejection.reason.value, rejection.words)


def _id_reused(other: OtherRequest, code: str = Adjustment.id_reused_code) -> Problem:
    words = id_reused_error(code, other.differences)
    return Problem(words.code, words.message)


def _batches(lines: Sequence[Line[C]], size: int) -> Iterator[Batch[C]]:
    return (lines[start : start + size] for start in range(0, len(lines), size))


def _of_distinct_products(lines: Iterable[Line[C]], size: int) -> Iterator[Batch[C]]:
    """Split lines into batches in which no product occurs twice."""
    seen, rounds = Counter[str](), dict[int, list[Line[C]]]()
    for line in lines:
        product_id = product_of(line.content.product_id)
        rounds.setdefault(seen[product_id], []).append(line)
        seen[product_id] += 1
    return chain.from_iterable(_batches(each, size) for each in rounds.values())


def _by_product(lines: Iterable[Line[C]], size: int) -> Iterator[Batch[C]]:
    """Split lines into batches, with all lines of a product together and in sequence.

    So workers never contend for a product.
    """
    of_product: dict[str, list[Line[C]]] = {}
    for line in lines:
        of_product.setdefault(product_of(line.content.product_id), []).append(line)
    batch: list[Line[C]] = []
    for group in of_product.values():
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = []
        batch += group
    if batch:
        yield batch
