"""The scenarios: rivals whose schedules are explored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inventory_orders.invocation.runtime import RESERVED_SECONDS
from inventory_orders.lanes.idle import IDLE_SECONDS
from inventory_orders.lanes.lane import LANE_SECONDS
from tests.explore.world import (
    GRACE_SECONDS,
    INVOCATION_SECONDS,
    Client,
    Scenario,
    ViolationError,
    World,
)

# After this time an invocation begins no new work.
WORKING_SECONDS = INVOCATION_SECONDS - RESERVED_SECONDS
# The most telling ones, where runs are long: with lanes, and of batches of several commands.
_TELLING = ("conflict", "lost", "crash", "crash-after")
_TORN = (*_TELLING, "torn")
_OF_A_PUBLISHER = ("refused", "throttled", "lost", "crash", "crash-after", "time")
OPENED = "2026-01-01T00:00:00.000000+00:00"
# When a hold ended that may expire now.
OVER = -GRACE_SECONDS - 1.0


def order(order_id: str, user_id: str = "u-1", **lines: int) -> dict[str, Any]:
    """Make the message of an order."""
    items = [{"productId": name, "quantity": quantity} for name, quantity in lines.items()]
    return {"orderId": order_id, "userId": user_id, "items": items}


def receipt(adjustment_id: str, product_id: str, delta: int) -> dict[str, Any]:
    """Make the message of a receipt."""
    return {
        "adjustmentId": adjustment_id,
        "productId": product_id,
        "delta": delta,
        "reason": "RECEIPT",
    }


def statuses(world: World, *order_ids: str) -> list[str]:
    """List the statuses of orders."""
    rows = (world.row("Orders", order_id) for order_id in order_ids)
    return [row["status"] if row else "NONE" for row in rows]


def require(holds: bool, message: str) -> None:
    """Check an expectation of one scenario."""
    if not holds:
        raise ViolationError(message)


def _last_unit(world: World, rivals: int) -> None:
    world.product("p", 1)
    for name in "ABC"[:rivals]:
        world.deliver(name, "place_orders", order(f"o{name}", p=1))


def _one_winner(world: World) -> None:
    ended = sorted(status for status in statuses(world, "oA", "oB", "oC") if status != "NONE")
    require(
        ended == ["PENDING"] + ["REJECTED"] * (len(ended) - 1),
        f"one unit, and the orders ended as {ended}",
    )


def _overlapping_batches(world: World, rivals: int) -> None:
    world.product("p", 3)
    world.product("q", 2)
    world.deliver("A", "place_orders", order("a1", p=2), order("a2", p=1, q=1))
    world.deliver("B", "place_orders", order("b1", q=2), order("b2", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c1", p=1, q=1), order("a1", p=2))


def _order_and_cancellation(world: World, rivals: int) -> None:
    world.product("p", 2)
    world.deliver("A", "place_orders", order("o", p=2))
    world.deliver("B", "change_orders", command("cancel"))
    if rivals > 2:
        world.deliver("C", "place_orders", order("other", p=2))


def _is_cancelled(world: World) -> None:
    (ended,), (other,) = statuses(world, "o"), statuses(world, "other")
    # If another order takes all units first, there is nothing to cancel.
    allowed = {"CANCELLED"} if other == "NONE" else {"CANCELLED", "REJECTED"}
    require(ended in allowed, f"it ended as {ended}")
    row = world.row("Products", "p")
    sold = 2 if other == "PENDING" else 0
    require(
        row is not None and row["stockCount"] == 2 - sold,
        "the units of the order were not returned",
    )


def _receipt_twice(world: World, rivals: int) -> None:
    world.product("p", 0)
    world.deliver("A", "adjust_stock", receipt("r", "p", 2), receipt("r", "p", 2))
    world.deliver("B", "place_orders", order("o", p=1))
    if rivals > 2:
        world.client("C", "books the receipt", _books(receipt("r", "p", 2)))


def _asks(function: str, asked: dict[str, Any]) -> Callable[[Client], None]:
    def script(client: Client) -> None:
        client(function, asked)

    return script


def _books(command: dict[str, Any]) -> Callable[[Client], None]:
    def script(client: Client) -> None:
        answer = client("adjust_stock", command)
        if answer.get("result") == "RETRY_LATER":
            client("adjust_stock", command)

    return script


def _counts(adjustment_id: str, found: int, seconds: int) -> Callable[[Client], None]:
    """Acquire, count and commit; release the lease if the commit fails."""

    def script(client: Client) -> None:
        acquired = client(
            "count_stock",
            {
                "action": "acquire",
                "productId": "p",
                "seconds": seconds,
                "outliveInvocation": True,
            },
        )
        if acquired.get("result") != "ACQUIRED":
            return
        lease = acquired["lease"]
        answer = client(
            "count_stock",
            {
                "action": "commit",
                "lease": lease,
                "adjustmentId": adjustment_id,
                "counted": acquired["stockCount"] + found,
            },
        )
        if answer.get("result") != "COMMITTED":
            client("count_stock", {"action": "release", "lease": lease})

    return script


def _count_twice(world: World, rivals: int) -> None:
    world.product("p", 5)
    acquire = {"action": "acquire", "productId": "p", "seconds": 20, "outliveInvocation": True}
    acquired: dict[str, Any] = {}
    world.client_before("A", lambda client: acquired.update(client("count_stock", acquire)))
    commit = {"action": "commit", "lease": acquired["lease"], "adjustmentId": "c", "counted": 3}
    for name in ("A", "A'"):
        world.client(name, "commits", _asks("count_stock", commit))
    if rivals > 2:
        world.deliver("C", "adjust_stock", receipt("r", "p", 1))


def _count_asked_again(world: World, rivals: int) -> None:
    """A commit just before its lease ends: without an answer, it is sent again after the end."""
    world.product("p", 5)
    acquire = {"action": "acquire", "productId": "p", "seconds": 20, "outliveInvocation": True}
    acquired: dict[str, Any] = {}
    world.client_before("A", lambda client: acquired.update(client("count_stock", acquire)))
    commit = {"action": "commit", "lease": acquired["lease"], "adjustmentId": "c", "counted": 3}
    world.clock.seconds += 19.9

    def asks(client: Client) -> None:
        for _ in range(3):
            if client("count_stock", commit).get("result") != "RETRY_LATER":
                return

    world.client("A", "commits until it has an answer", asks)
    world.deliver("B", "place_orders", order("o", p=1))
    if rivals > 2:
        world.client("C", "delists and lists again", _relists)


def _lease_and_order(world: World, rivals: int) -> None:
    world.product("p", 1)
    world.client("A", "counts and finds one more", _counts("count", 1, seconds=3))
    world.deliver("B", "place_orders", order("o", p=2))
    if rivals > 2:
        world.deliver("C", "adjust_stock", receipt("r", "p", 1))


def _lease_and_successor(world: World, rivals: int) -> None:
    world.product("p", 5)
    world.client("A", "counts and misses one", _counts("count-a", -1, seconds=3))
    world.client("B", "counts and finds one more", _counts("count-b", 1, seconds=3))
    if rivals > 2:
        world.deliver("C", "place_orders", order("o", p=1))


def _relists(client: Client, stock: int = 1) -> None:
    command = {"action": "delist", "productId": "p", "createdAt": OPENED}
    gone = client("manage_products", command).get("result")
    if gone not in {"APPLIED", "STALE"}:
        return
    crashes = client.world.crashes
    made = client("manage_products", {"action": "create", "productId": "p", "openingStock": stock})
    require(
        made.get("result") in {"APPLIED", "RETRY_LATER", None} or client.world.crashes > crashes,
        f"no other process lists the product, but its creation was answered {made}",
    )


def _relisted(world: World, rivals: int) -> None:
    world.product("p", 1)
    world.client("A", "delists and lists again", _relists)
    world.deliver("B", "place_orders", order("o", p=1))
    if rivals > 2:
        world.deliver("C", "change_orders", command("cancel"))


def _placed_before(
    world: World, order_id: str, status: str = "PENDING", *, units: int = 1, **more: Any
) -> None:
    """An order for units of p, as its row stands, and the units that it took."""
    line = {
        "productId": "p",
        "quantity": units,
        "productCreatedAt": OPENED,
        "productVersion": 1,
    }
    world.put(
        "Orders",
        {
            "orderId": order_id,
            "userId": "u-1",
            "status": status,
            "_version": 1,
            "createdAt": OPENED,
            "lastUpdatedAt": OPENED,
            "items": [line],
            **more,
        },
    )
    world.put(
        "StockAdjustments",
        {
            "productId": "p",
            "adjustmentId": f"for-{order_id}",
            "delta": units,
            "reason": "RECEIPT",
            "productCreatedAt": OPENED,
            "productVersion": 1,
            "appliedAt": OPENED,
        },
    )


def _relisted_and_cancelled(world: World, rivals: int) -> None:
    world.product("p", 1)
    # Placed a minute ago, from a product that was listed long before.
    _placed_before(world, "o", createdAt=world.moment(-60.0))
    world.client("A", "delists and lists again", _relists)
    world.deliver("B", "change_orders", command("cancel"))
    if rivals > 2:
        world.deliver("C", "place_orders", order("other", p=1))


def _event(event_id: str, second: int, price: int) -> dict[str, Any]:
    return {
        "eventId": event_id,
        "eventTime": f"2026-01-02T00:00:0{second}.000000+00:00",
        "productId": "p",
        "details": {"price": price},
    }


def _events(world: World, rivals: int) -> None:
    world.product("p", 1)
    world.deliver("A", "manage_products", _event("e1", 1, 100))
    world.deliver("B", "manage_products", _event("e2", 2, 200))
    if rivals > 2:
        world.deliver("C", "place_orders", order("o", p=1))


def _newest_stands(world: World) -> None:
    row = world.row("Products", "p") or {}
    require(row.get("price") == 200, f"the newest price is 200, but {row.get('price')} is stored")


def _conflicting_bodies(world: World, rivals: int) -> None:
    world.product("p", 5)
    world.deliver("A", "place_orders", order("o", p=1))
    world.deliver("B", "place_orders", order("o", p=2), order("other", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("o", user_id="u-2", p=1))


def _one_body(world: World) -> None:
    require(statuses(world, "o", "other")[0] == "PENDING", "none of the bodies was placed")
    ends = [world.handlers.end_of(world, message_id) for message_id in world.sent]
    require(
        ends.count("ORDER_ID_REUSED") == len(ends) - 2,
        f"bodies under one id ended as {ends}",
    )


def _fifo(world: World, rivals: int) -> None:
    world.product("p", 2)
    world.product("q", 1)
    world.deliver("A", "place_orders", order("g1", p=2), order("g2", p=1), group="p")
    # A quantity of 0 is poison, which has to be dead-lettered before its group can continue.
    world.deliver("B", "place_orders", order("h0", q=0), order("h1", q=1, p=1), group="q")
    if rivals > 2:
        world.deliver("C", "adjust_stock", receipt("r", "p", 1))


def _reused_in_a_group(world: World, rivals: int) -> None:
    world.product("p", 2)
    _placed_before(world, "g1")
    # The first message uses the id of another order. It has to be dead-lettered before the second one takes effect.
    world.deliver("A", "place_orders", order("g1", p=2), order("g2", p=1), group="g")
    world.deliver("B", "adjust_stock", receipt("r", "p", 1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("other", p=1))


def _same_order_twice(world: World, rivals: int) -> None:
    world.product("p", 1)
    for name in "ABC"[:rivals]:
        world.deliver(name, "place_orders", order("o", p=1))


def _is_placed(world: World) -> None:
    require(statuses(world, "o") == ["PENDING"], f"it ended as {statuses(world, 'o')}")


def _decrements(world: World, rivals: int) -> None:
    world.product("p", 2)

    def script(mode: str, name: str, times: int) -> Callable[[Client], None]:
        def run(client: Client) -> None:
            for number in range(times):
                command = {
                    "action": "decrement",
                    "adjustmentId": f"{name}{number}",
                    "productId": "p",
                    "quantity": 1,
                    "mode": mode,
                }
                _books(command)(client)

        return run

    # The first decrement fills the product cache, which the second one needs to be atomic.
    world.client("A", "decrements twice", script("atomic", "a", 2))
    world.client("B", "decrements", script("optimistic", "b", 1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("o", p=1))


def _decrement_and_receipt(world: World, rivals: int) -> None:
    # More than there is, before the receipt is booked.
    world.product("p", 1)
    asked = {"action": "decrement", "adjustmentId": "d", "productId": "p", "quantity": 2}
    world.client("A", "decrements", _asks("adjust_stock", asked | {"mode": "atomic"}))
    world.deliver("B", "adjust_stock", receipt("r", "p", 2))
    if rivals > 2:
        world.deliver("C", "place_orders", order("o", p=1))


def _decrement_sent_twice(world: World, rivals: int) -> None:
    world.product("p", 3)
    asked = {"action": "decrement", "adjustmentId": "d", "productId": "p", "quantity": 2}
    world.client("A", "decrements, and asks again", _asks_twice(asked | {"mode": "atomic"}))

    def sells_and_restocks(client: Client) -> None:
        client("place_orders", {"action": "place"} | order("o", p=2))
        client("adjust_stock", receipt("r", "p", 3))

    world.client("B", "sells, and books a receipt", sells_and_restocks)
    if rivals > 2:
        world.client("C", "asks the same in the other mode", _asks("adjust_stock", asked))


def _asks_twice(asked: dict[str, Any]) -> Callable[[Client], None]:
    def script(client: Client) -> None:
        for _ in range(2):
            client("adjust_stock", asked)

    return script


def _correction_repeated(world: World, rivals: int) -> None:
    world.product("p", 3)
    # A believes that nobody else writes the product.
    for name in ("warm1", "warm2"):
        world.warm_up("A", receipt(name, "p", -1), function="adjust_stock")
    asked = receipt("c", "p", -1)
    world.client("A", "corrects, and asks again", _asks_twice(asked))
    world.client("B", "asks the same", _asks("adjust_stock", asked))
    if rivals > 2:
        world.deliver("C", "adjust_stock", receipt("r", "p", 1))


def _remembered_stock(world: World, rivals: int) -> None:
    world.product("p", 3)
    # A reads what it has written, and so believes that nobody else writes it.
    for name in ("warm1", "warm2"):
        world.warm_up("A", order(name, p=1))
    world.deliver("A", "place_orders", order("a", p=2))
    world.deliver("B", "adjust_stock", receipt("r", "p", 1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _rows_of_others(world: World, rivals: int) -> None:
    world.product("p", 1)
    _placed_before(world, "shipped", status="SHIPPED")
    _placed_before(world, "o")
    world.deliver("A", "change_orders", command("cancel", "shipped"), command("cancel"))
    world.deliver("B", "place_orders", order("other", p=1))
    if rivals > 2:
        world.deliver("C", "change_orders", command("cancel"))


def _others_are_left_alone(world: World) -> None:
    ended = statuses(world, "shipped", "o", "other")
    require(ended == ["SHIPPED", "CANCELLED", "PENDING"], f"the orders ended as {ended}")
    ends = [world.handlers.end_of(world, message_id) for message_id in world.sent]
    require(ends.count("UNKNOWN_ORDER_STATUS") == 1, f"the messages ended as {ends}")


# ---------------------------------------------------------------------- the life of an order


def command(action: str, order_id: str = "o") -> dict[str, Any]:
    """Make the message of a command."""
    return {"action": action, "orderId": order_id}


def comes_back(return_id: str, units: int, *, restock: bool = True) -> dict[str, Any]:
    """Make the message of a return."""
    items = [{"productId": "p", "quantity": units}]
    return command("return") | {"stepId": return_id, "items": items, "restock": restock}


def part(action: str, step_id: str, units: int) -> dict[str, Any]:
    """Make the message of a command that names units."""
    items = [{"productId": "p", "quantity": units}]
    return command(action) | {"stepId": step_id, "items": items}


def _held(world: World, left: float, order_id: str = "o", **more: Any) -> None:
    """An order for two units whose hold ends in so many seconds."""
    hold = {"expiresAt": world.moment(left), "expiryShard": "00", "holdSeconds": 60}
    _placed_before(world, order_id, units=2, **hold, **more)


def _expire(world: World, name: str, *order_ids: str) -> None:
    """Let the messages of a sweeper be delivered."""
    ended = [{"orderId": order_id} for order_id in order_ids]
    world.deliver(name, "change_orders", *ended, through="EXPIRY_")


def _row(world: World, order_id: str = "o") -> dict[str, Any]:
    return world.row("Orders", order_id) or {}


def _check_units_of(world: World, *held: str) -> None:
    """Check that p, of which one unit was left, has just those units that no order holds."""
    orders = [row for row in world.rows("Orders") if row["status"] not in held]
    free = 1 + sum(row["items"][0]["quantity"] for row in orders)
    stock = (world.row("Products", "p") or {})["stockCount"]
    require(stock == free, f"{stock} units are left, and no order holds {free}")


def _one_wins(world: World) -> None:
    """Either the order is paid, or whoever has paid is told that it came too late. Never both."""
    row = _row(world)
    told = [name for name in ("confirmedAt", "confirmationRejected") if name in row]
    require(len(told) == 1, f"the order is {row['status']}, with {told}")
    _check_units_of(world, "PENDING", "CONFIRMED", "FULFILLED")


def _confirm_and_cancel(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, 600.0)
    world.deliver("A", "change_orders", command("confirm"))
    world.deliver("B", "change_orders", command("cancel"))
    if rivals > 2:
        world.client("C", "cancels it, too", _asks("change_orders", command("cancel")))


def _is_cancelled_after_all(world: World) -> None:
    _one_wins(world)
    require(_row(world)["status"] == "CANCELLED", f"it ended as {_row(world)['status']}")


def _confirm_and_expire(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, OVER)
    world.deliver("A", "change_orders", command("confirm"))
    _expire(world, "B", "o")
    if rivals > 2:
        world.deliver("C", "change_orders", command("cancel"))


def _confirm_twice(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, 1.0)
    # One copy was sent before the end of the hold, the other one after it. Both are looked at when the grace is over.
    world.deliver("A", "change_orders", command("confirm"), waits=GRACE_SECONDS + 2.0)
    world.deliver("B", "change_orders", command("confirm"))
    if rivals > 2:
        _expire(world, "C", "o")


def _is_paid_or_over(world: World) -> None:
    _one_wins(world)
    row = _row(world)
    is_over = row["status"] in {"EXPIRED", "CANCELLED"}
    require(row["status"] == "CONFIRMED" or is_over, f"it ended as {row['status']}")


def _cancel_and_expire(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, OVER)
    world.deliver("A", "change_orders", command("cancel"))
    _expire(world, "B", "o")
    if rivals > 2:
        world.deliver("C", "change_orders", command("confirm"))


def _is_over(world: World) -> None:
    status = _row(world)["status"]
    require(status in {"CANCELLED", "EXPIRED"}, f"it ended as {status}")
    _check_units_of(world, "PENDING", "CONFIRMED", "FULFILLED")


def _two_expiries(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, OVER)
    _held(world, 2.0 - GRACE_SECONDS, "later")
    # Two sweepers have sent the same, and one of the holds goes on for a while.
    for name in "AB":
        _expire(world, name, "o", "later")
    if rivals > 2:
        world.deliver("C", "change_orders", command("confirm", "later"))


def _are_over(world: World) -> None:
    ended = statuses(world, "o", "later")
    paid = "confirmedAt" in _row(world, "later")
    # An expiry that comes early is acknowledged: the next sweep finds the order again.
    later = {"CONFIRMED"} if paid else {"EXPIRED", "PENDING"}
    require(ended[0] == "EXPIRED" and ended[1] in later, f"they ended as {ended}")
    _check_units_of(world, "PENDING", "CONFIRMED")


def _fulfil_and_cancel(world: World, rivals: int) -> None:
    world.product("p", 1)
    _placed_before(world, "o", "CONFIRMED", units=2, confirmedAt=OPENED)
    world.deliver("A", "change_orders", command("fulfil"))
    world.deliver("B", "change_orders", command("cancel"))
    if rivals > 2:
        world.client("C", "takes one back", _asks("change_orders", comes_back("rt-1", 1)))


def _is_fulfilled_or_cancelled(world: World) -> None:
    row = _row(world)
    require(
        row["status"] == ("FULFILLED" if "fulfilledAt" in row else "CANCELLED"),
        f"it ended as {row}",
    )


def _delivered(world: World) -> None:
    world.product("p", 1)
    stamps = {"confirmedAt": OPENED, "fulfilledAt": OPENED}
    steps = [{"action": "fulfil", "at": OPENED}]
    _placed_before(world, "o", "FULFILLED", units=2, steps=steps, **stamps)


def _two_returns(world: World, rivals: int) -> None:
    _delivered(world)
    world.deliver("A", "change_orders", comes_back("rt-1", 1))
    # The first one again, and one that is too much after it.
    world.deliver("B", "change_orders", comes_back("rt-1", 1), comes_back("rt-2", 2))
    if rivals > 2:
        world.deliver("C", "change_orders", comes_back("rt-3", 1, restock=False))


def _returns(world: World) -> dict[str, int]:
    steps = _row(world).get("steps", ())
    return {
        step["stepId"]: step["items"][0]["quantity"] for step in steps if step["action"] == "return"
    }


def _no_more_than_delivered(world: World) -> None:
    came = _returns(world)
    wanted = {body["stepId"] for _, body, _ in world.sent.values()}
    left = 2 - sum(came.values())
    fits = [each for each in wanted - came.keys() if left >= (2 if each == "rt-2" else 1)]
    require(not fits, f"{came} was taken back, so {fits} could have been")


def _one_return_id(world: World, rivals: int) -> None:
    _delivered(world)
    world.deliver("A", "change_orders", comes_back("rt-1", 1))
    world.deliver("B", "change_orders", comes_back("rt-1", 2))
    if rivals > 2:
        world.deliver("C", "change_orders", comes_back("rt-1", 1, restock=False))


def _one_return(world: World) -> None:
    require(len(_returns(world)) == 1, f"{_returns(world)} was taken back")
    ends = [world.handlers.end_of(world, message_id) for message_id in world.sent]
    require(ends.count("STEP_ID_REUSED") == len(ends) - 1, f"returns under one id ended as {ends}")


def _line_by_line(world: World, rivals: int) -> None:
    world.product("p", 1)
    stamps = {"confirmedAt": OPENED, "fulfilShard": "00"}
    _placed_before(world, "o", "CONFIRMED", units=3, **stamps)
    # Of the two cancellations one is too much.
    world.deliver("A", "change_orders", part("cancel", "c-1", 2))
    world.deliver("B", "change_orders", part("cancel", "c-2", 2), part("fulfil", "f-1", 1))
    if rivals > 2:
        world.deliver("C", "change_orders", comes_back("rt-1", 1))


def _each_unit_moved_once(world: World) -> None:
    row = _row(world)
    made = {step["stepId"] for step in row["steps"]}
    require(row["status"] == "FULFILLED", f"it ended as {row}")
    require("f-1" in made and len(made) in {2, 3}, f"the order went through {row['steps']}")
    stock = (world.row("Products", "p") or {})["stockCount"]
    require(stock == 1 + 2 + len(made & {"rt-1"}), f"{stock} units are left")


def _return_and_cancel(world: World, rivals: int) -> None:
    world.product("p", 1)
    items = [{"productId": "p", "quantity": 1}]
    parcel = {"action": "fulfil", "at": OPENED, "stepId": "f-1", "items": items}
    stamps = {"confirmedAt": OPENED, "fulfilShard": "00", "steps": [parcel]}
    _placed_before(world, "o", "CONFIRMED", units=2, **stamps)
    # It waits while the second unit may still be handed over, and is refused once that unit is cancelled.
    world.deliver("A", "change_orders", comes_back("rt-1", 2))
    world.deliver("B", "change_orders", command("cancel"))
    if rivals > 2:
        world.deliver("C", "change_orders", comes_back("rt-2", 1))


def _only_what_was_delivered(world: World) -> None:
    row = _row(world)
    require("rt-1" not in _returns(world), f"{row['steps']} takes back what was cancelled")
    require(row["status"] == "FULFILLED", f"it ended as {row['status']}")


def _extend_and_expire(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, OVER, createdAt=world.moment(-7200.0))
    later = command("extend") | {"until": world.moment(3600.0)}
    world.deliver("A", "change_orders", later)
    _expire(world, "B", "o")
    if rivals > 2:
        world.deliver("C", "change_orders", later)


def _is_extended_or_over(world: World) -> None:
    row = _row(world)
    later = row.get("expiresAt", "") > world.moment(0.0)
    require(row["status"] == ("PENDING" if later else "EXPIRED"), f"it ended as {row}")
    _check_units_of(world, "PENDING")


def _order_and_commands(world: World, rivals: int) -> None:
    world.product("p", 2)
    world.deliver("A", "place_orders", order("o", p=2) | {"holdSeconds": 3600})
    # They may be early; the second one is for what the first one leaves.
    world.deliver("B", "change_orders", command("confirm"), command("fulfil"))
    if rivals > 2:
        world.deliver("C", "place_orders", order("other", p=2))


def _is_paid_or_told(world: World) -> None:
    row = _row(world)
    told = "confirmationRejected" in row
    require(told == (row["status"] == "REJECTED"), f"it was paid, and ended as {row}")
    _no_dead_letters(world)


def _no_dead_letters(world: World) -> None:
    ends = [world.handlers.end_of(world, message_id) for message_id in world.sent]
    require(set(ends) == {"done"}, f"the messages ended as {ends}")


def _one_batch(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, 600.0)
    world.deliver("A", "change_orders", command("confirm"), command("fulfil"), command("confirm"))
    world.deliver("B", "change_orders", command("fulfil"), command("confirm"))
    if rivals > 2:
        world.deliver("C", "change_orders", command("cancel"), command("fulfil"))


def _is_fulfilled(world: World) -> None:
    row = _row(world)
    # Who cancels what is not handed over yet may come first.
    allowed = {"FULFILLED", "CANCELLED"} if len(world.sent) > 5 else {"FULFILLED"}
    require(row["status"] in allowed, f"it ended as {row['status']}")
    _no_dead_letters(world)


def _two_sweepers(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, OVER)
    for name in "AB":
        world.client(name, "sweeps", _asks("sweep", {"action": "sweep"}))
    if rivals > 2:
        world.deliver("C", "change_orders", command("confirm"))


def _is_swept(world: World) -> None:
    status = _row(world)["status"]
    # What a sweeper could not send is sent with the next sweep, in a minute.
    allowed = {"EXPIRED", "PENDING"} if world.faults_used else {"EXPIRED"}
    # The third rival pays: it may come first.
    allowed |= {"CONFIRMED"} if "C" in world.processes else set()
    require(status in allowed, f"it ended as {status}")
    _check_units_of(world, "PENDING", "CONFIRMED")


def _sweep_and_confirm(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, 1.0)
    world.deliver("A", "change_orders", command("confirm"), waits=2.0)
    world.client("B", "sweeps", _asks("sweep", {"action": "sweep"}))
    if rivals > 2:
        world.deliver("C", "change_orders", command("fulfil"))


def _is_paid(world: World) -> None:
    # Its message waits a while for those who have paid in time.
    row = _row(world)
    is_late = world.faults_used and row["status"] == "EXPIRED" and "confirmationRejected" in row
    require("confirmedAt" in row or bool(is_late), f"it was paid in time, and ended as {row}")


def _published_life(world: World, rivals: int) -> None:
    world.product("p", 1)
    _held(world, 600.0)
    world.deliver("A", "change_orders", command("cancel"))
    world.deliver("B", "change_orders", command("confirm"), command("fulfil"))
    world.follow("P", "Orders")
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _published_tombstone(world: World, rivals: int) -> None:
    world.product("p", 2)
    world.deliver("A", "place_orders", order("o", p=2))
    world.deliver("B", "change_orders", command("cancel"))
    world.follow("P", "Orders")
    if rivals > 2:
        world.deliver("C", "change_orders", command("confirm"))


def _published_stock(world: World, rivals: int) -> None:
    world.product("p", 3, lowStockThreshold=1)
    world.deliver("A", "place_orders", order("a", p=3))
    world.deliver("B", "adjust_stock", receipt("r", "p", 1))
    world.follow("P", "Products")
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _by_hand_and_from_the_queue(world: World, rivals: int) -> None:
    world.product("p", 1)
    world.client("A", "places it by hand", _asks("place_orders", order("o", p=1)))
    world.deliver("B", "place_orders", order("o", p=1))
    if rivals > 2:
        world.client("C", "places another", _asks("place_orders", order("other", p=1)))


# ---------------------------------------------------------------------- with lanes


def _lent(world: World, name: str, **units: int) -> None:
    """Let an environment that has met rivals sell some, so that stock is lent and its lane is filled."""
    world.meet_rivals(name, *units)
    world.warm_up(name, order(f"warm{name}", **units))


def _loan_and_row(world: World, rivals: int) -> None:
    world.product("p", 7, lowStockThreshold=2)
    # A has met rivals, and so visits the depot. B has not, so it sells from the row.
    world.meet_rivals("A", "p")
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "place_orders", order("b", p=1))
    if rivals > 2:
        world.deliver("C", "adjust_stock", receipt("r", "p", 1))


def _last_unit_to_lend(world: World, rivals: int) -> None:
    world.product("p", 3)
    # The depot has sold all that it had before.
    world.meet_rivals("A", "p")
    world.warm_up("A", order("before", p=2))
    world.warm_up("B", receipt("r", "p", 1), function="adjust_stock")
    # One unit stays in the row. A borrows the other one, and sells it at the depot in the same transaction.
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "place_orders", order("b", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _two_visits(world: World, rivals: int) -> None:
    world.product("p", 6)
    # It belongs to the same page.
    world.product("r", 6)
    for name in "AB":
        world.meet_rivals(name, "p", "r")
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "place_orders", order("b", r=2))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2, r=2))


def _sale_and_recall(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    world.deliver("A", "place_orders", order("a", p=1))
    # It takes all that A's lane does not sell before.
    world.deliver("B", "place_orders", order("b", p=6))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=3))


def _two_recalls(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "idle", p=1)
    world.deliver("A", "place_orders", order("a", p=4))
    world.deliver("B", "place_orders", order("b", p=5))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _recall_and_fill(world: World, rivals: int) -> None:
    world.product("p", 19)
    _lent(world, "idle", p=1)
    # A has a lane without p, and is about to fill it. B takes more than the depot has, and leaves some there.
    _lent(world, "A", p=1)
    world.warm_up("A", order("emptied", p=world.units_in_lane(2, "p")))
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "place_orders", order("b", p=world.units_in_lane(0, "p") + 1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _loan_and_recall_of_nothing(world: World, rivals: int) -> None:
    world.product("p", 3)
    _lent(world, "A", p=1)
    # All that was lent is sold, and the row has got more.
    world.warm_up("A", order("warm", p=1))
    world.warm_up("S", receipt("r", "p", 5), function="adjust_stock")
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "place_orders", order("b", p=7))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _last_units_in_a_lane(world: World, rivals: int) -> None:
    world.product("p", 5)
    _lent(world, "A", p=1)
    # 4 are left: 1 in A's lane, 2 at the depot, 1 in the row. Whatever comes first, another order takes the rest.
    world.deliver("A", "place_orders", order("a", p=3))
    world.deliver("B", "place_orders", order("b1", p=1), order("b2", p=3))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=3))


def _nothing_is_left(world: World) -> None:
    row = world.row("Products", "p") or {}
    left = row["stockCount"] + sum(page.units("p") for page in world.handlers.pages(world))
    require(left == 0, f"{left} units are left, and were wanted")
    _at_once(world)


def _at_once(world: World) -> None:
    """Without a fault nothing is returned: who lost knows what to do next."""
    again = [name for name in world.processes if name.startswith("R")]
    require(world.faults_used > 0 or not again, "messages were returned, though nothing failed")


def _lane_taken_over(world: World, rivals: int) -> None:
    world.product("p", 9)
    _lent(world, "A", p=1)
    # A does not know that its lease is over, as if its clock were wrong. So B gets the lane, with what is in it.
    world.end_lease(1)
    world.deliver("A", "place_orders", order("a", p=2))
    world.deliver("B", "place_orders", order("b1", p=2), order("b2", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _page_filled_again(world: World, rivals: int) -> None:
    world.product("p", 15)
    world.product("q", 8)
    _lent(world, "A", p=1)
    world.warm_up("A", order("warmA2", p=4))
    remembered = world.units_in_lane(1, "p")
    world.end_lease(1)
    # Meanwhile another has taken the lane, emptied the page, and filled it with as much as A remembers.
    _lent(world, "B", q=1)
    world.meet_rivals("B", "p")
    world.warm_up("B", order("warmB2", p=world.units_in_lane(1, "p")))
    require(not world.units_in_lane(1, "p"), "B has not emptied the page")
    world.warm_up("B", order("warmB3", p=1))
    units = world.units_in_lane(1, "p")
    require(units == remembered, f"A remembers {remembered} units, and the page holds {units}")
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "place_orders", order("b", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2))


def _page_made_again(world: World, rivals: int) -> None:
    world.product("p", 13)
    _lent(world, "A", p=1)
    # The lane's page was gone, and made again with less in it. By chance it is at the version that A remembers.
    (page,) = (page for page in world.handlers.pages(world) if page.key.lane == 1)
    world.take_out_of_page(page, "p", page.units("p") - 1)
    world.deliver("A", "place_orders", order("a", p=2))
    world.deliver("B", "place_orders", order("b", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2))


def _page_restored(world: World, rivals: int) -> None:
    world.product("p", 13)
    _lent(world, "A", p=1)
    # While A sleeps its lease ends, and the tables are restored: by chance another page is at the version that it remembers.
    world.clock.seconds += LANE_SECONDS + 1.0
    (page,) = (page for page in world.handlers.pages(world) if page.key.lane == 1)
    world.take_out_of_page(page, "p", page.units("p") - 1, epoch=page.epoch)
    world.deliver("A", "place_orders", order("a", p=2))
    world.deliver("B", "place_orders", order("b", p=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2))


def _swept(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    # A wakes up just when nobody has used its lane and the depot for long enough.
    world.clock.seconds += IDLE_SECONDS + 1.0
    world.deliver("A", "place_orders", order("a", p=4))
    world.client("B", "sweeps", _asks("sweep", {"action": "sweep"}))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2))


def _two_losses(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "idle", p=1)
    # Both reclaim units from lanes. Without the units of the idle lane there is too little for A, with them there is
    # enough for both.
    row = (world.row("Products", "p") or {})["stockCount"]
    for name, units in (("A", row + world.units_in_lane(0, "p") + 1), ("B", row)):
        loss = receipt(f"loss-{name}", "p", -units)
        world.client(name, f"takes {units} away", _asks("adjust_stock", loss))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2))


def _is_enough(world: World) -> None:
    answers = [answer.get("result") for _, _, answer in world.answers]
    is_short = "C" in world.processes
    require("REFUSED" not in answers or is_short, f"there is enough, and they were told {answers}")


def _swept_in_use(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    world.end_lease(1)
    world.deliver("A", "place_orders", order("a1", p=1), order("a2", p=1))
    world.client("B", "sweeps", _asks("sweep", {"action": "sweep"}))
    if rivals > 2:
        world.client("C", "sweeps", _asks("sweep", {"action": "sweep"}))


def _count_and_loan(world: World, rivals: int) -> None:
    world.product("p", 7)
    world.meet_rivals("A", "p")
    world.deliver("A", "place_orders", order("a", p=1))
    world.client("B", "counts and finds one more", _counts("count", 1, seconds=3))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=8))


def _count_and_lane(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    world.deliver("A", "place_orders", order("a", p=1))
    world.client("B", "counts and misses one", _counts("count", -1, seconds=3))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=3))


def _leased_row(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    # Whoever counts has just begun, and never goes on. The depot has less than A wants, and no more is to be had.
    row = world.row("Products", "p") or {}
    row |= {"lockedBy": "a count", "lockTime": int(world.clock.seconds) + 4}
    row |= {"lockVersion": row["_version"], "lentTo": frozenset(row["lentTo"])}
    world.put("Products", row)
    world.deliver("A", "place_orders", order("a", p=6))
    if rivals > 2:
        world.deliver("B", "place_orders", order("b", p=1))


def _relisted_and_filled(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    # More than the lane holds, so that the depot fills it.
    world.deliver("A", "place_orders", order("a", p=world.units_in_lane(1, "p") + 1))
    world.client("B", "delists and lists again", _relists)
    if rivals > 2:
        world.deliver("C", "change_orders", command("cancel", "warmA"))


def _delisted_twice(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "idle", p=1)
    delist = {"action": "delist", "productId": "p", "createdAt": OPENED}
    world.client("A", "delists", _asks("manage_products", delist))

    def lists_again_and_sells(client: Client) -> None:
        _relists(client, 7)
        client("place_orders", order("b", p=1))

    # What B lists is lent again at once.
    world.meet_rivals("B", "p")
    world.client("B", "delists, lists again and sells", lists_again_and_sells)
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _discontinued_in_a_lane(world: World, rivals: int) -> None:
    world.product("p", 7)
    _lent(world, "A", p=1)
    world.deliver("A", "place_orders", order("a", p=1))

    def discontinues(client: Client) -> None:
        if rivals > 2:
            asked = {"action": "change", "productId": "p", "lowStockThreshold": 6}
            client("manage_products", asked)
        client("manage_products", {"action": "discontinue", "productId": "p"})

    world.client("B", "discontinues it", discontinues)
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=6))


def _loss_and_lane(world: World, rivals: int) -> None:
    world.product("p", 7, lowStockThreshold=1)
    _lent(world, "A", p=1)
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "adjust_stock", receipt("loss", "p", -2))
    if rivals > 2:
        world.client("C", "decrements", _decrements_once("c"))


def _decrements_once(name: str) -> Callable[[Client], None]:
    command = {"action": "decrement", "adjustmentId": name, "productId": "p", "quantity": 1}
    return _books(command | {"mode": "atomic"})


def _fifo_and_visit(world: World, rivals: int) -> None:
    world.product("p", 7)
    world.product("q", 3)
    _lent(world, "A", p=1)
    world.meet_rivals("A", "q")
    world.meet_rivals("B", "q")
    # The first one is in A's lane. The second one is scarce, and so sold at the depot, where A may have to wait for B.
    world.deliver("A", "place_orders", order("g1", p=1), order("g2", q=1), group="g")
    world.deliver("B", "place_orders", order("b", q=1))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=2, q=1))


def _cancellation_and_recall(world: World, rivals: int) -> None:
    world.product("p", 5)
    _lent(world, "A", p=1)
    world.deliver("A", "place_orders", order("a", p=5))
    world.deliver("B", "change_orders", command("cancel", "warmA"))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _end_hold(world: World, order_id: str) -> None:
    """Let an order's hold have ended, as if it had been placed long ago."""
    world.put("Orders", _row(world, order_id) | {"expiresAt": world.moment(OVER)})


