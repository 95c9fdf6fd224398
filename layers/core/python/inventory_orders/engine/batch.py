"""The state of one batch of changes: which are still pending, and what is known about stored rows and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import Page, PageKey
from inventory_orders.domain.change import (
    Change,
    Decision,
    IdempotencyMatch,
    MatchResult,
    OtherRequest,
)
from inventory_orders.domain.location import in_words
from inventory_orders.domain.planner import Chain, Limits, Supply, Waiting, prove
from inventory_orders.domain.product import Product
from inventory_orders.domain.purchases import BuyerKey, Purchases
from inventory_orders.domain.record import AdjustmentKey, OrderKey, Record, RecordKey
from inventory_orders.domain.rejection import Rejection
from inventory_orders.engine.memory import ProductCache
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    CommitReport,
    outcome_of,
    rejected,
    returned,
)
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read
from inventory_orders.errors import (
    CorruptItemError,
    Outcome,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
    id_reused_error,
)
from inventory_orders.sequences import followers, in_portions
from inventory_orders.store.cancellations import CancellationReason, Meaning
from inventory_orders.store.dynamodb import READ_LIMIT, Snapshot, new_epoch
from inventory_orders.store.rows import Key, described

K = TypeVar("K", str, PageKey, str | PageKey)

AVOIDED_SECONDS = 5.0
"""How long a caller that cannot wait avoids a product after meeting a concurrent writer."""

# How often a read that has to prove a rejection is tried.
_PROOFS = 3


def split_into_turns(changes: Iterable[Change]) -> list[list[int]]:
    """Split changes into turns, so that each change to a record sees what the previous change to that record wrote.

    A change never gets an earlier turn than a change of the same group that arrived before it.

    Returns:
        The indexes of the changes of each turn.
    """
    turns: dict[int, list[int]] = {}
    next_turn: dict[RecordKey | str, int] = {}
    for number, change in enumerate(changes):
        keys = [part.record_key for part in change.parts]
        turn = max(next_turn.get(key, 0) for key in (*keys, change.group or ""))
        next_turn |= dict.fromkeys(keys, turn + 1)
        if change.group is not None:
            next_turn[change.group] = turn
        turns.setdefault(turn, []).append(number)
    return [*turns.values()]


def note_unfinished(
    changes: Sequence[Change],
    turn: Iterable[int],
    outcomes: Mapping[int, ChangeOutcome],
    unfinished: dict[Any, Outcome],
) -> None:
    """Note the records and groups of changes that are returned, may get another outcome later, or will be dead-lettered."""
    for number in turn:
        change, outcome = changes[number], outcomes[number]
        if outcome.is_open:
            keys = (*(part.record_key for part in change.parts), change.group)
            unfinished |= dict.fromkeys(keys, outcome.kind)
        elif outcome.kind is Outcome.INVALID:
            unfinished[change.group] = outcome.kind


def hold_back(
    changes: Sequence[Change], turn: Iterable[int], unfinished: dict[Any, Outcome]
) -> dict[int, ChangeOutcome]:
    """Return the changes of a turn that must not overtake an unfinished change of the same record or group."""
    outcomes = {}
    for number in turn:
        change = changes[number]
        keys = map(attrgetter("record_key"), change.parts)
        before = next(filter(None, map(unfinished.get, keys)), None)
        if before is not None and change.product_ids:
            outcomes[number] = returned("BEHIND_A_DUPLICATE")
        # Before an order arrives, the only command that it can take is a cancellation. Others wait, so that a fulfilment does
        # not overtake its confirmation.
        elif (
            before is Outcome.RETURNED
            or (before is not None and change.rejection({}) is not None)
            or (change.group is not None and change.group in unfinished)
        ):
            outcomes[number] = returned("BEHIND_A_RETURNED_MESSAGE")
        if number in outcomes:
            unfinished[change.group] = Outcome.RETURNED
    return outcomes


def _products_of(change: Change) -> tuple[str, ...]:
    return tuple(change.product_ids)


@dataclass(slots=True)
class Known:
    """Rows and pages, as last read or written.

    Attributes:
        rows: Products by id; None for a product that does not exist.
        pages: Pages by key.
        unreadable: The errors of items that break their tables' contracts, by key.
        purchases: What buyers have bought.
    """

    rows: dict[str, Product | None] = field(default_factory=dict)
    pages: dict[PageKey, Page] = field(default_factory=dict)
    unreadable: dict[str | PageKey, CorruptItemError] = field(default_factory=dict)
    purchases: dict[BuyerKey, Purchases] = field(default_factory=dict)

    def learn(self, key: str | PageKey, found: object) -> None:
        """Keep an item as stored, or its error. If something else was found under the key, forget the key."""
        self.unreadable.pop(key, None)
        if isinstance(key, PageKey) and isinstance(found, Page):
            self.pages[key] = found
        elif isinstance(key, str) and (found is None or isinstance(found, Product)):
            self.rows[key] = found
        else:
            self.forget(key)
            if isinstance(found, CorruptItemError):
                self.unreadable[key] = found

    def forget(self, key: str | PageKey) -> None:
        """Forget an item, so that it is read again."""
        if isinstance(key, PageKey):
            self.pages.pop(key, None)
        else:
            self.rows.pop(key, None)

    def unknown(self, keys: Iterable[K]) -> list[K]:
        """The keys of unknown items, without duplicates."""
        known = {*self.rows, *self.pages, *self.unreadable}
        return [key for key in dict.fromkeys(keys) if key not in known]

    @property
    def lent(self) -> dict[str, Product]:
        """The products that lanes or the depot may hold units of, by id."""
        return {p: row for p, row in self.rows.items() if row is not None and row.lent_to}


class PendingChanges(dict[RecordKey, Change]):
    """The changes of a batch that have no outcome yet, by record key, in order of arrival. The first outcome is final.

    Args:
        changes: In the order in which they arrived, with distinct record keys.

    Attributes:
        by_key: All changes of the batch as they arrived, whether or not they have an outcome.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        super().__init__((change.record_key, change) for change in changes)
        self.by_key: Mapping[RecordKey, Change] = dict(self)
        self._first_key = {part.record_key: c.record_key for c in changes for part in c.parts}
        self._outcomes: dict[RecordKey, ChangeOutcome] = {}
        self._retries = Counter[RecordKey]()
        self._failure: StoreError | None = None

    # ------------------------------------------------------------------ contents

    @property
    def product_ids(self) -> list[str]:
        """The products of all pending changes."""
        return list(dict.fromkeys(p for change in self.values() for p in change.product_ids))

    def has(self, change: Change) -> bool:
        """Whether a change has neither an outcome nor a replacement."""
        return self.get(change.record_key) is change

    # ------------------------------------------------------------------ deciding

    def settle(self, change: Change, outcome: ChangeOutcome) -> None:
        """Record the outcome of a change, unless it already has one.

        If a change is invalid, its dead letter is not sent yet. So later changes of its group are returned.
        """
        key = change.record_key
        if self.pop(key, None) is None:
            return
        self._outcomes[key] = outcome
        if outcome.kind is Outcome.INVALID:
            for later in followers(self.by_key.values(), lambda other: other.record_key == key):
                self.settle(later, returned("BEHIND_A_RETURNED_MESSAGE"))

    def match(
        self, key: RecordKey, record: Record | CorruptItemError | None, *, has_failed: bool = False
    ) -> Change | None:
        """Compare a change with the record stored under its key. Returns the change to plan next, if it is still undecided.

        Args:
            key: The key.
            record: The record; None if there is none.
            has_failed: Whether a write on condition of the record has just failed.
        """
        key = self._first_key.get(key, key)
        change = self.get(key)
        if change is None or record is None:
            return change
        asked = self.by_key[key]
        match _meaning_of(record, asked):
            case CorruptItemError() as error:
                self.give_up([change], error.code, str(error))
            case IdempotencyMatch.SAME_REQUEST:
                self.settle(change, ChangeOutcome(Outcome.REPLAYED))
            case OtherRequest(differences):
                reused = id_reused_error(asked.id_reused_code, differences)
                self.settle(change, outcome_of(reused))
            case Rejection() as rejection:
                self.settle(change, rejected(rejection))
            case same if same == change:
                if not has_failed:
                    return change
                # It was planned from this very record, so it would fail again.
                self.give_up(
                    [change],
                    "CORRUPT_RECORD",
                    f"{key} contradicts itself: it fails a condition on the values that were just read from it; repair "
                    "the item",
                )
            case replacement:
                self[key] = replacement
                return replacement
        return None

    # ------------------------------------------------------------------ giving up

    def give_up(
        self, changes: Iterable[Change], cause: str, detail: str, retry_after: float = 0.0
    ) -> None:
        """Return changes to their senders, together with all later changes of their groups."""
        keys = {change.record_key for change in changes}
        stopped = [change for key, change in self.items() if key in keys]
        later = followers(self.values(), lambda other: other.record_key in keys)
        for change in stopped + later:
            self.settle(change, returned(cause, detail, retry_after))

    def give_up_product(self, product_id: str, cause: str, detail: str) -> None:
        """Give up on every change that cannot be carried out without this product."""
        stopped = (c for c in self.values() if all(product_id in offer for offer in c.offers))
        self.give_up(stopped, cause, detail)

    def give_up_buyer(self, key: BuyerKey, cause: str) -> None:
        """Give up on all changes of a buyer whose purchases cannot be read or written. Logs contain the detail, but no user."""
        detail = "the purchases of one of its buyers cannot be read or written; the audit names rows that need repair"
        self.give_up((c for c in self.values() if key in c.buyers), cause, detail)

    def give_up_all(self, cause: str, detail: str) -> None:
        """Give up on all pending changes."""
        self.give_up(self.values(), cause, detail)

    def fail(self, error: StoreError) -> None:
        """Give up on all pending changes. Unless the error is transient, the report names it as the failure."""
        if not isinstance(error, ThrottledError | OutcomeUnknownError):
            self._failure = error
        self.give_up_all(error.code, str(error))

    def count_retries(self, change: Change, retries: int) -> None:
        """Add to the number of times that a change was planned or sent again."""
        self._retries[change.record_key] += retries

    def give_up_out_of_attempts(self, most: int) -> None:
        """Give up on changes that were retried `most` times or more."""
        self.give_up(
            (change for key, change in self.items() if self._retries[key] >= most),
            "CONTENTION",
            "lost to concurrent writers, or was throttled, on every attempt",
        )

    # ------------------------------------------------------------------ the answer

    def report(self, stats: CommitStats) -> CommitReport:
        """Report the outcome of each change, once none is pending, and how often the change was retried."""
        for key in self.by_key:
            kind, retries = self._outcomes[key].kind, self._retries[key]
            if retries or kind in (Outcome.APPLIED, Outcome.REJECTED):
                stats.measured["Retries"].append(retries)
            if retries:
                stats.measured["RetriesExhausted"].append(kind is Outcome.RETURNED)
        return CommitReport(tuple(self._outcomes[key] for key in self.by_key), stats, self._failure)


