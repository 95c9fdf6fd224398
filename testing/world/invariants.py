"""The invariants that must hold in every run, whatever its schedule and faults.

The checks look at rows and answers, never at calls. The ledger checks the books, and the news checks the events.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from operator import attrgetter, or_
from typing import TYPE_CHECKING, Any

from inventory_orders.lanes.depot import VISIT_SECONDS
from testing.world.ends import (
    OVER,
    is_answered_with_no,
    is_done,
    is_order,
    key_of,
    named,
    units_of,
)
from testing.world.ledger import MOVES, Place, Stock
from testing.world.purchases import Units, buyers_of, is_over_limit
from testing.world.tables import UNDELIVERABLE
from testing.world.violation import require

if TYPE_CHECKING:
    from testing.world.checked import Change, CheckedWorld

GRACE_SECONDS = 3
DEPOT_LEASE: Place = ("Allotments", ("0/lease",))


def check_write(world: CheckedWorld, number: int, changes: Sequence[Change]) -> None:
    """Check a write and the state that it leads to.

    Args:
        world: The world after the write.
        number: Number of the write, from 1.
        changes: The changes that it made.

    Raises:
        ViolationError: The write, or the state after it, breaks an invariant.
    """
    world.news.note([change for change in changes if change.place[0] in world.streams])
    world.ledger.note(number, changes)
    written = {
        change.place: change.after["_version"]
        for change in changes
        if change.after is not None and "_version" in change.after
    }
    for change in changes:
        if change.place[0] == "Products":
            _check_product(world, change)
        elif change.place[0] == "Orders" and change.after is not None:
            _check_order(world, change, change.before, change.after, written)


def _check_product(world: CheckedWorld, change: Change) -> None:
    before, after, name = change.before, change.after, change.place[1][0]
    # If clocks are wrong, a lease does not exclude other processes, and its fence protects the row instead.
    now = world.clock.seconds + change.process.clock
    if before is not None and before.get("lockTime", 0) > now:
        owner = world.lock_owners.get(change.place)
        require(
            # A' repeats the commands of A.
            owner == change.process.name.rstrip("'"),
            f"{change.process.name} wrote product {name} under the live lease of {owner}",
        )
    if after is None:
        return
    if after.get("lockedBy") != (before or {}).get("lockedBy"):
        world.lock_owners[change.place] = change.process.name
        world.locked_since[change.place] = change.number
    begun_with = after.get("lockOnHand")
    if begun_with is not None and begun_with != (before or {}).get("lockOnHand"):
        _check_begin(world, change, begun_with)


def _check_begin(world: CheckedWorld, change: Change, begun_with: int) -> None:
    """Check that a count began with the units that were on hand at some moment during its lease."""
    known = world.ledger.stock[change.place[1][0]]
    since = world.locked_since.get(change.place, 0)
    there = {
        stock.on_hand
        for stock, after in zip(known, [*known[1:], None], strict=True)
        if stock.row is not None and (after is None or after.number > since)
    }
    name = change.place[1][0]
    require(
        begun_with in there, f"a count of {name} began with {begun_with}, but on hand were {there}"
    )


def _check_order(
    world: CheckedWorld,
    change: Change,
    before: dict[str, Any] | None,
    after: dict[str, Any],
    written: Mapping[Place, int],
) -> None:
    name = after["orderId"]
    require(
        ("expiresAt" in after) == ("expiryShard" in after)
        and ("expiresAt" not in after or after["status"] == "PENDING"),
        f"order {name} is {after['status']}, and its hold ends at {after.get('expiresAt')}",
    )
    _check_listed(before, after)
    if before is not None:
        _check_step(world, change, before, after, written)
        return
    if after["status"] == "REJECTED":
        _check_rejected_order(world, change, after)
    if "userId" in after:
        _check_order_of_group(world, after)
    _check_lines(after, written)
    _check_places_of_lines(after)
    _check_backorder(world, change, after)


def _check_listed(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """Check that the indexes `byStatus` and `byLatePayment` contain the order where they should. They omit tombstones."""
    name, is_order = after["orderId"], "userId" in after
    shard = after.get("statusShard", "none")
    require(
        shard.partition("#")[0] == (after["status"] if is_order else "none"),
        f"order {name} is {after['status']}, and in byStatus it is in {shard}",
    )
    is_late = is_order and "confirmationRejected" in after
    require(
        is_late == ("latePaymentShard" in after) == ("latePaymentAt" in after),
        f"order {name} has {'a' if is_late else 'no'} late payment, and byLatePayment disagrees",
    )
    is_same = before is not None and before["status"] == after["status"]
    require(
        after["statusAt"] == (before["statusAt"] if before and is_same else after["lastUpdatedAt"]),
        f"order {name} is {after['status']}, and entered this status at {after['statusAt']}",
    )


_STEPS = {
    ("PENDING", "CONFIRMED"),
    ("PENDING", "CANCELLED"),
    ("PENDING", "EXPIRED"),
    ("CONFIRMED", "FULFILLED"),
    ("CONFIRMED", "CANCELLED"),
    ("FULFILLED", "CONFIRMED"),
}
_MAY_BE = {
    "extend": {"PENDING"},
    "cancel": {"PENDING", "CONFIRMED"},
    "fulfil": {"CONFIRMED"},
    "return": {"CONFIRMED", "FULFILLED"},
    "unfulfil": {"CONFIRMED"},
    "amend": {"PENDING", "CONFIRMED"},
}
"""Statuses that an action may leave unchanged."""
# Timestamps that a step writes in addition to the status, the lines, and the end of the hold.
_STAMPS = {"CONFIRMED": "confirmedAt", "FULFILLED": "fulfilledAt"}
_AMENDED = {"items", "attributes", "asked", "suppliedFrom", "changedVersion"}
"""What an amend may change in addition."""


def _check_step(
    world: CheckedWorld,
    change: Change,
    before: dict[str, Any],
    after: dict[str, Any],
    versions: Mapping[Place, int],
) -> None:
    """Check that a change is a step of an order's lifecycle, a late payment, a return, or an arrival after a tombstone."""
    name, step = after["orderId"], (before["status"], after["status"])
    written = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    written -= {"_version", "lastUpdatedAt"}
    if "userId" not in before:
        require(step == ("CANCELLED", "CANCELLED"), f"the tombstone of {name} is {step[1]}")
        return
    if "pseudonymisedAt" in written:
        allowed = {"userId", "attributes", "placedBy", "buyers", "steps", "asked"}
        allowed.add("pseudonymisedAt")
        require(written <= allowed, f"the erasure gave order {name} {written - allowed}")
        return
    if step[0] != step[1]:
        _check_new_status(world, change, before, after, written)
    elif "rejectedAmends" in written:
        require(written == {"rejectedAmends"}, f"a rejected amend gave order {name} {written}")
        _check_rejected_amend(world, change, after)
        return
    elif "confirmationRejected" in written:
        allowed = {"confirmationRejected", "latePaymentAt", "latePaymentShard"}
        require(written <= allowed, f"with a late payment, order {name} was given {written}")
        _check_rejection(before, after)
        return
    else:
        action = after.get("steps", [{}])[-1].get("action")
        more = {"extend": {"expiresAt"}, "amend": _AMENDED}.get(action, {"changedVersion"})
        allowed = {"steps"} | more
        require(
            {"steps"} <= written <= allowed and step[1] in _MAY_BE[action],
            f"order {name}, which is {step[1]}, was given {sorted(written)} by {action}",
        )
    _check_units(world, before, after, versions)