def _expiry_and_recall(world: World, rivals: int) -> None:
    world.product("p", 6)
    for order_id in ("by-row", "from-lane"):
        world.warm_up("A", order(order_id, p=1) | {"holdSeconds": 60})
        _end_hold(world, order_id)
        world.meet_rivals("A", "p")
    # All that is left, so that units are recalled.
    world.deliver("A", "place_orders", order("a", p=4))
    _expire(world, "B", "by-row", "from-lane")
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _cancel_and_loan(world: World, rivals: int) -> None:
    world.product("p", 8, lowStockThreshold=2)
    world.warm_up("A", order("warm", p=1))
    world.meet_rivals("A", "p")
    world.warm_up("B", command("confirm", "warm"), function="change_orders")
    world.deliver("A", "place_orders", order("a", p=1))
    world.deliver("B", "change_orders", command("cancel", "warm"))
    if rivals > 2:
        world.deliver("C", "change_orders", command("fulfil", "warm"))


def _return_and_recall(world: World, rivals: int) -> None:
    world.product("p", 5)
    _lent(world, "A", p=1)
    for action in ("confirm", "fulfil"):
        world.warm_up("B", command(action, "warmA"), function="change_orders")
    world.deliver("A", "place_orders", order("a", p=4))
    world.deliver("B", "change_orders", comes_back("rt-1", 1) | {"orderId": "warmA"})
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _lane_and_row(world: World, rivals: int) -> None:
    world.product("p", 7)
    world.product("q", 1)
    _lent(world, "A", p=1)
    # p comes from A's lane and q from its row, in one transaction.
    world.deliver("A", "place_orders", order("a", p=1, q=1))
    world.deliver("B", "place_orders", order("b1", q=1), order("b2", p=6))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1, q=1))


