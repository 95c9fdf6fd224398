"""Faults between the service and AWS: errors, and answers that are lost or incomplete.

`testing.schedules.every` lists the kinds of faults that it explores, and says when each may happen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ReadTimeoutError

from inventory_orders.domain.allotments import PageKey
from testing.aws import Item, ServiceError

if TYPE_CHECKING:
    from testing.world.world import World

THROTTLED = ServiceError("ThrottlingException", "Rate exceeded")
LOST = ReadTimeoutError(endpoint_url="simulated")

Condition = Callable[[Any], bool]


def cancelled(*codes: str, item: Item | None = None) -> ServiceError:
    """A TransactionCanceledException with a reason for each action. The last reason includes the item."""
    reasons: list[dict[str, Any]] = [{"Code": code} for code in codes]
    if item is not None:
        reasons[-1]["Item"] = item
    return ServiceError("TransactionCanceledException", extra={"CancellationReasons": reasons})


def conflict(operation: str, request: Any) -> ServiceError:
    """The error if another transaction on the first item of a request is in flight."""
    if operation != "TransactWriteItems":
        return ServiceError("TransactionConflictException", "a transaction is in flight")
    return cancelled("TransactionConflict", *["None"] * (len(request["TransactItems"]) - 1))


def of_product(product_id: str) -> Condition:
    """Whether a request is about a product's row."""
    return _names({"productId": {"S": product_id}})


def of_page(lane: int, product_id: str) -> Condition:
    """Whether a request is about a product's page."""
    return _names({"page": {"S": str(PageKey.of(lane, product_id))}})


def _names(key: Any) -> Condition:
    return lambda request: json.dumps(key) in json.dumps(request)


def cancels(code: str, is_it: Condition) -> Callable[[Any], None]:
    """Cancel a transaction, and give `code` as the reason for each action that meets a condition."""

    def cancel(request: Any) -> None:
        raise cancelled(*(code if is_it(each) else "None" for each in request["TransactItems"]))

    return cancel


def leaves_out(world: World, is_it: Condition, *, refuses: bool = True) -> Callable[[Any], Any]:
    """Answer a read without the keys that meet a condition, or refuse it if no key is left."""

    def without(request: Any) -> Any:
        wanted, left_out = parts_of(request, lambda _, key: not is_it(key))
        if not wanted["RequestItems"]:
            if refuses:
                raise ServiceError("ProvisionedThroughputExceededException")
            return {"Responses": {}, "UnprocessedKeys": left_out["RequestItems"]}
        found = world.aws.answer("dynamodb", "BatchGetItem", wanted)
        return {**found, "UnprocessedKeys": left_out["RequestItems"]}

    return without


def parts_of(request: Any, is_first: Callable[[int, Any], bool]) -> tuple[Any, Any]:
    """Split a BatchGetItem into two, by the number of each key and the key."""
    parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    number = 0
    for table, entry in request["RequestItems"].items():
        for key in entry["Keys"]:
            part = parts[0 if is_first(number, key) else 1]
            part.setdefault(table, {**entry, "Keys": []})["Keys"].append(key)
            number += 1
    first, second = ({**request, "RequestItems": part} for part in parts)
    return first, second


def lose_responses(client: Any, operation: str = "", times: int = 1) -> None:
    """Lose the responses to a client's next requests, after the requests have been executed.

    This happens below the SDK's own retries, and works with moto too.

    Args:
        client: A boto3 client.
        operation: Name of the operation, such as `TransactWriteItems`; all operations by default.
        times: How many responses to lose.
    """
    # This patches a layer above the network, because moto answers before a request reaches the network.
    endpoint = client._endpoint
    send, left = endpoint._do_get_response, [times]

    def lossy(request: Any, model: Any, context: Any) -> tuple[Any, Exception | None]:
        answer, error = send(request, model, context)
        if not left[0] or operation not in ("", model.name):
            return answer, error
        left[0] -= 1
        return None, ReadTimeoutError(endpoint_url=request.url)

    endpoint._do_get_response = lossy
