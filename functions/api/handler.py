"""The HTTP API: orders are placed, shown, listed and taken further, and products shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from inventory_orders.api import orders, products
from inventory_orders.api.access import ApiSettings, Caller
from inventory_orders.api.requests import HttpAnswer, Request, is_request
from inventory_orders.api.serving import serve
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger, metrics

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.engine.retrying_client import RetryingClient

runtime.prepare("store", "engine", "impatient_engine", "order_queue")

_Answer = Callable[[Request, Caller, Any], HttpAnswer]


def _change(action: str) -> _Answer:
    return lambda request, caller, context: orders.change_order(
        request, caller, request.path["orderId"], action, context
    )


def _client() -> RetryingClient:
    return runtime.process().engine.client


_ROUTES: Mapping[str, _Answer] = {
    "POST /orders": orders.place_order,
    "GET /orders": lambda request, caller, _: orders.list_orders(request, caller),
    "GET /orders/{orderId}": lambda request, caller, _: orders.get_order(
        request, caller, request.path["orderId"]
    ),
    "POST /orders/{orderId}/confirm": _change("confirm"),
    "POST /orders/{orderId}/extend": _change("extend"),
    "POST /orders/{orderId}/fulfil": _change("fulfil"),
    "POST /orders/{orderId}/cancel": _change("cancel"),
    "POST /orders/{orderId}/returns": _change("return"),
    "GET /products": lambda request, *_: products.get_products(
        request, _client(), ApiSettings.from_environment()
    ),
    "GET /products/{productId}": lambda request, *_: products.get_product(
        request, request.path["productId"], _client(), ApiSettings.from_environment()
    ),
    "GET /products/{productId}/adjustments": lambda request, caller, _: products.list_adjustments(
        request, caller, request.path["productId"], _client()
    ),
    "GET /products/{productId}/history": lambda request, caller, _: products.list_history(
        request, caller, request.path["productId"], _client()
    ),
    "GET /stock": lambda request, caller, _: products.list_stock(request, caller, _client()),
    "GET /stock/{productId}": lambda request, caller, _: products.get_stock(
        request, caller, request.path["productId"], _client()
    ),
}
"""The answer to each request of the HTTP API."""


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Answer one request.

    Args:
        event: Of an HTTP API, payload format 2.0.
        context: Of the invocation.

    Returns:
        The answer, for API Gateway. Of another event, what to do.

    Raises:
        ConfigurationError: A setting is missing. The alarm on errors of this function is meant for it.
    """
    if not is_request(event):
        what = "the event must be a request of the HTTP API; see events/api.json"
        return direct.invalid("UNSUPPORTED_EVENT", what)

    def work(request: Request, caller: Caller) -> HttpAnswer:
        return _ROUTES[request.route](request, caller, context)

    return serve(event, _ROUTES, work)
