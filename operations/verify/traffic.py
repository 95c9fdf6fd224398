"""Checks that send traffic: orders, receipts, commands, counts and invalid messages."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.location import product_of, stock_key
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.writes import Action, ActionKind, Write

from .. import queues
from ..audit import read_accounts, read_orders
from ..books import Account
from ..follow import Heard, listening
from ..forget import orders_of
from ..http_api import HttpApi
from ..orders_file import OrderMessage
from ..words import counted
from .figures import express_orders, measure
from .report import CheckFailedError, Line, judged, not_here, passed
from .run import Run, expect

_FIFO_ORDERS, _FIFO_UNITS = 12, 7
_EVENT_ORDERS, _LISTEN_SECONDS = 24, 5
# The lease is shorter than an invocation, so that the handler can wait for its end without returning the order.
_COUNT_SECONDS = 20
# The shortest hold that an order may ask for.
_HOLD_SECONDS = 60
# The number of seconds in which the check watches the order wait.
_HELD_SECONDS = 1.5
_HOT_SHARE = 0.6
_MOST_CALLS, _RUSH_SHARE = 200, 0.75
# On the embedded AWS, every caller starts a process, which takes most of the time.
_CALLERS, _CALLERS_EMBEDDED = 20, 4
_REPEATED_EACH = 10
_LIMIT = 2


def place(run: Run, order: Mapping[str, Any]) -> dict[str, Any]:
    """Send an order to OrderQueue, wait for its row and return it."""
    run.send(queues.STANDARD, order)
    return run.answer(order)


def expect_stock(run: Run, product_id: str, units: int, why: str) -> None:
    """Raise a `CheckFailedError` unless this many units of a product are left."""
    stock = run.stock(product_id)
    expect(stock == units, f"{why}, and {stock} are left, not {units}")


def expect_shelf(run: Run, product_id: str, on_hand: int, available: int, why: str) -> None:
    """Raise a `CheckFailedError` unless this many units of a product are on hand and available."""
    level = run.level(product_id)
    expect(
        (level.on_hand, level.available) == (on_hand, available),
        f"{why}, and {level.on_hand} are on hand and {level.available} available, not {on_hand} and {available}",
    )


def leftovers(run: Run) -> list[Line]:
    """Products and dead letters of interrupted runs are removed, and their open orders cancelled."""
    old, young = run.leftovers()
    # The names of all runs have the same length.
    names = sorted({key[: len(run.name)] for key in old})
    orders = [order_id for name in names for order_id in orders_of(run.aws, f"{name}-user")]
    run.products += old
    letters = run.remove_old_dead_letters()
    if not old and not young and not letters:
        return passed("left-overs", "none of earlier runs")
    saw = [
        f"removed from an interrupted run: {counted(len(set(map(product_of, old))), 'product')}, {counted(letters, 'dead letter')}"
        if old or letters
        else "",
        f"left alone, because their run may still be active: {counted(young, 'product')}"
        if young
        else "",
    ]
    return judged("left-overs", run.clean_up(orders), "; ".join(filter(None, saw)))


def places(run: Run) -> list[Line]:
    """An order sent through SQS is placed, takes its stock, and can be found by its user."""
    product = run.list_product("places", 5)
    order = run.order("places", {product: 2})
    began = time.monotonic()
    row = place(run, order)
    seconds = time.monotonic() - began
    expect(row["status"] == "PENDING", f"the order is {row['status']} {row.get('reason', '')}")
    expect_stock(run, product, 3, "2 of 5 units were ordered")
    run.wait(
        lambda: list(orders_of(run.aws, order["userId"])),
        "no order of the user in the index byUser",
    )
    return passed(
        "an order is placed",
        f"PENDING {seconds:.1f} s after it was sent to OrderQueue; stock 5 to 3; found by user",
    )


def holds(run: Run) -> list[Line]:
    """An order with a hold takes its stock.

    The check `expires` waits for the end of the hold after all other traffic.
    """
    product = run.list_product("holds", 5)
    order = run.order("holds", {product: 2}, holdSeconds=_HOLD_SECONDS)
    row = place(run, order)
    expect("expiresAt" in row, f"the order is {row['status']}, and its row has no expiresAt")
    expect_stock(run, product, 3, "2 of 5 units are held")
    run.held = row
    return passed("an order is held", f"for {_HOLD_SECONDS} s; stock 5 to 3")


def expires(run: Run) -> list[Line]:
    """An unconfirmed hold expires after the stage's grace period, and returns its stock."""
    if run.held is None:
        holds(run)
    held: Any = run.held
    grace = _variable(run, "HOLD_GRACE_SECONDS")
    due = datetime.fromisoformat(held["expiresAt"]) + timedelta(seconds=grace)

    def left() -> float:
        return (due - SystemClock().now()).total_seconds()

    def look() -> dict[str, Any] | None:
        seconds = left()
        run.say(
            f"a hold to expire, in {math.ceil(seconds)} s"
            if seconds > 0
            else "a hold to expire, any moment now"
        )
        row = run.row(held)
        return row if row is not None and row["status"] != "PENDING" else None

    # The sweep may send the order a whole interval after the end of its hold.
    seconds = max(0.0, left()) + 60 * _variable(run, "SWEEP_MINUTES") + run.patience
    row = run.wait(
        look,
        "a hold did not expire (check Sweep and the event source mapping of ExpiryQueue)",
        seconds,
    )
    expect(row["status"] == "EXPIRED", f"an order that was not confirmed is {row['status']}")
    late = (datetime.fromisoformat(row["lastUpdatedAt"]) - due).total_seconds()
    expect(late >= 0, f"a hold expired {-late:.1f} s before its end and the grace of {grace} s")
    (line,) = held["items"]
    expect_stock(run, line["productId"], 5, "2 of 5 units were held, the hold expired")
    saw = f"EXPIRED {late:.1f} s after its end and the grace of {grace} s; stock back to 5"
    return passed("a hold expires", saw)


