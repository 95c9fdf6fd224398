"""Answers the HTTP API for orders, products and stock."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from inventory_orders.api import barcodes, orders, products, staff
from inventory_orders.api.requests import is_request
from inventory_orders.api.serving import Route, serve
from inventory_orders.domain.record import OrderAction
from inventory_orders.invocation import runtime
from inventory_orders.invocation.telemetry import logger, metrics

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("store", "engine", "engine_for_callers", "order_queue", "express_queue")

_PAGE = ("limit", "cursor")
_TIMES = ("from", "to")

_ROUTES = {
    "GET /about": Route(staff.get_about),
    "GET /today": Route(staff.get_today),
    "GET /changes": Route(staff.list_changes, ("since",)),
    "POST /orders": Route(orders.place_order),
    "GET /orders": Route(
        orders.list_orders,
        (
            *("userId", "status", "latePayment", "reference", "productId"),
            *("locationId", *_TIMES, *_PAGE),
        ),
    ),
    "GET /orders/{orderId}": Route(orders.get_order),
    **{
        f"POST /orders/{{orderId}}/{action.path}": Route(partial(orders.change_order, action))
        for action in OrderAction
        if action.path
    },
    "GET /barcodes": Route(barcodes.find_scanned, ("scan",)),
    "GET /products": Route(products.get_products, ("ids", "search", *_PAGE)),
    "GET /products/{productId}": Route(products.get_product),
    "GET /products/{productId}/adjustments": Route(
        products.list_adjustments, ("locationId", *_PAGE)
    ),
    "GET /products/{productId}/history": Route(
        products.list_history, ("locationId", *_TIMES, *_PAGE)
    ),
    "GET /counts": Route(products.list_counts, ("reference", "locationId", *_PAGE)),
    "GET /stock": Route(products.list_stock, ("status", "inLanes", "locationId", *_PAGE)),
    "GET /stock/{productId}": Route(products.get_stock, ("locationId",)),
    "GET /transfers": Route(products.list_transfers),
}


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Answer one request to the HTTP API.

    Args:
        event: The event of the HTTP API, in payload format 2.0.
        context: The context of the invocation.

    Returns:
        The answer in the format that API Gateway expects. For any other event, an answer that says what to send.

    Raises:
        ConfigurationError: A setting is missing. Such an error triggers the function's alarm.
    """
    if not is_request(event):
        what = "the event must be a request of the HTTP API; see events/api.json"
        return {"result": "INVALID", "code": "UNSUPPORTED_EVENT", "message": what, "field": ""}
    return serve(event, context, _ROUTES)
