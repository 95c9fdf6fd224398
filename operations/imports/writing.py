"""Writes products, stock and open orders of an export, each once.

It may be interrupted at any time and run again with the same files: products are recognised by their content, orders by their
ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Event
from typing import Any

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import Change as EngineChange
from inventory_orders.domain.change import IdempotencyMatch
from inventory_orders.domain.location import in_words, public_key
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import ChangeOutcome
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.errors import CorruptItemError, Outcome
from inventory_orders.lanes.levels import estimate_levels
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.messages.commands import order_command
from inventory_orders.store.tables import Table

from ..aws import Aws
from ..catalogue_file import CatalogueFile, Change, Line
from ..file_errors import FileError
from ..load import AGAIN, PATIENCE_SECONDS, POLICY, Load, StoppableClock
from .staging import BAD, OpenOrder, Staging

_TRANSACTIONS_AT_ONCE = 4
_ORDERS_AT_ONCE = 200
_READ_AT_ONCE = 100
_HIDDEN_AT_ONCE = 1000


class Import:
    """Writes an export to the tables of a stack.

    Args:
        staging: What the export says.
        aws: The stack.

    Attributes:
        failed: The number of lines that could not be written.
    """

    def __init__(self, staging: Staging, aws: Aws) -> None:
        self.failed = 0
        self._has_returned = False
        self._staging = staging
        self._aws = aws
        self._store = aws.store()
        self._stop = Event()
        self._clock = StoppableClock(self._stop)

    # ------------------------------------------------------------------ before

    def check(self, bad_products: list[FileError], bad_orders: list[FileError]) -> None:
        """Find what the tables have that the export contradicts, and add it to the bad lines. These products and orders are left out."""
        if self._is_empty(Table.PRODUCTS) and self._is_empty(Table.ORDERS):
            return
        products, orders = list[FileError](), list[FileError]()
        for portion in self._staging.product_lines():
            load = Load(CatalogueFile(creations=portion), self._store)
            load.check()
            products += load.bad
        client = RetryingClient(self._store, POLICY, self._clock)
        waiting = self._staging.orders()
        while batch := list(islice(waiting, _READ_AT_ONCE)):
            orders += self._contradicted(client, batch)
        products += self._short(client)
        for error in products:
            self._staging.set_kind(error.ids["productId"], BAD)
        for error in orders:
            self._staging.drop_order(error.ids["orderId"])
        self._staging.drop_bad()
        bad_products += products
        bad_orders += orders

    def _is_empty(self, table: Table) -> bool:
        found = self._aws.dynamodb.scan(
            TableName=self._aws.tables[table], Limit=1, ConsistentRead=True
        )
        return not found["Items"]

    def _contradicted(
        self, client: RetryingClient, batch: Sequence[OpenOrder]
    ) -> Iterator[FileError]:
        """Find orders whose ids other orders have, or which were rejected before. Notes those that are stored."""
        keys = [each.order.record_key for each in batch]
        found = read_all(client, keys, self._soon(), CommitStats(), consistent_records=True).records
        for each in batch:
            stored, order_id = found.get(each.order.record_key), each.order.order_id
            if fault := _contradiction(each, stored):
                yield FileError(each.line, *fault, {"orderId": order_id})
            elif stored is not None:
                self._staging.note_stored(order_id)

    def _short(self, client: RetryingClient) -> Iterator[FileError]:
        """Find products that are listed, but have too few units for the orders that are not stored."""
        levels = self._staging.needed()
        while batch := list(islice(levels, _READ_AT_ONCE)):
            found = read_all(client, [key for key, _, _ in batch], self._soon(), CommitStats())
            known = estimate_levels(client, found, self._soon())
            for key, line, units in batch:
                if key not in known:
                    continue
                level = known[key]
                left = level.available + level.product.backorder_limit - level.product.safety_stock
                if left < units:
                    message = f"{in_words(key)} has only {left:,} of the {units:,} units that open orders need"
                    ids = public_key(key)
                    yield FileError(line, "INSUFFICIENT_STOCK", message, ids)

    # ------------------------------------------------------------------ write

    def write_products(
        self, bad_products: list[FileError], on_progress: Callable[[int], None]
    ) -> None:
        """Write products, and add those that fail to the bad lines. `on_progress` is called with the number of products done."""
        for portion in self._staging.product_lines():
            bad_products += self._load(CatalogueFile(creations=portion))
            on_progress(sum(not line.ids.get("locationId") for line in portion))

    def place_orders(
        self,
        bad_products: list[FileError],
        bad_orders: list[FileError],
        on_progress: Callable[[int], None],
    ) -> None:
        """Place orders after all products are written, and add those that fail to the bad lines.

        Products that the other shop does not sell are discontinued at the end. `on_progress` is called with the number of
        orders done.
        """
        self._place_orders(bad_orders, on_progress)
        if self._has_returned:
            # The next import still has to place orders, which discontinued products would reject for good.
            return
        hidden = self._staging.hidden()
        while batch := list(islice(hidden, _HIDDEN_AT_ONCE)):
            status = {"status": ProductStatus.DISCONTINUED}
            changes = [Line(line, Change(key, {}, status, "", "")) for line, key in batch]
            bad_products += self._load(CatalogueFile(changes=changes))

    def _load(self, file: CatalogueFile) -> list[FileError]:
        load = Load(file, self._store)
        load.run()
        self.failed += len(load.bad)
        return load.bad

    def _place_orders(
        self, bad_orders: list[FileError], on_progress: Callable[[int], None]
    ) -> None:
        """Place orders, batch by batch: a second engine would only contend for the same products."""
        orders = self._staging.orders()
        with ThreadPoolExecutor(_TRANSACTIONS_AT_ONCE) as pool:
            try:
                while batch := list(islice(orders, _ORDERS_AT_ONCE)):
                    # A new one each time, because an engine remembers thousands of products.
                    engine = engine_with_lanes(self._store, POLICY, self._clock, pool)
                    bad = self._place(engine, batch)
                    bad_orders.extend(bad)
                    self.failed += len(bad)
                    on_progress(len(batch))
            except BaseException:
                # This also applies after Ctrl-C: transactions in flight finish, and none waits to be repeated.
                self._stop.set()
                raise

    def _place(self, engine: Engine, batch: Sequence[OpenOrder]) -> list[FileError]:
        """Place orders, confirm those that are paid, and return the errors of the others."""
        bad = dict(self._apply(engine, batch, [each.order for each in batch]))
        paid = [each for each in batch if each.is_paid and each.line not in bad]
        confirmations = [
            order_command({"action": "confirm", "orderId": each.order.order_id}) for each in paid
        ]
        bad |= self._apply(engine, paid, confirmations)
        return list(bad.values())

    def _apply(
        self, engine: Engine, batch: Sequence[OpenOrder], changes: Sequence[EngineChange]
    ) -> Iterator[tuple[int, FileError]]:
        """Apply one change for each order, and yield line and error of those that fail."""
        report = engine.apply(changes, self._soon())
        if report.failure is not None:
            raise report.failure
        for each, outcome in zip(batch, report.outcomes, strict=True):
            self._has_returned |= outcome.kind is Outcome.RETURNED
            if outcome.kind not in (Outcome.APPLIED, Outcome.REPLAYED):
                yield each.line, _error(each, outcome)

    def _soon(self) -> Deadline:
        return Deadline.after(PATIENCE_SECONDS, self._clock)


def _error(each: OpenOrder, outcome: ChangeOutcome) -> FileError:
    may_succeed = f"; {AGAIN}" if outcome.kind is Outcome.RETURNED else ""
    message = f"{outcome.detail or outcome.cause}{may_succeed}"
    return FileError(each.line, outcome.cause, message, {"orderId": each.order.order_id})


def _contradiction(each: OpenOrder, stored: Any) -> tuple[str, str] | None:
    if stored is None:
        return None
    if isinstance(stored, CorruptItemError):
        return stored.code, str(stored)
    if each.order.match(stored) is not IdempotencyMatch.SAME_REQUEST:
        return "ORDER_ID_REUSED", f"there is another order {each.order.order_id}"
    if isinstance(stored, OrderRecord) and stored.status == OrderStatus.REJECTED:
        return "ORDER_REJECTED", f"the order was rejected before ({stored.reason}), and stays so"
    return None