def _variable(run: Run, name: str) -> int:
    """Return the deployed value of an environment variable: a number that is the same in all functions that have it."""
    (value,) = {int(variables[name]) for variables in run.deployed.variables() if name in variables}
    return value


def confirms(run: Run) -> list[Line]:
    """A paid order is confirmed, leaves in two parcels, loses a unit, and has one returned, each exactly once."""
    product = run.list_product("confirms", 6)
    order = run.order("confirms", {product: 4}, holdSeconds=900)
    place(run, order)
    confirm = {"action": "confirm", "orderId": order["orderId"]}
    run.send(queues.COMMANDS, confirm, confirm)
    _wait_until(run, order, "CONFIRMED")
    run.command("ChangeOrders", confirm, "REPLAYED")
    expect_shelf(run, product, 6, 2, "4 of 6 units were ordered")
    one = {"orderId": order["orderId"], "items": [{"productId": product, "quantity": 1}]}
    parcel = one | {"action": "fulfil", "stepId": f"{run.name}-parcel"}
    lost = one | {"action": "cancel", "stepId": f"{run.name}-lost", "restock": False}
    for command in (parcel, lost):
        for wanted in ("APPLIED", "REPLAYED"):
            run.command("ChangeOrders", command, wanted)
    expect_shelf(
        run, product, 4, 2, "4 of 6 units were ordered, 1 of which was handed over and 1 lost"
    )
    run.command("ChangeOrders", confirm | {"action": "fulfil"}, "APPLIED")
    back = one | {"action": "return", "stepId": f"{run.name}-return", "restock": True}
    for wanted in ("APPLIED", "REPLAYED"):
        run.command("ChangeOrders", back, wanted)
    status = (run.row(order) or {}).get("status")
    expect(status == "FULFILLED", f"an order that left in two parcels is {status}")
    expect_shelf(run, product, 3, 3, "3 of 6 units were handed over, 1 was lost and 1 came back")
    return [
        *passed(
            "an order is confirmed", "CONFIRMED through OrderCommandQueue, then repeated: REPLAYED"
        ),
        *passed(
            "an order is handed over",
            "FULFILLED in two parcels; 1 unit was lost, 1 came back; on hand 6 to 3, available 2 to 3",
        ),
    ]


def locations(run: Run) -> list[Line]:
    """An order takes lines from two locations, a transfer moves units, and a cancelled order returns its units."""
    one, other = run.list_product("locations", 0), run.list_product("locations-other", 0)
    for name, stock, location in (
        *(("locations", 3, "north"), ("locations", 1, "south")),
        ("locations-other", 2, "south"),
    ):
        run.list_product(name, stock, location)
    north, south = stock_key(one, "north"), stock_key(one, "south")
    units = {one: 2, other: 1}
    order = run.order("locations", units, locations=["north", "south"], split=True)
    row = place(run, order)
    found = {line["productId"]: line.get("locationId") for line in row["items"]}
    wanted = {one: "north", other: "south"}
    expect(
        found == wanted,
        f"an order with status {row['status']} takes its lines from {found}, not {wanted}",
    )
    transfer: dict[str, Any] = {"action": "transfer", "productId": one, "quantity": 1}
    transfer |= {"transferId": f"{run.name}-transfer", "from": "north", "to": "south"}
    for result in ("APPLIED", "REPLAYED"):
        run.command("AdjustStock", transfer, result)
    expect_stock(run, north, 0, "2 of 3 units were ordered, and 1 was moved away")
    expect_stock(run, south, 2, "1 unit was moved to a location with 1")
    run.command("ChangeOrders", {"action": "cancel", "orderId": order["orderId"]}, "APPLIED")
    expect_stock(run, north, 2, "2 units were cancelled")
    expect_stock(run, stock_key(other, "south"), 2, "1 of 2 units was ordered and cancelled")
    return passed(
        "several locations",
        "an order took one line from each of two; 1 unit was moved, once; CANCELLED, and all units came back to their locations",
    )


