"""Carries out single commands immediately, and answers them: for direct invocations and the HTTP API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.amendment import Amendment
from inventory_orders.domain.location import left_out, location_of, product_of, public_key
from inventory_orders.domain.order_command import MAX_HOLD, OrderCommand, Transition
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import OrderAction, OrderKey, OrderRecord
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import ChangeOutcome, outcome_of
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Outcome, OutcomeError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.telemetry import emit_commands, logger
from inventory_orders.store.rows import drop_none, shortage_row

Answer = dict[str, Any]


def answer(work: Callable[[], Answer]) -> Answer:
    """Carry out a command, and convert an error into an answer.

    Returns:
        The answer, with a `result` such as `APPLIED` or `REPLAYED`. After an error, `result` is `REFUSED`,
        `RETRY_LATER`, `INVALID` or `UNAVAILABLE`, with a `code` and a `message`.
    """
    try:
        return work()
    except OutcomeError as error:
        if error.kind is Outcome.UNAVAILABLE:
            logger.critical("the tables cannot be used", extra={"error": str(error)})
        return {**of_outcome(outcome_of(error)), **error.facts}


_RESULTS = {Outcome.REJECTED: "REFUSED", Outcome.RETURNED: "RETRY_LATER"}
"""The `result` of an answer, unless it is the name of the outcome."""


def of_outcome(outcome: ChangeOutcome) -> Answer:
    """Convert a command's outcome into its answer."""
    result = _RESULTS.get(outcome.kind, outcome.kind.name)
    if outcome.kind in (Outcome.APPLIED, Outcome.REPLAYED):
        return {"result": result}
    return drop_none(
        {
            "result": result,
            "code": outcome.cause,
            "message": outcome.detail,
            "field": outcome.field_path if outcome.kind is Outcome.INVALID else None,
            "retryAfterSeconds": round(outcome.retry_after, 3) or None,
        }
    )


def read_order(order_id: str, client: RetryingClient, deadline: Deadline) -> OrderRecord | None:
    """Read an order with strong consistency; None if it does not exist.

    Raises:
        InventoryOrdersError: The order cannot be read.
    """
    record = client.call(lambda: client.store.get(OrderKey(order_id)), deadline)
    return record if isinstance(record, OrderRecord) else None


def of_order(order: OrderRecord | None) -> Answer:
    """The fields of an answer that show an order; none if the order does not exist."""
    if order is None:
        return {}
    items = [{**public_key(line.key), "quantity": line.quantity} for line in order.lines]
    return {
        "orderId": order.order_id,
        "status": order.status,
        "version": order.version,
        **({"items": items} if any(line.location_id for line in order.lines) else {}),
        **({} if order.expires_at is None else {"expiresAt": order.expires_at}),
        **of_details(order),
    }


def of_details(rejected: OrderRecord | Rejection | None) -> Answer:
    """The fields of an answer that show which stock was short, or which limits were exceeded; none if neither is the reason."""
    if rejected is None:
        return {}
    details = {
        "shortages": [*map(shortage_row, rejected.shortages)],
        "limits": [*map(asdict, rejected.limits)],
    }
    return {name: each for name, each in details.items() if each}


def of_product(product: Product) -> Answer:
    """The fields of an answer that show a product, without internal attributes."""
    return drop_none(
        {
            "version": product.version,
            **public_key(product.product_id),
            "stockCount": product.stock_count,
            "status": product.status.value,
            "createdAt": product.created_at,
            "name": product.name,
            "price": product.price,
            "safetyStock": product.safety_stock or None,
            "purchaseLimit": product.purchase_limit or None,
            "limitGroup": product.limit_group,
            "places": sorted(product.places) or None,
        }
    )


def of_new_product(product: Product) -> Answer:
    """The fields of an answer that show a new product, with a warning if orders without `locations` cannot buy its stock."""
    product_id, location_id = product_of(product.product_id), location_of(product.product_id)
    if product.stock_count and location_id not in runtime.process().locations:
        return of_product(product) | {"warnings": [left_out(product_id, location_id)]}
    return of_product(product)


def carry_out(command: OrderCommand, context: Any, engine: Engine | None = None) -> ChangeOutcome:
    """Carry out one command immediately.

    An order that has not arrived yet can only be cancelled through the queue, so its direct cancellation is rejected.

    Args:
        command: The command.
        context: The context of the invocation.
        engine: The engine, if its source of units matters.

    Raises:
        OutcomeError: The order could not be read, or DynamoDB refuses all requests.
    """
    engine, deadline = engine or runtime.process().engine, runtime.deadline(context)
    cancels_all = command.action is OrderAction.CANCEL and not command.quantities
    if cancels_all and read_order(command.order_id, engine.client, deadline) is None:
        return ChangeOutcome(
            Outcome.REJECTED,
            cause=RejectionReason.UNKNOWN_ORDER.value,
            detail=f"there is no order {command.order_id}; to cancel an order before it arrives, send the command to "
            "OrderCommandQueue",
        )
    report = engine.apply([command], deadline)
    emit_commands(report, [command], SystemClock().now())
    return report.outcome_of_one()


def of_command(
    command: OrderCommand, outcome: ChangeOutcome, client: RetryingClient, deadline: Deadline
) -> Answer:
    """Answer a command with `result`, the order's current status and the restocked units. After a failure, say what to do.

    If an earlier step of the order is the reason why the command changes nothing, say who made it, and when.

    Args:
        command: The command.
        outcome: The outcome of the command.
        client: A client that reads the order if the command changed nothing.
        deadline: When to give up reading the order.

    Raises:
        StoreError: The order could not be read.
    """
    result = of_outcome(outcome)
    if outcome.kind is Outcome.INVALID:
        return result
    result["orderId"] = command.order_id
    order = None
    if isinstance(outcome.applied, Transition | Amendment):
        order = outcome.applied.record(None, outcome.after, outcome.at).after
        gives_back = outcome.applied.gives_back
        result["stockReturned"] = {
            product_of(key): gives_back[key]
            for key in sorted(gives_back.keys() & outcome.after.keys())
        }
    elif outcome.kind is not Outcome.RETURNED:
        stored = read_order(command.order_id, client, deadline)
        result |= of_details(outcome.rejection) | _earlier_step(command, outcome, stored)
        order = stored if outcome.rejection is None else None
    if command.until and order is not None and command.until > (order.expires_at or command.until):
        result["message"] = (
            f"until: the hold ends at {order.expires_at}, not at {command.until}, because a hold ends at most "
            f"{MAX_HOLD.days} days after the order"
        )
    return result | of_order(order)


def _earlier_step(
    command: OrderCommand, outcome: ChangeOutcome, order: OrderRecord | None
) -> Answer:
    """The fields of an answer that show the step because of which a command changes nothing; none if there is no such step."""
    step = None if order is None else command.earlier_step(order, outcome.rejection)
    if step is None:
        return {}
    actor = step.notes.get("actor")
    by = f" by {actor}" if actor else ""
    words = f"already {OrderAction(step.action).past}{by} at {step.at}"
    return {
        "message": f"{outcome.detail} ({words})" if outcome.detail else words,
        "earlierStep": drop_none({"action": step.action, "at": step.at, "actor": actor}),
    }
