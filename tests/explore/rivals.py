"""The building blocks of the scenarios: messages, set-up steps, and rivals (concurrent writers)."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from inventory_orders.store.rows import shard_of
from testing.schedules.every.world import Rival, SetUp, World
from testing.world.ends import key_of, units_of
from testing.world.invariants import GRACE_SECONDS
from testing.world.process import Client
from testing.world.violation import require

OPENED = "2026-01-01T00:00:00.000000+00:00"
OVER = -GRACE_SECONDS - 1.0
"""Seconds until the end of a hold that may expire."""

LEFT_ON = "out/0"
"""The outbound page of all hand-overs before the run."""

_OF_FIRST_GENERATION = {"productCreatedAt": OPENED, "productVersion": 1}

Message = dict[str, Any]
Messages = Message | Callable[[World], Message]
"""A message, or a function that creates it when its rival starts."""
Script = Callable[[Client], None]

# ---------------------------------------------------------------------- messages


def order(order_id: str, user_id: str = "u-1", **lines: int) -> Message:
    """Make an order for a number of units of each product."""
    items = [{"productId": name, "quantity": quantity} for name, quantity in lines.items()]
    return {"orderId": order_id, "userId": user_id, "items": items}


def order_at(
    order_id: str,
    *locations: str,
    split: bool = False,
    named: Mapping[str, str] | None = None,
    **lines: int,
) -> Message:
    """Make an order for a number of units of each product, from the first location that has them.

    Args:
        order_id: The order's id.
        locations: Locations that it may be placed from, in order of preference.
        split: Whether its lines may come from several of them.
        named: By product, the location that its line names.
        lines: Units by product.
    """
    body = order(order_id, **lines)
    for line in body["items"]:
        if named and line["productId"] in named:
            line["locationId"] = named[line["productId"]]
    return body | {"locations": list(locations)} | ({"split": True} if split else {})


def transfer(transfer_id: str, source: str, target: str, units: int) -> Message:
    """Make a transfer of units of product `p` from one location to another."""
    asked = {"action": "transfer", "transferId": transfer_id, "productId": "p"}
    return {**asked, "from": source, "to": target, "quantity": units}


def receipt(adjustment_id: str, delta: int, location: str = "") -> Message:
    """Make an adjustment that adds units of product `p`, or removes lost ones."""
    return {"adjustmentId": adjustment_id, **p_at(location), "delta": delta, "reason": "RECEIPT"}


def decrement(adjustment_id: str, units: int, **more: str) -> Message:
    """Make a message that decrements the stock of product `p`."""
    asked = {"action": "decrement", "adjustmentId": adjustment_id, "productId": "p"}
    return {**asked, "quantity": units, **more}


def command(action: str, order_id: str = "o", **more: Any) -> Message:
    """Make a command for an order."""
    return {"action": action, "orderId": order_id, **more}


def part(action: str, step_id: str, units: int, order_id: str = "o", **more: Any) -> Message:
    """Make a command for some of the units of product `p` in an order."""
    items = [{"productId": "p", "quantity": units}]
    return command(action, order_id, stepId=step_id, items=items, **more)


def comes_back(return_id: str, units: int, order_id: str = "o", *, restock: bool = True) -> Message:
    """Make a command that returns some of the units of product `p` in an order."""
    return part("return", return_id, units, order_id, restock=restock)


CANCEL, CONFIRM, FULFIL = (command(action) for action in ("cancel", "confirm", "fulfil"))

# ---------------------------------------------------------------------- rivals


def _bodies(world: World, messages: Iterable[Messages]) -> list[Message]:
    return [message(world) if callable(message) else message for message in messages]


def delivers(
    function: str,
    *messages: Messages,
    group: str | None = None,
    through: str = "",
    waits: float = 0.0,
) -> Rival:
    """Make a rival that delivers a batch of messages to a function.

    Args:
        function: Name of the function.
        messages: The messages.
        group: `MessageGroupId`, for the FIFO queue.
        through: Prefix of the environment variables that name the function's queue.
        waits: Seconds for which the messages wait in the queue.
    """

    def start(world: World, name: str) -> None:
        bodies = _bodies(world, messages)
        world.deliver(name, function, *bodies, group=group, through=through, waits=waits)

    return start


places = partial(delivers, "place_orders")
changes = partial(delivers, "change_orders")
adjusts = partial(delivers, "adjust_stock")
manages = partial(delivers, "manage_products")


def buys(order_id: str, user_id: str = "u-1", **lines: int) -> Rival:
    """Make a rival that sends one order."""
    return places(order(order_id, user_id, **lines))


def restocks(units: int) -> Rival:
    """Make a rival that sends a receipt of units."""
    return adjusts(receipt("r", units))


def expires(*order_ids: str) -> Rival:
    """Make a rival that sends messages about ended holds, as the sweeper does."""
    return changes(*({"orderId": order_id} for order_id in order_ids), through="EXPIRY_")


def runs(script: Script) -> Rival:
    """Make a client that runs a script."""
    return lambda world, name: world.client(name, script)


def asks(function: str, *commands: Messages, times: int = 1) -> Rival:
    """Make a client that sends commands, one after the other.

    Args:
        function: Name of the function.
        commands: The commands.
        times: Maximum number of attempts for a command that is answered `RETRY_LATER`.
    """

    def start(world: World, name: str) -> None:
        bodies = _bodies(world, commands)

        def script(client: Client) -> None:
            for body in bodies:
                for _ in range(times):
                    if client(function, body).get("result") != "RETRY_LATER":
                        break

        world.client(name, script)

    return start


calls = partial(asks, "api")
"""Makes a caller that places orders over HTTP, and waits for their outcomes."""
insists = partial(asks, times=2)
SWEEPS = asks("sweep", {"action": "sweep"})


def published(table: str, rival: Rival) -> Rival:
    """Extend a rival with a process that publishes a table's changes as events."""

    def start(world: World, name: str) -> None:
        rival(world, name)
        world.follow("P", table)

    return start