def limits(run: Run) -> list[Line]:
    """Orders with one card stay within a purchase limit although they arrive together, and a cancellation gives its unit back."""
    product = run.list_product("limits", 9, purchaseLimit=_LIMIT)
    card: dict[str, Any] = {"buyers": [f"{run.name}-card"]}
    orders = [run.order(f"limits-{number}", {product: 1}, **card) for number in range(3 * _LIMIT)]
    run.send(queues.STANDARD, *orders)
    rows = [run.answer(order) for order in orders]
    found = Counter(row.get("reason", row["status"]) for row in rows)
    wanted = {"PENDING": _LIMIT, "PURCHASE_LIMIT": len(orders) - _LIMIT}
    expect(found == wanted, f"{len(orders)} orders with one card: {dict(found)}, not {wanted}")
    placed = next(row["orderId"] for row in rows if row["status"] == "PENDING")
    run.command("ChangeOrders", {"action": "cancel", "orderId": placed}, "APPLIED")
    row = place(run, run.order("limits-again", {product: 1}, **card))
    expect(row["status"] == "PENDING", f"after a cancellation, an order is {row.get('reason')}")
    expect_stock(run, product, 9 - _LIMIT, f"{_LIMIT} of 9 units may be bought with one card")
    saw = f"of {len(orders)} orders with one card, {_LIMIT} were placed; after a cancellation, another one was"
    return passed("purchase limits", saw)


def api(run: Run) -> list[Line]:
    """The HTTP API carries out all steps of an order with signed requests, and refuses unsigned requests."""
    name = "the HTTP API"
    if not run.deployed.of_type("AWS::ApiGatewayV2::Route"):
        return not_here(name, "the stack has none: `api` is false in cdk.json")
    ask = partial(_ask, HttpApi.of(run.aws))
    orders = f"/orders?limit=10&userId={run.name}-user"
    status, _ = ask("GET", orders, signed=False)
    expect(status in (401, 403), f"the API answered {status} to a request without credentials")
    product = run.list_product("api", 5)
    order = run.order(f"api{_IN_PATHS}", {product: 2})
    one, began = f"/orders/{quote(order['orderId'], safe='')}", time.monotonic()
    placed = ask("POST", "/orders", order)
    needs = "; your credentials need execute-api:Invoke on the API" if placed[0] == 403 else ""
    expect(placed[0] in (201, 202), f"POST /orders was answered {placed}{needs}")
    shown = run.wait(
        lambda: _found(ask("GET", one)),
        f"no answer to an order through the API (check the event source mapping of OrderQueueExpress, or whether API Gateway changes ids: GET {one})",
    )
    seconds = time.monotonic() - began
    expect(
        (shown["orderId"], shown["status"]) == (order["orderId"], "PENDING"),
        f"GET {one} shows {shown}",
    )
    others = [f"{order['orderId']}{character}x" for character in "/?%"]
    for other in others:
        refused, _ = ask("POST", "/orders", order | {"orderId": other})
        expect(refused == 400, f"POST /orders with the id {other} was answered {refused}, not 400")
    # API Gateway may cut the path, and so address another order; no request here may change an order.
    reached = [ask("GET", f"/orders/{quote(other, safe='')}")[0] for other in others]
    run.wait(
        lambda: any(
            listed["orderId"] == order["orderId"]
            for listed in (_found(ask("GET", orders)) or {}).get("orders", ())
        ),
        f"GET {orders} does not list the order",
    )
    _, confirmed = ask("POST", f"{one}/confirm")
    expect(confirmed.get("status") == "CONFIRMED", f"POST {one}/confirm answered {confirmed}")
    _, shelf = ask("GET", f"/products/{product}")
    # The setting `locations` may leave out the default location.
    seen = {shelf.get("availability"), *shelf.get("elsewhere", {}).values()}
    expect("IN_STOCK" in seen, f"GET /products/{product} shows {shelf}")
    expect_stock(run, product, 3, "2 of 5 units were ordered")
    # Otherwise it would stay among the orders to ship.
    _, cancelled = ask("POST", f"{one}/cancel")
    expect(cancelled.get("status") == "CANCELLED", f"POST {one}/cancel answered {cancelled}")
    saw = (
        f"{placed[0]}, PENDING after {seconds:.1f} s, listed, CONFIRMED, CANCELLED; "
        f"{status} without a signature; ids with / ? % were refused, and in paths answered "
        f"{' '.join(map(str, reached))}"
    )
    return passed(name, saw)


