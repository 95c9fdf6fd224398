"""Sends requests, retries them while they may still succeed, and measures their cost."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Concatenate, ParamSpec, TypeVar

from inventory_orders.clock import Clock, Deadline, SystemClock
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import OrderKey, OrderRecord
from inventory_orders.engine.memory import Pace, Recent
from inventory_orders.errors import (
    ContentionError,
    Limit,
    OutcomeError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
    UnpublishableError,
)
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.cancellations import (
    CancellationReason,
    ConditionFailedError,
    Meaning,
    TransactionCancelledError,
    require_product,
)
from inventory_orders.store.dynamodb import READ_LIMIT, Snapshot, Store
from inventory_orders.store.lists import ListPosition
from inventory_orders.store.rows import Key, described, read_item
from inventory_orders.store.writes import Action, ActionKind, Write

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

# Requests for keys that DynamoDB leaves unprocessed: it reads 16 MB at a time, and a throttled product holds up the others.
_ANSWERS = 8


@dataclass(slots=True)
class CommitStats:
    """What writes have cost, and what became of them.

    Attributes:
        measured: The values of each metric, in its unit.
        changes_per_transaction: For each committed transaction, how many changes it decided.
        lease_wait: Time spent waiting for leases, in seconds.
        low_stock: Products that stopped being `ACTIVE` because of their stock.
        throttles: How many requests each limit of DynamoDB throttled.
    """

    measured: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    changes_per_transaction: list[int] = field(default_factory=list)
    lease_wait: float = 0.0
    low_stock: list[Product] = field(default_factory=list)
    throttles: Counter[Limit] = field(default_factory=Counter)

    def add(self, other: CommitStats) -> None:
        """Add the measurements of another part of the work."""
        for metric, values in other.measured.items():
            self.measured[metric] += values
        self.changes_per_transaction += other.changes_per_transaction
        self.lease_wait += other.lease_wait
        self.low_stock += other.low_stock
        self.throttles += other.throttles


@dataclass(slots=True, kw_only=True)
class SweepReport:
    """What one part of the sweep could not finish, and what an operator has to repair.

    Attributes:
        problems: What an operator has to repair, as keys, so that nothing appears twice.
        unfinished: The error that left work for the next sweep; empty if everything was done.
    """

    problems: dict[str, None] = field(default_factory=dict)
    unfinished: str = ""

    @contextmanager
    def noting_errors(self, what: str = "") -> Iterator[None]:
        """Catch errors from AWS. The next sweep deals with transient ones, an operator with all others, which begin with `what`."""
        try:
            yield
        except (ThrottledError, OutcomeUnknownError) as error:
            self.unfinished = str(error)
        except StoreError as error:
            self.problems[f"{what}{error}"] = None


def if_transient(error: OutcomeError) -> float | None:
    """After throttling or a lost response, return 0, so that the request is repeated; after other errors, None."""
    return 0.0 if isinstance(error, ThrottledError | OutcomeUnknownError) else None


def if_contended(error: OutcomeError) -> float | None:
    """If a concurrent writer was faster, return 0, so that the caller decides again; after other errors, None."""
    return 0.0 if isinstance(error, ContentionError) else None


class RetryingClient:
    """Sends requests, and repeats them according to three rules.

    - While the outcome of a request is unknown, the same request is repeated with the same token. If an earlier attempt was
      applied after all, DynamoDB recognises the repetition.
    - After `TransactionConflict` or throttling, the client waits with full jitter, or at the pace of this process if a table
      is short of capacity.
    - Every wait is limited by the number of attempts and by the deadline.

    Methods here and functions that use this class send no request after `deadline`, and add its cost to `stats`.

    Args:
        store: The tables.
        policy: How to wait between attempts.
        clock: Source of time.
        executor: Runs requests in parallel; None runs them one after the other.

    Attributes:
        rivals: On which products this process has met concurrent writers.
        contested: On which buyers' rows it has met some.
        pace: How fast this process may write.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.store = store
        self.policy = policy = policy or RetryPolicy()
        self.clock = clock = clock or SystemClock()
        self.executor = executor
        self.rivals, self.contested = Recent(clock), Recent(clock)
        self.pace = Pace(clock, policy.random)

    def write(
        self,
        actions: Sequence[Action],
        deadline: Deadline,
        stats: CommitStats,
        *,
        plans_around: Collection[Meaning] = (),
    ) -> None:
        """Send a transaction, and repeat it until it is applied.

        Args:
            actions: The actions of the transaction.
            plans_around: Cancellation reasons that make the caller plan again instead of repeating the transaction, if they
                concern a product's row. After a conflict, the same transaction would only lose again. After throttling, the
                other products need not wait. A caller that plans around conflicts also plans around throttled buyers and pages
                of lanes.

        Raises:
            StoreError: The transaction was not applied. If a response was lost, that attempt may still arrive and be applied if
                its conditions hold. A condition on an old version never holds again.
        """
        attempts = _Attempts(self, actions, stats, plans_around)
        check_time(deadline)
        self.call(attempts.send, deadline, stats, repeat_after=attempts.repeat_after)

    @contextmanager
    def measuring(self, stats: CommitStats) -> Iterator[None]:
        """Measure an attempt to commit: how long it takes, and which conflicts it meets."""
        started, moved, rival = self.clock.monotonic(), False, False
        try:
            yield
            stats.measured["CommitLatency"].append((self.clock.monotonic() - started) * 1000)
        except TransactionCancelledError as error:
            moved = any(
                reason.meaning is Meaning.CONDITION_FAILED and reason.action.by_version
                for reason in error.reasons
            )
            rival = Meaning.RIVAL in error.meanings
            raise
        except ThrottledError as error:
            rival = error.code == "TransactionConflictException"
            raise
        finally:
            stats.measured["VersionConflict"].append(moved)
            stats.measured["TransactionConflict"].append(rival)

    def side_by_side(self, function: Callable[[A], T], arguments: Sequence[A]) -> list[T]:
        """Call a function on each argument, in parallel if there is an executor."""
        if self.executor is None or len(arguments) == 1:
            return [function(argument) for argument in arguments]
        return list(self.executor.map(function, arguments))

    def ask(
        self,
        function: Callable[Concatenate[Store, P], T],
        deadline: Deadline,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function with the tables and the other arguments, and repeat this until its requests succeed."""
        return self.call(partial(function, self.store, *arguments, **named), deadline)

    def call(
        self,
        send: Callable[[], T],
        deadline: Deadline,
        stats: CommitStats | None = None,
        *,
        repeat_after: Callable[[OutcomeError], float | None] = if_transient,
        attempts: int | None = None,
    ) -> T:
        """Repeat a request until it succeeds, with longer and longer waits. This is the only retry loop.

        Args:
            send: Makes one attempt. It has to be safe to repeat.
            deadline: No attempt but the first begins after it.
            stats: Where to note the waits and throttles, if given.
            repeat_after: Returns the minimum wait after an error, in seconds, or None if the error is to be raised.
            attempts: Maximum number of attempts; by default, the policy's.
        """
        most, failures = attempts or self.policy.max_attempts, 0
        while True:
            try:
                return send()
            except OutcomeError as error:
                if stats is not None and isinstance(error, StoreError):
                    stats.throttles.update(error.limits)
                least = repeat_after(error)
                if least is None:
                    raise
                failures += 1
                delay = max(least, self.policy.backoff(failures))
                if failures >= most or not self.pause(delay, deadline):
                    raise
                if stats is not None:
                    stats.measured["RetryBackoffTime"].append(delay * 1000)

    def pause(self, seconds: float, deadline: Deadline) -> bool:
        """Wait, and return True. If the wait would reach the deadline, return False immediately."""
        if seconds >= deadline.remaining():
            return False
        self.clock.sleep(seconds)
        return deadline.remaining() > 0


@dataclass(slots=True)
class _Attempts:
    """All attempts to apply one transaction, with their token."""

    client: RetryingClient
    actions: Sequence[Action]
    stats: CommitStats
    plans_around: Collection[Meaning]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_unknown: bool = False

    def send(self) -> None:
        client = self.client
        try:
            with client.measuring(self.stats):
                client.store.write(self.actions, self.token)
            client.pace.observe_success()
        except StoreError as error:
            self.is_unknown = self.is_unknown or isinstance(error, OutcomeUnknownError)
            if self._is_short_of_capacity(error):
                client.pace.observe_throttle()
            raise

    def repeat_after(self, error: OutcomeError) -> float | None:
        """Return the minimum wait before the same request may succeed, in seconds; None if it cannot.

        The next attempt gets a new token, unless an earlier attempt with the old one may still be in flight.
        """
        if isinstance(error, TransactionCancelledError):
            may_repeat = error.may_be_repeated
            if not self.is_unknown:
                self.token = uuid.uuid4().hex
                may_repeat = may_repeat and not self._is_planned_around(error)
        else:
            may_repeat = if_transient(error) is not None
        if not may_repeat:
            return None
        return self.client.pace.wait if self._is_short_of_capacity(error) else 0.0

    def _is_planned_around(self, error: TransactionCancelledError) -> bool:
        return any(
            (reason.meaning in self.plans_around and _is_of_hot_item(reason, ActionKind.PURCHASES))
            or (
                Meaning.RIVAL in self.plans_around
                and reason.meaning is Meaning.THROTTLED
                and reason.action.kind in (ActionKind.PURCHASES, ActionKind.PAGE)
            )
            for reason in error.reasons
        )

    def _is_short_of_capacity(self, error: OutcomeError) -> bool:
        """Whether a whole table was throttled, and not just a row or page that many processes want."""
        if not isinstance(error, TransactionCancelledError):
            return isinstance(error, ThrottledError)
        return any(
            reason.meaning is Meaning.THROTTLED and not _is_of_hot_item(reason)
            for reason in error.reasons
        )


def check_time(deadline: Deadline) -> None:
    """Raise an error if a deadline has passed.

    Raises:
        ThrottledError: `OUT_OF_TIME`.
    """
    if deadline.remaining() <= 0:
        raise ThrottledError("OUT_OF_TIME", "the invocation had no time left")


def _is_of_hot_item(reason: CancellationReason, *others: ActionKind) -> bool:
    """Whether a reason is about a row or page that many processes want, which throttles it, or about another kind of item."""
    kinds = (ActionKind.PRODUCT, ActionKind.OUTBOUND, *others)
    return reason.action.kind in kinds and reason.action.by_version


def read(
    client: RetryingClient,
    keys: Sequence[Key],
    deadline: Deadline,
    stats: CommitStats,
    *,
    consistent_records: bool = False,
) -> Snapshot:
    """Read products by id, and records and pages by key. Failed reads and omitted keys are repeated.

    Args:
        keys: What to read.
        consistent_records: Whether records are read with strong consistency too.

    Returns:
        The items. Keys that DynamoDB has left out every time are in `unprocessed`.
    """
    check_time(deadline)

    def read_missing(answers: list[Snapshot]) -> None:
        """Read the keys that the last answer left out, and append the next answer."""
        missing, limits = answers[-1].unprocessed, tuple[Limit, ...]()
        try:
            answers.append(client.store.read(missing, consistent_records=consistent_records))
        except ThrottledError as error:
            # DynamoDB also leaves keys unprocessed if all of them are throttled.
            if len(answers) == 1:
                raise
            answers.append(Snapshot(unprocessed=missing))
            limits = error.limits
        if answers[-1].unprocessed and len(answers) <= _ANSWERS:
            raise ThrottledError("UNPROCESSED_KEYS", "DynamoDB left keys unprocessed", limits)

    # The answers to each chunk. Before the first one, all of its keys are missing.
    reads = [
        [Snapshot(unprocessed=tuple(keys[start : start + READ_LIMIT]))]
        for start in range(0, len(keys), READ_LIMIT)
    ]
    client.side_by_side(
        lambda answers: client.call(partial(read_missing, answers), deadline, stats), reads
    )
    left_out = chain.from_iterable(answers[-1].unprocessed for answers in reads)
    snapshot = Snapshot(unprocessed=tuple(left_out))
    for answer in chain.from_iterable(reads):
        snapshot.add(answer)
    return snapshot


def read_all(
    client: RetryingClient,
    keys: Sequence[Key],
    deadline: Deadline,
    stats: CommitStats,
    *,
    consistent_records: bool = False,
) -> Snapshot:
    """Read items like `read`, for a caller that needs all of them.

    Raises:
        ThrottledError: DynamoDB left some keys out of every answer.
    """
    snapshot = read(client, keys, deadline, stats, consistent_records=consistent_records)
    if snapshot.unprocessed:
        words = f"{described(snapshot.unprocessed[0])} could not be read"
        raise ThrottledError("UNPROCESSED_KEYS", words)
    return snapshot


def read_rows(
    client: RetryingClient,
    product_ids: Sequence[str],
    deadline: Deadline,
    *,
    everywhere: bool = True,
) -> Snapshot:
    """Read the rows of products, and then their rows at other locations, if any."""
    found = read_all(client, product_ids, deadline, CommitStats())
    if everywhere:
        places = [key for row in found.products.values() if row for key in row.place_keys]
        found.add(read_all(client, places, deadline, CommitStats()))
    return found


def read_product(
    client: RetryingClient, product_id: str, deadline: Deadline, stats: CommitStats
) -> Product:
    """Read one product with strong consistency.

    Raises:
        ProductNotFoundError: The product does not exist.
        CorruptItemError: The product breaks the table's contract.
    """
    found = client.call(lambda: client.store.get(product_id), deadline, stats)
    return require_product(found, product_id)


def update_product(
    client: RetryingClient,
    product_id: str,
    write: Callable[[], Write],
    deadline: Deadline,
    stats: CommitStats,
) -> tuple[bool, Product]:
    """Send one conditional update of a product, without a token. After a lost response, the caller recognises its own write.

    Args:
        write: Builds the update. It is called again for each attempt.

    Returns:
        Whether the last attempt was applied, and the current product.

    Raises:
        ProductNotFoundError: The product does not exist.
        CorruptItemError: The product breaks the table's contract.
        StoreError: DynamoDB did not answer in time.
    """

    def send() -> Product:
        with client.measuring(stats):
            return client.store.update_product(product_id, write())

    check_time(deadline)
    try:
        return True, client.call(send, deadline, stats)
    except ConditionFailedError as failed:
        return False, require_product(read_item(product_id, failed.item), product_id)


def read_orders(
    client: RetryingClient,
    places: Sequence[ListPosition],
    deadline: Deadline,
    show: Callable[[OrderRecord], A],
) -> tuple[list[A], list[str]]:
    """Read the orders at some positions of a list, with strong consistency.

    Args:
        places: The positions.
        show: Converts an order for the answer. It raises UnpublishableError if the row is unreadable.

    Returns:
        The converted orders, and the ids of the unreadable orders.

    Raises:
        StoreError: A request failed, or DynamoDB left out an order every time.
    """
    keys = [OrderKey(place.id) for place in places]
    found = read_all(client, keys, deadline, CommitStats(), consistent_records=True).records
    shown = dict[OrderKey, A]()
    for key in keys:
        order = found.get(key)
        with suppress(UnpublishableError):
            if isinstance(order, OrderRecord):
                shown[key] = show(order)
    unreadable = found.keys() - shown.keys()
    return [*shown.values()], [key.order_id for key in keys if key in unreadable]
