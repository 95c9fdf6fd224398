"""Chooses the outbound page for units that leave the warehouse: always the same one, until another process writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from inventory_orders.domain.change import Decision, Transaction, Update
from inventory_orders.domain.outbound import (
    MAX_OUTBOUND_ENTRIES,
    OUTBOUND_KEYS,
    Generation,
    OutboundKey,
    OutboundPage,
)
from inventory_orders.domain.planner import Chain, with_purchases
from inventory_orders.engine.batch import Batch
from inventory_orders.engine.retrying_client import RetryingClient, read_all
from inventory_orders.errors import LeaseHeldError, StoreError
from inventory_orders.sequences import in_portions
from inventory_orders.store.cancellations import Meaning, TransactionCancelledError
from inventory_orders.store.writes import ActionKind

MAX_PAGE_SIZE = 210_000
"""Bytes of a full page with ids of the maximum length."""


class OutboundPages:
    """The outbound pages as this process knows them, and the page that it prefers.

    All pages are read once, and again when no known page has room. If another process has changed a page since, the
    transaction is cancelled, and DynamoDB returns the page.

    Args:
        client: The client for the tables.
    """

    def __init__(self, client: RetryingClient) -> None:
        self._client = client
        self._pages: dict[OutboundKey, OutboundPage] = {}
        self._own: OutboundKey | None = None

    def arrange(self, leaving: Sequence[Decision], batch: Batch) -> Chain:
        """Put hand-overs into transactions that run one after the other. Omits changes for which no page has room.

        Raises:
            StoreError: The pages could not be read.
        """
        is_fresh, limits = not self._pages, batch.limits
        if is_fresh:
            self._read(batch)
        # Each change writes a record and, if units are lost, the rows of its buyers.
        actions = 1 + max(len(decision.change.refunds) for decision in leaving)
        most = min((limits.actions - 1) // actions, limits.changes)
        size = limits.size - MAX_PAGE_SIZE
        portions = in_portions(leaving, most, lambda d: d.change.record_size, size)
        pages = dict(self._pages)
        arranged = [*chain.from_iterable(self._place(some, pages, batch) for some in portions)]
        if not is_fresh and sum(len(one.decisions) for one in arranged) < len(leaving):
            # The sweep may have made room on pages that other processes wrote last.
            self._pages = {}
            return self.arrange(leaving, batch)
        return tuple((with_purchases(one, batch.known.purchases),) for one in arranged)

    def _read(self, batch: Batch) -> None:
        found = read_all(self._client, OUTBOUND_KEYS, batch.deadline, batch.stats).outbound
        self._pages = {key: page for key, page in found.items() if isinstance(page, OutboundPage)}

    def _place(
        self, some: Sequence[Decision], pages: dict[OutboundKey, OutboundPage], batch: Batch
    ) -> Iterator[Transaction]:
        """Put changes into as few transactions as possible, and update `pages` after each."""
        units = Counter[Generation]()
        for decision in some:
            units.update(decision.change.outbound)
        page = self._choose(units, pages)
        if page is None and len(some) > 1:
            half = len(some) // 2
            yield from self._place(some[:half], pages, batch)
            yield from self._place(some[half:], pages, batch)
        elif page is not None:
            after = pages[page.key] = page.plus(units)
            written = tuple(replace(d, change=d.change.written_on(after)) for d in some)
            yield Transaction((), written, outbound=Update(page, after))
        elif min(units.values()) < 0:
            yield from self._add_to_rows(some[0], batch)

    def _add_to_rows(self, decision: Decision, batch: Batch) -> Iterator[Transaction]:
        """Add units that have not left after all to rows, from which the sweep has subtracted them. Deleted rows have none."""
        lots, rows = decision.change.outbound, batch.known.rows
        keys = [lot.product_id for lot in lots]
        batch.read_unknown(keys)
        batch.give_up_undecidable(decision.change, [keys])
        if wait := batch.lease_left(keys):
            why = "a product of the order is being counted"
            batch.pending.give_up([decision.change], LeaseHeldError.code, why, wait)
        elif rows.keys() >= {*keys}:
            back = {
                lot: -units
                for lot, units in lots.items()
                if (row := rows[lot.product_id]) and row.created_at == lot.created_at
            }
            yield Transaction((), (decision,), on_hand=back)

    def _choose(
        self, units: Mapping[Generation, int], pages: Mapping[OutboundKey, OutboundPage]
    ) -> OutboundPage | None:
        """Choose the page that this process prefers, or another page if that one cannot take the units; None if none can."""
        fitting = [
            page
            for page in pages.values()
            if len(page.units) + sum(lot not in page.units for lot in units) <= MAX_OUTBOUND_ENTRIES
            and all(page.units.get(lot, 0) + n >= 0 for lot, n in units.items())
        ]
        if not fitting:
            return None
        other = fitting[int(self._client.policy.random() * len(fitting))]
        page = next((page for page in fitting if page.key == self._own), other)
        self._own = page.key
        return page

    def learn(self, update: Update[OutboundPage], error: StoreError | None) -> None:
        """Remember a page as a transaction left it, or as a cancelled transaction returned it."""
        key = update.after.key
        match error:
            case None:
                self._pages[key] = update.after
            case TransactionCancelledError():
                for reason in error.of(ActionKind.OUTBOUND):
                    match reason.meaning:
                        case Meaning.CONDITION_FAILED if isinstance(reason.found, OutboundPage):
                            self._pages[key] = reason.found
                        case Meaning.RIVAL | Meaning.THROTTLED:
                            self._own = None
                        case Meaning.CONDITION_FAILED | Meaning.INVALID:
                            # The page is corrupt. The other pages are enough until all are read again.
                            self._pages.pop(key, None)
            case _:
                # The transaction may still be applied.
                self._pages = {}