_IN_PATHS = "!\"$&'()*+-.:;<=>@[\\]^_`{|}~"
"""The characters besides letters and digits that ids in paths may have."""


def _ask(api: HttpApi, method: str, path: str, body: Any = None, *, signed: bool = True) -> Any:
    """Send a request, and return the status and the body of the answer."""
    headers, data = {}, None
    if body is not None:
        headers = {"Content-Type": "application/json", "Prefer": "wait=20"}
        data = json.dumps(body).encode()
    reply = api.send(method, path, headers, data, signed=signed)
    return reply.status, reply.said


def _found(answer: Any) -> Any:
    status, said = answer
    return said if status == 200 else None


def rejects(run: Run) -> list[Line]:
    """An order for too many units is rejected, and so is an order for an unlisted product."""
    product = run.list_product("rejects", 1)
    too_many = run.order("rejects-many", {product: 2})
    unknown = run.order("rejects-unknown", {f"{run.name}-none": 1})
    run.send(queues.STANDARD, too_many, unknown)
    reasons = [run.answer(order).get("reason") for order in (too_many, unknown)]
    wanted = ["INSUFFICIENT_STOCK", "UNKNOWN_PRODUCT"]
    expect(reasons == wanted, f"the reasons are {reasons}, not {wanted}")
    expect_stock(run, product, 1, "2 of 1 units were ordered and rejected")
    return passed("orders are rejected", f"{' and '.join(wanted)}; no stock was taken")


def replays(run: Run) -> list[Line]:
    """A repeated order changes nothing, and another order with its id is dead-lettered."""
    product = run.list_product("replays", 5)
    order = run.order("replays", {product: 1})
    # A FIFO queue answers the rest of their group after these messages.
    queue = queues.FIFO if queues.FIFO in run.aws.outputs else queues.STANDARD
    dead_letters = dict(queues.pairs(run.aws))[queue]
    run.send(queue, order, group=product)
    first = run.answer(order, _of(queue))
    another = order | {"items": [{"productId": product, "quantity": 2}]}
    last = run.order("replays-last", {product: 1})
    # The whitespace differs, because the FIFO queue drops an identical body for five minutes.
    again = json.dumps(order, indent=1)
    _, reused, _ = run.send(queue, again, another, last, group=product)
    run.dead_letters.setdefault(dead_letters, set()).add(reused)
    # No message of a group is answered before the dead letter ahead of it is durable.
    found = run.take_dead_letters(dead_letters, run.patience)
    expect(found, f"no dead letter for another order with the same id in {_of(dead_letters)}")
    run.answer(last, _of(queue))
    expect(run.row(order) == first, "the row of an order changed when it was sent again")
    expect_stock(run, product, 3, "2 orders for 1 of 5 units were sent, one of them twice")
    code, body = found[0].code, found[0].body
    expect(code == "ORDER_ID_REUSED", f"its dead letter has the code {code}, not ORDER_ID_REUSED")
    expect(body == json.dumps(another), "the body of its dead letter was changed")
    return [
        *passed("an order sent twice", "its row is unchanged, and stock was taken once"),
        *passed("another order, same id", f"{code} in {_of(dead_letters)}, body unchanged"),
    ]


def invalid(run: Run) -> list[Line]:
    """Every queue dead-letters a message that is not JSON, with its cause."""
    body = f"{run.name} is not JSON"
    sent, pairs = {}, queues.pairs(run.aws)
    for source, target in pairs:
        (sent[target],) = run.send(source, body, group=run.name)
        run.dead_letters.setdefault(target, set()).add(sent[target])
    problems = []
    until = time.monotonic() + run.patience
    for source, target in pairs:
        run.say(f"a dead letter in {_of(target)}")
        taken = run.take_dead_letters(target, max(0.1, until - time.monotonic()))
        found = [letter for letter in taken if letter.original_message_id == sent[target]]
        if not found:
            problems.append(
                f"an invalid message sent to {_of(source)} is not in {_of(target)} (check its event source mapping)"
            )
        for letter in found:
            if letter.code != "INVALID_JSON":
                problems.append(f"{_of(target)} has the code {letter.code}, not INVALID_JSON")
            if letter.body != body:
                problems.append(f"{_of(target)} has a changed body")
    saw = f"INVALID_JSON in {len(pairs)} of {len(pairs)} dead-letter queues, bodies unchanged; removed again"
    return judged("invalid messages are dead-lettered", problems, saw)