def _meaning_of(
    record: Record | CorruptItemError, change: Change
) -> MatchResult | CorruptItemError:
    """Compare a change with its record. An unreadable or contradictory record is returned as an error."""
    try:
        return record if isinstance(record, CorruptItemError) else change.match(record)
    except CorruptItemError as error:
        return error


class Batch:
    """One batch of changes, from its first read to its last outcome.

    Every plan starts from the known rows, and every write is conditioned on them. A stale row costs an attempt, but never
    leads to a wrong result. Decisions that write nothing have stricter rules: see `read_cached`, `reject_unwritten` and
    `learn_record`.

    Args:
        cache: The products as this process left them.
        pending: The changes that have no outcome yet. A read may find records that answer some of them.
        age: How long the first change has been waiting, in seconds.
        limits: Limits of one transaction.

    Attributes:
        pending: The changes without an outcome. Reads, the loop and visits to the depot settle them.
        deadline: When the batch has to stop sending requests.
        age: How long the first change has been waiting, in seconds.
        stats: The cost so far. Everything that sends requests adds to it.
        known: The known rows and pages. The loop and sources write it as well.
        limits: Limits of one transaction. The loop lowers them to find a change that DynamoDB does not accept.
        losses: Rounds without progress. Written by the loop.
        outbound_losses: Rounds in which only hand-overs were lost. Written by the loop.
        throttled: Products whose rows are throttled. Written by the loop and by sources, cleared by the loop.
        short: Products that the last plans found to be short. Offers without them are preferred. Written by the loop and by
            sources.
        avoided: Products that a caller with a single attempt passes over, because it met concurrent writers on them.
        looks_again: Whether the last round wrote nothing because there was more to read first. Written by the loop.
        has_read_records: Whether any record was read.
    """

    def __init__(
        self,
        client: RetryingClient,
        cache: ProductCache,
        pending: PendingChanges,
        deadline: Deadline,
        age: float,
        limits: Limits,
    ) -> None:
        self.pending = pending
        self.deadline = deadline
        self.age = age
        self.stats = CommitStats()
        self.known = Known()
        self.limits = limits
        self.losses = self.outbound_losses = 0
        self.throttled: set[str] = set()
        self.short: set[str] = set()
        self.avoided: set[str] = set()
        self._client = client
        self._cache = cache
        cached = {p: cache.get(p) for p in pending.product_ids}
        self._cached = {
            p: row for p, row in cached.items() if row is not None and not client.rivals.has(p)
        }
        self.known.rows |= self._cached
        self.has_read_records = self.looks_again = False
        # The records that were read with strong consistency.
        self._read_exactly: set[RecordKey] = set()

    @property
    def now(self) -> float:
        """The Unix time in seconds."""
        return self._client.clock.now().timestamp()

    # ------------------------------------------------------------------ reading

    def read_cached(self, short: Set[str]) -> bool:
        """If a row that is only known from the cache is short, read all such rows. Returns whether it did."""
        cached = {p for p, row in self._cached.items() if self.known.rows.get(p) is row}
        if cached.isdisjoint(short - self.throttled):
            return False
        self._cached = {}
        self.read(sorted(cached))
        return True

    def read_unknown(self, product_ids: Iterable[str]) -> None:
        """Read products that are not known yet. The first read also fetches the records, which reveal most replays."""
        if unknown := self.known.unknown(product_ids):
            # If a change has replaced another one, its record is already known.
            first = [key for key, c in self.pending.items() if c is self.pending.by_key[key]]
            self.read([*unknown, *(() if self.has_read_records else first)])

    def with_purchases(self, found: Supply) -> Supply:
        """Add what buyers have bought to a supply. Reads it if a pending order is about a product with a purchase limit.

        It is read again in each round, because the round may have waited, and a rival of one buyer costs all orders of a
        transaction another round.
        """
        known = self.known.purchases
        unknown = self._limited_buyers(found) - (known.keys() if self.looks_again else set())
        if unknown:
            # A throttled row only returns the orders of its buyer.
            self.read(sorted(unknown))
        contested = frozenset(
            key
            for change in (self.pending.values() if self._client.contested else ())
            for key in (*change.buyers, *change.refunds)
            if self._client.contested.has(key.buyer)
        )
        return replace(found, purchases=known, contested=contested)

    def _limited_buyers(self, found: Supply) -> set[BuyerKey]:
        """The buyers of pending orders that name a product with a purchase limit."""
        limited = {
            product_id
            for product_id, row in found.allocation.rows.items()
            if row is not None and row.purchase_limit
        }
        return {
            key
            for change in self.pending.values()
            if change.is_limited(limited)
            for key in change.buyers
        }

    def learn_purchases(self, key: BuyerKey, reason: CancellationReason) -> None:
        """Learn why a buyer's row was not written. If units cannot be refunded, the change goes on without that.

        After throttling, the buyer's changes get transactions of their own. After another one, they are returned.
        """
        found, is_apart = reason.found, self._client.contested.has(key.buyer)
        if reason.is_lost:
            self._client.contested.observe(key.buyer)
        match reason.meaning:
            case Meaning.CONDITION_FAILED if isinstance(found, Purchases):
                self.known.purchases[key] = found
            case Meaning.CONDITION_FAILED | Meaning.INVALID if not reason.action.by_version:
                self.known.purchases[key] = Purchases(key, 0, new_epoch())
            case Meaning.CONDITION_FAILED if found is None:
                self.known.purchases[key] = Purchases(key, 0, new_epoch())
            case Meaning.CONDITION_FAILED | Meaning.INVALID:
                self.pending.give_up_buyer(key, "CORRUPT_PURCHASES")
            case Meaning.RIVAL:
                self.known.purchases.pop(key, None)
            case Meaning.THROTTLED if is_apart:
                self.pending.give_up_buyer(key, "CONTENTION")

    def reject_unwritten(self, decisions: Sequence[Decision]) -> None:
        """Reject changes whose rejection is not stored, unless their records show that they were applied.

        Each rejection was correct when it was planned. If the record is missing now, it was also missing then, so the shortage was
        not caused by an earlier attempt to apply the same change. The record of a stock change is read in one transaction with its product:
        separate reads could return the stock after a write, but the record before it.
        docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
        """
        changes = [decision.change for decision in decisions]
        self._read_records(change for change in changes if not change.product_ids)
        of_stock = sorted((change for change in changes if change.product_ids), key=_products_of)
        for product_ids, some in groupby(of_stock, key=_products_of):
            self._read_together(product_ids, list(some))
        for decision in decisions:
            # A change that was replaced in the meantime is planned first.
            if decision.rejection is not None and self.pending.has(decision.change):
                self.pending.settle(decision.change, rejected(decision.rejection))

    def _read_records(self, changes: Iterable[Change]) -> None:
        """Read the records of changes with strong consistency. Skips records that were already read that way."""
        keys = [c.record_key for c in changes if c.record_key not in self._read_exactly]
        if keys:
            self.read(keys, consistent_records=True)

    def _read_together(self, product_ids: Sequence[str], changes: Sequence[Change]) -> None:
        """Read the records of changes that affect the same products, together with these products, in one transaction."""
        most = READ_LIMIT - len(product_ids)
        for some in in_portions(changes, most, lambda _: 1, most):
            keys = [*product_ids, *(change.record_key for change in some)]
            request = partial(self._client.store.read_together, keys)
            try:
                self._learn_snapshot(self._client.call(request, self.deadline, self.stats))
            except ThrottledError as error:
                self.pending.give_up(some, error.code, str(error))

    def prove(self, doubted: Sequence[Waiting]) -> tuple[Chain, ...]:
        """Reject changes whose decisive rows, read in one transaction, show that no offer is possible at that moment.

        Separate reads could miss units that move from one place to another. If concurrent writers keep interfering with the
        read, the rejection's own transaction checks that the known rows have not changed.

        Args:
            doubted: See `Plan.doubted`.

        Returns:
            The transactions that reject them. A change whose rejection could not be proven is planned again.
        """
        known = self.known
        by_keys: dict[tuple[str | BuyerKey, ...], list[Waiting]] = {}
        for change, decisive in doubted:
            buyers = (key for key in change.buyers if key in known.purchases)
            keys: tuple[str | BuyerKey, ...] = (*buyers, *sorted({*chain(*decisive)}))
            by_keys.setdefault(keys, []).append((change, decisive))
        proven: list[Decision] = []
        for portion in in_portions(by_keys, len(by_keys), len, READ_LIMIT):
            snapshot = self._read_at_once({*chain.from_iterable(portion)})
            for keys in portion:
                proven += self._proven(keys, by_keys[keys], snapshot)
        certain = {decision.change.record_key for decision in proven}
        for change, _ in doubted:
            if change.record_key not in certain:
                self.pending.count_retries(change, 1)
        return Supply(Allocation(known.rows), purchases=known.purchases).arrange(
            proven, self.limits
        )

    def _proven(
        self,
        keys: Sequence[str | BuyerKey],
        doubted: Iterable[Waiting],
        snapshot: Snapshot | None,
    ) -> Iterator[Decision]:
        """Yield the rejections that a snapshot shows. Without one, they check the known rows, which all have to exist."""
        # An order of dozens of limited products at several locations may have more rows than a transaction can check.
        rows, checked = self.known.rows, keys[: READ_LIMIT - 1]
        if snapshot is not None:
            rows, checked = snapshot.products, ()
        products = [key for key in checked if isinstance(key, str)]
        buyers = [key for key in checked if isinstance(key, BuyerKey)]
        if None in map(rows.get, products):
            return
        for change, decisive in doubted:
            rejection = prove(change, decisive, rows, self.known.purchases)
            if rejection is not None:
                yield Decision(change, rejection, {}, products, products, buyers=buyers)

    def _read_at_once(self, keys: Collection[str | BuyerKey]) -> Snapshot | None:
        """Read rows in one transaction; None if it fails."""
        request = partial(self._client.store.read_together, [*keys])
        try:
            snapshot = self._client.call(request, self.deadline, self.stats, attempts=_PROOFS)
        except (ThrottledError, RequestInvalidError):
            return None
        self._learn_snapshot(snapshot)
        return snapshot

    def read(self, keys: Sequence[Key], *, consistent_records: bool = False) -> None:
        """Read products, records and purchases, and remember them. Gives up on the changes of items that cannot be read.

        Args:
            keys: What to read.
            consistent_records: Whether records are read with strong consistency too. Otherwise they are a hint.
        """
        if consistent_records:
            self._read_exactly.update(key for key in keys if isinstance(key, RecordKey))
        try:
            snapshot = read(
                self._client, keys, self.deadline, self.stats, consistent_records=consistent_records
            )
        except StoreError as error:
            if isinstance(error, ThrottledError) and self.known.rows:
                # DynamoDB refuses a read if all of its items are throttled. Products that are already known can still be sold.
                self._do_without(keys, consistent_records=consistent_records)
            else:
                self.pending.fail(error)
            return
        self.has_read_records |= any(isinstance(key, RecordKey) for key in keys)
        self._learn_snapshot(snapshot)
        if snapshot.unprocessed:
            self._do_without(snapshot.unprocessed, consistent_records=consistent_records)

    def _do_without(self, keys: Iterable[Key], *, consistent_records: bool) -> None:
        """Give up on changes whose products could not be read, or whose records were required but could not be read."""
        for left_out in keys:
            words = f"{described(left_out)} could not be read"
            match left_out:
                case str():
                    self.throttled.add(left_out)
                    self.pending.give_up_product(left_out, "UNPROCESSED_KEYS", words)
                case BuyerKey():
                    self.pending.give_up_buyer(left_out, "UNPROCESSED_KEYS")
                case OrderKey() | AdjustmentKey() if consistent_records:
                    stopped = [self.pending.by_key[left_out]]
                    self.pending.give_up(stopped, "UNPROCESSED_KEYS", words)

    def _learn_snapshot(self, snapshot: Snapshot) -> None:
        for product_id, product in snapshot.products.items():
            self.known.learn(product_id, product)
            if product is not None:
                self._cache.observe_read(product)
        self.known.unreadable.update(snapshot.unreadable)
        for key, record in snapshot.records.items():
            self.pending.match(key, record)
        for buyer, found in snapshot.purchases.items():
            if isinstance(found, CorruptItemError):
                self.pending.give_up_buyer(buyer, found.code)
            else:
                self.known.purchases[buyer] = found

    # ------------------------------------------------------------------ items returned by other requests

    def learn_record(self, key: RecordKey, record: Record | CorruptItemError | None) -> bool:
        """Apply a record that a concurrent writer has stored. Returns whether the change, or its replacement, is planned again.

        A change may only return units to the generation of the product that they were taken from. So the rows are read again:
        they have to be newer than the record.
        """
        again = self.pending.match(key, record, has_failed=True)
        for product_id in again.product_ids if again is not None else ():
            self.known.forget(product_id)
        return again is not None

    def blocked(self, found: Supply) -> set[str]:
        """Products that cannot be sold now, because they are leased, throttled, unreadable or avoided."""
        unreadable = {key for key in self.known.unreadable if isinstance(key, str)}
        return (self.leased - found.sources.keys()) | unreadable | self.throttled | self.avoided

    def retry_throttled_last(self) -> None:
        """Try throttled products again once no pending change can do without them."""
        if not any(
            self.throttled.isdisjoint(offer)
            for change in self.pending.values()
            for offer in change.offers
        ):
            self.throttled.clear()

    # ------------------------------------------------------------------ offers

    @property
    def wanted(self) -> list[str]:
        """The products to read: for each pending change, the products of its offers up to the first offer that is not short.

        Throttled products are left out until the throttling is over.
        """
        wanted: dict[str, None] = {}
        for change in self.pending.values():
            for offer in change.offers:
                wanted |= dict.fromkeys(offer)
                if self.short.isdisjoint(offer):
                    break
        return [product_id for product_id in wanted if product_id not in self.throttled]

    def note_short(self, product_ids: Collection[str]) -> bool:
        """Note which products are short. Returns whether a pending change has another offer to try because of that.

        A product that no pending change wants is not noted, because lanes may have enough units of it.
        """
        wanted = (change.lane_units(self.short) for change in self.pending.values())
        new = (set(product_ids) - self.short).intersection(chain.from_iterable(wanted))
        self.short |= new
        return any(
            len(change.offers) > 1 and not new.isdisjoint(change.product_ids)
            for change in self.pending.values()
        )

    def avoid_contested(self) -> bool:
        """Avoid products with recent concurrent writers, and give up on changes that cannot do without them.

        Returns whether this avoids any product that was not avoided before.
        """
        ids, rivals = self.pending.product_ids, self._client.rivals
        contested = {p for p in ids if rivals.has(p, AVOIDED_SECONDS)} - self.avoided
        self.avoided |= contested
        stopped = (
            change
            for change in self.pending.values()
            if not any(map(self.avoided.isdisjoint, change.offers))
        )
        detail = "a concurrent writer changed a product a moment ago"
        self.pending.give_up(stopped, "CONTENTION", detail)
        return bool(contested)

    def written_by_others(self, seconds: float) -> bool:
        """Whether another process wrote a row of this batch in the last `seconds` seconds before it was read."""
        since = timestamp(self._client.clock.now() - timedelta(seconds=seconds))
        return any(
            row is not None and row.last_updated_at > since and self._cache.get(p) is None
            for p, row in self.known.rows.items()
        )

    def mark_unwritable(self, product_id: str, why: str) -> None:
        """Give up on the changes of a product whose row DynamoDB does not accept.

        The product also counts as unreadable from now on, so that its row does not lend to the depot again and again.
        """
        problem = f"DynamoDB does not accept the row of product {in_words(product_id)} ({why}); repair the item"
        self.known.unreadable[product_id] = CorruptItemError(problem, "CORRUPT_PRODUCT")
        self.pending.give_up_product(product_id, "CORRUPT_PRODUCT", problem)

    # ------------------------------------------------------------------ leases

    @property
    def leased(self) -> set[str]:
        """Products under a live lease."""
        return {
            p for p, row in self.known.rows.items() if row is not None and row.lease_left(self.now)
        }

    def lease_waits(self, waiting: Iterable[Waiting]) -> list[float]:
        """How long each change that waits for leases has to wait, in seconds, until one of its offers is free."""
        pending = (offers for change, offers in waiting if self.pending.has(change))
        open_offers = ([o for o in offers if self._end_of(o) is None] for offers in pending)
        waits = (min(map(self.lease_left, offers), default=0.0) for offers in open_offers)
        return [*filter(None, waits)]

    def lease_left(self, offer: Collection[str]) -> float:
        """Seconds until no product of an offer is leased."""
        rows = map(self.known.rows.get, offer)
        return max((row.lease_left(self.now) for row in rows if row is not None), default=0.0)

    def give_up_undecidable(self, change: Change, offers: Sequence[Collection[str]]) -> None:
        """Give up on a change that waits for offers, and on later changes of its group, if waiting is useless for all offers."""
        ends = [end for offer in offers if (end := self._end_of(offer)) is not None]
        if len(ends) == len(offers):
            self.pending.give_up([change], *min(ends, key=itemgetter(2)))

    def _end_of(self, offer: Collection[str]) -> tuple[str, str, float] | None:
        """Why waiting for an offer is useless: a code, a message, and the seconds before a retry makes sense."""
        for problem in (self.known.unreadable[p] for p in offer if p in self.known.unreadable):
            return problem.code, str(problem), 0.0
        left = self.lease_left(offer)
        if left > self.deadline.remaining():
            longest = max(offer, key=lambda product_id: self.lease_left([product_id]))
            return "LEASED", f"{in_words(longest)} is leased for another {left:.1f} s", left
        return None
