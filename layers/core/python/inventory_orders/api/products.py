"""Products as a shop shows them, and their stock as operators see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from inventory_orders.api.requests import (
    MAX_LISTED,
    HttpAnswer,
    Listed,
    Request,
    answer_with_page,
    filled_page,
    limit_of,
    malformed,
    reading,
)
from inventory_orders.api.serving import ApiSettings, Caller
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.record import OrderRecord
from inventory_orders.engine.retrying_client import CommitStats, read_all
from inventory_orders.errors import PoisonMessageError, ProductNotFoundError
from inventory_orders.invocation import direct
from inventory_orders.invocation.telemetry import logger
from inventory_orders.lanes.levels import StockLevel, estimate_levels, read_level
from inventory_orders.messages.documents import checked_id, not_one_of
from inventory_orders.store import lists
from inventory_orders.store.dynamodb import READ_LIMIT, Snapshot
from inventory_orders.store.lists import ListPosition
from inventory_orders.store.rows import drop_none

Shown = dict[str, Any]


def get_product(request: Request, _: Caller) -> HttpAnswer:
    """Show one product.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    request.parameters(())
    product_id = request.id_of("productId")
    levels, found = _read([product_id])
    if product_id in found.unreadable:
        raise found.unreadable[product_id]
    if product_id not in levels:
        raise ProductNotFoundError(f"there is no product {product_id}")
    # The version alone would not do: it restarts at 1 when a product is deleted and made again, and what lanes sell does
    # not raise it.
    shown, product = shown_product(levels[product_id]), levels[product_id].product
    etag = f'"{product.version}-{shown.get("units", "")}-{product.created_at}"'
    return HttpAnswer.of_state(request, shown, etag)


def get_products(request: Request, _: Caller) -> HttpAnswer:
    """Show several products. Those that do not exist or cannot be read are listed separately.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    ids = _ids_of(request)
    levels, found = _read(ids)
    if found.unreadable:
        problems = {name: str(error) for name, error in found.unreadable.items()}
        logger.error("products cannot be read", extra={"products": problems})
    known = levels.keys() | found.unreadable.keys()
    answer = {
        "products": [shown_product(levels[each]) for each in ids if each in levels],
        "unknown": [each for each in ids if each not in known],
        "unreadable": [each for each in ids if each in found.unreadable],
    }
    return HttpAnswer(200, answer)


def _ids_of(request: Request) -> list[str]:
    """The products that a query names, each once.

    Raises:
        PoisonMessageError: It names none, or too many, or one of them can be no id.
    """
    given = request.parameters(("ids",)).get("ids")
    if not given:
        raise malformed("ids", "is missing; name products, such as ids=tea-earl-grey,milk")
    ids = given.split(",")
    if len(ids) > READ_LIMIT:
        raise malformed("ids", f"may name at most {READ_LIMIT} products, but names {len(ids)}")
    return list(dict.fromkeys(checked_id("ids", each, "productId") for each in ids))


def _read(ids: Sequence[str]) -> tuple[dict[str, StockLevel], Snapshot]:
    """Read products, with what lanes hold of them only where it is shown."""
    client, deadline = reading()
    snapshot = read_all(client, ids, deadline, CommitStats())
    if ApiSettings.from_environment().shows_numbers:
        return estimate_levels(client, snapshot, deadline, on_hand=False), snapshot
    return {id_: StockLevel(row) for id_, row in snapshot.products.items() if row}, snapshot


def get_stock(request: Request, caller: Caller) -> HttpAnswer:
    """Show operators how many units of a product there are and where: at one moment, if rivals pause.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    caller.check_may_operate()
    request.parameters(())
    product_id = request.id_of("productId")
    client, deadline = reading()
    level = read_level(client, product_id, deadline, CommitStats())
    if level is None:
        raise ProductNotFoundError(f"there is no product {product_id}")
    return HttpAnswer(200, shown_level(level))


def list_stock(request: Request, caller: Caller) -> HttpAnswer:
    """List for operators how many units of all products there are, in no order: an estimate, because units move while it reads.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    caller.check_may_operate()
    query = request.parameters(("status", "inLanes", "limit", "cursor"))
    status = query.get("status", "ACTIVE")
    if status not in tuple(ProductStatus):
        raise PoisonMessageError(
            "SCHEMA_VIOLATION", not_one_of("status", ProductStatus, status), "status"
        )
    if query.get("inLanes", "true") != "true":
        raise malformed("inLanes", "must be true, or left out")
    limit = limit_of(query)
    client, deadline = reading()

    def read_page(after: ListPosition | None) -> Listed:
        found, last = client.call(lambda: lists.list_products(client.store, limit, after), deadline)
        levels = estimate_levels(client, found, deadline)
        shown = [
            shown_level(level)
            for level in levels.values()
            if query.get("status", level.product.status) == level.product.status
            and (level.in_lanes or "inLanes" not in query)
        ]
        return {"products": shown, "unreadable": list(found.unreadable)}, last

    # Lists have names that no user has.
    return answer_with_page("#STOCK", query, read_page, deadline)


def list_adjustments(request: Request, caller: Caller) -> HttpAnswer:
    """List for operators the adjustments of a product, by their ids; also of products that were delisted.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    caller.check_may_operate()
    query = request.parameters(("limit", "cursor"))
    product_id, limit = request.id_of("productId"), limit_of(query)
    _, deadline = reading()

    def read_page(after: ListPosition | None) -> Listed:
        adjustments, last = _adjustments(product_id, limit, after)
        return {"adjustments": adjustments}, last

    return answer_with_page(f"#ADJUSTMENTS {product_id}", query, read_page, deadline)