def _of(output: str) -> str:
    return output.removesuffix("Url")


def cancels(run: Run) -> list[Line]:
    """A cancellation returns stock; if it arrives before its order, the order takes none."""
    product = run.list_product("cancels", 5)
    order, later = (run.order(f"cancels-{n}", {product: 2}) for n in ("order", "later"))
    place(run, order)
    expect_stock(run, product, 3, "2 of 5 units were ordered")
    both = (order, later)
    run.send(queues.COMMANDS, *({"action": "cancel", "orderId": o["orderId"]} for o in both))
    for each in both:
        _wait_until(run, each, "CANCELLED")
    expect_stock(run, product, 5, "2 of 5 units were ordered and cancelled")
    run.send(queues.STANDARD, later)
    row = run.wait(
        partial(_with_user, run, later),
        "no answer to the order that was cancelled before it arrived",
    )
    expect(
        row["status"] == "CANCELLED",
        f"an order that was cancelled before it arrived is {row['status']}",
    )
    expect_stock(run, product, 5, "an order for 2 of 5 units was cancelled before it arrived")
    return [
        *passed("an order is cancelled", "CANCELLED; stock 5 to 3, and back to 5"),
        *passed("cancelled before it arrived", "CANCELLED on arrival; stock stays 5"),
    ]


def _wait_until(run: Run, order: Mapping[str, Any], status: str) -> None:
    """Wait until a command sent through its queue has given an order a status."""
    run.wait(
        lambda: (run.row(order) or {}).get("status") == status,
        f"an order was not {status.lower()} through OrderCommandQueue (check its event source mapping)",
    )


def _with_user(run: Run, order: dict[str, Any]) -> dict[str, Any] | None:
    """Return the row of an order, unless it records only a cancellation."""
    row = run.row(order)
    return row if row is not None and "userId" in row else None


def receives(run: Run) -> list[Line]:
    """A receipt that arrives three times is booked once."""
    product = run.list_product("receives", 5)
    receipt: dict[str, Any] = {"adjustmentId": f"{run.name}-receipt", "productId": product}
    receipt |= {"delta": 7, "reason": "RECEIPT"}
    run.send(queues.STOCK, receipt, receipt)
    run.wait(
        lambda: run.stock(product) != 5,
        "a receipt was not booked through StockQueue (check its event source mapping)",
    )
    run.command("AdjustStock", receipt, "REPLAYED")
    expect_stock(run, product, 12, "7 units were received in addition to 5")
    return passed(
        "a receipt is booked once", "sent twice, then REPLAYED when invoked; stock 5 to 12"
    )


def counts(run: Run) -> list[Line]:
    """A count includes units of open orders. Orders that arrive during the count have to wait, but none is rejected."""
    product, other = run.list_product("counts", 10), run.list_product("counts-other", 5)
    place(run, run.order("counts-open", {product: 2}))
    acquire = {"action": "acquire", "productId": product, "seconds": _COUNT_SECONDS}
    acquire |= {"holder": run.name, "outliveInvocation": True}
    held = renewed = time.monotonic()
    taken = run.command("CountStock", acquire, "ACQUIRED")
    numbers = {name: taken.get(name) for name in ("onHand", "committed", "available")}
    wanted = {"onHand": 10, "committed": 2, "available": 8}
    expect(numbers == wanted, f"2 of 10 units were ordered, but a count starts with {numbers}")
    lease = taken["lease"]

    def renew(every: float = _COUNT_SECONDS / 2) -> None:
        nonlocal lease, renewed
        if (now := time.monotonic()) >= renewed + every:
            more = {"action": "renew", "lease": lease, "seconds": _COUNT_SECONDS}
            more["outliveInvocation"] = True
            lease = run.command("CountStock", more, "RENEWED")["lease"]
            renewed = now

    order, marker = run.order("counts", {product: 1}), run.order("counts-other", {other: 1})
    run.send(queues.STANDARD, order, marker)
    # With a batching window, Lambda may wait as long as the lease lasts before it reads a quiet queue.
    run.answer(marker, meanwhile=renew)
    renew(0)
    while time.monotonic() < held + _HELD_SECONDS:
        expect(run.row(order) is None, "an order did not wait for the stock count")
        time.sleep(run.pause)
    count = {"action": "commit", "lease": lease, "counted": 7, "adjustmentId": f"{run.name}-count"}
    delta = run.command("CountStock", count, "COMMITTED").get("delta")
    expect(delta == -3, f"7 of 10 units were counted, and {delta} were booked")
    seconds = time.monotonic() - held
    row = run.answer(order)
    expect(row["status"] == "PENDING", f"the order that waited is {row['status']}")
    expect_shelf(run, product, 7, 4, "7 units were counted and 3 ordered")
    return passed(
        "a count under a lease",
        f"10 on hand, 2 of them ordered, counted as 7; an order waited {seconds:.1f} s, then took 1; available 8 to 4",
    )


