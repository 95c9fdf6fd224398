"""Answers to direct invocations: what happened, or what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inventory_orders.committer import Ending, Outcome
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    PoisonMessageError,
    ProductNotFoundError,
    RefusedError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.intake import id_reused_error, refusal_error
from inventory_orders.telemetry import logger

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
    except RefusedError as error:
        return refused(error.code, str(error))
    except ProductNotFoundError as error:
        return refused("UNKNOWN_PRODUCT", str(error))
    except LeaseLostError as error:
        return refused("LEASE_LOST", str(error))
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
        return retry_later("CORRUPT_PRODUCT", str(error))
    except StoreError as error:
        logger.critical("the tables cannot be used", extra={"error": str(error)})
        return {"errorCode": error.code, "errorMessage": str(error), "field": ""}


def refused(reason: str, message: str) -> Answer:
    """The business says no."""
    return {"result": "REFUSED", "reason": reason, "message": message}


def retry_later(reason: str, message: str, seconds: float = 0.0) -> Answer:
    """Nothing is decided; the same command may succeed later, and is safe to repeat."""
    result: Answer = {"result": "RETRY_LATER", "reason": reason, "message": message}
    if seconds:
        result["retryAfterSeconds"] = round(seconds, 3)
    return result


def of_outcome(outcome: Outcome, id_reused_code: str) -> Answer:
    """The engine's answer to one change.

    Raises:
        PoisonMessageError: The change can never succeed as it is.
    """
    if outcome.ending is Ending.REFUSED and outcome.refusal is not None:
        error = refusal_error(outcome.refusal)
        return refused(error.code, error.message)
    if outcome.ending is Ending.RETURNED:
        return retry_later(outcome.cause, outcome.detail, outcome.retry_after)
    if outcome.ending is Ending.ID_REUSED:
        raise id_reused_error(id_reused_code)
    if outcome.ending is Ending.INVALID:
        raise PoisonMessageError(outcome.cause, outcome.detail)
    return {"result": outcome.ending.name}


def of_product(state: Mapping[str, Any]) -> Answer:
    """A product as the answers show it: JSON, without what is nobody's business."""
    shown = ("productId", "stockCount", "status", "createdAt", "name", "price")
    return {"version": state["_version"]} | {name: state[name] for name in shown if name in state}