def _check_new_status(
    world: CheckedWorld,
    change: Change,
    before: dict[str, Any],
    after: dict[str, Any],
    written: Set[str],
) -> None:
    """Check that an order may enter its new status, and that nothing else of it changed."""
    name, step = after["orderId"], (before["status"], after["status"])
    require(step in _STEPS, f"order {name} went from {step[0]} to {step[1]}")
    allowed = {"status", "statusAt", "statusShard", "steps", "expiresAt", "expiryShard"}
    allowed.add("changedVersion")
    is_undone = step == ("FULFILLED", "CONFIRMED")
    allowed.add("fulfilledAt" if is_undone else _STAMPS.get(step[1], "status"))
    action = after["steps"][-1]["action"]
    allowed |= _AMENDED if action == "amend" else set()
    require(written <= allowed, f"with {step[1]}, order {name} was given {written - allowed}")
    require(
        is_undone == (action == "unfulfil") and not (is_undone and "fulfilledAt" in after),
        f"order {name} was {step[0]}, and is {step[1]} after {action}",
    )
    told = before.get("confirmationRejected", {}).get("reason", "VERSION_CHANGED")
    require(
        step[1] != "CONFIRMED" or is_undone or told == "VERSION_CHANGED",
        f"order {name} was confirmed after its confirmation was rejected",
    )
    clock = change.process.clock
    require(
        step[1] != "EXPIRED"
        or before.get("expiresAt", "9999") <= world.moment(clock - GRACE_SECONDS),
        f"order {name} expired at {world.moment(clock)}, and its hold ends at {before.get('expiresAt')}",
    )


