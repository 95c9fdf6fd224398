"""Answers to direct invocations: what happened, or what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import OrderKey, OrderRecord
from inventory_orders.domain.product import Product
from inventory_orders.engine.outcomes import ChangeOutcome, ChangeStatus
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    PoisonMessageError,
    ProductNotFoundError,
    RejectedError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
    id_reused_error,
)
from inventory_orders.invocation.telemetry import logger
from inventory_orders.store.actions import TransactionCancelledError

Answer = dict[str, Any]


def is_queue_event(event: object) -> bool:
    """Whether a handler was invoked by a queue, and not directly."""
    return isinstance(event, dict) and "Records" in event


def answer(work: Callable[[], Answer]) -> Answer:
    """Carry out a command; whatever goes wrong becomes an answer.

    Returns:
        What the command answers, with a `result` (`APPLIED`, `REPLAYED`, ...). Else `result` is `REFUSED` with a
        `reason` and a `message`, or `RETRY_LATER` with the same; or, for a command that cannot be carried out as it
        is, there are `errorCode` and `errorMessage`.
    """
    try:
        return work()
    except PoisonMessageError as error:
        return {"errorCode": error.code, "errorMessage": error.message, "field": error.field}
    except RejectedError as error:
        return rejected(error.code, str(error))
    except ProductNotFoundError as error:
        return rejected("UNKNOWN_PRODUCT", str(error))
    except LeaseLostError as error:
        return rejected("LEASE_LOST", str(error))
    except LeaseHeldError as error:
        return retry_later("LEASED", str(error), error.seconds_left)
    except ContentionError as error:
        return retry_later("CONTENTION", str(error))
    except (ThrottledError, OutcomeUnknownError) as error:
        return retry_later(error.code, str(error))
    except RequestInvalidError as error:
        return {"errorCode": "REFUSED_BY_DYNAMODB", "errorMessage": str(error), "field": ""}
    except TransactionCancelledError as error:
        return retry_later("CONTENTION", str(error))
    except CorruptItemError as error:
        return retry_later(error.code, str(error))
    except StoreError as error:
        logger.critical("the tables cannot be used", extra={"error": str(error)})
        return {"errorCode": error.code, "errorMessage": str(error), "field": ""}


def rejected(reason: str, message: str) -> Answer:
    """The business says no."""
    return {"result": "REFUSED", "reason": reason, "message": message}


def retry_later(reason: str, message: str, seconds: float = 0.0) -> Answer:
    """Nothing is decided; the same command may succeed later, and is safe to repeat."""
    result: Answer = {"result": "RETRY_LATER", "reason": reason, "message": message}
    if seconds:
        result["retryAfterSeconds"] = round(seconds, 3)
    return result


def of_outcome(outcome: ChangeOutcome, id_reused_code: str) -> Answer:
    """The engine's answer to one change.

    Raises:
        PoisonMessageError: The change can never succeed as it is.
    """
    match outcome.status:
        case ChangeStatus.REJECTED if outcome.rejection is not None:
            error = outcome.rejection.error()
            return rejected(error.code, error.message)
        case ChangeStatus.RETURNED:
            return retry_later(outcome.cause, outcome.detail, outcome.retry_after)
        case ChangeStatus.ID_REUSED:
            raise id_reused_error(id_reused_code)
        case ChangeStatus.INVALID:
            raise PoisonMessageError(outcome.cause, outcome.detail)
    return {"result": outcome.status.name}


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
    """A product as the answers show it: JSON, without what is nobody's business."""
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
