"""The invariants of every run, for all schedules and faults.

They are checked on rows and answers, never on calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from inventory_orders.domain.product import ProductStatus, stock_status
from inventory_orders.engine.claims import CLAIM_SECONDS
from operations.audit import add_up

if TYPE_CHECKING:
    from tests.explore.world import Change, World

_FIXED = {
    "Products": ("productId", "createdAt"),
    "Orders": ("orderId", "createdAt"),
}


def check_change(world: World, change: Change) -> None:
    """Check a write.

    Raises:
        ViolationError: The write breaks an invariant.
    """
    table, key = change.place
    name = "/".join(key)
    before, after = change.before, change.after
    if table == "StockAdjustments":
        _require(before is None, f"the adjustment {name} was changed after it was booked")
        return
    if after is None:
        _require(table == "Products", f"{table} {name} was deleted")
    elif before is None:
        _require(after["_version"] == 1, f"{table} {name} starts with version {after['_version']}")
    else:
        # A version counts changes of the item, and a claim does not count as one.
        allowed = {1} if _without_lock(before) != _without_lock(after) else {0, 1}
        _require(
            after["_version"] - before["_version"] in allowed,
            f"{table} {name} went from version {before['_version']} to {after['_version']}",
        )
        for attribute in _FIXED[table]:
            _require(
                before[attribute] == after[attribute], f"{attribute} of {table} {name} was changed"
            )
    if table == "Products":
        _check_product(world, change)
    elif after is not None:
        _check_order(world, change, before, after)


def _without_lock(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if not name.startswith("lock")}


def _check_product(world: World, change: Change) -> None:
    before, after, name = change.before, change.after, change.place[1][0]
    if before is not None and before.get("lockTime", 0) > world.clock.seconds:
        owner = world.lock_owners.get(change.place)
        _require(
            owner == change.process.name,
            f"{change.process.name} wrote product {name} under the live lease of {owner}",
        )
    if after is None:
        return
    if after.get("lockedBy") != (before or {}).get("lockedBy"):
        world.lock_owners[change.place] = change.process.name
    floor = -after.get("backorderLimit", 0)
    _require(
        after["stockCount"] >= floor, f"the stock of {name} fell to {after['stockCount']}: oversold"
    )
    status = stock_status(
        after["stockCount"],
        after.get("backorderLimit", 0),
        after.get("lowStockThreshold", 0),
        ProductStatus(after["status"]),
    )
    _require(
        after["status"] == status,
        f"{name} is {after['status']} with a stock of {after['stockCount']}",
    )


def _check_order(
    world: World, change: Change, before: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    name = after["orderId"]
    if before is not None:
        step = (before["status"], after["status"])
        filled_in = "userId" not in before and step == ("CANCELLED", "CANCELLED")
        _require(
            step == ("PENDING", "CANCELLED") or filled_in,
            f"order {name} went from {step[0]} to {step[1]}",
        )
        return
    if after["status"] == "REJECTED":
        _require(
            any(_justifies(product, after) for product in _seen(world, change, after)),
            f"order {name} was rejected as {after['reason']}, which was never true while it was being placed",
        )
    _check_order_of_group(world, name)


def _seen(
    world: World, change: Change, order: dict[str, Any]
) -> Iterator[tuple[dict[str, Any] | None, int]]:
    """List the states of an order's products since the invocation's first call, with the ordered quantity."""
    begun = change.process.begun or 0
    for line in order["items"]:
        place = ("Products", (line["productId"],))
        first = world.initial["Products"].get(place[1])
        state = None if first is None else world.handlers.decode(first)
        for earlier in world.history:
            if earlier.place == place:
                if earlier.number > begun:
                    yield state, line["quantity"]
                state = earlier.after
        yield state, line["quantity"]


def _justifies(product_and_quantity: tuple[dict[str, Any] | None, int], order: Any) -> bool:
    product, quantity = product_and_quantity
    if order["reason"] == "UNKNOWN_PRODUCT" or product is None:
        return order["reason"] == "UNKNOWN_PRODUCT" and product is None
    if order["reason"] == "DISCONTINUED_PRODUCT":
        return bool(product["status"] == "DISCONTINUED")
    return bool(product["stockCount"] + product.get("backorderLimit", 0) < quantity)


def _check_order_of_group(world: World, order_id: str) -> None:
    """Check that no message of a group takes effect before an earlier one."""
    group, earlier = None, []
    for message_id, (function, body, its_group) in world.sent.items():
        if function == "place_orders" and its_group is not None:
            if body["orderId"] == order_id:
                group = its_group
                break
            earlier.append((message_id, its_group))
    for message_id, its_group in earlier:
        if group == its_group:
            _require(
                end_of(world, message_id) is not None,
                f"{order_id} took effect before {world.sent[message_id][1]['orderId']} of its group",
            )


def end_of(world: World, message_id: str) -> str | None:
    """Find where a message ended, from durable rows and dead letters only; None if it has not ended."""
    function, body, _ = world.sent[message_id]
    dead = world.dead_letters(message_id)
    done = False
    if function == "place_orders":
        row = world.row("Orders", body["orderId"])
        lines: dict[str, int] = {}
        for line in body["items"]:
            lines[line["productId"]] = lines.get(line["productId"], 0) + line["quantity"]
        done = row is not None and (row.get("userId"), _lines(row)) == (body["userId"], lines)
    elif function == "adjust_stock":
        row = world.row("StockAdjustments", body["productId"], body["adjustmentId"])
        done = row is not None and _is_adjustment(row, body)
    elif function == "cancel_orders":
        row = world.row("Orders", body["orderId"])
        done = row is not None and row["status"] in {"CANCELLED", "REJECTED"}
    elif function == "manage_products":
        row = world.row("Products", body["productId"])
        done = row is not None and row.get("detailsEventTime", "") >= body["eventTime"]
    if dead and done:
        _require(False, f"{body} was done and dead-lettered as {dead}")
    return dead[0] if dead else "done" if done else None


def _lines(row: dict[str, Any]) -> dict[str, int]:
    return {line["productId"]: line["quantity"] for line in row["items"]}


def _is_adjustment(row: dict[str, Any], asked: dict[str, Any]) -> bool:
    delta = asked.get("delta", -asked.get("quantity", 0))
    return (row["delta"], row["reason"]) == (delta, asked.get("reason", "DECREMENT"))


def check_end(world: World) -> None:
    """Check the end of a run.

    Raises:
        ViolationError: The end breaks an invariant.
    """
    for message_id, (_, body, _) in world.sent.items():
        _require(end_of(world, message_id) is not None, f"{body} was lost")
    for queue in world.model.sqs.queues.values():
        for message in queue.messages if "Dead" in queue.name else ():
            _require("errorCode" in message.attributes, f"SQS dead-lettered {message.body}")
    _check_books(world)
    if not world.crashes:
        # A claim whose release failed expires soon.
        tolerated = CLAIM_SECONDS if world.faults_used else 0.0
        for row in world.rows("Products"):
            left = float(row.get("lockTime", 0)) - world.clock.seconds
            _require(left <= tolerated, f"the lock of {row.get('lockedBy')} was left behind")
    for function, command, answer in world.answers:
        _check_answer(world, function, command, answer)


def _check_books(world: World) -> None:
    """Check that every unit is explained."""
    tables = world.model.dynamodb.tables

    def rows(name: str) -> list[dict[str, Any]]:
        return [world.handlers.decode(item) for item in tables[name].items.values()]

    for account in add_up(rows("Products"), rows("StockAdjustments"), rows("Orders")):
        _require(
            account.difference == 0,
            f"{account.product_id} has {account.on_hand} in stock, but adjustments of {account.adjusted} and sales of "
            f"{account.sold} leave {account.adjusted - account.sold}",
        )


def _check_answer(
    world: World, function: str, command: dict[str, Any], answer: dict[str, Any]
) -> None:
    """Check that the answer to a command is true."""
    result = answer.get("result", answer.get("errorCode"))
    _require(result is not None, f"{command} was answered {answer}")
    if function == "adjust_stock":
        row = world.row("StockAdjustments", command["productId"], command["adjustmentId"])
        done = row is not None and _is_adjustment(row, command)
        if result in {"APPLIED", "REPLAYED"}:
            _require(done, f"{command} was answered {result}, and is not booked")
        elif result in {"REFUSED", "ADJUSTMENT_ID_REUSED"}:
            _require(not done, f"{command} was answered {answer}, but is booked")
    elif function == "cancel_orders":
        row = world.row("Orders", command["orderId"])
        cancelled = row is not None and row["status"] == "CANCELLED"
        if result in {"APPLIED", "REPLAYED"}:
            _require(cancelled, f"{command} was answered {result}, and the order stands")
    elif function == "count_stock" and command["action"] == "commit":
        product_id = command["lease"]["productId"]
        row = world.row("StockAdjustments", product_id, command["adjustmentId"])
        if result == "COMMITTED":
            _require(row is not None, f"{command} was answered COMMITTED, and is not booked")
        elif result == "REFUSED":
            _require(row is None, f"{command} was answered {answer}, but is booked")


def _require(holds: bool, message: str) -> None:
    if not holds:
        from tests.explore.world import ViolationError

        raise ViolationError(message)