def counts(adjustment_id: str, found: int, location: str = "") -> Rival:
    """Make a client that counts product `p` and finds surplus units. If the count cannot be committed, it releases the
    lease."""

    def script(client: Client) -> None:
        acquired = client("count_stock", acquire(3, location))
        if acquired.get("result") != "ACQUIRED":
            return
        counted = acquired["onHand"] + found
        committed = client("count_stock", commit(acquired, adjustment_id, counted))
        if committed.get("result") != "COMMITTED":
            client("count_stock", {"action": "release", "lease": acquired["lease"]})

    return runs(script)


def finds(adjustment_id: str, shelf: int, *, leased: bool = False) -> Rival:
    """Make a client that counts product `p` as of a time or, if `leased`, under a lease, and always finds `shelf` units."""

    def script(client: Client) -> None:
        place = {"productId": "p", "locationId": "", "adjustmentId": adjustment_id}
        begun = client("count_stock", acquire(3) if leased else {"action": "begin", **place})
        if begun.get("result") == "ACQUIRED":
            client("count_stock", commit(begun, adjustment_id, shelf))
        elif begun.get("result") == "BEGUN":
            count = {"action": "count", "snapshot": begun["snapshot"], "counted": shelf}
            client("count_stock", count | place)

    return runs(script)


def acquire(seconds: int, location: str = "") -> Message:
    """Make a command that takes the lease on product `p`."""
    asked = {"action": "acquire", "productId": "p", "locationId": location, "seconds": seconds}
    return asked | {"outliveInvocation": True}


def p_at(location: str) -> Message:
    """Build the fields of a message that name product `p` and a location."""
    return {"productId": "p"} | ({"locationId": location} if location else {})


def commit(acquired: Message, adjustment_id: str, counted: int) -> Message:
    """Make a command that commits a count, with the lease that the answer to `acquire` contains."""
    return {
        "action": "commit",
        "lease": acquired["lease"],
        "adjustmentId": adjustment_id,
        "counted": counted,
    }


def delist(location: str = "") -> Message:
    """Make a command that delists the first generation of product `p`."""
    return {"action": "delist", **p_at(location), "createdAt": OPENED}


def create(location: str = "", stock: int = 1) -> Message:
    """Make a command that lists product `p`."""
    return {"action": "create", **p_at(location), "openingStock": stock}


def relists(client: Client, stock: int = 1, location: str = "") -> None:
    """Delist product `p` as a client would, then list it again."""
    gone = client("manage_products", delist(location)).get("result")
    if gone not in {"APPLIED", "STALE"}:
        return
    crashes = client.world.crashes
    made = client("manage_products", create(location, stock))
    require(
        made.get("result") in {"APPLIED", "RETRY_LATER", None} or client.world.crashes > crashes,
        f"no other process lists the product, but creating it was answered with {made}",
    )


# ---------------------------------------------------------------------- setting up


def add_product(world: World, key: str, stock: int, **more: Any) -> None:
    """List a product, or its row at one location, with the adjustment that accounts for its stock."""
    product_id, _, location = key.partition("#")
    status = "OUT_OF_STOCK" if stock <= -more.get("backorderLimit", 0) else "ACTIVE"
    if 0 < stock <= more.get("lowStockThreshold", 0):
        status = "LOW_STOCK"
    row = {"productId": key, "stockCount": stock, "onHand": stock, "_version": 1, "status": status}
    row |= {"createdAt": OPENED, "lastUpdatedAt": OPENED}
    if location:
        row |= {"of": product_id, "locationId": location}
        if world.row("Products", product_id) is None:
            add_product(world, product_id, 0)
        own = world.row("Products", product_id) or {}
        places = frozenset({*own.get("places", ()), location})
        world.write("Products", own | {"places": places})
    world.write("Products", row | more)
    opening = {"productId": key, "adjustmentId": "opening", "delta": stock, "reason": "OPENING"}
    world.write("StockAdjustments", opening | _OF_FIRST_GENERATION | {"appliedAt": OPENED})


def add_on_hand(world: World, key: str, units: int) -> None:
    """Add units to a product's `onHand`. The caller records them in an adjustment."""
    row = world.row("Products", key) or {}
    world.edit("Products", key, onHand={"N": str(row["onHand"] + units)})


