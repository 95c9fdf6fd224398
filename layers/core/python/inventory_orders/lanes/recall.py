"""Recalls units from lanes to the depot, and reclaims them to their rows.

A recall consists of a few transactions, each conditioned on the versions of everything that it writes: the rows, the
depot's pages, and the pages of every lane that loses the product. If a lane sells during the recall, a transaction fails.
Its cancellation returns the page, so the next attempt needs no read. Every second attempt leaves out such lanes, because
their owners are active and come to the depot by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from inventory_orders.clock import Deadline
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, LaneLease, PageKey
from inventory_orders.domain.change import Transaction, Update
from inventory_orders.domain.location import in_words
from inventory_orders.domain.planner import Limits
from inventory_orders.domain.product import Product
from inventory_orders.engine.batch import Known
from inventory_orders.engine.retrying_client import CommitStats, read_all
from inventory_orders.errors import CorruptItemError, ThrottledError
from inventory_orders.lanes.depot import Depot
from inventory_orders.sequences import in_portions
from inventory_orders.store.cancellations import (
    CancellationReason,
    Meaning,
    TransactionCancelledError,
)
from inventory_orders.store.rows import described
from inventory_orders.store.writes import Action, ActionKind, transaction_actions

_ATTEMPTS = 4

# Maximum number of lanes in one transaction, so that there is room for the rows of several products, or for the caller's
# actions: a product that gets another name and other barcodes has up to 24 words and 40 barcodes in all.
_LANES_TOGETHER, _LANES_WITH_CALLER, _OF_CALLER = 80, 30, 64


def reclaim(
    depot: Depot,
    products: Iterable[Product],
    deadline: Deadline,
    stats: CommitStats,
    owner: str | None = None,
    change: Callable[[Update[Product]], Sequence[Action]] | None = None,
) -> Known:
    """Move all units of products to their rows.

    Skips products without `lent_to`, and those under another owner's lease that lasts past the deadline.

    Args:
        depot: The depot, whose lease this takes and releases.
        products: The products as read by the caller.
        owner: See `Recall`.
        change: See `Recall`.

    Raises:
        CorruptItemError: A page or a row breaks its table's contract. Everything that does not depend on it was done.
        ThrottledError: No time was left, or every attempt failed because of concurrent writers.
        StoreError: DynamoDB failed. Some of the units may have been moved.
    """
    done, client, visits = Known(), depot.client, 0
    wanted = [product for product in products if product.lent_to]
    while wanted:
        depot.acquire(deadline, stats)
        visit = Recall(depot, deadline, stats, True, owner, change, ends_visit=True)
        try:
            recalled = visit.run([row.product_id for row in wanted], _lanes_of(wanted))
        finally:
            depot.release(deadline, stats)
        done.rows |= recalled.rows
        done.pages |= recalled.pages
        wanted = [row for row in recalled.lent.values() if visit.is_free(row)]
        visits += 1
        if wanted and not client.pause(client.policy.backoff(visits), deadline):
            ids = ", ".join(sorted(in_words(row.product_id) for row in wanted))
            raise ThrottledError("CONTENTION", f"no time was left to reclaim {ids}")
    return done


@dataclass(slots=True)
class Recall:
    """One recall: moves the units of products from lanes to the depot, or on to their rows.

    Skips products that are gone, throttled, or under another owner's live lease.

    Attributes:
        depot: The depot, whose lease this process has.
        deadline: When to give up.
        stats: The cost.
        to_row: Whether the rows reclaim the units from the depot.
        owner: The owner of the caller's lease on the products. The lease is kept, and its fence renewed.
        change: Builds the caller's own writes. They join the transaction that reclaims a product's units, so that no lane is
            filled between the two. One of them has to replace the row's update, which is passed in.
        ends_visit: Whether the last transaction releases the depot's lease.
        known: The known rows and pages.
        problems: Why products were left out of the last attempt.
        busy: Lanes that were written during the last attempt.
        throttled: Products whose rows are throttled.
    """

    depot: Depot
    deadline: Deadline
    stats: CommitStats
    to_row: bool = False
    owner: str | None = None
    change: Callable[[Update[Product]], Sequence[Action]] | None = None
    ends_visit: bool = False
    known: Known = field(default_factory=Known)
    problems: list[CorruptItemError] = field(default_factory=list)
    busy: set[int] = field(default_factory=set)
    throttled: set[str] = field(default_factory=set)

    def run(self, product_ids: Collection[str], lanes: Iterable[int]) -> Known:
        """Recall products in a limited number of attempts.

        Args:
            product_ids: The products.
            lanes: Lanes that the caller expects to hold them. Their pages are read together with the rows.

        Raises:
            CorruptItemError: A page or a row breaks its table's contract. Everything that does not depend on it was done.
            ThrottledError: Every attempt failed because of concurrent writers or throttling.
            StoreError: DynamoDB failed. Some of the units may have been moved.
        """
        self.stats.measured["Recalls"].append(1)
        hints = [PageKey.of(lane, p) for lane in {DEPOT, *lanes} for p in product_ids]
        for attempt in range(_ATTEMPTS):
            self._read([*product_ids, *hints])
            rows = self._rows_to_recall()
            hints = _pages_of(rows)
            self._read(hints)
            avoid = self.busy if attempt % 2 else frozenset[int]()
            if transactions := self._plan(rows, avoid):
                self._commit(transactions)
            elif not self.problems and not avoid:
                break
        if self.problems:
            raise self.problems[0]
        return self.known

    def _plan(self, rows: Sequence[Product], avoid: Collection[int]) -> list[Transaction]:
        """The transactions that recall products from all lanes except those to avoid. Notes why others cannot be recalled."""
        allocation = Allocation(self.known.rows, self.known.pages.values(), self.owner)
        found = {row.product_id: self._problem(row, allocation) for row in rows}
        self.problems = [problem for problem in found.values() if problem is not None]
        sound = [row for row in rows if found[row.product_id] is None]
        return list(self._transactions(allocation, sound, avoid))

    def is_free(self, row: Product) -> bool:
        """Whether no other owner has a lease on a product."""
        now = self.depot.client.clock.now().timestamp()
        is_own = self.owner is not None and row.is_fenced_by(self.owner)
        return is_own or row.lease_left(now) <= 0

    def _rows_to_recall(self) -> list[Product]:
        """The products that lanes may hold, if their rows may be written."""
        stays = frozenset() if self.to_row else frozenset({DEPOT})
        return [
            row
            for row in self.known.rows.values()
            if row is not None
            and row.lent_to - stays
            and row.product_id not in self.throttled
            and self.is_free(row)
        ]

    def _problem(self, row: Product, allocation: Allocation) -> CorruptItemError | None:
        """Why a product cannot be recalled: a corrupt item, or a page with units of another generation.

        In the latter case the page may be older than the row, or the reverse, so both are read again.
        """
        pages = _pages_of([row])
        for place in (row.product_id, *pages):
            if place in self.known.unreadable:
                return self.known.unreadable[place]
        for key in pages:
            held = allocation.entry(key.lane, row.product_id)
            if held.units and held.created_at != row.created_at:
                self.known.forget(key)
                self.known.forget(row.product_id)
                return CorruptItemError(
                    f"page {key} holds {held.units} units of a generation of {in_words(row.product_id)} that was created at "
                    f"{held.created_at} and no longer exists; repair the item",
                    "CORRUPT_PAGE",
                )
        return None

    # ------------------------------------------------------------------ reading

    def _read(self, keys: Iterable[str | PageKey]) -> None:
        """Read the items that are not known yet."""
        if wanted := self.known.unknown(keys):
            found = read_all(self.depot.client, wanted, self.deadline, self.stats)
            for key, item in (found.products | found.unreadable | found.pages).items():
                self.known.learn(key, item)

    # ------------------------------------------------------------------ writing

    def _transactions(
        self, allocation: Allocation, rows: Sequence[Product], avoid: Collection[int]
    ) -> Iterator[Transaction]:
        """The transactions of a recall. Each builds on the previous ones and has as many whole products as fit."""
        for product_id, lanes in _pieces(allocation, rows, avoid, self.change is not None):
            row = allocation.row(product_id)
            mine = sorted(row.lent_to.intersection(lanes))
            is_reclaimed = self.to_row and set() < row.lent_to <= {DEPOT, *lanes}
            if not mine and not is_reclaimed:
                continue
            if not is_reclaimed and not row.may_be_lent:
                self.problems.append(
                    CorruptItemError(
                        f"product {in_words(product_id)} is in lanes, but its row is {row.status.value} with "
                        f"{row.stock_count} in stock; repair the item",
                        "CORRUPT_PRODUCT",
                    )
                )
                continue
            if self._is_full(allocation, product_id, mine):
                yield allocation.drain()
            allocation.recall(product_id, mine)
            if is_reclaimed:
                allocation.reclaim(product_id)
        if allocation.touched:
            yield allocation.drain()

    def _is_full(self, allocation: Allocation, product_id: str, lanes: Iterable[int]) -> bool:
        """Whether the transaction that is being filled has no room for the recall of a product."""
        pages = (PageKey.of(lane, product_id) for lane in (DEPOT, *lanes))
        places, limits = {*allocation.touched, product_id, *pages}, Limits()
        of_caller = _OF_CALLER if self.change is not None else 0
        actions = len(places) + of_caller + (self._release() is not None)
        is_over = actions > limits.actions or allocation.size(places) > limits.size
        return is_over and bool(allocation.touched)

    def _release(self) -> LaneLease | None:
        """The depot's lease, if the last transaction has to release it."""
        return self.depot.lease if self.ends_visit else None

    def _commit(self, transactions: Sequence[Transaction]) -> None:
        """Send transactions in sequence, up to the first lost one. The last one releases the lease."""
        for transaction in transactions:
            release = self._release() if transaction is transactions[-1] else None
            try:
                self.depot.client.write(
                    self._actions(replace(transaction, release=release)),
                    self.deadline,
                    self.stats,
                    plans_around={Meaning.THROTTLED},
                )
            except TransactionCancelledError as cancelled:
                self._learn(cancelled)
                self.depot.client.pause(self.depot.client.policy.backoff(1), self.deadline)
                return
            self.known.rows.update((row.after.product_id, row.after) for row in transaction.updates)
            self.known.pages.update((page.after.key, page.after) for page in transaction.pages)
            if release is not None:
                self.depot.lease = None

    def _actions(self, transaction: Transaction) -> list[Action]:
        """The actions of a transaction, with the caller's actions for the rows that reclaim their units."""
        actions = transaction_actions(transaction, self.depot.client.clock.now())
        if self.change is None:
            return actions
        reclaimed = [update for update in transaction.updates if not update.after.lent_to]
        own = [action for update in reclaimed for action in self.change(update)]
        replaced = {update.after.product_id for update in reclaimed}
        return [action for action in actions if action.subject not in replaced] + own

    def _learn(self, cancelled: TransactionCancelledError) -> None:
        """Keep the items that a cancelled transaction returned.

        Raises:
            ThrottledError: DynamoDB returned no items.
            TransactionCancelledError: Access was denied, or the reason is unknown.
            CorruptItemError: The list of places in the row of the caller's product is corrupt.
            RejectedError: One of the caller's barcodes belongs to another product.
        """
        throttled = {
            reason.product_id
            for reason in cancelled.of(ActionKind.PRODUCT)
            if reason.meaning is Meaning.THROTTLED
        }
        self.throttled |= throttled
        if cancelled.may_be_repeated and not throttled:
            raise ThrottledError(
                "CONTENTION",
                "every attempt met concurrent writers or throttling",
                cancelled.limits,
            ) from cancelled
        if Meaning.UNKNOWN in cancelled.meanings:
            raise cancelled
        cancelled.check_other_rows()
        self.busy = set()
        for reason in cancelled.reasons:
            self._learn_reason(reason)

    def _learn_reason(self, reason: CancellationReason) -> None:
        """Remember the row, page or lease that DynamoDB returned for a failed action."""
        match reason.meaning, reason.action.subject:
            case Meaning.INVALID, (str() | PageKey()) as key:
                self.known.unreadable[key] = CorruptItemError(
                    f"DynamoDB does not accept {described(key)} ({reason.message}); repair the item",
                    "CORRUPT_PAGE" if isinstance(key, PageKey) else "CORRUPT_PRODUCT",
                )
            case Meaning.CONDITION_FAILED, (str() | PageKey()) as key:
                self.known.learn(key, reason.found)
                if isinstance(key, PageKey) and key.lane != DEPOT:
                    self.busy.add(key.lane)
            case Meaning.CONDITION_FAILED, int():
                # Another visitor has taken the lease. A failed record of the caller does not mean that.
                self.depot.lease = None


