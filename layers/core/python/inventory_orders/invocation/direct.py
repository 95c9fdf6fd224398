"""Answers to direct invocations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import OrderKey, OrderRecord
from inventory_orders.domain.product import Product
from inventory_orders.engine.outcomes import ChangeOutcome, UnsuccessfulError, outcome_of
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Verdict, VerdictError
from inventory_orders.invocation.telemetry import logger

Answer = dict[str, Any]


def is_queue_event(event: object) -> bool:
    """Whether a handler was invoked by a queue, and not directly."""
    return isinstance(event, dict) and "Records" in event


def answer(work: Callable[[], Answer]) -> Answer:
    """Carry out a command; an error becomes an answer.

    Returns:
        What the command answers, with a `result` (`APPLIED`, `REPLAYED`, ...). Else `result` is `REFUSED` with a
        `reason` and a `message`, or `RETRY_LATER` with the same; or, for a command that cannot be carried out as it
        is, there are `errorCode` and `errorMessage`.
    """
    try:
        return work()
    except VerdictError as error:
        if error.verdict is Verdict.UNAVAILABLE:
            logger.critical("the tables cannot be used", extra={"error": str(error)})
        facts = error.facts if isinstance(error, UnsuccessfulError) else {}
        return {**of_outcome(outcome_of(error)), **facts}


def of_outcome(outcome: ChangeOutcome) -> Answer:
    """The answer to a command, from its outcome."""
    match outcome.verdict:
        case Verdict.APPLIED | Verdict.REPLAYED:
            return {"result": outcome.verdict.name}
        case Verdict.REJECTED:
            return {"result": "REFUSED", "reason": outcome.cause, "message": outcome.detail}
        case Verdict.RETURNED:
            later = {"result": "RETRY_LATER", "reason": outcome.cause, "message": outcome.detail}
            wait = round(outcome.retry_after, 3)
            return later | ({"retryAfterSeconds": wait} if outcome.retry_after else {})
        case Verdict.POISON | Verdict.UNAVAILABLE:
            return {
                "errorCode": outcome.cause,
                "errorMessage": outcome.detail,
                "field": outcome.field_path,
            }


def of_row(order_id: str, client: RetryingClient, deadline: Deadline) -> Answer:
    """Where an order stands, read with strong consistency.

    Raises:
        InventoryOrdersError: For `answer`.
    """
    record = client.call(lambda: client.store.get_record(OrderKey(order_id)), deadline)
    return of_order(record) if isinstance(record, OrderRecord) else {"orderId": order_id}


def of_order(order: OrderRecord) -> Answer:
    """Where an order stands, as the answers show it."""
    shown = {"orderId": order.order_id, "status": order.status, "version": order.version}
    return shown if order.expires_at is None else shown | {"expiresAt": order.expires_at}


def of_product(product: Product) -> Answer:
    """A product as the answers show it: JSON, without internal attributes."""
    shown = {
        "version": product.version,
        "productId": product.product_id,
        "stockCount": product.stock_count,
        "status": product.status.value,
        "createdAt": product.created_at,
        "name": product.name,
        "price": product.price,
    }
    return {name: value for name, value in shown.items() if value is not None}
