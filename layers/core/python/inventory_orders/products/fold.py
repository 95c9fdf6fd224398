"""Folds outbound pages: takes the units that have left off what the rows of their products have on hand.

One transaction writes a page, on its version, and the rows of some of its products, each relative and on its generation, so
nothing is read first. Two sweeps at once, and a request that arrives late, are fenced by the page's version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.outbound import (
    OUTBOUND_KEYS,
    Generation,
    OutboundPage,
    OutboundUpdate,
)
from inventory_orders.domain.product import Product
from inventory_orders.engine.retrying_client import (
    CommitStats,
    RetryingClient,
    SweepReport,
    read_all,
)
from inventory_orders.errors import CorruptItemError, RequestInvalidError
from inventory_orders.store.cancellations import (
    CancellationReason,
    Meaning,
    TransactionCancelledError,
)
from inventory_orders.store.writes import ActionKind, fold_action, page_action

# Rows in one transaction, beside the page. With fewer, fewer are lost to an order that writes one of them.
_ROWS = 98

# How often a page is lost to hand-overs before it is left to the next sweep.
_ATTEMPTS = 8

# What a page or a row meets that others are writing, or that is short of capacity.
_AROUND = frozenset({Meaning.RIVAL, Meaning.THROTTLED})


@dataclass(slots=True)
class Fold(SweepReport):
    """One run over all pages.

    Attributes:
        client: Of the tables.
        deadline: When to leave the rest to the next sweep.
        folded: Entries that were taken off pages.
        stats: What the requests took.
    """

    client: RetryingClient
    deadline: Deadline
    folded: int = 0
    stats: CommitStats = field(default_factory=CommitStats)

    def run(self) -> Fold:
        """Fold the fullest pages first, as far as there is time. Entries held up by leases or rivals are left without a note."""
        with self.noting_errors():
            found = read_all(self.client, OUTBOUND_KEYS, self.deadline, self.stats).outbound
            self.problems |= {
                str(page): None for page in found.values() if isinstance(page, CorruptItemError)
            }
            pages = [page for page in found.values() if isinstance(page, OutboundPage)]
            for page in sorted(pages, key=lambda page: -len(page.units)):
                _PageFold(self, page).run()
        return self


@dataclass(slots=True)
class _PageFold:
    """The fold of one page.

    Attributes:
        fold: The run.
        page: As it is stored.
        gone: Generations that are no more: their entries are dropped.
        left: Generations that stay on the page this time.
        losses: How often others wrote the page first.
        most: Rows in one transaction.
    """

    fold: Fold
    page: OutboundPage
    gone: set[Generation] = field(default_factory=set)
    left: set[Generation] = field(default_factory=set)
    losses: int = 0
    most: int = _ROWS

    def run(self) -> None:
        """Fold until nothing is left but what has to stay."""
        fold = self.fold
        while self.losses < _ATTEMPTS:
            rows, gone = self._rows(), self.page.units.keys() & self.gone
            if not rows and not gone:
                return
            now, after = fold.client.clock.now(), self.page.without({*rows.values(), *gone})
            actions = [page_action(OutboundUpdate(self.page, after), timestamp(now))]
            actions += [fold_action(lot, self.page.units[lot], now) for lot in rows.values()]
            try:
                fold.client.write(actions, fold.deadline, fold.stats, plans_around=_AROUND)
            except RequestInvalidError:
                # Other programs have filled rows, and together they exceed the 4 MB of a transaction.
                if len(rows) < 2:
                    raise
                self.most = len(rows) // 2
            except TransactionCancelledError as cancelled:
                self._learn(cancelled, rows)
            else:
                fold.folded += len(self.page.units) - len(after.units)
                self.page = after

    def _rows(self) -> dict[str, Generation]:
        """One generation of each of some products, by product id."""
        lots = self.page.units.keys() - self.left - self.gone
        standing = {lot.product_id: lot for lot in sorted(lots)}
        return dict(list(standing.items())[: self.most])

    def _learn(self, cancelled: TransactionCancelledError, rows: Mapping[str, Generation]) -> None:
        """Learn from what came back with a transaction that was lost.

        Raises:
            TransactionCancelledError: It was lost for another reason than others' writes.
        """
        if Meaning.UNKNOWN in cancelled.meanings:
            raise cancelled
        met = [reason for reason in cancelled.reasons if reason.meaning is not Meaning.NOTHING]
        for reason in met:
            if reason.meaning is Meaning.INVALID:
                problem = f"DynamoDB does not take {reason.action and reason.action.subject} ({reason.message}); repair the item"
                self.fold.problems[problem] = None
            if isinstance(reason.found, CorruptItemError):
                self.fold.problems[str(reason.found)] = None
            if reason.kind is ActionKind.OUTBOUND:
                self._learn_page(reason)
            else:
                self._learn_row(rows[reason.product_id], reason)

    def _learn_page(self, reason: CancellationReason) -> None:
        """Go on from a page that others wrote first. One that was damaged or deleted is left to the next sweep."""
        if isinstance(reason.found, OutboundPage):
            self.page = reason.found
        elif reason.meaning not in _AROUND:
            self.losses = _ATTEMPTS
        self.losses += 1
        self.fold.client.pause(self.fold.client.policy.backoff(self.losses), self.fold.deadline)

    def _learn_row(self, lot: Generation, reason: CancellationReason) -> None:
        """Drop an entry whose generation is gone. Leave one whose row is under a lease, or cannot be written now."""
        found = reason.found
        is_other = isinstance(found, Product) and found.created_at != lot.created_at
        if reason.meaning is Meaning.CONDITION_FAILED and (found is None or is_other):
            self.gone.add(lot)
        else:
            self.left.add(lot)