def _pieces(
    allocation: Allocation, rows: Sequence[Product], avoid: Collection[int], has_caller: bool
) -> Iterator[tuple[str, Collection[int]]]:
    """Split products and lanes by page, and lanes into groups that leave room for the depot's page, the rows, and a caller."""
    most = _LANES_WITH_CALLER if has_caller else _LANES_TOGETHER
    by_number: dict[int, list[Product]] = {}
    for row in rows:
        by_number.setdefault(PageKey.of(DEPOT, row.product_id).number, []).append(row)
    for number, of_page in by_number.items():
        sizes = {
            lane: allocation.size([PageKey(lane, number)])
            for lane in sorted(_lanes_of(of_page) - {DEPOT, *avoid})
        }
        portions = in_portions(sizes, most, sizes.__getitem__, Limits().size // 2)
        for lanes in portions or [[]]:
            yield from ((row.product_id, lanes) for row in of_page)


def _lanes_of(rows: Iterable[Product]) -> set[int]:
    """The lanes that may hold units of these products."""
    return {lane for row in rows for lane in row.lent_to}


def _pages_of(rows: Iterable[Product]) -> list[PageKey]:
    """The pages that may hold units of these products."""
    return [
        *dict.fromkeys(
            PageKey.of(lane, row.product_id) for row in rows for lane in row.lent_to | {DEPOT}
        )
    ]
