"""Faults between the service and AWS: errors, late requests, crashes, and answers that are lost or incomplete."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ReadTimeoutError

from inventory_orders.domain.allotments import PageKey
from testing.aws import Item, ServiceError

if TYPE_CHECKING:
    from testing.world.checked import CheckedWorld
    from testing.world.process import Call, Process
    from testing.world.world import World

THROTTLED = ServiceError("ThrottlingException", "Rate exceeded")
LOST = ReadTimeoutError(endpoint_url="simulated")

BACK = "-back"
"""Ends the name of a fault that begins with the second half of the items."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What may go wrong with a call.

    Attributes:
        name: Its name in schedules.
        may_hit: Whether it may hit this call of a process.
        is_applied: Whether the call takes effect.
        takes_time: Whether the process waits afterwards.
        has_halves: Whether the items come in two halves, either of which may be the first.
    """

    name: str
    may_hit: Callable[[CheckedWorld, Process, Call], bool]
    is_applied: bool = False
    takes_time: bool = False
    has_halves: bool = False


def _may_conflict(world: CheckedWorld, process: Process, call: Call) -> bool:
    return call.operation in (
        *("TransactWriteItems", "TransactGetItems", "UpdateItem", "PutItem", "DeleteItem"),
    )


def _may_tear(world: CheckedWorld, process: Process, call: Call) -> bool:
    # Only with strong consistency might code assume that all items are from the same moment.
    entries = call.request["RequestItems"].values() if call.operation == "BatchGetItem" else ()
    is_strong = any(entry.get("ConsistentRead") for entry in entries)
    return len(call.reads) > 1 and is_strong and world.has_rivals(process)


def _may_part(world: CheckedWorld, process: Process, call: Call) -> bool:
    # Only a transaction is sure to see all or none of the writes of another one:
    # docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
    is_transaction = call.operation == "TransactWriteItems" and len(call.writes) > 1
    return is_transaction and world.has_rivals(process) and world.makes_a_change(call)


def _writes(world: CheckedWorld, process: Process, call: Call) -> bool:
    return bool(call.writes)


FAULTS = (
    FaultKind("throttled", lambda world, process, call: True, takes_time=True),
    FaultKind("crash", lambda world, process, call: True),
    FaultKind("conflict", _may_conflict),
    FaultKind(
        "refused", lambda world, process, call: call.operation == "PutEvents", is_applied=True
    ),
    FaultKind("lost", _writes, is_applied=True, takes_time=True),
    FaultKind("lost-twice", _writes, is_applied=True, takes_time=True),
    FaultKind("crash-after", _writes, is_applied=True),
    FaultKind(
        "late",
        lambda world, process, call: bool(call.writes) and call.service == "dynamodb",
        takes_time=True,
    ),
    FaultKind(
        "stale", lambda world, process, call: bool(world.changed_since(call)), is_applied=True
    ),
    FaultKind("torn", _may_tear, is_applied=True, has_halves=True),
    FaultKind("parted", _may_part, is_applied=True, has_halves=True),
)
"""All faults of calls. A schedule may also redeliver messages, or let time pass."""


def faults_of(world: CheckedWorld, process: Process) -> Iterator[tuple[str, FaultKind]]:
    """Yield the faults that may hit the next call of a process, each by its name in schedules.

    A process with half a read or half a transaction meets no fault.
    """
    call = process.call
    if call is None or call.is_poll or process.torn or process.parted:
        return
    for fault in FAULTS:
        if fault.may_hit(world, process, call):
            yield fault.name, fault
            if fault.has_halves:
                yield f"{fault.name}{BACK}", fault


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