def catalogue(run: Run) -> list[Line]:
    """A catalogue event changes details; an older one does not."""
    product = run.list_product("catalogue", 0)
    early, late = (timestamp(SystemClock().now()) for _ in range(2))
    event = {"eventId": f"{run.name}-2", "eventTime": late, "productId": product}
    details = {"name": "Verified", "price": 100}
    run.send(queues.CATALOGUE, event | {"details": details})
    run.wait(
        lambda: (run.product(product) or {}).get("name") == details["name"],
        "an event was not applied through CatalogueQueue (check its event source mapping)",
    )
    stale = event | {"eventId": f"{run.name}-1", "eventTime": early, "details": {"name": "Older"}}
    run.command("ManageProducts", {"action": "changeDetails", **stale}, "STALE")
    row = run.product(product) or {}
    found = {name: row.get(name) for name in details}
    expect(found == details, f"the details are {found}, not {details}")
    return passed("a catalogue event", "name and price are set; an older event is STALE")


def events(run: Run) -> list[Line]:
    """An order's event arrives through the bus.

    The check sends several orders, because a new rule may miss its first minute.
    """
    product = run.list_product("events", _EVENT_ORDERS)
    with listening(run.aws) as listen:

        def hear() -> Heard | None:
            order = run.order(f"event-{time.monotonic_ns()}", {product: 1})
            place(run, order)
            of_this_run = (
                heard
                for heard in listen(_LISTEN_SECONDS)
                if str(heard.event["detail"]["data"].get("orderId")).startswith(run.name)
            )
            return next(of_this_run, None)

        patience = min(2 * run.patience, _EVENT_ORDERS * _LISTEN_SECONDS)
        heard = run.wait(
            hear,
            "no event of an order (check the event source mappings of PublishEvents)",
            patience,
        )
    kind, delay = heard.event["detail-type"], heard.delay or 0.0
    return passed("an event is received", f"{kind}, {delay:.1f} s after it occurred")


def fifo(run: Run) -> list[Line]:
    """On the FIFO queue, the first orders get the stock."""
    name = "first come, first served"
    if queues.FIFO not in run.aws.outputs:
        return not_here(
            name, "the stack has no FIFO queue, because `fifoQueue` is false in cdk.json"
        )
    product = run.list_product("fifo", _FIFO_UNITS)
    orders = [run.order(f"fifo-{n:02}", {product: 1}) for n in range(_FIFO_ORDERS)]
    run.send(queues.FIFO, *orders, group=product)
    rows = [run.answer(order, "OrderQueueFifo") for order in orders]
    placed = [n for n, row in enumerate(rows, 1) if row["status"] == "PENDING"]
    wanted = list(range(1, _FIFO_UNITS + 1))
    expect(
        placed == wanted, f"{placed} of {_FIFO_ORDERS} orders for {_FIFO_UNITS} units were placed"
    )
    versions = [int(row["items"][0]["productVersion"]) for row in rows[:_FIFO_UNITS]]
    expect(versions == sorted(versions), f"they were placed in the wrong sequence: {versions}")
    return passed(
        name,
        f"{_FIFO_ORDERS} orders for {_FIFO_UNITS} units: the first {_FIFO_UNITS} got them, in order",
    )


