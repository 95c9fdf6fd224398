"""The scenarios: rivals (concurrent writers) whose schedules are explored."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.domain.allotments import DEPOT, Needs
from inventory_orders.errors import StoreError
from inventory_orders.invocation.runtime import RESERVED_SECONDS
from inventory_orders.lanes.idle import IDLE_SECONDS
from inventory_orders.lanes.lane import LANE_SECONDS
from inventory_orders.store.rows import encode, page_units
from operations.forget import Forgetting
from testing.schedules.every.world import Rival, Scenario, SetUp, World
from testing.world.ends import units_of
from testing.world.invariants import GRACE_SECONDS, end_of
from testing.world.process import LAMBDA_SECONDS, Client, CrashedError
from testing.world.violation import require
from tests.explore.rivals import (
    CANCEL,
    CONFIRM,
    FULFIL,
    OPENED,
    OVER,
    SWEEPS,
    Message,
    acquire,
    add_delivered_order,
    add_departed_order,
    add_held_order,
    add_on_hand,
    add_order,
    add_paid_order,
    add_product,
    adjusts,
    amend,
    asks,
    buys,
    calls,
    changes,
    comes_back,
    command,
    commit,
    counts,
    create,
    decrement,
    delist,
    expires,
    finds,
    handed_over,
    insists,
    lend,
    lend_to_caller,
    manages,
    meet_rivals,
    order,
    order_at,
    part,
    places,
    published,
    receipt,
    relists,
    restocks,
    runs,
    stock,
    stock_at,
    transfer,
    wait,
    warm_up,
)

# After this time an invocation begins no new work.
WORKING_SECONDS = LAMBDA_SECONDS - RESERVED_SECONDS
# The most revealing faults, for scenarios with long runs: with lanes, or with batches of several commands.
_TELLING = ("conflict", "lost", "crash", "crash-after")
_TORN = (*_TELLING, "torn")
_OF_PAGES = (*_TELLING, "late", "parted")
_OF_A_PUBLISHER = ("refused", "throttled", "lost", "crash", "crash-after", "time")


# ---------------------------------------------------------------------- checks at the end of a run


def _row(world: World, order_id: str = "o") -> dict[str, Any]:
    return world.row("Orders", order_id) or {}


def _statuses(world: World, *order_ids: str) -> list[str]:
    return [_row(world, order_id).get("status", "NONE") for order_id in order_ids]


def _stock(world: World) -> int:
    units: int = (world.row("Products", "p") or {})["stockCount"]
    return units


def _ends(world: World) -> list[str | None]:
    """List the outcome of each message."""
    return [end_of(world, message_id) for message_id in world.sent]


def _one_winner(world: World) -> None:
    ended = sorted(status for status in _statuses(world, "oA", "oB", "oC") if status != "NONE")
    require(
        ended == ["PENDING"] + ["REJECTED"] * (len(ended) - 1),
        f"one unit, and the orders ended as {ended}",
    )


def _is_placed(world: World) -> None:
    require(_statuses(world, "o") == ["PENDING"], f"it ended as {_statuses(world, 'o')}")


def _is_cancelled(world: World) -> None:
    ended, other = _statuses(world, "o", "other")
    # If another order takes all units first, there is nothing to cancel.
    allowed = {"CANCELLED"} if other == "NONE" else {"CANCELLED", "REJECTED"}
    require(ended in allowed, f"it ended as {ended}")


def _newest_stands(world: World) -> None:
    row = world.row("Products", "p") or {}
    require(row.get("price") == 200, f"the newest price is 200, but {row.get('price')} is stored")


def _barcode_has_one_product(world: World) -> None:
    owners = [(world.row("Products", each) or {}).get("barcodes", ()) for each in "pq"]
    require(sum("X" in owned for owned in owners) <= 1, f"X is a barcode of both: {owners}")


def _four_on_hand_if_counted(world: World) -> None:
    counts = [row for row in world.rows("StockAdjustments") if "counted" in row]
    on_hand = (world.row("Products", "p") or {})["onHand"]
    require(on_hand == (4 if counts else 5), f"of 4 units, {on_hand} are on hand after {counts}")


def _one_body(world: World) -> None:
    require(_statuses(world, "o") == ["PENDING"], "none of the bodies was placed")
    ends = _ends(world)
    require(ends.count("ORDER_ID_REUSED") == len(ends) - 2, f"bodies under one id ended as {ends}")


def _one_choice_of_locations(world: World) -> None:
    """Check that one message is placed, and that every other message is rejected because it reuses the same id."""
    require(_statuses(world, "o") == ["PENDING"], "it was placed from none of the locations")
    ends = _ends(world)
    require(ends.count("ORDER_ID_REUSED") == len(ends) - 1, f"orders under one id ended as {ends}")


def _others_are_left_alone(world: World) -> None:
    ended = _statuses(world, "shipped", "o", "other")
    require(ended == ["SHIPPED", "CANCELLED", "PENDING"], f"the orders ended as {ended}")
    ends = _ends(world)
    require(ends.count("UNKNOWN_ORDER_STATUS") == 1, f"the messages ended as {ends}")


def _one_wins(world: World) -> None:
    """Check that the order is paid, or that the customer is told that the payment came too late, but not both."""
    row = _row(world)
    told = [name for name in ("confirmedAt", "confirmationRejected") if name in row]
    require(len(told) == 1, f"the order is {row['status']}, with {told}")


def _is_cancelled_after_all(world: World) -> None:
    _one_wins(world)
    require(_row(world)["status"] == "CANCELLED", f"it ended as {_row(world)['status']}")


def _is_paid_or_over(world: World) -> None:
    _one_wins(world)
    status = _row(world)["status"]
    require(status in {"CONFIRMED", "EXPIRED", "CANCELLED"}, f"it ended as {status}")


def _is_over(world: World) -> None:
    status = _row(world)["status"]
    require(status in {"CANCELLED", "EXPIRED"}, f"it ended as {status}")


def _are_over(world: World) -> None:
    ended = _statuses(world, "o", "later")
    paid = "confirmedAt" in _row(world, "later")
    # An early expiry message is acknowledged: the next sweep finds the order again.
    later = {"CONFIRMED"} if paid else {"EXPIRED", "PENDING"}
    require(ended[0] == "EXPIRED" and ended[1] in later, f"they ended as {ended}")


def _is_fulfilled_or_cancelled(world: World) -> None:
    row = _row(world)
    wanted = "FULFILLED" if "fulfilledAt" in row else "CANCELLED"
    require(row["status"] == wanted, f"it ended as {row}")


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
    require(not fits, f"{came} was returned, so {fits} should have been accepted")


def _one_return(world: World) -> None:
    require(len(_returns(world)) == 1, f"{_returns(world)} was returned")
    ends = _ends(world)
    require(ends.count("STEP_ID_REUSED") == len(ends) - 1, f"returns under one id ended as {ends}")


def _each_unit_moved_once(world: World) -> None:
    row = _row(world)
    made = {step["stepId"] for step in row["steps"]}
    require(row["status"] == "FULFILLED", f"it ended as {row}")
    require("f-1" in made and len(made) in {2, 3}, f"the order went through {row['steps']}")


def _only_what_was_delivered(world: World) -> None:
    row = _row(world)
    require("rt-1" not in _returns(world), f"{row['steps']} returns a cancelled unit")
    require(row["status"] == "FULFILLED", f"it ended as {row['status']}")


def _is_extended_or_over(world: World) -> None:
    row = _row(world)
    later = row.get("expiresAt", "") > world.moment(0.0)
    require(row["status"] == ("PENDING" if later else "EXPIRED"), f"it ended as {row}")


def _no_dead_letters(world: World) -> None:
    require(set(_ends(world)) == {"done"}, f"the messages ended as {_ends(world)}")


def _is_paid_or_told(world: World) -> None:
    row = _row(world)
    told = "confirmationRejected" in row
    require(told == (row["status"] == "REJECTED"), f"it was paid, and ended as {row}")
    _no_dead_letters(world)


def _is_fulfilled(world: World) -> None:
    row = _row(world)
    # The cancellation of the unfulfilled units may come first.
    allowed = {"FULFILLED", "CANCELLED"} if len(world.sent) > 5 else {"FULFILLED"}
    require(row["status"] in allowed, f"it ended as {row['status']}")
    _no_dead_letters(world)


def _is_swept(world: World) -> None:
    status = _row(world)["status"]
    # Messages that a sweeper could not send are sent by the next sweep, in a minute.
    allowed = {"EXPIRED", "PENDING"} if world.faults_used else {"EXPIRED"}
    # The third rival pays, and may come first.
    allowed |= {"CONFIRMED"} if "C" in world.processes else set()
    require(status in allowed, f"it ended as {status}")


def _is_paid(world: World) -> None:
    # Its message waits a while for payments made in time.
    row = _row(world)
    is_late = world.faults_used and row["status"] == "EXPIRED" and "confirmationRejected" in row
    require("confirmedAt" in row or bool(is_late), f"it was paid in time, and ended as {row}")


def _at_once(world: World) -> None:
    """Check that no message is returned to its queue unless there was a fault. The loser of a race can continue at once."""
    again = [name for name in world.processes if name.startswith("R")]
    require(world.faults_used > 0 or not again, "messages were returned, though nothing failed")


def _nothing_is_left(world: World) -> None:
    left = _stock(world) + sum(world.pages().units("p").values())
    require(left == 0, f"{left} units are left, but orders needed them")
    _at_once(world)


def _is_enough(world: World) -> None:
    answers = [answer.get("result") for _, _, answer in world.answers]
    is_short = "C" in world.processes
    require(
        "REFUSED" not in answers or is_short,
        f"there is enough stock, but the answers were {answers}",
    )


def _are_handed_over(world: World) -> None:
    ended = {row["orderId"]: row["status"] for row in world.rows("Orders")}
    asked = {body["orderId"] for _, body, _ in world.sent.values()}
    require(all(ended[name] == "FULFILLED" for name in asked), f"they ended as {ended}")
    _no_dead_letters(world)


def _units_at(world: World, location: str) -> int:
    """The units of product `p` in its row at a location. The row must exist."""
    row = world.row("Products", f"p#{location}") or {}
    units: int = row["stockCount"]
    return units


def _all_placed(world: World) -> None:
    """Check that all orders are placed if there are only two rivals, for whom there is enough stock."""
    ended = {row["orderId"]: row["status"] for row in world.rows("Orders")}
    is_short = "C" in world.processes
    require(is_short or set(ended.values()) == {"PENDING"}, f"they ended as {ended}")


def _split_is_placed(world: World) -> None:
    """Check that an order that may be split is placed, unless the third rival takes units that it needs."""
    status, other = _statuses(world, "o", "b")
    places = {line.get("locationId") for line in _row(world)["items"]}
    is_short = "C" in world.processes
    wanted = "PENDING" if places == {"berlin", "lyon"} else "REJECTED"
    require(
        is_short or (status == "PENDING" and other == wanted),
        f"o is {status}, from {sorted(map(str, places))}, and b is {other}",
    )


def _one_is_rejected(world: World) -> None:
    """Check that one order is rejected, because the two locations have one unit too few for all orders."""
    statuses = [row["status"] for row in world.rows("Orders")]
    left = _units_at(world, "berlin") + _units_at(world, "lyon")
    require(
        statuses.count("PENDING") == 2 and left == 0,
        f"{left} of two units are left, and the orders ended as {statuses}",
    )


def _is_booked_once(world: World) -> None:
    """Check that the generation that a receipt of two units names has them, and the other one does not."""
    _no_dead_letters(world)
    booked = world.row("StockAdjustments", "p#berlin", "r") or {}
    row = world.row("Products", "p#berlin")
    if row is not None:
        wanted = 3 if booked["productCreatedAt"] == row["createdAt"] else 1
        require(row["stockCount"] == wanted, f"{row['stockCount']} units instead of {wanted}")


def _one_buyer_has_room_for_one_more(world: World) -> None:
    """Check that u-1 has bought as much as it may, because each of its orders fits after one of the others."""
    bought = _bought(world, "u-1")
    require(bought == 2 or len(world.sent) < 4, f"u-1 has bought {bought} units, and may buy 2")


def _one_card_buys_once(world: World) -> None:
    ended = _statuses(world, "oA", "oB")
    is_first = _statuses(world, "oC") == ["PENDING"]
    placed = ended.count("PENDING")
    require(placed == (0 if is_first else 1), f"the card may buy 2, and orders ended as {ended}")


def _bought(world: World, buyer: str) -> int:
    row = world.row("Purchases", buyer) or {"units": {}}
    units: int = row["units"].get("p", 0)
    return units


def _is_lost(world: World) -> None:
    steps = _row(world)["steps"]
    # The third rival may hand both units over first.
    lost = [step for step in steps if "restock" in step or step["action"] == "fulfil"]
    require(bool(lost), f"one unit was lost, but the order went through {steps}")
    require(_statuses(world, "b")[0] in {"REJECTED", "NONE"}, "a lost unit was sold")


# ---------------------------------------------------------------------- set-ups and rivals of one scenario


def _units_in_lane(world: World, lane: int) -> int:
    """Count the units of product `p` in a lane."""
    return world.pages().units("p").get(lane, 0)


def _units_at_depot(world: World) -> int:
    return _units_in_lane(world, DEPOT)


def _lease_ended(world: World, lane: int = 1) -> None:
    """End the lease on a lane, without telling its owner."""
    world.edit("Allotments", f"{lane}/lease", lockTime={"N": "0"})


def _small_batches(world: World) -> None:
    """Let visitors only fill their own lanes."""
    world.small_batch = 10


def _lane_taken(world: World) -> None:
    """Let another process take lane 1, without telling its owner."""
    world.edit("Allotments", "1/lease", lockedBy={"S": "another"})


def _lane_of_api_ended(world: World) -> None:
    """End the lease on the lane of the API, without telling its owner."""
    _lease_ended(world, lane=3)
    require(_units_in_lane(world, 3) > 0, "the lane is empty")


def _leased(world: World) -> None:
    """Take the lease on product `p` for a count before the run."""
    asks("count_stock", acquire(20))(world, "A")
    world.finish("A")


def _commit(world: World) -> Message:
    """Make a command that commits a count under the lease that `_leased` took."""
    (_, _, acquired), *_ = world.answers
    return commit(acquired, "c", 3)


def _extend(world: World) -> Message:
    return command("extend", until=world.moment(3600.0))


def _sells_and_restocks(client: Client) -> None:
    client("place_orders", {"action": "place"} | order("o", p=2))
    client("adjust_stock", receipt("r", 3))


def _event(event_id: str, second: int, price: int, **names: str) -> Message:
    return {
        "eventId": event_id,
        "eventTime": f"2026-01-02T00:00:0{second}.000000+00:00",
        "productId": "p",
        "details": {"price": price, **names},
    }


def _labels(product_id: str, *codes: str) -> Message:
    """Make a command that sets all barcodes of a product."""
    barcodes = [{"code": code} for code in codes]
    return {"action": "change", "productId": product_id, "barcodes": barcodes}


def _labelled(code: str) -> SetUp:
    """Make a set-up that gives product `p` a barcode."""

    def set_up(world: World) -> None:
        own = world.row("Products", "p") or {}
        world.write("Products", own | {"barcodes": frozenset({code})})
        owner = {"productId": "p", "productCreatedAt": own["createdAt"]}
        world.write("Barcodes", {"code": code, **owner, "units": 1})

    return set_up


def _lane_filled_again(world: World) -> None:
    """Let worker B take the lease of worker A's lane, empty its page, and refill it with as many units as A
    remembers."""
    remembered = _units_in_lane(world, 1)
    _lease_ended(world)
    lend("B", q=1)(world)
    world.meet_rivals("B", "p")
    world.warm_up("B", order("warmB2", p=_units_in_lane(world, 1)))
    require(not _units_in_lane(world, 1), "B has not emptied the page")
    world.warm_up("B", order("warmB3", p=1))
    units = _units_in_lane(world, 1)
    require(units == remembered, f"A remembers {remembered} units, but the page holds {units}")


def _page_replaced(*, same_epoch: bool) -> SetUp:
    """Make a set-up that replaces the page of lane 1 with a page that has fewer units, but still the version that
    worker A remembers."""

    def set_up(world: World) -> None:
        (page,) = (page for page in world.pages().by_name.values() if page.key.lane == 1)
        held, units = page.entries["p"], 1 - page.units("p")
        fewer = page_units(replace(page, entries={**page.entries, "p": replace(held, units=1)}))
        world.edit(
            "Allotments",
            str(page.key),
            epoch={"S": page.epoch if same_epoch else "another"},
            units={"B": base64.b64encode(fewer).decode()},
        )
        correction = {"productId": "p", "adjustmentId": "correction", "delta": units}
        correction |= {"productCreatedAt": held.created_at, "productVersion": 1}
        correction |= {"reason": "CORRECTION", "appliedAt": ""}
        world.write("StockAdjustments", correction)
        add_on_hand(world, "p", units)

    return set_up


def _count_begun(world: World) -> None:
    """Take the lease on product `p` for a count that is never finished."""
    row = world.row("Products", "p") or {}
    row |= {"lockedBy": "a count", "lockTime": int(world.clock.seconds) + 4}
    row |= {"lockVersion": row["_version"], "lentTo": frozenset(row["lentTo"])}
    world.write("Products", row)


def _two_holds_ended(world: World) -> None:
    """Place two orders whose holds have ended: one from the product's row, and one from worker A's lane."""
    for order_id in ("by-row", "from-lane"):
        world.warm_up("A", order(order_id, p=1) | {"holdSeconds": 60})
        world.write("Orders", _row(world, order_id) | {"expiresAt": world.moment(OVER)})
        world.meet_rivals("A", "p")


def _waits(name: str, **units: int) -> SetUp:
    """Make a set-up in which the owner of lane 1 waits for units at the depot, and an environment knows that there is a line."""

    def set_up(world: World) -> None:
        own = [page for page in world.pages().by_name.values() if page.key.lane == 1]
        needs = Needs(units, 1, sum(page.version for page in own), 2**40)
        world.edit("Allotments", "1/lease", **encode({"needs": asdict(needs)}))
        world.wait_in_line(name)

    return set_up


def _lists_again_and_sells(client: Client) -> None:
    relists(client, 7)
    client("place_orders", order("b", p=1))


def _discontinues(client: Client) -> None:
    if client.world.rivals > 2:
        asked = {"action": "change", "productId": "p", "lowStockThreshold": 6}
        client("manage_products", asked)
    client("manage_products", {"action": "discontinue", "productId": "p"})


def _changes_and_discontinues(client: Client) -> None:
    for asked in ({"action": "change", "lowStockThreshold": 4}, {"action": "discontinue"}):
        client("manage_products", {"productId": "p", **asked})


def _sells_the_depot_and_restocks(client: Client) -> None:
    client("place_orders", {"action": "place"} | order("d", p=10))
    client("adjust_stock", receipt("r", 30))


def _together(rival: Rival, **others: Rival) -> Rival:
    """Extend a rival with further processes, by name."""

    def start(world: World, name: str) -> None:
        for each, begin in ({name: rival} | others).items():
            begin(world, each)

    return start


def _serves_express(world: World, name: str) -> None:
    """A rival that receives the messages of the express queue."""
    world.serve(name, "OrderExpress")


def _orders(*order_ids: str, **lines: int) -> Rival:
    """Make a client that places orders directly, one after the other."""
    return asks("place_orders", *({"action": "place"} | order(each, **lines) for each in order_ids))


def _hand_over(order_id: str, process: str = "S") -> SetUp:
    """Hand over a paid order before the run, so that its units are on an outbound page."""
    return warm_up(process, command("fulfil", order_id), function="change_orders")


def _hands_over_and_sweeps(order_id: str) -> Rival:
    def script(client: Client) -> None:
        client("change_orders", command("fulfil", order_id))
        client("sweep", {"action": "sweep"})

    return runs(script)


def _loses_and_orders(client: Client) -> None:
    client("change_orders", part("cancel", "lost", 1, restock=False))
    client("place_orders", order("b", p=1))


def _relisted(world: World) -> None:
    """List product `p` again, then place and confirm an order for the new generation."""
    runs(relists)(world, "S")
    world.finish("S")
    world.warm_up("S", order("new", p=1))
    world.warm_up("S", command("confirm", "new"), function="change_orders")


def _named(name: str, rival: Rival) -> Rival:
    return lambda world, _: rival(world, name)


def _nobody(world: World, name: str) -> None:
    """A rival that does nothing."""


CARD = {"buyers": ["card"]}


def _limited(limit: int, **units: int) -> SetUp:
    """Make a set-up that lists products with a purchase limit."""

    def set_up(world: World) -> None:
        for product_id, count in units.items():
            add_product(world, product_id, count, purchaseLimit=limit)

    return set_up


def _charged(**units: int) -> SetUp:
    """Make a set-up that charges the stored orders of product `p` to a group of the purchases of u-1."""

    def set_up(world: World) -> None:
        (group,) = units
        for row in world.rows("Orders"):
            items = [line | {"limitGroup": group} for line in row["items"]]
            world.write("Orders", row | {"items": items})
        bought = {"buyer": "u-1", "units": units, "_version": 1, "epoch": "one"}
        world.write("Purchases", bought)

    return set_up


def _changes(**attributes: Any) -> Rival:
    """Make a client that changes product `p`."""
    return insists("manage_products", {"action": "change", "productId": "p", **attributes})


def _raises_the_limit_and_buys(client: Client) -> None:
    change = {"action": "change", "productId": "p", "purchaseLimit": 2}
    client("manage_products", change)
    client("place_orders", order("b", p=1))


def _cancels_and_buys_in_berlin(client: Client) -> None:
    """Cancel what u-1 bought, then buy the only unit that was left without a limit."""
    client("change_orders", CANCEL)
    client("place_orders", order_at("b", "berlin", p=1))


def _forgets(client: Client) -> None:
    work = Forgetting(client.world.stack, "u-1", b"a key of 32 bytes, which is long")
    try:
        work.run()
    except (StoreError, CrashedError, ClientError, BotoCoreError):
        client.world.trace.append("the erasure was interrupted")


def _with_lanes(
    name: str,
    set_up: list[SetUp],
    rivals: list[Rival],
    *,
    lanes: int = 2,
    faults: tuple[str, ...] = _TORN,
    **more: Any,
) -> Scenario:
    return Scenario(name, set_up, rivals, lanes=lanes, faults=faults, **more)


_IN_ROWS = (
    Scenario(
        "order against order on the last unit",
        [stock(p=1)],
        [buys(order_id, p=1) for order_id in ("oA", "oB", "oC")],
        check=_one_winner,
    ),
    Scenario("the same order twice at once", [stock(p=1)], [buys("o", p=1)] * 3, check=_is_placed),
    Scenario(
        "batch against overlapping batch",
        [stock(p=3, q=2)],
        [
            places(order("a1", p=2), order("a2", p=1, q=1)),
            places(order("b1", q=2), order("b2", p=1)),
            places(order("c1", p=1, q=1), order("a1", p=2)),
        ],
    ),
    Scenario(
        "order against its cancellation",
        [stock(p=2)],
        [buys("o", p=2), changes(CANCEL), buys("other", p=2)],
        jumps=(WORKING_SECONDS + 1.0,),
        check=_is_cancelled,
    ),
    Scenario(
        "receipt twice against order",
        [stock(p=0)],
        [
            adjusts(receipt("r", 2), receipt("r", 2)),
            buys("o", p=1),
            insists("adjust_stock", receipt("r", 2)),
        ],
    ),
    Scenario(
        "lease against order",
        [stock(p=1)],
        [counts("count", 1), buys("o", p=2), restocks(1)],
        jumps=(4.0, WORKING_SECONDS - 0.1),
        faults=(*_OF_PAGES, "time", "clocks"),
        switches=3,
    ),
    Scenario(
        "one count, committed twice at once",
        [stock(p=5), _leased],
        [
            asks("count_stock", _commit),
            # The invariants treat it as another attempt of A.
            _named("A'", asks("count_stock", _commit)),
            restocks(1),
        ],
        # If its clock is fast, the lease seems to have expired, and the other attempt may still succeed.
        faults=(*_TELLING, "throttled", "lost-twice", "late", "parted"),
    ),
    Scenario(
        "count, asked again after its lease",
        # Its lease is about to expire. If the commit is not answered, it is repeated after the end of the lease.
        [stock(p=5), _leased, wait(19.9)],
        [insists("count_stock", _commit, times=3), buys("o", p=1), runs(relists)],
    ),
    Scenario(
        "expired lease against its successor",
        [stock(p=5)],
        [counts("count-a", -1), counts("count-b", 1), buys("o", p=1)],
        jumps=(4.0,),
        faults=(*_OF_PAGES, "time", "clocks"),
        switches=2,
    ),
    Scenario(
        "delist and relist against order",
        [stock(p=1)],
        [runs(relists), buys("o", p=1), changes(CANCEL)],
    ),
    Scenario(
        "delist and relist against cancellation",
        # Placed a minute ago, for a product that was listed long before.
        [stock(p=1), add_order(age=60.0)],
        [runs(relists), changes(CANCEL), buys("other", p=1)],
    ),
    Scenario(
        "catalogue event against a later one",
        [stock(p=1)],
        [manages(_event("e1", 1, 100)), manages(_event("e2", 2, 200)), buys("o", p=1)],
        check=_newest_stands,
    ),
    Scenario(
        "another name against a later one",
        # The ledger compares the words by which the product is found with its name.
        [stock(p=1)],
        [
            manages(_event("e1", 1, 100, name="red tea")),
            manages(_event("e2", 2, 200, name="white tea")),
            buys("o", p=1),
        ],
        check=_newest_stands,
        faults=("lost", "late", "crash-after"),
    ),
    Scenario(
        "two products claim one barcode",
        # The ledger compares the rows of barcodes with the products' own lists.
        [stock(p=1, q=1), _labelled("A")],
        [
            asks("manage_products", _labels("p", "X")),
            asks("manage_products", _labels("q", "A", "X")),
            buys("o", p=1),
        ],
        check=_barcode_has_one_product,
        faults=("lost", "late", "crash-after"),
    ),
    Scenario(
        "barcode of a product that is delisted",
        [stock(p=1, q=1), _labelled("X")],
        [
            runs(relists),
            asks("manage_products", _labels("q", "X")),
            buys("o", p=1),
        ],
        faults=("lost", "late", "crash-after"),
    ),
    Scenario(
        "order by remembered stock against receipt",
        # A reads back its own write, so it assumes that there is no concurrent writer.
        [stock(p=3), warm_up("A", order("warm1", p=1)), warm_up("A", order("warm2", p=1))],
        [buys("a", p=2), restocks(1), buys("c", p=1)],
    ),
    Scenario(
        "another program's rows",
        [
            stock(p=1),
            add_order("shipped", "SHIPPED", steps=[handed_over({"action": "fulfil"})]),
            add_order(),
        ],
        [changes(command("cancel", "shipped"), CANCEL), buys("other", p=1), changes(CANCEL)],
        check=_others_are_left_alone,
    ),
    Scenario(
        "conflicting bodies under one orderId",
        [stock(p=5)],
        [
            buys("o", p=1),
            places(order("o", p=2), order("other", p=1)),
            buys("o", user_id="u-2", p=1),
        ],
        check=_one_body,
    ),
    Scenario(
        "FIFO groups, redelivered",
        [stock(p=2, q=1)],
        [
            places(order("g1", p=2), order("g2", p=1), group="p"),
            # A quantity of 0 is invalid: the message has to be dead-lettered before its group can continue.
            places(order("h0", q=0), order("h1", q=1, p=1), group="q"),
            restocks(1),
        ],
    ),
    Scenario(
        "FIFO group behind a reused orderId",
        [stock(p=2), add_order("g1")],
        [
            # The first message reuses the id of another order. It has to be dead-lettered before the second one takes
            # effect.
            places(order("g1", p=2), order("g2", p=1), group="g"),
            restocks(1),
            buys("other", p=1),
        ],
    ),
    Scenario(
        "atomic against optimistic decrement",
        [stock(p=2)],
        [
            # The first decrement fills the product cache, which the second one needs to be atomic.
            insists("adjust_stock", *(decrement(name, 1, mode="atomic") for name in ("a0", "a1"))),
            insists("adjust_stock", decrement("b0", 1, mode="optimistic")),
            buys("o", p=1),
        ],
        faults=(),
    ),
    Scenario(
        "decrement of too much against receipt",
        # More units than are in stock before the receipt is booked.
        [stock(p=1)],
        [asks("adjust_stock", decrement("d", 2, mode="atomic")), restocks(2), buys("o", p=1)],
    ),
    Scenario(
        "decrement sent twice against a sale and a receipt",
        [stock(p=3)],
        [
            asks("adjust_stock", *[decrement("d", 2, mode="atomic")] * 2),
            runs(_sells_and_restocks),
            # The same decrement in the other mode.
            asks("adjust_stock", decrement("d", 2)),
        ],
        faults=("lost", "late", "crash", "crash-after"),
    ),
    Scenario(
        "correction by the last unit, repeated",
        # A assumes that there is no concurrent writer.
        [
            stock(p=3),
            warm_up("A", receipt("warm1", -1), function="adjust_stock"),
            warm_up("A", receipt("warm2", -1), function="adjust_stock"),
        ],
        [
            asks("adjust_stock", *[receipt("c", -1)] * 2),
            asks("adjust_stock", receipt("c", -1)),
            restocks(1),
        ],
    ),
    Scenario(
        "order by hand against itself from the queue",
        [stock(p=1)],
        [
            asks("place_orders", order("o", p=1)),
            buys("o", p=1),
            asks("place_orders", order("other", p=1)),
        ],
    ),
)

_LIFE_OF_AN_ORDER = (
    Scenario(
        "confirmation against cancellation",
        [stock(p=1), add_held_order(600.0)],
        [changes(CONFIRM), changes(CANCEL), asks("change_orders", CANCEL)],
        check=_is_cancelled_after_all,
    ),
    Scenario(
        "confirmation against the end of its hold",
        [stock(p=1), add_held_order(OVER)],
        [changes(CONFIRM), expires("o"), changes(CANCEL)],
        check=_is_paid_or_over,
    ),
    Scenario(
        "confirmation sent before and after the end of its hold",
        [stock(p=1), add_held_order(1.0)],
        # Both copies are processed after the grace period.
        [changes(CONFIRM, waits=GRACE_SECONDS + 2.0), changes(CONFIRM), expires("o")],
        check=_is_paid_or_over,
    ),
    Scenario(
        "cancellation against the end of its hold",
        [stock(p=1), add_held_order(OVER)],
        [changes(CANCEL), expires("o"), changes(CONFIRM)],
        check=_is_over,
    ),
    Scenario(
        "ends of holds, sent twice",
        # Two sweepers have sent the same holds, one of which ends later.
        [stock(p=1), add_held_order(OVER), add_held_order(2.0 - GRACE_SECONDS, "later")],
        [expires("o", "later"), expires("o", "later"), changes(command("confirm", "later"))],
        jumps=(4.0,),
        check=_are_over,
        faults=(*_TELLING, "late", "time", "clocks"),
    ),
    Scenario(
        "fulfilment against cancellation",
        [stock(p=1), add_paid_order(2)],
        [changes(FULFIL), changes(CANCEL), asks("change_orders", comes_back("rt-1", 1))],
        check=_is_fulfilled_or_cancelled,
    ),
    Scenario(
        "return against return",
        [stock(p=1), add_delivered_order],
        [
            changes(comes_back("rt-1", 1)),
            # The first return again, and another one that exceeds what is left after it.
            changes(comes_back("rt-1", 1), comes_back("rt-2", 2)),
            changes(comes_back("rt-3", 1, restock=False)),
        ],
        check=_no_more_than_delivered,
    ),
    Scenario(
        "two returns under one id",
        [stock(p=1), add_delivered_order],
        [
            changes(comes_back("rt-1", 1)),
            changes(comes_back("rt-1", 2)),
            changes(comes_back("rt-1", 1, restock=False)),
        ],
        check=_one_return,
    ),
    Scenario(
        "lines of one order",
        [stock(p=1), add_paid_order(3)],
        [
            # Only one of the two cancellations can succeed.
            changes(part("cancel", "c-1", 2)),
            changes(part("cancel", "c-2", 2), part("fulfil", "f-1", 1)),
            changes(comes_back("rt-1", 1)),
        ],
        check=_each_unit_moved_once,
        faults=(*_OF_PAGES, "throttled", "lost-twice", "clocks"),
    ),
    Scenario(
        "return against a cancelled rest",
        [stock(p=1), add_paid_order(2, steps=[handed_over(part("fulfil", "f-1", 1))])],
        [
            # The return waits while the second unit may still be handed over, and is refused once that unit is
            # cancelled.
            changes(comes_back("rt-1", 2)),
            changes(CANCEL),
            changes(comes_back("rt-2", 1)),
        ],
        check=_only_what_was_delivered,
    ),
    Scenario(
        "extension against the end of its hold",
        [stock(p=1), add_held_order(OVER, age=7200.0)],
        [changes(_extend), expires("o"), changes(_extend)],
        check=_is_extended_or_over,
    ),
    Scenario(
        "order against its early commands",
        [stock(p=2)],
        [
            places(order("o", p=2) | {"holdSeconds": 3600}),
            # The commands may be too early. The second one is for the units that the first one leaves.
            changes(CONFIRM, FULFIL),
            buys("other", p=2),
        ],
        check=_is_paid_or_told,
    ),
    Scenario(
        "commands of one order in one batch",
        [stock(p=1), add_held_order(600.0)],
        [changes(CONFIRM, FULFIL, CONFIRM), changes(FULFIL, CONFIRM), changes(CANCEL, FULFIL)],
        check=_is_fulfilled,
        faults=(*_TELLING, "late", "stale"),
    ),
    Scenario(
        "sweeper against sweeper",
        [stock(p=1), add_held_order(OVER)],
        [SWEEPS, SWEEPS, changes(CONFIRM)],
        check=_is_swept,
    ),
    Scenario(
        "sweeper against confirmation in time",
        [stock(p=1), add_held_order(1.0)],
        [changes(CONFIRM, waits=2.0), SWEEPS, changes(FULFIL)],
        check=_is_paid,
    ),
    Scenario(
        "publishing an order's life",
        [stock(p=1), add_held_order(600.0)],
        [changes(CANCEL), published("Orders", changes(CONFIRM, FULFIL)), buys("c", p=1)],
        jumps=(WORKING_SECONDS + 1.0,),
        faults=_OF_A_PUBLISHER,
        switches=2,
    ),
    Scenario(
        "publishing a tombstone filled in",
        [stock(p=2)],
        [buys("o", p=2), published("Orders", changes(CANCEL)), changes(CONFIRM)],
        jumps=(WORKING_SECONDS + 1.0,),
        faults=_OF_A_PUBLISHER,
    ),
    Scenario(
        "publishing stock",
        [stock(p=3, low=1)],
        [buys("a", p=3), published("Products", restocks(1)), buys("c", p=1)],
        faults=_OF_A_PUBLISHER,
    ),
    Scenario(
        "publishing stock at two locations",
        [stock_at("berlin", p=1), stock_at("lyon", p=0)],
        [
            places(order_at("a", "berlin", "lyon", p=1)),
            published("Products", asks("adjust_stock", transfer("t", "berlin", "lyon", 1))),
            asks("manage_products", create("paris")),
        ],
        faults=("crash", "crash-after"),
        switches=2,
    ),
)

_PAID = add_paid_order(1)
_OTHER_PAID = add_paid_order(1, order_id="other")
_UNIT_LEFT: list[SetUp] = [add_paid_order(1, order_id="left"), _hand_over("left")]
"""Put a unit of p on an outbound page."""

_ON_HAND = (
    Scenario(
        "two hand-overs on one page",
        [stock(p=1), _PAID, _OTHER_PAID],
        [
            changes(FULFIL),
            # The first hand-over again, and another one.
            changes(FULFIL, command("fulfil", "other")),
            SWEEPS,
        ],
        check=_are_handed_over,
        faults=(*_OF_PAGES, "throttled", "lost-twice", "torn"),
    ),
    Scenario(
        "hand-over against fold",
        # A remembers the page that it wrote.
        [
            *(stock(p=1), _PAID, _OTHER_PAID),
            *(add_paid_order(1, order_id="left"), _hand_over("left", "A")),
        ],
        [changes(FULFIL), SWEEPS, changes(command("fulfil", "other"))],
        check=_are_handed_over,
        faults=_OF_PAGES,
    ),
    Scenario(
        "fold against fold",
        [stock(p=1), *_UNIT_LEFT],
        [SWEEPS, SWEEPS, restocks(1)],
        faults=(*_TELLING, "late"),
    ),
    Scenario(
        "fold against receipt",
        # Units of p are on two outbound pages.
        [stock(p=1), *_UNIT_LEFT, add_departed_order, _OTHER_PAID],
        [SWEEPS, restocks(1), changes(command("fulfil", "other"))],
        faults=(*_TELLING, "late"),
    ),
    Scenario(
        "hand-over against count",
        [stock(p=1), *_UNIT_LEFT, _PAID],
        [changes(FULFIL), counts("count", 1), SWEEPS],
        jumps=(4.0,),
        check=_are_handed_over,
        faults=(*_TELLING, "late", "time", "clocks"),
    ),
    Scenario(
        "two counts as of a time",
        [stock(p=5)],
        [finds("count-a", 4), finds("count-b", 4), buys("o", p=1)],
        check=_four_on_hand_if_counted,
        faults=(*_TELLING, "late"),
    ),
    Scenario(
        "count as of a time against one under a lease",
        [stock(p=5)],
        [finds("count-a", 4), finds("count-b", 4, leased=True), buys("o", p=1)],
        jumps=(4.0,),
        switches=3,
        check=_four_on_hand_if_counted,
        faults=(*_TELLING, "late"),
    ),
    Scenario(
        "hand-over against count as of a time",
        [stock(p=1), *_UNIT_LEFT, _PAID],
        [changes(FULFIL), finds("count", 2), SWEEPS],
        check=_are_handed_over,
        faults=(*_TELLING, "late"),
    ),
    Scenario(
        "fold against count",
        [stock(p=1), *_UNIT_LEFT],
        [SWEEPS, counts("count", -1), restocks(1)],
        jumps=(4.0,),
        faults=("lost", "crash-after", "time", "clocks"),
        switches=2,
    ),
    Scenario(
        "hand-over against return",
        [
            stock(p=1),
            add_paid_order(3, steps=[handed_over(part("fulfil", "f-1", 1))]),
        ],
        # All units that are still open.
        [changes(FULFIL), changes(comes_back("rt-1", 1), part("fulfil", "f-2", 1)), SWEEPS],
        faults=_TELLING,
    ),
    Scenario(
        "hand-over and fold against delisting and relisting",
        [stock(p=1), *_UNIT_LEFT, _PAID],
        [_hands_over_and_sweeps("o"), runs(relists), SWEEPS],
        faults=_TELLING,
        switches=2,
    ),
    Scenario(
        "two generations on one page",
        [stock(p=1), *_UNIT_LEFT, _PAID, _relisted],
        # One order for the current generation of p, and one for the previous one.
        [SWEEPS, changes(command("fulfil", "new")), changes(FULFIL)],
        check=_are_handed_over,
        faults=("lost", "crash-after"),
    ),
    Scenario(
        "lost unit against an order that wants it",
        [stock(p=0), add_paid_order(2)],
        [
            changes(part("cancel", "lost", 1, restock=False)),
            # The loss again, and an order for the lost unit.
            runs(_loses_and_orders),
            changes(FULFIL),
        ],
        check=_is_lost,
        faults=_OF_PAGES,
    ),
)

_IN_TWO_PLACES: list[SetUp] = [stock_at("berlin", p=1), stock_at("lyon", p=1)]
"""List p with one unit at each of two locations."""


_AT_BERLIN = receipt("r", 2, "berlin")


def _receives_and_relists(client: Client) -> None:
    client("adjust_stock", _AT_BERLIN)
    relists(client, location="berlin")


def _backorders_at_berlin(world: World) -> None:
    add_product(world, "p#berlin", 0, backorderLimit=5, status="LOW_STOCK")


_AT_LOCATIONS = (
    Scenario(
        "last units at two locations",
        _IN_TWO_PLACES,
        [
            places(order_at("a", "berlin", "lyon", p=1)),
            places(order_at("b1", "lyon", "berlin", p=1), order_at("b2", "berlin", "lyon", p=1)),
            places(order_at("a", "berlin", "lyon", p=1)),
        ],
        check=_one_is_rejected,
        faults=(*_TORN, "late", "throttled", "lost-twice", "again"),
    ),
    Scenario(
        "split order against an order that is not",
        # Lyon can serve all lines of one order. After that, one location lacks q, and the other one r.
        [stock_at("berlin", p=1, q=1), stock_at("lyon", p=1, q=1, r=2)],
        [
            places(order_at("o", "berlin", "lyon", split=True, p=1, q=1, r=1)),
            places(order_at("b", "berlin", "lyon", q=1, r=1)),
            places(order_at("c", p=1, q=1, named={"p": "berlin", "q": "lyon"})),
        ],
        check=_split_is_placed,
        faults=(*_TORN, "late"),
    ),
    Scenario(
        "one orderId with different locations",
        _IN_TWO_PLACES,
        [
            # The line may only come from Lyon.
            places(order_at("o", "berlin", named={"p": "lyon"}, p=1)),
            places(order_at("o", "berlin", "lyon", p=1)),
            places(order_at("o", "lyon", "berlin", split=True, p=1)),
        ],
        check=_one_choice_of_locations,
        faults=("throttled", "conflict", "lost", "crash-after"),
    ),
    Scenario(
        "the same transfer twice at once",
        [stock_at("berlin", p=3), stock_at("lyon", p=0)],
        [
            insists("adjust_stock", transfer("t", "berlin", "lyon", 1)),
            insists("adjust_stock", transfer("t", "berlin", "lyon", 1)),
            # Another transfer under the same id.
            insists("adjust_stock", transfer("t", "lyon", "berlin", 1)),
        ],
        faults=(*_TORN, "late", "lost-twice", "throttled"),
    ),
    Scenario(
        "transfer against order",
        [stock_at("berlin", p=2), stock_at("lyon", p=0)],
        [
            # One unit, then both.
            places(order_at("a1", "lyon", "berlin", p=1), order_at("a2", "lyon", "berlin", p=1)),
            insists("adjust_stock", *[transfer("t", "berlin", "lyon", 1)] * 2),
            places(order_at("c", "lyon", p=2)),
        ],
        faults=(*_TORN, "late"),
    ),
    Scenario(
        "transfers there and back against order",
        # One location always has both units, but a reader of one location after the other may see none.
        [stock_at("berlin", p=2), stock_at("lyon", p=0)],
        [
            places(order_at("a", "berlin", "lyon", p=2)),
            insists(
                "adjust_stock",
                transfer("t1", "berlin", "lyon", 2),
                transfer("t2", "lyon", "berlin", 2),
                transfer("t3", "berlin", "lyon", 2),
            ),
            places(order_at("c", "lyon", "berlin", split=True, p=1)),
        ],
        faults=(*_TORN, "late"),
    ),
    Scenario(
        "backorder against goods that move",
        # Berlin sells what it does not have, but only if Lyon has nothing.
        [_backorders_at_berlin, stock_at("lyon", p=1)],
        [
            places(order_at("a", "berlin", "lyon", p=1), order_at("a2", "berlin", "lyon", p=2)),
            insists("adjust_stock", transfer("t", "lyon", "berlin", 1)),
            places(order_at("c", "lyon", "berlin", split=True, p=1)),
        ],
        faults=(*_TORN, "late"),
    ),
    Scenario(
        "half of a transfer, seen by an order",
        [stock_at("berlin", p=2), stock_at("lyon", p=0)],
        [
            places(order_at("a", "berlin", "lyon", p=2)),
            insists("adjust_stock", transfer("t", "berlin", "lyon", 2)),
            places(order_at("c", "lyon", "berlin", split=True, p=1)),
        ],
        faults=("parted",),
        switches=2,
    ),
    Scenario(
        "transfer against count",
        [stock_at("berlin", p=2), stock_at("lyon", p=0)],
        [
            insists("adjust_stock", transfer("t", "berlin", "lyon", 1)),
            counts("count", 1, "berlin"),
            counts("count-c", -1, "lyon"),
        ],
        jumps=(4.0,),
        faults=("lost", "crash-after", "late", "time"),
        switches=2,
    ),
    Scenario(
        "cancellation against delisting of its place",
        [*_IN_TWO_PLACES, add_order(location="berlin", locations=["berlin", "lyon"])],
        [
            changes(CANCEL),
            runs(lambda client: relists(client, location="berlin")),
            places(order_at("c", "berlin", "lyon", p=2)),
        ],
        faults=(*_TELLING, "late"),
    ),
    Scenario(
        "receipt against delisting and relisting of its place",
        [stock_at("berlin", p=1)],
        [
            adjusts(_AT_BERLIN),
            # The same receipt, then the next generation.
            runs(_receives_and_relists),
            insists("adjust_stock", _AT_BERLIN),
        ],
        check=_is_booked_once,
        faults=(*_TORN, "late", "stale"),
    ),
    Scenario(
        "places listed and delisted at once",
        [stock_at("berlin", p=1)],
        [
            insists("manage_products", create("lyon"), delist("berlin")),
            insists("manage_products", delist("berlin"), delist()),
            insists("manage_products", create("berlin", 2)),
        ],
        faults=(*_TELLING, "late"),
    ),
)

_IN_LANES = (
    _with_lanes(
        "hand-over and fold against recall",
        [
            *(stock(p=7), lend("A", p=1)),
            warm_up("B", command("confirm", "warmA"), function="change_orders"),
        ],
        [_hands_over_and_sweeps("warmA"), buys("b", p=6), buys("c", p=1)],
        faults=("lost", "crash-after", "torn"),
        switches=2,
    ),
    _with_lanes(
        "loan against sale from the row",
        # A visits the depot. B has met no contention, so it sells from the row.
        [stock(p=7, low=2), meet_rivals("A", "p")],
        [buys("a", p=1), buys("b", p=1), restocks(1)],
        faults=(*_TORN, "late", "clocks"),
    ),
    _with_lanes(
        "contested loan against sales from the row",
        # The loan may follow one of the two sales, but not both.
        [stock(p=24, low=2), meet_rivals("A", "p")],
        [buys("a", p=1), _orders("b1", "b2", p=2), restocks(1)],
        faults=(*_TORN, "late", "clocks"),
        switches=3,
    ),
    _with_lanes(
        "loan against delist and relist",
        [stock(p=7), meet_rivals("A", "p")],
        [buys("a", p=1), runs(lambda client: relists(client, 7)), buys("c", p=1)],
        faults=(*_TORN, "late"),
    ),
    _with_lanes(
        "loan against changes of its product",
        [stock(p=7), meet_rivals("A", "p")],
        [buys("a", p=1), runs(_changes_and_discontinues), buys("c", p=1)],
    ),
    _with_lanes(
        "loan by an old row",
        # Between A's reads of row and pages, the row lends to B's lane, D sells what is left at the depot, and the row is
        # restocked. A needs so many units that it lends only to the depot.
        [_small_batches, stock(p=20), *(meet_rivals(name, "p") for name in "ABD")],
        [
            buys("a", p=10),
            _together(buys("b", p=1), D=runs(_sells_the_depot_and_restocks)),
            buys("c", p=1),
        ],
        faults=("torn",),
        switches=2,
    ),
    _with_lanes(
        "last unit to lend",
        # The depot has sold all its units. One unit stays in the row. A borrows the other one, and sells it at the
        # depot in the same transaction.
        [
            stock(p=3),
            meet_rivals("A", "p"),
            warm_up("A", order("before", p=2)),
            warm_up("B", receipt("r", 1), function="adjust_stock"),
        ],
        [buys("a", p=1), buys("b", p=1), buys("c", p=1)],
    ),
    _with_lanes(
        "two visits that both have the depot",
        # Both products belong to one page.
        [stock(p=6, r=6), meet_rivals("A", "p", "r"), meet_rivals("B", "p", "r")],
        [buys("a", p=1), buys("b", r=2), buys("c", p=2, r=2)],
        line_works=False,
    ),
    _with_lanes(
        "sale from a lane against recall",
        [stock(p=7), lend("A", p=1)],
        # B takes all units that A's lane has not sold by then.
        [buys("a", p=1), buys("b", p=6), buys("c", p=3)],
        faults=(*_TORN, "late", "clocks"),
    ),
    _with_lanes(
        "order that another location serves against recall",
        # Without the units of the idle lane, Berlin has too few for either order. Lyon has enough for one order.
        [stock_at("berlin", p=7), stock_at("lyon", p=6), lend("idle", "berlin", p=1)],
        [
            places(order_at("a", "berlin", "lyon", p=6)),
            places(order_at("b", "lyon", "berlin", p=6)),
            places(order_at("c", "berlin", "lyon", p=1)),
        ],
        check=_all_placed,
        switches=2,
    ),
    _with_lanes(
        "order by the memory of a short location",
        # A remembers that Berlin has too few units. A transfer then brings Lyon's units there.
        [
            *(stock_at("berlin", p=0), stock_at("lyon", p=6)),
            warm_up("A", order_at("warm", "berlin", "lyon", p=1)),
            lambda world: world.meet_rivals("A", "p#berlin", "p#lyon"),
        ],
        [
            places(order_at("a", "berlin", "lyon", p=2)),
            insists("adjust_stock", transfer("t", "lyon", "berlin", 5)),
            places(order_at("c", "lyon", "berlin", p=2)),
        ],
        switches=2,
    ),
    _with_lanes(
        "transfer against lane",
        [stock_at("berlin", p=7), stock_at("lyon", p=0), lend("A", "berlin", p=1)],
        [
            places(order_at("a", "berlin", "lyon", p=1)),
            # More units than its row has.
            insists(
                "adjust_stock",
                lambda world: transfer("t", "berlin", "lyon", _units_at(world, "berlin") + 1),
            ),
            places(order_at("c", "lyon", "berlin", p=3)),
        ],
        switches=2,
    ),
    _with_lanes(
        "recall against recall",
        [stock(p=7), lend("idle", p=1)],
        [buys("a", p=4), buys("b", p=5), buys("c", p=1)],
        switches=2,
        line_works=False,
    ),
    _with_lanes(
        "recall against fill",
        # A visits the depot for q, and then fills its lane with p too.
        [stock(p=19, q=5), lend("idle", p=1), meet_rivals("A", "q")],
        [
            buys("a", q=1),
            # More units than the depot has, even after a loan.
            places(lambda world: order("b", p=_units_at_depot(world) + 2)),
            buys("c", p=1),
        ],
        switches=2,
        line_works=False,
        faults=(*_TORN, "late"),
    ),
    _with_lanes(
        "recall of nothing against loan",
        # All lent units are sold, and the row has been restocked.
        [
            stock(p=3),
            lend("A", p=1),
            warm_up("A", order("warm", p=1)),
            warm_up("S", receipt("r", 5), function="adjust_stock"),
        ],
        [buys("a", p=1), buys("b", p=7), buys("c", p=1)],
        switches=2,
        line_works=False,
    ),
    _with_lanes(
        "last units in a lane",
        # 4 units are left: 1 in A's lane, 2 at the depot, 1 in the row. Whichever order comes first, the other one
        # takes the rest.
        [stock(p=5), lend("A", p=1)],
        [buys("a", p=3), places(order("b1", p=1), order("b2", p=3)), buys("c", p=3)],
        check=_nothing_is_left,
        faults=(*_TORN, "late"),
    ),
    _with_lanes(
        "lane taken over against its woken owner",
        # A does not know that its lease has expired, as if its clock were wrong. So B gets the lane and its units.
        [stock(p=9), lend("A", p=1), _lease_ended],
        [buys("a", p=2), places(order("b1", p=2), order("b2", p=1)), buys("c", p=1)],
        lanes=1,
        check=_at_once,
        faults=(*_TORN, "late", "clocks"),
    ),
    _with_lanes(
        "page emptied and filled again",
        [stock(p=14, q=8), lend("A", p=1), warm_up("A", order("warmA2", p=4)), _lane_filled_again],
        [buys("a", p=1), buys("b", p=1), buys("c", p=2)],
        lanes=1,
    ),
    _with_lanes(
        "page made again",
        # The lane's page was missing.
        [stock(p=13), lend("A", p=1), _page_replaced(same_epoch=False)],
        [buys("a", p=2), buys("b", p=1), buys("c", p=2)],
    ),
    _with_lanes(
        "page restored while its owner slept",
        # While A sleeps, its lease expires and the tables are restored.
        [stock(p=13), lend("A", p=1), wait(LANE_SECONDS + 1.0), _page_replaced(same_epoch=True)],
        [buys("a", p=2), buys("b", p=1), buys("c", p=2)],
        faults=(),
    ),
    _with_lanes(
        "order from lane and row against recall",
        [stock(p=7, q=1), lend("A", p=1)],
        [
            # p comes from A's lane and q from its row, in one transaction.
            buys("a", p=1, q=1),
            places(order("b1", q=1), order("b2", p=6)),
            buys("c", p=1, q=1),
        ],
    ),
    *(
        _with_lanes(
            f"lane of a waiting owner filled against {name}",
            # A's visit for p also fills B's lane, which has units of q and r. All three belong to two pages.
            [
                *(stock(p=40, q=9, r=9), lend("B", q=1, r=1), lend("A", q=1), *more),
                *(meet_rivals("A", "p"), _waits("A", p=2)),
            ],
            [buys("a", p=1), rival, buys("c", p=30)],
            switches=2,
            faults=(*_TORN, "late"),
        )
        for name, more, rival in (
            ("its sale", (), buys("b", r=1, q=1)),
            ("a sale of the same units", (meet_rivals("B", "p"),), buys("b", p=2)),
            ("a recall", (), insists("adjust_stock", decrement("b", 39, mode="atomic"))),
            ("discontinue", (), runs(_discontinues)),
            ("a count", (), counts("count", -1)),
            ("delist and relist", (), runs(lambda client: relists(client, 7))),
        )
    ),
    _with_lanes(
        "lane of a waiting owner filled against its woken owner",
        # B does not know that another process has taken its lane. A fills it with p and q, and then sells q from its own lane.
        [
            *(stock(p=40, q=40, r=9), lend("B", r=1), lend("A", q=1)),
            *(meet_rivals("A", "p"), _waits("A", p=2), _lane_taken),
        ],
        [
            asks("place_orders", *({"action": "place"} | order(f"a-{p}", **{p: 1}) for p in "pq")),
            *(buys("b", r=1), buys("c", q=30)),
        ],
        switches=2,
        check=_at_once,
        faults=(*_TORN, "clocks"),
    ),
    _with_lanes(
        "scarce units that a waiting owner needs",
        # The depot has 6 units of p, and may fill no lane with them. A sells 5 of them there.
        [
            *(stock(p=11, q=9), lend("B", q=1), lend("A", q=1), meet_rivals("A", "p")),
            *(warm_up("A", order("warmA2", p=4)), _waits("A", p=2)),
        ],
        [places(*(order(f"a{n}", p=1) for n in range(5))), buys("b", p=2), buys("c", p=2)],
        check=_nothing_is_left,
        switches=2,
        faults=(*_TORN, "late"),
    ),
    _with_lanes(
        "sweep against visit",
        # A wakes up just when its lane and the depot have been idle for long enough.
        [stock(p=7), lend("A", p=1), wait(IDLE_SECONDS + 1.0)],
        [buys("a", p=4), SWEEPS, buys("c", p=2)],
    ),
    _with_lanes(
        "sweep against a lane in use",
        [stock(p=7), lend("A", p=1), _lease_ended],
        [places(order("a1", p=1), order("a2", p=1)), SWEEPS, SWEEPS],
    ),
    _with_lanes(
        "two losses that reclaim",
        [stock(p=7), lend("idle", p=1)],
        # Without the units of the idle lane there are too few for A; with them there are enough for both.
        [
            asks(
                "adjust_stock",
                lambda world: receipt("loss-A", -(_stock(world) + _units_at_depot(world) + 1)),
            ),
            asks("adjust_stock", lambda world: receipt("loss-B", -_stock(world))),
            buys("c", p=2),
        ],
        switches=2,
        check=_is_enough,
        faults=("torn",),
    ),
    _with_lanes(
        "FIFO group against visit",
        [stock(p=7, q=3), lend("A", p=1), meet_rivals("A", "q"), meet_rivals("B", "q")],
        [
            # The first product is in A's lane. The second one is scarce, so it is sold at the depot, where A may have
            # to wait for B.
            places(order("g1", p=1), order("g2", q=1), group="g"),
            buys("b", q=1),
            buys("c", p=2, q=1),
        ],
        switches=3,
    ),
    _with_lanes(
        "count against loan",
        [stock(p=7), meet_rivals("A", "p")],
        [buys("a", p=1), counts("count", 1), buys("c", p=8)],
        jumps=(4.0,),
        switches=2,
        faults=(*_TORN, "time"),
    ),
    _with_lanes(
        "count against lane",
        [stock(p=7), lend("A", p=1)],
        [buys("a", p=1), counts("count", -1), buys("c", p=3)],
        jumps=(4.0,),
        switches=2,
        faults=(*_TORN, "time"),
    ),
    _with_lanes(
        "lease on a row that is lent",
        [stock(p=7), lend("A", p=1), _count_begun],
        # The depot has fewer units than A needs, and there are no more elsewhere.
        [buys("a", p=6), _nobody, _named("B", buys("b", p=1))],
        faults=(*_TORN, "clocks"),
    ),
    _with_lanes(
        "delist and relist against fill",
        [stock(p=7), lend("A", p=1)],
        [
            # More units than the lane holds, so that the depot fills it.
            places(lambda world: order("a", p=_units_in_lane(world, 1) + 1)),
            runs(relists),
            changes(command("cancel", "warmA")),
        ],
    ),
    _with_lanes(
        "delist against delist and relist, lent again",
        # The product that B lists is lent again immediately.
        [stock(p=7), lend("idle", p=1), meet_rivals("B", "p")],
        [
            asks("manage_products", {"action": "delist", "productId": "p", "createdAt": OPENED}),
            runs(_lists_again_and_sells),
            buys("c", p=1),
        ],
        switches=2,
    ),
    _with_lanes(
        "discontinue against lane",
        [stock(p=7), lend("A", p=1)],
        [buys("a", p=1), runs(_discontinues), buys("c", p=6)],
        switches=3,
    ),
    _with_lanes(
        "loss against lane",
        [stock(p=7, low=1), lend("A", p=1)],
        [
            buys("a", p=1),
            adjusts(receipt("loss", -2)),
            insists("adjust_stock", decrement("c", 1, mode="atomic")),
        ],
        switches=3,
    ),
    _with_lanes(
        "cancellation against recall",
        [stock(p=5), lend("A", p=1)],
        [buys("a", p=5), changes(command("cancel", "warmA")), buys("c", p=1)],
        switches=3,
    ),
    _with_lanes(
        "end of holds against recall",
        [stock(p=6), _two_holds_ended],
        # A orders all units that are left, so that units are recalled.
        [buys("a", p=4), expires("by-row", "from-lane"), buys("c", p=1)],
        switches=3,
    ),
    _with_lanes(
        "cancellation of a paid order against loan",
        [
            *(stock(p=8, low=2), warm_up("A", order("warm", p=1)), meet_rivals("A", "p")),
            warm_up("B", command("confirm", "warm"), function="change_orders"),
        ],
        [buys("a", p=1), changes(command("cancel", "warm")), changes(command("fulfil", "warm"))],
        switches=3,
    ),
    _with_lanes(
        "return against recall",
        [
            *(stock(p=5), lend("A", p=1)),
            warm_up("B", command("confirm", "warmA"), function="change_orders"),
            warm_up("B", command("fulfil", "warmA"), function="change_orders"),
        ],
        [buys("a", p=4), changes(comes_back("rt-1", 1, "warmA")), buys("c", p=1)],
        switches=3,
    ),
)

_OVER_HTTP = (
    Scenario(
        "last unit over HTTP and from the queue",
        [stock(p=1)],
        [calls(order("oA", p=1)), buys("oB", p=1), calls(order("oC", p=1))],
        check=_one_winner,
    ),
    Scenario(
        "one orderId over HTTP and from the queue",
        # There is enough stock for either body of the order.
        [stock(p=2)],
        [
            calls(order("o", p=1), order("o", p=2)),
            places(order("o", p=2), order("short", p=3)),
            calls(order("short", p=3)),
        ],
        check=_is_placed,
    ),
    Scenario(
        "callers against an express worker",
        # A has met contention, so it sends its order to the express queue. There is one unit too few for all orders.
        [stock(p=2), meet_rivals("A", "p", over_http=True)],
        [
            calls(order("a", p=1)),
            _together(calls(order("b1", p=1), order("b2", p=1)), E=_serves_express),
            calls(order("c", p=1)),
        ],
        faults=("conflict", "lost", "crash-after"),
        switches=3,
    ),
    _with_lanes(
        "order over HTTP for units in lanes",
        # Neither the row nor the depot has enough units for A.
        [stock(p=60), lend_to_caller("idle")],
        [calls(order("a", p=50)), buys("b", p=5), calls(order("c", p=5))],
        check=_all_placed,
        switches=2,
    ),
    _with_lanes(
        "sale from a lane of the API against recall",
        # B takes all units that A leaves.
        [stock(p=60), lend_to_caller("A")],
        [calls(order("a", p=1)), buys("b", p=58), calls(order("c", p=2))],
        check=_all_placed,
        faults=(*_TORN, "late", "clocks"),
        switches=3,
    ),
    _with_lanes(
        "lane of the API taken over against its woken owner",
        [
            *(stock(p=200), lend_to_caller("A"), _lane_of_api_ended),
            meet_rivals("B", "p", over_http=True),
        ],
        [calls(order("a", p=1)), calls(order("b", p=1)), buys("c", p=150)],
        check=_all_placed,
        faults=(*_TORN, "late", "clocks"),
        switches=3,
    ),
    _with_lanes(
        "lane of the API emptied against its woken owner",
        # The sweep returns the units of A's lane to the depot, as another process of the API would.
        [stock(p=60), lend_to_caller("A"), _lane_of_api_ended],
        [calls(order("a", p=1)), SWEEPS, buys("c", p=50)],
        check=_all_placed,
        faults=(*_TORN, "late"),
        switches=3,
    ),
)

_LIMITED = (
    Scenario(
        "one buyer's orders in one batch",
        [_limited(2, p=9)],
        [
            places(order("a1", p=1), order("a2", p=2), order("a3", "u-2", p=2)),
            buys("b", p=1),
            places(order("c", p=1), CARD | order("d", "u-3", p=2)),
        ],
        faults=_OF_PAGES,
        check=_one_buyer_has_room_for_one_more,
    ),
    Scenario(
        "one buyer's orders in two workers",
        [_limited(2, p=9)],
        [
            places(CARD | order("oA", p=2)),
            places(CARD | order("oB", "u-2", p=2)),
            places(CARD | order("oC", "u-3", p=1)),
        ],
        check=_one_card_buys_once,
    ),
    Scenario(
        "limited order against cancellation",
        [_limited(2, p=9), add_order(units=2), _charged(p=2)],
        [changes(part("cancel", "s", 1), CANCEL), buys("b", p=1), changes(CANCEL)],
        switches=2,
    ),
    Scenario(
        "limited order against a lost unit",
        [_limited(2, p=9), add_paid_order(2), _charged(p=2)],
        [
            changes(part("cancel", "lost", 1, restock=False)),
            buys("b", p=1),
            changes(CANCEL, FULFIL),
        ],
        faults=_OF_PAGES,
    ),
    Scenario(
        "limited order against expiry",
        [_limited(2, p=9), add_held_order(OVER), _charged(p=2)],
        [expires("o"), buys("b", p=2), changes(CANCEL)],
    ),
    Scenario(
        "limited order against a return",
        [_limited(2, p=9), add_delivered_order, _charged(p=2)],
        [changes(comes_back("r", 1)), buys("b", p=1), changes(comes_back("r", 1))],
    ),
    Scenario(
        "limited order against a change of the limit",
        [_limited(1, p=9)],
        [buys("a", p=1), runs(_raises_the_limit_and_buys), buys("c", p=1)],
        switches=2,
    ),
    Scenario(
        "limited order by a remembered limit",
        # A reads back its own write, so it assumes that there is no concurrent writer.
        [_limited(1, p=9), *(warm_up("A", order(f"w-{n}", f"w-{n}", p=1)) for n in "12")],
        [buys("a", p=1), runs(_raises_the_limit_and_buys), buys("c", p=1)],
        switches=2,
    ),
    Scenario(
        "limited order against a change of the group",
        [_limited(2, p=9), add_order(units=2), _charged(old=2)],
        [changes(CANCEL), _changes(limitGroup="other"), buys("c", p=1)],
        switches=2,
    ),
    Scenario(
        "limited order against an erasure",
        [_limited(2, p=9), add_order(units=2), _charged(p=2)],
        [
            runs(_forgets),
            changes(part("cancel", "s", 1)),
            places({"buyers": ["u-1"]} | order("c", "u-2", p=2)),
        ],
        faults=_TELLING,
        switches=3,
    ),
    Scenario(
        "limited order from two locations",
        [_limited(1, p=3), stock_at("berlin", p=1), add_order(), _charged(p=1)],
        [
            places(order_at("a", "", "berlin", p=1)),
            runs(_cancels_and_buys_in_berlin),
            buys("c", p=1),
        ],
        switches=2,
    ),
    _with_lanes(
        "sale from a lane against a new limit",
        [stock(p=60), lend("A", p=1)],
        [buys("a", p=2), _changes(purchaseLimit=1), buys("c", p=2)],
        switches=3,
    ),
    _with_lanes(
        "loan against a new limit",
        [stock(p=24), meet_rivals("A", "p")],
        [buys("a", p=1), _changes(purchaseLimit=1), buys("c", p=2)],
        faults=(*_TORN, "late"),
    ),
)

_ALL_GONE = frozenset({"REJECTED", "NONE"})


def _one_unit_more(world: World) -> None:
    """Check that the last unit went to the amended order or to the other one, and that the amend took nothing away."""
    row, others = _row(world), {row["orderId"]: row["status"] for row in world.rows("Orders")}
    quantity = row["items"][0]["quantity"]
    require(quantity in (2, 3), f"the order has {quantity} units")
    lost = [name for name in ("b", "c") if others.get(name, "NONE") in _ALL_GONE]
    placed = [name for name in ("b", "c") if others.get(name) == "PENDING"]
    require(len(placed) + (quantity - 2) <= 1, f"one unit was left, and {others} have it, or {row}")
    require(
        quantity == 3 or bool(placed) or bool(world.faults_used), f"the last unit is left: {lost}"
    )


def _is_amended_once(world: World) -> None:
    steps = [step for step in _row(world).get("steps", ()) if step["action"] == "amend"]
    require(len(steps) == 1, f"the order was amended by {steps}")
    _no_dead_letters(world)


def _is_one_order(world: World) -> None:
    """Check that the original order, sent again after an amend, is a replay."""
    _no_dead_letters(world)
    require(_row(world)["status"] == "PENDING", f"it ended as {_row(world)}")


def _is_not_delivered(world: World) -> None:
    """Check that all units are on hand again, unless the order was handed over anew with a step of its own."""
    row = _row(world)
    steps = [step["action"] for step in row["steps"]]
    again = "parcel-2" in [step.get("stepId") for step in row["steps"]]
    wanted = "FULFILLED" if again else "CONFIRMED"
    require(
        row["status"] == wanted or "unfulfil" not in steps,
        f"it ended as {row['status']} after {steps}",
    )


def _is_paid_as_amended(world: World) -> None:
    """Check that the order is not paid for a version that it no longer had, and not amended once it is paid."""
    actions = {step["action"] for step in _row(world).get("steps", ())}
    require(not {"amend", "confirm"} <= actions, f"the order went through {actions}")


def _add_order_to_amend(world: World) -> None:
    add_order(units=2)(world)


def _all_of_a_lane(world: World) -> Message:
    """An order for all units of product `p` in the only lane that has some."""
    (units,) = (units for lane, units in world.pages().units("p").items() if lane)
    return order("all", p=units)


def _is_not_cancelled(world: World) -> None:
    """Check that a late duplicate of the cancellation does not cancel units that were handed over before."""
    row = _row(world)
    open_, _ = units_of(row)
    is_undone = "unfulfil" in [step["action"] for step in row["steps"]]
    require(bool(open_) == is_undone, f"it ended as {row['status']} after {row['steps']}")


UNFULFIL = command("unfulfil", stepId="undo", force=True)

_AMENDED = (
    Scenario(
        "amend against an order for the last unit",
        [stock(p=1), _add_order_to_amend],
        [places(amend("a", p=3)), buys("b", p=1), buys("c", p=1)],
        check=_one_unit_more,
    ),
    Scenario(
        "one amend, by queue and directly",
        [stock(p=3), _add_order_to_amend],
        [
            places(amend("a", p=3)),
            asks("place_orders", amend("a", p=3)),
            changes(amend("a", p=3)),
        ],
        check=_is_amended_once,
    ),
    Scenario(
        "amend against confirmation",
        [stock(p=3), add_held_order(20.0)],
        [places(amend("a", p=3)), changes(command("confirm", ifVersion=1)), changes(CANCEL)],
        check=_is_paid_as_amended,
    ),
    Scenario(
        "amend against the end of the hold",
        [stock(p=3), add_held_order(OVER)],
        [places(amend("a", p=1, q=0)), expires("o"), changes(CONFIRM)],
    ),
    Scenario(
        "amend against cancellation",
        [stock(p=3, q=1), _add_order_to_amend],
        [places(amend("a", p=1, q=1)), changes(CANCEL), buys("b", q=1)],
    ),
    Scenario(
        "amend of a paid order against a partial hand-over",
        [stock(p=3), add_paid_order(2), lambda world: world.variables.update(AMEND_PAID="true")],
        [places(amend("a", p=1)), changes(part("fulfil", "s", 1)), changes(amend("b", p=3))],
    ),
    Scenario(
        "amend against the same order, sent again",
        [stock(p=3), warm_up("S", order("o", p=2))],
        [places(amend("a", p=3)), buys("o", p=2), places(amend("b", p=1))],
        check=_is_one_order,
    ),
    Scenario(
        "two amends of one order",
        # They write different rows, so only the order's row is contested.
        [stock(p=2, q=1), _add_order_to_amend],
        [places(amend("a", p=3)), places(amend("b", q=1)), places(amend("c", p=4))],
    ),
    Scenario(
        "amend against a count",
        [stock(p=2), _add_order_to_amend],
        [counts("count", 1), changes(amend("a", p=3)), restocks(1)],
        jumps=(4.0,),
        faults=_TELLING,
        switches=2,
    ),
    Scenario(
        "rejected amend against a restock",
        # A redelivery must not apply what was rejected for good.
        [stock(p=0), _add_order_to_amend],
        [places(amend("a", p=3)), restocks(1), places(amend("a", p=3))],
    ),
    Scenario(
        "amend to another location against an order there",
        [stock(p=1), stock_at("berlin", p=2), add_order(units=2)],
        [
            changes(
                command(
                    "amend",
                    stepId="a",
                    items=[{"productId": "p", "quantity": 2, "locationId": "berlin"}],
                )
            ),
            places(order_at("b", "berlin", p=1)),
            changes(CANCEL),
        ],
    ),
    Scenario(
        "amend against delist and relist",
        [stock(p=1), add_order(age=60.0, units=2)],
        [runs(relists), changes(amend("a", p=3)), changes(amend("b", p=1))],
    ),
    Scenario(
        "limited amend against an order of the same buyer",
        [_limited(3, p=3), add_order(units=2), _charged(p=2)],
        [places(amend("a", p=3)), buys("b", p=1), changes(amend("c", p=1))],
    ),
    Scenario(
        "exchange within a limit",
        [_limited(2, p=2, q=2), add_order(units=2), _charged(p=2)],
        [places(amend("a", p=1, q=1)), buys("b", q=1), changes(CANCEL)],
    ),
    _with_lanes(
        "amends of a product in lanes",
        [stock(p=60), lend("A", p=1), add_order(units=2)],
        [places(amend("a", p=4), order("a1", p=1)), buys("b", p=1), changes(amend("c", p=1))],
        switches=2,
    ),
    _with_lanes(
        "fewer and more units in one batch from a lane",
        [stock(p=60), lend("A", p=2), warm_up("S", order("o", p=2), order("o2", p=1))],
        [places(amend("a", p=1), amend("a2", "o2", p=3), order("a1", p=1)), changes(CANCEL)],
        faults=_TELLING,
        switches=2,
    ),
    _with_lanes(
        "units back to a lane against its recall",
        [stock(p=20), lend("A", p=1), add_order(units=2)],
        [places(amend("a", p=1)), counts("count", 1), buys("c", p=1)],
        faults=_TELLING,
        switches=2,
    ),
    _with_lanes(
        "units back to a lane that their batch empties",
        [stock(p=20), lend("A", p=1), add_order(units=2)],
        [places(_all_of_a_lane, amend("a", p=1)), buys("b", p=9), counts("count", 1)],
        faults=_TELLING,
        switches=2,
    ),
    Scenario(
        "limited order before the amend that makes room for it",
        [_limited(2, p=3), add_order(units=2), _charged(p=2)],
        [places(order("a1", p=1), amend("a", p=1)), buys("b", p=1), changes(CANCEL)],
        switches=2,
    ),
    Scenario(
        "hand-over taken back against a late duplicate of the cancellation",
        [
            *(stock(p=1), add_paid_order(2)),
            warm_up("S", part("fulfil", "parcel", 1), CANCEL, function="change_orders"),
        ],
        [changes(UNFULFIL), changes(CANCEL), restocks(1)],
        check=_is_not_cancelled,
    ),
    Scenario(
        "hand-over taken back against its fold",
        [stock(p=1), add_departed_order],
        [changes(UNFULFIL), SWEEPS, changes(FULFIL)],
        check=_is_not_delivered,
    ),
    Scenario(
        "folded hand-over taken back against a return",
        [stock(p=1), add_delivered_order],
        [
            changes(UNFULFIL),
            asks("change_orders", comes_back("rt-1", 1)),
            changes(command("unfulfil", stepId="b", force=True)),
        ],
    ),
    Scenario(
        "folded hand-over taken back against a count",
        [stock(p=1), add_delivered_order],
        [counts("count", 1), changes(UNFULFIL), restocks(1)],
        jumps=(4.0,),
        faults=_TELLING,
        switches=2,
    ),
    Scenario(
        "hand-over taken back against its late duplicate",
        [stock(p=1), add_departed_order],
        [
            asks("change_orders", UNFULFIL, FULFIL),
            changes(FULFIL),
            changes(command("fulfil", stepId="parcel-2")),
        ],
        check=_is_not_delivered,
    ),
    Scenario(
        "one hand-over, taken back twice",
        [stock(p=1), add_departed_order],
        [
            changes(UNFULFIL),
            changes(part("unfulfil", "other", 2, force=True)),
            changes(part("fulfil", "parcel-2", 2)),
        ],
    ),
    Scenario(
        "folded hand-over taken back against delist and relist",
        [stock(p=1), add_delivered_order],
        [runs(relists), changes(UNFULFIL), restocks(1)],
    ),
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *(
            *_IN_ROWS,
            *_LIFE_OF_AN_ORDER,
            *_ON_HAND,
            *_AT_LOCATIONS,
            *_IN_LANES,
            *_OVER_HTTP,
            *_LIMITED,
            *_AMENDED,
        ),
    )
}
