"""The HTTP API: orders are placed, shown, listed and taken further, and products shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from inventory_orders.api import orders, products
from inventory_orders.api.access import Caller
from inventory_orders.api.problems import ProblemError
from inventory_orders.api.requests import HttpAnswer, Request, is_request
from inventory_orders.api.serving import serve
from inventory_orders.api.settings import ApiSettings
from inventory_orders.invocation import runtime
from inventory_orders.invocation.telemetry import logger, metrics

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler.exceptions import NotFoundError
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("committer", "impatient_committer", "order_queue")

app = APIGatewayHttpResolver()


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
        return {"errorCode": "UNSUPPORTED_EVENT", "errorMessage": what, "field": ""}
    return app.resolve(event, context)


@app.post("/orders")
def _post_orders() -> Response[str]:
    return _serve(lambda request, caller: orders.place_order(request, caller, app.lambda_context))


@app.get("/orders")
def _get_orders() -> Response[str]:
    return _serve(orders.list_orders)


@app.get("/orders/<order_id>")
def _get_order(order_id: str) -> Response[str]:
    return _serve(lambda request, caller: orders.get_order(request, caller, order_id))


@app.post("/orders/<order_id>/confirm")
def _confirm(order_id: str) -> Response[str]:
    return _change(order_id, "confirm")


@app.post("/orders/<order_id>/extend")
def _extend(order_id: str) -> Response[str]:
    return _change(order_id, "extend")


@app.post("/orders/<order_id>/fulfil")
def _fulfil(order_id: str) -> Response[str]:
    return _change(order_id, "fulfil")


@app.post("/orders/<order_id>/cancel")
def _cancel(order_id: str) -> Response[str]:
    return _change(order_id, "cancel")


@app.post("/orders/<order_id>/returns")
def _take_back(order_id: str) -> Response[str]:
    return _change(order_id, "return")


@app.get("/products")
def _get_products() -> Response[str]:
    return _serve(
        lambda request, _: products.get_products(
            request, runtime.process().committer.client, ApiSettings.from_environment()
        )
    )


@app.get("/products/<product_id>")
def _get_product(product_id: str) -> Response[str]:
    return _serve(
        lambda request, _: products.get_product(
            request, product_id, runtime.process().committer.client, ApiSettings.from_environment()
        )
    )


@app.get("/products/<product_id>/adjustments")
def _get_adjustments(product_id: str) -> Response[str]:
    client = runtime.process().committer.client
    return _serve(
        lambda request, caller: products.list_adjustments(request, caller, product_id, client)
    )


@app.get("/stock")
def _get_stock() -> Response[str]:
    client = runtime.process().committer.client
    return _serve(lambda request, caller: products.list_stock(request, caller, client))


@app.get("/stock/<product_id>")
def _get_stock_of(product_id: str) -> Response[str]:
    client = runtime.process().committer.client
    return _serve(lambda request, caller: products.get_stock(request, caller, product_id, client))


@app.not_found
def _not_found(_: NotFoundError) -> Response[str]:
    problem = ProblemError(404, "UNKNOWN_ROUTE", "there is nothing here; see docs/api.md")
    return _response(HttpAnswer.of_problem(problem))


def _change(order_id: str, action: str) -> Response[str]:
    return _serve(
        lambda request, caller: orders.change_order(
            request, caller, order_id, action, app.lambda_context
        )
    )


def _serve(work: Callable[[Request, Caller], HttpAnswer]) -> Response[str]:
    return _response(serve(app.current_event.raw_event, work))


def _response(answer: HttpAnswer) -> Response[str]:
    return Response(answer.status, body=answer.text, headers=dict(answer.all_headers))
