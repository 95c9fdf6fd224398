"""Products as a shop shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from inventory_orders.api.access import ApiSettings, Caller
from inventory_orders.api.requests import (
    MAX_LISTED,
    HttpAnswer,
    ProblemError,
    Request,
    limit_of,
    malformed,
    next_page,
    page_with_content,
    place_after,
    read_deadline,
)
from inventory_orders.domain.order_record import OrderRecord
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.invocation import direct
from inventory_orders.invocation.telemetry import logger
from inventory_orders.lanes.observe import StockLevel, estimate_levels, read_level
from inventory_orders.messages.parse import checked_id, not_one_of
from inventory_orders.store.dynamodb import READ_LIMIT, ListPosition, Snapshot

Shown = dict[str, Any]


def get_product(
    request: Request,
    product_id: str,
    client: RetryingClient,
    settings: ApiSettings,
) -> HttpAnswer:
    """One product.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    request.parameters(())
    checked_id("productId", product_id)
    levels, found = _read([product_id], client, settings)
    if product_id in found.unreadable:
        raise found.unreadable[product_id]
    level = levels.get(product_id)
    if level is None:
        raise _unknown_product(product_id)
    # The version alone would not do: it restarts at 1 when a product is deleted and made again, and what lanes sell does
    # not raise it.
    shown, product = shown_product(level, settings), level.product
    etag = f'"{product.version}-{shown.get("units", "")}-{product.created_at}"'
    return HttpAnswer.of_state(request, shown, etag)


def _unknown_product(product_id: str) -> ProblemError:
    return ProblemError(404, "UNKNOWN_PRODUCT", f"there is no product {product_id}")


def get_products(request: Request, client: RetryingClient, settings: ApiSettings) -> HttpAnswer:
    """Several products, which of them there are not, and which cannot be read: the others are shown all the same.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    given = request.parameters(("ids",)).get("ids")
    if not given:
        raise malformed("ids: is missing; name products, such as ids=tea-earl-grey,milk", "ids")
    ids = given.split(",")
    if len(ids) > READ_LIMIT:
        raise malformed(f"ids: may name at most {READ_LIMIT} products, but names {len(ids)}", "ids")
    for product_id in ids:
        checked_id("ids", product_id, "productId")
    ids = list(dict.fromkeys(ids))
    levels, found = _read(ids, client, settings)
    if found.unreadable:
        logger.error(
            "products cannot be read",
            extra={"products": {name: str(error) for name, error in found.unreadable.items()}},
        )
    answer = {
        "products": [
            shown_product(levels[product_id], settings)
            for product_id in ids
            if product_id in levels
        ],
        "unknown": [
            product_id
            for product_id in ids
            if product_id not in levels and product_id not in found.unreadable
        ],
        "unreadable": [product_id for product_id in ids if product_id in found.unreadable],
    }
    return HttpAnswer(200, answer)


def _read(
    ids: Sequence[str], client: RetryingClient, settings: ApiSettings
) -> tuple[dict[str, StockLevel], Snapshot]:
    """Read products, with what lanes hold of them only where it is shown."""
    deadline = read_deadline(client.clock)
    snapshot = read_all(client, ids, deadline, CommitStats())
    if settings.shows_numbers:
        return estimate_levels(client, snapshot, deadline), snapshot
    rows = snapshot.products.values()
    return {row.product_id: StockLevel(row) for row in rows if row is not None}, snapshot


def get_stock(
    request: Request, caller: Caller, product_id: str, client: RetryingClient
) -> HttpAnswer:
    """How many units of a product there are and where, for operators: at one moment, if rivals pause.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    caller.check_may_operate()
    request.parameters(())
    checked_id("productId", product_id)
    level = read_level(client, product_id, read_deadline(client.clock), CommitStats())
    if level is None:
        raise _unknown_product(product_id)
    return HttpAnswer(200, shown_level(level))


def list_stock(request: Request, caller: Caller, client: RetryingClient) -> HttpAnswer:
    """How many units of all products there are, for operators, in no order: an estimate, because units move meanwhile.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    caller.check_may_operate()
    query = request.parameters(("status", "inLanes", "limit", "cursor"))
    status = query.get("status", "ACTIVE")
    if status not in tuple(ProductStatus):
        raise malformed(not_one_of("status", ProductStatus, status), "status")
    if query.get("inLanes", "true") != "true":
        raise malformed("inLanes: must be true, or left out", "inLanes")
    after, limit = place_after(_STOCK, query), limit_of(query)
    deadline = read_deadline(client.clock)

    def read_page(after: ListPosition | None) -> tuple[Shown, ListPosition | None]:
        found, last = client.call(lambda: client.store.list_products(limit, after), deadline)
        levels = estimate_levels(client, found, deadline)
        shown = [
            shown_level(level)
            for level in levels.values()
            if query.get("status", level.product.status) == level.product.status
            and (level.in_lanes or "inLanes" not in query)
        ]
        return {"products": shown, "unreadable": list(found.unreadable)}, last

    shown, last = page_with_content(read_page, after, deadline)
    return HttpAnswer(200, shown | next_page(_STOCK, last))


# Lists have names that no user has.
_STOCK = "#STOCK"


def list_adjustments(
    request: Request, caller: Caller, product_id: str, client: RetryingClient
) -> HttpAnswer:
    """The adjustments of a product, for operators, by their ids; also of products that were delisted.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    caller.check_may_operate()
    query = request.parameters(("limit", "cursor"))
    checked_id("productId", product_id)
    name = f"#ADJUSTMENTS {product_id}"
    after, limit = place_after(name, query), limit_of(query)
    adjustments, last = _adjustments(product_id, limit, after, client)
    return HttpAnswer(200, {"adjustments": adjustments} | next_page(name, last))