def add_outbound_page(world: World, *entries: tuple[str, str, int]) -> None:
    """Store the outbound page `LEFT_ON` at version 1, with entries that are not folded yet."""
    units = {"B": base64.b64encode(zlib.compress(json.dumps(entries).encode())).decode()}
    world.edit("Allotments", LEFT_ON, _version={"N": "1"}, epoch={"S": "one"}, units=units)


def stock(low: int = 0, **units: int) -> SetUp:
    """Make a set-up that lists products with these units and a low-stock threshold."""

    def set_up(world: World) -> None:
        for product_id, count in units.items():
            add_product(world, product_id, count, **({"lowStockThreshold": low} if low else {}))

    return set_up


def stock_at(location: str, **units: int) -> SetUp:
    """Make a set-up that lists products with these units at a location."""
    return stock(**{f"{product_id}#{location}": count for product_id, count in units.items()})


def add_order(
    order_id: str = "o",
    status: str = "PENDING",
    units: int = 1,
    age: float | None = None,
    location: str = "",
    **more: Any,
) -> SetUp:
    """Store an order for units of product `p`, and a receipt for these units. Its outbound pages are already folded.

    Args:
        order_id: Its id.
        status: Its status.
        units: Number of units.
        age: Seconds since it was placed; by default it is as old as the product.
        location: Where its units were taken from.
        more: Further attributes of its row.
    """

    def set_up(world: World) -> None:
        key = key_of(p_at(location))
        row = {
            "orderId": order_id,
            "userId": "u-1",
            "status": status,
            "statusAt": OPENED,
            "statusShard": shard_of(order_id, 16, f"{status}#"),
            "_version": 1,
            "createdAt": OPENED if age is None else world.moment(-age),
            "lastUpdatedAt": OPENED,
            "items": [{**p_at(location), **_OF_FIRST_GENERATION, "quantity": units}],
        }
        world.write("Orders", row | more)
        booked = {"adjustmentId": f"for-{order_id}", "delta": units, "reason": "RECEIPT"}
        booked |= {"productId": key, "appliedAt": OPENED}
        world.write("StockAdjustments", _OF_FIRST_GENERATION | booked)
        open_, delivered = units_of(row | more)
        add_on_hand(world, key, open_["p"])
        if delivered:
            add_outbound_page(world)

    return set_up


def add_held_order(left: float, order_id: str = "o", age: float | None = None) -> SetUp:
    """Store an order for two units of product `p`. Its hold ends in `left` seconds."""

    def set_up(world: World) -> None:
        hold = {"expiresAt": world.moment(left), "expiryShard": "00", "holdSeconds": 60}
        add_order(order_id, units=2, age=age, **hold)(world)

    return set_up


def add_paid_order(units: int, **more: Any) -> SetUp:
    """Store a paid order for units of product `p`."""
    return add_order(status="CONFIRMED", units=units, confirmedAt=OPENED, **more)


def add_delivered_order(world: World) -> None:
    """Store an order for two units of product `p` that were handed over."""
    stamps = {"confirmedAt": OPENED, "fulfilledAt": OPENED}
    add_order(status="FULFILLED", units=2, steps=[handed_over({"action": "fulfil"})], **stamps)(
        world
    )


def add_departed_order(world: World) -> None:
    """Store an order for two units of product `p` that were handed over and are still on an outbound page."""
    add_delivered_order(world)
    add_outbound_page(world, ("p", OPENED, 2))
    add_on_hand(world, "p", 2)


def handed_over(step: Message) -> Message:
    """Record in a step that its units were handed over before the run."""
    return {**step, "at": OPENED, "outPage": LEFT_ON, "outVersion": 1}


def warm_up(name: str, *messages: Messages, function: str = "place_orders") -> SetUp:
    """Make a set-up in which an environment processes messages before the run."""

    def set_up(world: World) -> None:
        bodies = _bodies(world, messages)
        world.warm_up(name, *bodies, function=function)

    return set_up


def meet_rivals(name: str, *product_ids: str, over_http: bool = False) -> SetUp:
    """Make a set-up in which an environment meets contention on products' rows, so that it sells these products from
    lanes for a while."""
    return lambda world: world.meet_rivals(name, *product_ids, over_http=over_http)


def lend_to_caller(name: str) -> SetUp:
    """Make a set-up in which an environment of the API meets contention on product `p` and sells a unit, so that it fills
    its lane."""

    def set_up(world: World) -> None:
        world.meet_rivals(name, "p", over_http=True)
        calls(order(f"warm{name}", p=1))(world, name)
        world.finish(name)

    return set_up


def lend(name: str, location: str = "", **units: int) -> SetUp:
    """Make a set-up in which an environment meets contention and sells some units, so that stock is lent and its lane
    is filled."""

    def set_up(world: World) -> None:
        world.meet_rivals(name, *(key_of({"productId": p, "locationId": location}) for p in units))
        world.warm_up(name, order_at(f"warm{name}", location, **units))

    return set_up


def wait(seconds: float) -> SetUp:
    """Make a set-up that lets some seconds pass."""

    def set_up(world: World) -> None:
        world.clock.seconds += seconds

    return set_up
