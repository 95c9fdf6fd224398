"""Folds outbound pages: subtracts the units that have left from the units on hand in their products' rows.

One transaction writes a page and the rows of some of its products. The page's version fences concurrent sweeps and late
requests. The updates of rows are relative and conditioned on the generation, so the rows are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.change import Update
from inventory_orders.domain.outbound import (
    OUTBOUND_KEYS,
    Generation,
    OutboundPage,
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
from inventory_orders.store.rows import described
from inventory_orders.store.writes import ActionKind, fold_action, page_action

# Maximum number of rows in one transaction. The fewer there are, the fewer have to wait if an order writes one of them first.
_ROWS = 98

# How often hand-overs may write a page first before its fold is left to the next sweep.
_ATTEMPTS = 8

# Cancellation reasons that mean a concurrent writer or short capacity.
_AROUND = frozenset({Meaning.RIVAL, Meaning.THROTTLED})


@dataclass(slots=True)
class Fold(SweepReport):
    """One fold of all outbound pages.

    Attributes:
        client: The client for the tables.
        deadline: When to leave the rest to the next sweep.
        folded: Number of entries removed from pages.
    """

    client: RetryingClient
    deadline: Deadline
    folded: int = 0

    def run(self) -> Fold:
        """Fold the fullest pages first, until the deadline. Leased and contended products stay on their pages."""
        with self.noting_errors():
            found = read_all(self.client, OUTBOUND_KEYS, self.deadline, CommitStats()).outbound
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
        fold: The fold of all pages.
        page: The page as stored.
        gone: Deleted generations, whose entries are dropped.
        left: Generations whose entries stay on the page until the next sweep.
        losses: How often another process wrote the page first.
        most: Maximum number of rows in one transaction.
    """

    fold: Fold
    page: OutboundPage
    gone: set[Generation] = field(default_factory=set)
    left: set[Generation] = field(default_factory=set)
    losses: int = 0
    most: int = _ROWS

    def run(self) -> None:
        """Fold the page until it only has entries that must stay."""
        fold = self.fold
        while self.losses < _ATTEMPTS:
            rows, gone = self._rows(), self.page.units.keys() & self.gone
            if not rows and not gone:
                return
            now, after = fold.client.clock.now(), self.page.without({*rows.values(), *gone})
            actions = [page_action(Update(self.page, after), timestamp(now))]
            actions += [fold_action(lot, self.page.units[lot], now) for lot in rows.values()]
            try:
                fold.client.write(actions, fold.deadline, CommitStats(), plans_around=_AROUND)
            except RequestInvalidError:
                # Other programs have made rows so large that together they exceed the 4 MB of a transaction.
                if len(rows) < 2:
                    raise
                self.most = len(rows) // 2
            except TransactionCancelledError as cancelled:
                self._learn(cancelled, rows)
            else:
                fold.folded += len(self.page.units) - len(after.units)
                self.page = after

    def _rows(self) -> dict[str, Generation]:
        """The next entries to fold: one generation per product, by product id."""
        lots = self.page.units.keys() - self.left - self.gone
        standing = {lot.product_id: lot for lot in sorted(lots)}
        return dict(list(standing.items())[: self.most])

    def _learn(self, cancelled: TransactionCancelledError, rows: dict[str, Generation]) -> None:
        """Learn from the items that a cancelled transaction returned.

        Raises:
            TransactionCancelledError: Access was denied, or the reason is unknown.
        """
        if Meaning.UNKNOWN in cancelled.meanings:
            raise cancelled
        met = [reason for reason in cancelled.reasons if reason.meaning is not Meaning.NOTHING]
        for reason in met:
            if reason.meaning is Meaning.INVALID:
                place = described(reason.action.subject)
                problem = f"DynamoDB does not accept {place} ({reason.message}); repair the item"
                self.fold.problems[problem] = None
            if isinstance(reason.found, CorruptItemError):
                self.fold.problems[str(reason.found)] = None
            if reason.action.kind is ActionKind.OUTBOUND:
                self._learn_page(reason)
            else:
                self._learn_row(rows[reason.product_id], reason)

    def _learn_page(self, reason: CancellationReason) -> None:
        """Continue from a page that another process wrote first. A corrupt or deleted page is left to the next sweep."""
        if isinstance(reason.found, OutboundPage):
            self.page = reason.found
        elif reason.meaning not in _AROUND:
            self.losses = _ATTEMPTS
        self.losses += 1
        self.fold.client.pause(self.fold.client.policy.backoff(self.losses), self.fold.deadline)

    def _learn_row(self, lot: Generation, reason: CancellationReason) -> None:
        """Drop an entry if its generation was delisted. Leave it if the row is leased or cannot be written now."""
        found = reason.found
        is_other = isinstance(found, Product) and found.created_at != lot.created_at
        if reason.meaning is Meaning.CONDITION_FAILED and (found is None or is_other):
            self.gone.add(lot)
        else:
            self.left.add(lot)
