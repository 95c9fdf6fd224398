"""The HTTP API: places, shows, lists and changes orders, and shows products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from inventory_orders.api import orders, products
from inventory_orders.api.requests import HttpAnswer, Request, is_request
from inventory_orders.api.serving import Caller, serve
from inventory_orders.domain.record import OrderAction
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger, metrics

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("store", "engine", "impatient_engine", "order_queue")

_ROUTES: Mapping[str, Callable[[Request, Caller], HttpAnswer]] = {
    "POST /orders": orders.place_order,
    "GET /orders": orders.list_orders,
    "GET /orders/{orderId}": orders.get_order,
    **{
        f"POST /orders/{{orderId}}/{action.path}": partial(orders.change_order, action)
        for action in OrderAction
        if action.path
    },
    "GET /products": products.get_products,
    "GET /products/{productId}": products.get_product,
    "GET /products/{productId}/adjustments": products.list_adjustments,
    "GET /products/{productId}/history": products.list_history,
    "GET /stock": products.list_stock,
    "GET /stock/{productId}": products.get_stock,
}
"""The function that answers each route."""


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Answer one request.

    Args:
        event: The event of the HTTP API, in payload format 2.0.
        context: The context of the invocation.

    Returns:
        The answer, for API Gateway. For any other event, what to do.

    Raises:
        ConfigurationError: A setting is missing. This triggers the function's error alarm.
    """
    if not is_request(event):
        what = "the event must be a request of the HTTP API; see events/api.json"
        return direct.invalid("UNSUPPORTED_EVENT", what)

    return serve(
        event, context, _ROUTES, lambda request, caller: _ROUTES[request.route](request, caller)
    )