def hot(run: Run) -> list[Line]:
    """If many orders for one product arrive together, exactly as many are placed as the product has units."""
    units = max(1, round(run.orders * _HOT_SHARE))
    product = run.list_product("hot", units)
    orders = [run.order(f"hot-{n}", {product: 1}) for n in range(run.orders)]
    messages = [OrderMessage(json.dumps(order)) for order in orders]
    since = int(time.time() * 1000)
    began = time.monotonic()
    rows: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(queues.send, run.aws, queues.STANDARD, messages)
        seconds = _wait_for_all(run, [order["orderId"] for order in orders], rows, began)
        sending.result()
    statuses = Counter(row.get("reason", row["status"]) for row in rows.values())
    run.placed += statuses["PENDING"]
    problems = list(_problems_of_answers("OrderQueue", statuses, run.orders, units))
    if (stock := run.stock(product)) != 0:
        problems.append(f"{stock} units are left, not 0")
    speed = round(len(rows) / seconds, 1) if rows else 0.0
    run.figures |= {"orders": len(rows), "seconds": round(seconds, 2), "ordersPerSecond": speed}
    if rows and run.deployed.dashboards:
        run.figures |= measure(run, since, len(rows))
    saw = (
        f"{statuses['PENDING']:,} placed, {run.orders - units:,} INSUFFICIENT_STOCK, none lost; "
        f"{speed:,.0f} orders a second"
    )
    return judged(f"{run.orders:,} orders for {units:,} units", problems, saw)


def _problems_of_answers(
    queue: str, statuses: Counter[str], orders: int, units: int
) -> Iterator[str]:
    """Compare the outcomes of all orders, each for one unit, with the expected ones."""
    wanted = {"PENDING": units, "INSUFFICIENT_STOCK": orders - units}
    lost = orders - statuses.total()
    if lost:
        yield f"{lost:,} of {orders:,} orders through {queue} have no answer (check its event source mapping)"
    if statuses != Counter(wanted):
        yield f"the answers are {dict(statuses)}, not {wanted}"


def rush(run: Run) -> list[Line]:
    """If many callers wait for one product, all answers agree with the orders' rows, and each unit is sold once.

    Some orders are sent twice at about the same time.
    """
    count = min(run.orders, _MOST_CALLS)
    units = max(1, round(count * _RUSH_SHARE))
    name = f"{count:,} callers for {units:,} units"
    if not run.deployed.of_type("AWS::ApiGatewayV2::Route"):
        return not_here(name, "the stack has none: `api` is false in cdk.json")
    product = run.list_product("rush", units)
    orders = [run.order(f"rush-{n}", {product: 1}) for n in range(count)]
    since, began = int(time.time() * 1000), time.monotonic()
    answers = _rush_in(run, orders)
    seconds = time.monotonic() - began
    rows = read_orders(run.aws, [order["orderId"] for order in orders])
    statuses = Counter(row.get("reason", row["status"]) for row in rows.values())
    run.placed += statuses["PENDING"]
    problems = [
        *_problems_of_answers("the API", statuses, count, units),
        *_problems_of_callers(answers, rows),
    ]
    if (stock := run.stock(product)) != 0:
        problems.append(f"{stock} units are left, not 0")
    waits = sorted(wait for *_, wait in answers)
    saw = (
        f"{units:,} placed, {count - units:,} INSUFFICIENT_STOCK, all answers true, {len(answers) - count:,} orders sent twice; "
        f"{len(answers) / seconds:,.0f} answers a second, p99 {waits[99 * len(waits) // 100]:.2f} s"
    )
    if run.deployed.dashboards:
        saw += f", {express_orders(run, since) / count:.0%} of the orders through OrderQueueExpress"
    return judged(name, problems, saw)


def _call(
    run: Run, ask: Callable[..., Any], order: Mapping[str, Any]
) -> tuple[str, int, Any, float]:
    """Send an order until it is answered. Returns its id, the status and body of the answer, and the seconds that it took."""
    began = time.monotonic()

    def answer() -> Any:
        status, said = ask("POST", "/orders", order)
        return None if status in (202, 429, 503) else (status, said)

    missing = "no answer to an order of a caller who waits (check the event source mapping of OrderQueueExpress)"
    status, said = run.wait(answer, missing)
    return order["orderId"], status, said, time.monotonic() - began


def _rush_in(run: Run, orders: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, Any, float]]:
    """Send orders from many callers, some of them twice. Returns what `_call` returns for each."""
    sent = [order for n, order in enumerate(orders) for _ in range(1 if n % _REPEATED_EACH else 2)]
    ask = partial(_ask, HttpApi.of(run.aws))
    with ThreadPoolExecutor(_CALLERS_EMBEDDED if run.embedded else _CALLERS) as pool:
        return list(pool.map(partial(_call, run, ask), sent))