def _adjustments(
    product_id: str, limit: int, after: ListPosition | None, client: RetryingClient
) -> tuple[list[Shown], ListPosition | None]:
    rows, last = client.call(
        lambda: client.store.list_adjustments(product_id, limit, after),
        read_deadline(client.clock),
    )
    if not rows and after is None:
        # Each incarnation has its opening.
        raise _unknown_product(product_id)
    return [{name: row[name] for name in _ADJUSTMENT if name in row} for row in rows], last


_ADJUSTMENT = (
    *("adjustmentId", "delta", "reason", "appliedAt", "counted", "actor", "reference"),
    *("productCreatedAt", "productVersion", "rejected", "shortages"),
)


def list_history(
    request: Request, caller: Caller, product_id: str, client: RetryingClient
) -> HttpAnswer:
    """What changed the stock of a product, for operators: first its adjustments, then what orders took and gave back.

    No index has orders by product: all are read, a megabyte at a time.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    caller.check_may_operate()
    query = request.parameters(("cursor",))
    checked_id("productId", product_id)
    name = f"#HISTORY {product_id}"
    after = place_after(name, query)
    deadline = read_deadline(client.clock)

    def read_page(after: ListPosition | None) -> tuple[Shown, ListPosition | None]:
        orders, last = client.call(lambda: client.store.list_all_orders(after), deadline)
        entries, unreadable = list[Shown](), list[str]()
        for order_id, order in orders.items():
            # The units of a line are as they were stored.
            if isinstance(order, OrderRecord) and all(
                isinstance(line.quantity, int) for line in order.lines
            ):
                entries += _moved(order, product_id)
            else:
                unreadable.append(order_id)
        shown = {"entries": entries, "unreadable": unreadable}
        return shown, last and replace(last, at=_AMONG_ORDERS)

    def read_booked(after: ListPosition | None) -> tuple[Shown, ListPosition | None]:
        adjustments, last = _adjustments(product_id, MAX_LISTED, after, client)
        booked = (adjustment for adjustment in adjustments if "rejected" not in adjustment)
        entries = [{"action": "adjust", "at": a.pop("appliedAt", ""), **a} for a in booked]
        return {"entries": entries}, last

    first: Shown = {"entries": []}
    last: ListPosition | None = None
    if after is None or not after.at:
        first, last = page_with_content(read_booked, after, deadline)
        after = None
    shown: Shown = {"entries": [], "unreadable": []}
    if last is None:
        shown, last = page_with_content(read_page, after, deadline)
    return HttpAnswer(
        200, shown | {"entries": first["entries"] + shown["entries"]} | next_page(name, last)
    )


_AMONG_ORDERS = "orders"


def _moved(order: OrderRecord, product_id: str) -> Iterator[Shown]:
    """What an order took of a product, and what it gave back."""
    for line in order.lines:
        if line.product_id != product_id or line.product_created_at is None:
            continue
        of = {"orderId": order.order_id, "productCreatedAt": line.product_created_at}
        taken = {"action": "place", "at": order.created_at, "delta": -line.quantity, **of}
        source = {"productVersion": line.product_version, "lanePage": line.lane_page}
        yield taken | {name: value for name, value in source.items() if value is not None}
        for step in order.steps:
            if product_id in step.returned_versions:
                quantity = (step.quantities or {})[product_id]
                given = {"action": step.action, "at": step.at, "delta": quantity, **of}
                own = {"stepId": step.step_id} if step.step_id else {}
                yield given | {
                    "productVersion": step.returned_versions[product_id],
                    **own,
                    **step.notes,
                }


def shown_level(level: StockLevel) -> Shown:
    """How many units of a product there are, as operators see it."""
    product = level.product
    return {
        **direct.of_product(product),
        "onHand": level.on_hand,
        "lanes": {str(lane): units for lane, units in level.in_lanes.items()},
        "isExact": level.is_exact,
        "lowStockThreshold": product.low_stock_threshold,
        "backorderLimit": product.backorder_limit,
    }


def shown_product(level: StockLevel, settings: ApiSettings) -> Shown:
    """A product as everybody may see it."""
    product = level.product
    shown: Shown = {
        "productId": product.product_id,
        "availability": availability(product),
        "name": product.name,
        "price": product.price,
        "units": max(0, level.on_hand) if settings.shows_numbers else None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def availability(product: Product) -> str:
    """The availability that customers see. Units in lanes do not matter: while there are any, the product is `ACTIVE`."""
    if product.status is ProductStatus.DISCONTINUED:
        return "DISCONTINUED"
    if product.available <= 0:
        return "OUT"
    if product.stock_count <= 0:
        return "BACKORDER"
    return "LOW" if product.status is ProductStatus.LOW_STOCK else "IN_STOCK"