def _adjustments(
    product_id: str, limit: int, after: ListPosition | None
) -> tuple[list[Shown], ListPosition | None]:
    client, deadline = reading()
    rows, last = client.call(
        lambda: lists.list_adjustments(client.store, product_id, limit, after), deadline
    )
    if not rows and after is None:
        # Each incarnation has its opening.
        raise ProductNotFoundError(f"there is no product {product_id}")
    return [{name: row[name] for name in _ADJUSTMENT if name in row} for row in rows], last


_ADJUSTMENT = (
    *("adjustmentId", "delta", "reason", "appliedAt", "counted", "actor", "reference"),
    *("productCreatedAt", "productVersion", "rejected", "shortages"),
)


def list_history(request: Request, caller: Caller) -> HttpAnswer:
    """List for operators what changed the stock of a product: first its adjustments, then what orders took and gave back.

    No index has orders by product: all are read, a megabyte at a time.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    caller.check_may_operate()
    query = request.parameters(("cursor",))
    product_id = request.id_of("productId")
    client, deadline = reading()

    def read_page(after: ListPosition | None) -> Listed:
        booked = list[Shown]()
        if after is None or not after.at:
            adjustments, after = _adjustments(product_id, MAX_LISTED, after)
            booked = [
                {"action": "adjust", "at": adjustment.pop("appliedAt", ""), **adjustment}
                for adjustment in adjustments
                if "rejected" not in adjustment
            ]
            if after is not None:
                return {"entries": booked, "unreadable": []}, after
        shown, last = filled_page(after, read_orders, deadline)
        return shown | {"entries": booked + shown["entries"]}, last

    def read_orders(after: ListPosition | None) -> Listed:
        entries, unreadable = list[Shown](), list[str]()
        orders, last = client.call(lambda: lists.list_all_orders(client.store, after), deadline)
        for order_id, order in orders.items():
            # The units of a line are as they were stored.
            if isinstance(order, OrderRecord) and all(
                isinstance(line.quantity, int) for line in order.lines
            ):
                entries += _moved(order, product_id)
            else:
                unreadable.append(order_id)
        return {"entries": entries, "unreadable": unreadable}, last and replace(last, at="orders")

    return answer_with_page(f"#HISTORY {product_id}", query, read_page, deadline)


def _moved(order: OrderRecord, product_id: str) -> Iterator[Shown]:
    """What an order took of a product, and what it gave back."""
    for line in order.lines:
        if line.product_id != product_id or line.product_created_at is None:
            continue
        of = {"orderId": order.order_id, "productCreatedAt": line.product_created_at}
        yield drop_none(
            {
                "action": "place",
                "at": order.created_at,
                "delta": -line.quantity,
                **of,
                "productVersion": line.product_version,
                "lanePage": line.lane_page,
            }
        )
        for step in order.steps:
            if product_id in step.restocked_versions:
                yield drop_none(
                    {
                        "action": step.action,
                        "at": step.at,
                        "delta": (step.quantities or {})[product_id],
                        **of,
                        "productVersion": step.restocked_versions[product_id],
                        "stepId": step.step_id or None,
                        **step.notes,
                    }
                )


def shown_level(level: StockLevel) -> Shown:
    """How many units of a product there are, as operators see it."""
    product = level.product
    return {
        **direct.of_product(product),
        "onHand": level.on_hand,
        "committed": level.committed,
        "available": level.available,
        "inLanes": {str(lane): units for lane, units in level.in_lanes.items()},
        "isExact": level.is_exact,
        "lowStockThreshold": product.low_stock_threshold,
        "backorderLimit": product.backorder_limit,
    }


def shown_product(level: StockLevel) -> Shown:
    """A product as everybody may see it."""
    product, settings = level.product, ApiSettings.from_environment()
    return drop_none(
        {
            "productId": product.product_id,
            "availability": availability(product),
            "name": product.name,
            "price": product.price,
            "units": max(0, level.available) if settings.shows_numbers else None,
        }
    )


def availability(product: Product) -> str:
    """The availability that customers see. Units in lanes do not matter: while there are any, the product is `ACTIVE`."""
    if product.status is ProductStatus.DISCONTINUED:
        return "DISCONTINUED"
    if product.sellable <= 0:
        return "OUT"
    if product.stock_count <= 0:
        return "BACKORDER"
    return "LOW" if product.status is ProductStatus.LOW_STOCK else "IN_STOCK"