def _problems_of_callers(
    answers: Sequence[tuple[str, int, Any, float]], rows: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Compare what callers were told with the orders' rows."""
    for order_id, status, said, _ in answers:
        if text := _false(order_id, status, said, rows):
            yield text
    placed = Counter(order_id for order_id, status, *_ in answers if status == 201)
    yield from (f"{order_id} was placed twice" for order_id, n in placed.items() if n > 1)


def _false(order_id: str, status: int, said: Any, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe an answer that contradicts the order's row; empty if it agrees."""
    row = rows.get(order_id, {})
    stored = row.get("status"), row.get("reason")
    told = {200: ("PENDING", None), 201: ("PENDING", None), 409: ("REJECTED", said.get("code"))}
    if told.get(status) == stored:
        return ""
    return f"{order_id} was answered {status} {said}, but its row says {stored}"


def _wait_for_all(
    run: Run, order_ids: Sequence[str], rows: dict[str, dict[str, Any]], began: float
) -> float:
    """Wait until all orders are answered, or no answer arrives for a while. Returns the seconds until the last one."""
    moved = began
    while len(rows) < len(order_ids):
        open_ids = [order_id for order_id in order_ids if order_id not in rows]
        found = read_orders(run.aws, open_ids)
        rows |= found
        now = time.monotonic()
        if found:
            moved = now
            run.say(f"answers: {len(rows):,} of {len(order_ids):,}")
        elif now - moved > run.patience:
            break
        else:
            time.sleep(run.pause)
    return moved - began


def token(run: Run) -> list[Line]:
    """A cancelled transaction leaves its token free: the same request is evaluated again, and applied once.

    The engine repeats a request with its token while an earlier attempt may be in flight, even after a cancellation for
    a temporary reason. If DynamoDB remembered the cancellation, this request could never succeed. AWS documents the
    effect of a token after a success, but not after a cancellation:
    docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """
    product = run.list_product("token", 1)
    store = run.aws.store()
    rename = Action(
        ActionKind.PRODUCT,
        product,
        Write(
            "SET #name = :name, #_version = :after",
            "#_version = :before",
            {"name": "Verified", "before": 2, "after": 3},
        ),
    )
    same = uuid.uuid4().hex
    try:
        store.write([rename], same)
    except TransactionCancelledError as cancelled:
        (reason,) = cancelled.reasons
        expect(reason.code == "ConditionalCheckFailed", f"it was cancelled for {reason.code}")
        expect(
            getattr(reason.found, "version", None) == 1, "the cancellation did not include the item"
        )
    else:
        raise CheckFailedError("a transaction was applied although its condition did not hold")
    price = {"action": "changePrice", "productId": product, "price": 1, "leastAgeMinutes": 0}
    run.command("ManageProducts", price, "APPLIED")
    versions = []
    for _ in range(2):
        try:
            store.write([rename], same)
        except TransactionCancelledError as cancelled:
            raise CheckFailedError(
                f"the repeated request with the same token was cancelled again ({cancelled}), although its condition held; "
                "DynamoDB remembers a cancelled token"
            ) from cancelled
        versions.append((run.product(product) or {}).get("_version"))
    expect(versions == [3, 3], f"applied twice, it left the versions {versions}, not [3, 3]")
    return passed(
        "a token after a cancellation",
        "cancelled with its item, then evaluated again and applied, then recognised",
    )


def books(run: Run) -> list[Line]:
    """Adjustments and orders account for every unit of this run's products: on hand, committed and available."""
    if not run.products:
        places(run)
    run.say("the books of this run")
    accounts = read_accounts(run.aws, run.products, run.order_ids)
    received, sold = sum(a.adjusted for a in accounts), sum(a.sold for a in accounts)
    left, waiting = sum(a.left for a in accounts), sum(a.open for a in accounts)
    return judged(
        "the books balance",
        [problem for account in accounts for problem in _problems_of_account(account)],
        f"{counted(len(accounts), 'product')}, {received:,} units received, {sold:,} sold, {left:,} of them handed over or lost, and {waiting:,} "
        "committed: all units accounted for",
    )


def _problems_of_account(account: Account) -> Iterator[str]:
    name = account.name
    for sentence in account.unexplained_in_words:
        yield f"{name} has {sentence}"
    for problem in account.problems:
        yield f"{name}: {problem}"
    if not account.settled:
        yield f"{name} changed during every read"


def cleans_up(run: Run) -> list[Line]:
    """All products of this run are delisted, and its open orders are cancelled."""
    count = counted(len(set(map(product_of, run.products))), "product")
    return judged("cleaned up", run.clean_up(), f"{count} delisted; no order is open")


CHECKS = {
    check.__name__.replace("_", "-"): check
    for check in (
        *(
            leftovers,
            holds,
            places,
            rejects,
            replays,
            invalid,
            cancels,
            confirms,
            locations,
            limits,
        ),
        *(
            api,
            receives,
            counts,
            catalogue,
            events,
            fifo,
            hot,
            rush,
            token,
            expires,
            books,
            cleans_up,
        ),
    )
}
"""The checks by name, in the sequence in which they run."""