def _row_beside_lane(world: World, rivals: int) -> None:
    world.product("p", 20_000)
    world.product("q", 5)
    # A's visit for q also fills its lane with some p, on whose row it has met nobody.
    _lent(world, "B", p=1)
    _lent(world, "A", q=1)
    world.wait_in_line("A")
    units = world.units_in_lane(2, "p")
    require(0 < units < 1_000, f"the lane holds {units} units, and the row shall sell one more")
    # There is one unit too few for both.
    world.deliver("A", "place_orders", order("a", p=units + 1))
    world.deliver("B", "place_orders", order("b", p=19_999 - units))
    if rivals > 2:
        world.deliver("C", "place_orders", order("c", p=1))


def _with_lanes(
    name: str,
    set_up: Callable[[World, int], None],
    *,
    lanes: int = 2,
    faults: tuple[str, ...] = _TORN,
    **more: Any,
) -> Scenario:
    return Scenario(name, set_up, lanes=lanes, faults=faults, **more)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("order against order on the last unit", _last_unit, check=_one_winner),
        Scenario("the same order twice at once", _same_order_twice, check=_is_placed),
        Scenario("batch against overlapping batch", _overlapping_batches),
        Scenario(
            "order against its cancellation",
            _order_and_cancellation,
            jumps=(WORKING_SECONDS + 1.0,),
            check=_is_cancelled,
        ),
        Scenario("receipt twice against order", _receipt_twice),
        Scenario("lease against order", _lease_and_order, jumps=(4.0, WORKING_SECONDS - 0.1)),
        # By a clock that is fast the lease is over, and the other attempt may still succeed.
        Scenario(
            "one count, committed twice at once",
            _count_twice,
            faults=(*_TELLING, "throttled", "lost-twice", "late", "parted"),
        ),
        Scenario("count, asked again after its lease", _count_asked_again),
        Scenario("expired lease against its successor", _lease_and_successor, jumps=(4.0,)),
        Scenario("delist and relist against order", _relisted),
        Scenario("delist and relist against cancellation", _relisted_and_cancelled),
        Scenario("catalogue event against a later one", _events, check=_newest_stands),
        Scenario("order by remembered stock against receipt", _remembered_stock),
        Scenario("rows of somebody else's", _rows_of_others, check=_others_are_left_alone),
        Scenario("conflicting bodies under one orderId", _conflicting_bodies, check=_one_body),
        Scenario("FIFO groups, redelivered", _fifo),
        Scenario("FIFO group behind a reused orderId", _reused_in_a_group),
        Scenario("atomic against optimistic decrement", _decrements, faults=()),
        Scenario("decrement of too much against receipt", _decrement_and_receipt),
        Scenario(
            "decrement sent twice against a sale and a receipt",
            _decrement_sent_twice,
            faults=("lost", "late", "crash", "crash-after"),
        ),
        Scenario("correction by the last unit, repeated", _correction_repeated),
        Scenario(
            "confirmation against cancellation", _confirm_and_cancel, check=_is_cancelled_after_all
        ),
        Scenario(
            "confirmation against the end of its hold", _confirm_and_expire, check=_is_paid_or_over
        ),
        Scenario(
            "confirmation sent before and after the end of its hold",
            _confirm_twice,
            check=_is_paid_or_over,
        ),
        Scenario("cancellation against the end of its hold", _cancel_and_expire, check=_is_over),
        Scenario(
            "ends of holds, sent twice",
            _two_expiries,
            jumps=(4.0,),
            check=_are_over,
            faults=(*_TELLING, "late", "time", "clocks"),
        ),
        Scenario(
            "fulfilment against cancellation",
            _fulfil_and_cancel,
            check=_is_fulfilled_or_cancelled,
        ),
        Scenario("return against return", _two_returns, check=_no_more_than_delivered),
        Scenario("two returns under one id", _one_return_id, check=_one_return),
        Scenario("lines of one order", _line_by_line, check=_each_unit_moved_once),
        Scenario(
            "return against a cancelled rest", _return_and_cancel, check=_only_what_was_delivered
        ),
        Scenario(
            "extension against the end of its hold", _extend_and_expire, check=_is_extended_or_over
        ),
        Scenario("order against its early commands", _order_and_commands, check=_is_paid_or_told),
        Scenario(
            "commands of one order in one batch",
            _one_batch,
            check=_is_fulfilled,
            faults=(*_TELLING, "late", "stale"),
        ),
        Scenario("sweeper against sweeper", _two_sweepers, check=_is_swept),
        Scenario("sweeper against confirmation in time", _sweep_and_confirm, check=_is_paid),
        Scenario(
            "publishing an order's life",
            _published_life,
            jumps=(WORKING_SECONDS + 1.0,),
            faults=_OF_A_PUBLISHER,
            switches=2,
        ),
        Scenario(
            "publishing a tombstone filled in",
            _published_tombstone,
            jumps=(WORKING_SECONDS + 1.0,),
            faults=_OF_A_PUBLISHER,
        ),
        Scenario("publishing stock", _published_stock, faults=_OF_A_PUBLISHER),
        Scenario("order by hand against itself from the queue", _by_hand_and_from_the_queue),
        _with_lanes(
            "loan against sale from the row", _loan_and_row, faults=(*_TORN, "late", "clocks")
        ),
        _with_lanes("last unit to lend", _last_unit_to_lend),
        _with_lanes("two visits that both have the depot", _two_visits, line_works=False),
        _with_lanes(
            "sale from a lane against recall", _sale_and_recall, faults=(*_TORN, "late", "clocks")
        ),
        _with_lanes("recall against recall", _two_recalls, switches=2, line_works=False),
        _with_lanes(
            "recall against fill",
            _recall_and_fill,
            switches=2,
            line_works=False,
            faults=(*_TORN, "late"),
        ),
        _with_lanes(
            "recall of nothing against loan",
            _loan_and_recall_of_nothing,
            switches=2,
            line_works=False,
        ),
        _with_lanes(
            "last units in a lane",
            _last_units_in_a_lane,
            check=_nothing_is_left,
            faults=(*_TORN, "late"),
        ),
        _with_lanes(
            "lane taken over against its woken owner",
            _lane_taken_over,
            lanes=1,
            check=_at_once,
            faults=(*_TORN, "late", "clocks"),
        ),
        _with_lanes("page emptied and filled again", _page_filled_again, lanes=1),
        _with_lanes("page made again", _page_made_again),
        _with_lanes("page restored while its owner slept", _page_restored, faults=()),
        _with_lanes("order from lane and row against recall", _lane_and_row),
        _with_lanes("order from the row beside a lane with too few", _row_beside_lane),
        _with_lanes("sweep against visit", _swept),
        _with_lanes("sweep against a lane in use", _swept_in_use),
        _with_lanes(
            "two losses that reclaim",
            _two_losses,
            switches=2,
            check=_is_enough,
            faults=("torn",),
        ),
        _with_lanes("FIFO group against visit", _fifo_and_visit, switches=3),
        _with_lanes(
            "count against loan",
            _count_and_loan,
            jumps=(4.0,),
            switches=3,
            faults=(*_TORN, "time"),
        ),
        _with_lanes(
            "count against lane",
            _count_and_lane,
            jumps=(4.0,),
            switches=3,
            faults=(*_TORN, "time"),
        ),
        _with_lanes("lease on a row that is lent", _leased_row, faults=(*_TORN, "clocks")),
        _with_lanes("delist and relist against fill", _relisted_and_filled),
        _with_lanes("delist against delist and relist, lent again", _delisted_twice, switches=2),
        _with_lanes("discontinue against lane", _discontinued_in_a_lane, switches=3),
        _with_lanes("loss against lane", _loss_and_lane, switches=3),
        _with_lanes("cancellation against recall", _cancellation_and_recall, switches=3),
        _with_lanes("end of holds against recall", _expiry_and_recall, switches=3),
        _with_lanes("cancellation of a paid order against loan", _cancel_and_loan, switches=3),
        _with_lanes("return against recall", _return_and_recall, switches=3),
    )
}