def _check_rejection(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Check that the row gives the right reason for rejecting a confirmation."""
    name, told = before["orderId"], after["confirmationRejected"]
    reason = told["reason"]
    if reason == "VERSION_CHANGED":
        is_other = not before.get("changedVersion", 1) <= told["ifVersion"] <= before["_version"]
        require(is_other, f"order {name} was confirmed for its version, and refused")
        return
    require(
        before["status"] in OVER
        and reason == f"ORDER_{before['status']}"
        and "confirmedAt" not in before,
        f"order {name} is {before['status']}, and its confirmation was rejected as {reason}",
    )


def _check_rejected_amend(world: CheckedWorld, change: Change, order: dict[str, Any]) -> None:
    """Check that stock was short at a moment since the invocation began, if that is why an amend was rejected."""
    rejected = order["rejectedAmends"][-1]
    begun = change.process.begun or 0
    for short in rejected.get("shortages", ()):
        key = key_of(short)
        known = _since(world.ledger.stock.get(key, ()), begun)
        states = [_state_at(world, key, begun), *known]
        require(
            any(_is_short((state, short["wanted"])) for state in states),
            f"{rejected['stepId']} of order {order['orderId']} was rejected, but {short} was never true",
        )


def _check_units(
    world: CheckedWorld,
    before: dict[str, Any],
    after: dict[str, Any],
    written: Mapping[Place, int],
) -> None:
    """Check that a change to an order adds one step, moves at most the units that are left, and sets the right status.

    The check of the books shows whether units were returned to stock.
    """
    name, status = after["orderId"], after["status"]
    steps, step = before.get("steps", []), after.get("steps", [{}])[-1]
    if step["action"] == "extend":
        steps = [one for one in steps if one["action"] != "extend"]
    require(after["steps"] == [*steps, step], f"order {name} went from {steps} to {after['steps']}")
    is_extended = step["action"] == "extend"
    since = before.get("changedVersion") if is_extended else after["_version"]
    require(after.get("changedVersion") == since, f"{step} of order {name} was not numbered")
    ids = [one["stepId"] for one in after["steps"] if "stepId" in one]
    ids += [one["stepId"] for one in after.get("rejectedAmends", ())]
    require(len(ids) == len(set(ids)), f"order {name} has the steps {ids}")
    open_, delivered = units_of(before)
    moved = named(step)
    room = delivered if step["action"] in ("return", "unfulfil") else open_
    require(moved <= room, f"{step} of order {name} moves more than {room}")
    goes_back = MOVES[step["action"], step.get("restock")][0] > 0 if moved else False
    _check_lines({"orderId": name, "status": "PENDING", "items": step.get("added", ())}, written)
    lines = {line["productId"]: line for line in before["items"]}
    for added in step.get("added", ()):
        line = lines.get(added["productId"], added)
        require(
            key_of(line) != key_of(added) or line["productCreatedAt"] == added["productCreatedAt"],
            f"{step} of order {name} adds units of another generation to {line}",
        )
    for item in step.get("items", ()):
        line = lines[item["productId"]]
        product = world.row("Products", key_of(line)) or {}
        stands = product.get("createdAt") == line.get("productCreatedAt")
        require(
            ("returnedVersion" in item) == (goes_back and stands),
            f"{step} of order {name} says {item}",
        )
        if "returnedVersion" in item:
            page, row = item.get("returnedPage"), ("Products", (key_of(line),))
            place = row if page is None else ("Allotments", (page,))
            require(
                written.get(place) == item["returnedVersion"],
                f"{step} of order {name} says {item}, but {written} was written",
            )
    open_, _ = units_of(after)
    is_settled = status in {"FULFILLED", "CANCELLED"}
    require(
        is_settled == (not open_) or status == "EXPIRED",
        f"order {name} is {status}, and {open_} is neither handed over nor cancelled",
    )


_Candidate = tuple[Stock | None, int]
"""The state of a line's row at a location at some moment, and the quantity ordered."""


def _check_rejected_order(world: CheckedWorld, change: Change, order: dict[str, Any]) -> None:
    """Check that at one moment during the invocation, the order could not have been placed, for the reason given."""
    reason, is_split = order["reason"], order.get("split", False)
    require(
        any(
            _is_over_limit(offers, bought)
            if reason == "PURCHASE_LIMIT"
            else _is_true(reason, offers, is_split=is_split)
            for offers, bought in _moments(world, change, order)
        ),
        f"order {order['orderId']} was rejected as {reason}, which was never true while it was being placed",
    )


def _check_backorder(world: CheckedWorld, change: Change, order: dict[str, Any]) -> None:
    """Check that an order was placed on backorder only if at one moment no location had the goods, unless one was being counted."""
    if any("backordered" in line for line in order["items"]):
        require(
            not all(
                any(_has_goods(offer) and not _exceeds(offer, bought) for offer in offers)
                for offers, bought in _moments(world, change, order)
            ),
            f"order {order['orderId']} was placed on backorder, although a location had the goods at every moment",
        )


_Offers = list[list[_Candidate]]
"""The state of each line's row at each location, at one moment."""


def _moments(
    world: CheckedWorld, change: Change, order: Mapping[str, Any]
) -> Iterator[tuple[_Offers, list[Units]]]:
    """Yield the offers of an order, and what its buyers had bought, as they were at each moment since its invocation began."""
    begun = change.process.begun or 0
    offers = [
        [(_candidate(line, location), line["quantity"]) for line in order["items"]]
        for location in order.get("locations", [""])
    ]
    known = [world.ledger.stock.get(key, []) for offer in offers for key, _ in offer]
    moments = {begun, *(each.number for states in known for each in _since(states, begun))}
    purchases, buyers = world.ledger.purchases, buyers_of(order)
    numbers = (number for buyer in buyers for number, _ in purchases.known.get(buyer, ()))
    moments |= {number for number in numbers if number > begun}
    for moment in moments:
        states = [[(_state_at(world, key, moment), n) for key, n in offer] for offer in offers]
        yield states, [purchases.at(buyer, moment) for buyer in buyers]


def _since(states: Sequence[Stock], moment: int) -> Sequence[Stock]:
    """The states of a row and its lanes after write number `moment`."""
    return states[bisect_right(states, moment, key=attrgetter("number")) :]


def _candidate(line: Mapping[str, Any], location: str) -> str:
    """The key of the row that a line would be taken from: at the line's own location if it names one, else at this one."""
    return key_of({**line, "locationId": line.get("askedLocationId", location)})


def _state_at(world: CheckedWorld, key: str, moment: int) -> Stock | None:
    """The state of a row and its lanes after write number `moment`."""
    states = world.ledger.stock.get(key, ())
    before = len(states) - len(_since(states, moment))
    return states[before - 1] if before else None


def _is_true(reason: str, offers: _Offers, *, is_split: bool) -> bool:
    """Whether an order with these offers cannot be placed, for this reason."""
    lines = list(zip(*offers, strict=True))
    if reason == "UNKNOWN_PRODUCT":
        return any(all(map(_is_gone, line)) for line in lines)
    if reason == "DISCONTINUED_PRODUCT":
        return any(
            all(_is_gone(each) or _is_discontinued(each) for each in line)
            and any(map(_is_discontinued, line))
            for line in lines
        )
    require(reason == "INSUFFICIENT_STOCK", f"no rule for the reason {reason}")
    if is_split:
        return any(all(map(_lacks, line)) for line in lines)
    return all(any(map(_is_short if len(offers) == 1 else _lacks, offer)) for offer in offers)


def _is_over_limit(offers: _Offers, bought: Sequence[Units]) -> bool:
    """Whether each offer of an order is impossible, and one of them exceeds a purchase limit, whatever else it lacks."""
    exceeds = [is_over_limit(_rows_of(offer), bought) for offer in offers]
    others = (any(map(_lacks, offer)) for offer in offers)
    return any(exceeds) and all(map(or_, exceeds, others))


def _exceeds(offer: Sequence[_Candidate], bought: Sequence[Units]) -> bool:
    """Whether an offer exceeds a purchase limit, and its products can be ordered otherwise."""
    if any(_is_gone(each) or _is_discontinued(each) for each in offer):
        return False
    return is_over_limit(_rows_of(offer), bought)


def _rows_of(offer: Sequence[_Candidate]) -> list[tuple[dict[str, Any] | None, int]]:
    return [(stock.row if stock is not None else None, n) for stock, n in offer]


def _is_gone(candidate: _Candidate) -> bool:
    stock, _ = candidate
    return stock is None or stock.row is None


def _is_discontinued(candidate: _Candidate) -> bool:
    stock, _ = candidate
    return stock is not None and stock.row is not None and stock.row["status"] == "DISCONTINUED"


def _is_short(candidate: _Candidate) -> bool:
    stock, quantity = candidate
    if stock is None or stock.row is None:
        return False
    sellable = stock.row.get("backorderLimit", 0) - stock.row.get("safetyStock", 0)
    return bool(stock.available + sellable < quantity)


def _has_goods(offer: Sequence[_Candidate]) -> bool:
    """Whether a location has all units of an order in stock, and none of its rows is leased."""
    return all(
        stock is not None
        and stock.row is not None
        and not _is_discontinued((stock, quantity))
        and "lockedBy" not in stock.row
        and stock.available - stock.row.get("safetyStock", 0) >= quantity
        for stock, quantity in offer
    )


def _lacks(candidate: _Candidate) -> bool:
    """Whether a location cannot supply a line."""
    return _is_short(candidate) or _is_gone(candidate) or _is_discontinued(candidate)


def _check_places_of_lines(order: Mapping[str, Any]) -> None:
    """Check that each line comes from an allowed location, and that only a split order comes from several."""
    if order["status"] != "PENDING":
        return
    chosen = set()
    for line in order["items"]:
        place = line.get("locationId", "")
        asked = line.get("askedLocationId")
        allowed = order.get("locations", [""]) if asked is None else [asked]
        require(
            place in allowed, f"order {order['orderId']} has the line {line}, and allows {allowed}"
        )
        chosen |= {place} if asked is None else set()
    require(
        len(chosen) <= 1 or "split" in order,
        f"order {order['orderId']} may not be split, but comes from {sorted(chosen)}",
    )


def _check_lines(order: dict[str, Any], written: Mapping[Place, int]) -> None:
    """Check that each line of a placed order names the row or page that was written for it, with its version."""
    if order["status"] != "PENDING":
        return
    for line in order["items"]:
        paid = [
            (("Products", (key_of(line),)), line.get("productVersion")),
            (("Allotments", (line.get("lanePage"),)), line.get("laneVersion")),
        ]
        named = [(place, version) for place, version in paid if version is not None]
        require(
            len(named) == 1 and written.get(named[0][0]) == named[0][1],
            f"order {order['orderId']} has the line {line}, but {written} was written",
        )


def _check_order_of_group(world: CheckedWorld, order: dict[str, Any]) -> None:
    """Check that no message of a group takes effect before an earlier one."""
    order_id, group, earlier = order["orderId"], None, []
    for message_id, (function, body, its_group) in world.sent.items():
        if function == "place_orders" and its_group is not None:
            if body.get("orderId") == order_id and is_order(order, body):
                group = its_group
                break
            earlier.append((message_id, its_group))
    for message_id, its_group in earlier:
        if group == its_group:
            require(
                end_of(world, message_id) is not None,
                f"{order_id} took effect before {world.sent[message_id][1].get('orderId')} of its group",
            )


def end_of(world: CheckedWorld, message_id: str, since: int = 0) -> str | None:
    """Find the outcome of a message from durable rows and dead letters only. None if it has no outcome yet.

    Args:
        world: The run.
        message_id: The message.
        since: The number of writes before the invocation. A command that changed nothing may have been answered from
            any state of the order's row since then.
    """
    function, body, _ = world.sent[message_id]
    if message_id in world.invalid:
        return next(iter(world.error_codes(message_id)), None)
    command = {"action": "expire"} | body if function == "change_orders" else body
    dead, done = world.error_codes(message_id), is_done(world.row, function, command)
    require(not (dead and done), f"{body} was done and dead-lettered as {dead}")
    answered = function == "change_orders" and any(
        is_answered_with_no(row, command) for row in world.states(since, "Orders", body["orderId"])
    )
    return dead[0] if dead else "done" if done or answered else None


def check_end(world: CheckedWorld) -> None:
    """Check the state at the end of a run.

    Raises:
        ViolationError: This state breaks an invariant.
    """
    for message_id, (_, body, _) in world.sent.items():
        end = end_of(world, message_id)
        require(end is not None, f"{body} was lost")
        require(end != "REFUSED_BY_DYNAMODB", f"{body} was treated as an invalid message")
    world.news.check_end()
    _check_audit(world)
    for queue in world.aws.sqs.queues.values():
        require(
            queue.name != UNDELIVERABLE or not queue.messages,
            f"{queue.messages} was treated as undeliverable",
        )
        for message in queue.messages if "Dead" in queue.name else ():
            require("errorCode" in message.attributes, f"SQS dead-lettered {message.body}")
    if not world.crashes:
        # If the release of the depot's lease failed, the lease expires soon.
        tolerated = VISIT_SECONDS if world.faults_used else 0.0
        tolerated += max(0.0, *world.clocks.values(), 0.0)
        line = world.row(DEPOT_LEASE[0], *DEPOT_LEASE[1]) or {}
        for row in (*world.rows("Products"), line):
            left = float(row.get("lockTime", 0)) - world.clock.seconds
            require(left <= tolerated, f"the lock of {row.get('lockedBy')} was left behind")
    for number, (function, command, answer) in enumerate(world.answers):
        later = (each for _, each, _ in world.answers[number + 1 :])
        if not any(_sets_the_same(command, each) for each in later):
            _check_answer(world, function, command, answer)


def _check_audit(world: CheckedWorld) -> None:
    """Check that an audit would find no problem."""
    for account in world.accounts():
        said = "; ".join(account.unexplained_in_words)
        require(not said, f"{account.product_id} has {said}")
        require(not account.problems, f"{account.product_id}: {'; '.join(account.problems)}")


def _sets_the_same(command: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    """Whether a later command may have set what a command set."""
    actions, products = (
        {each.get(name) for each in (command, later)} for name in ("action", "productId")
    )
    return actions == {"change"} and len(products) == 1


def _check_answer(
    world: CheckedWorld, function: str, command: dict[str, Any], answer: dict[str, Any]
) -> None:
    """Check that the answer to a command matches the rows."""
    if function == "api":
        _check_answer_to_order(world, command, answer)
        return
    result, action = answer.get("result"), command.get("action")
    require(result is not None, f"{command} was answered {answer}")
    if function == "sweep" or (function == "count_stock" and action not in ("commit", "count")):
        return
    done = is_done(world.row, function, command)
    # A cancellation also gets this answer if there was nothing left to cancel.
    if result in {"APPLIED", "REPLAYED", "STALE", "COMMITTED"} and (result, action) != (
        "REPLAYED",
        "cancel",
    ):
        require(done, f"{command} was answered {answer}, and is not done")
    elif function in {"adjust_stock", "count_stock"}:
        is_refused = result in {"REFUSED", "INVALID"}
        require(not (is_refused and done), f"{command} was answered {answer}, but is booked")
    elif result == "REFUSED" and (function == "place_orders" or action == "confirm"):
        row = world.row("Orders", command["orderId"]) or {}
        says_so = "confirmationRejected" in row or answer["code"] == "UNKNOWN_ORDER"
        if function == "place_orders":
            says_so = row.get("status") == "REJECTED"
        require(says_so, f"{command} was answered {answer}, and the row is {row}")


def _check_answer_to_order(
    world: CheckedWorld, order: dict[str, Any], answer: dict[str, Any]
) -> None:
    """Check that what a caller of the HTTP API was told about an order is still true at the end of the run."""
    status, told = answer["statusCode"], json.loads(answer["body"])
    row = world.row("Orders", order["orderId"])
    match status:
        case 200 | 201:
            is_true = is_order(row, order) and row is not None and row["status"] != "REJECTED"
        case 202:
            sent = (body for _, body, _ in world.sent.values())
            is_true = is_order(row, order) or order in sent
        case 409 if told["code"] == "ORDER_ID_REUSED":
            is_true = row is not None and not is_order(row, order)
        case 409:
            is_true = is_order(row, order) and (row or {}).get("reason") == told["code"]
        case _:
            is_true = status == 503
    require(is_true, f"{order} was answered {status} {told}, and the row is {row}")
