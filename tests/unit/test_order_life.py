"""The life of an order: the effect of each command in each status, and the handlers' answers."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from zlib import crc32

import pytest
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

from inventory_orders.clock import timestamp
from inventory_orders.domain.events import order_events
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import MAX_ROW_SIZE, OrderCommand
from inventory_orders.domain.record import (
    MAX_NAMED_STEPS,
    ConfirmationRejection,
    OrderAction,
    OrderKey,
    OrderLine,
    OrderRecord,
    Step,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.errors import ConfigurationError, Outcome
from inventory_orders.retry import EARLY_DELIVERIES, LONGEST_DELAY_SECONDS
from inventory_orders.store.rows import encode, order_row, read_record
from inventory_orders.store.tables import Table
from local import ROOT
from operations import emf
from testing.aws import ServiceError
from testing.aws.values import size_of_item
from testing.schedules.in_turn.bench import BEGAN, Bench, product, statuses
from testing.world.events import order_body
from testing.world.faults import THROTTLED

APPLIED, REPLAYED, REJECTED = Outcome.APPLIED, Outcome.REPLAYED, Outcome.REJECTED
RETURNED, ID_REUSED = Outcome.RETURNED, Outcome.INVALID

WRITTEN = timestamp(BEGAN)
BEFORE = "2026-01-01T23:00:00.000000+00:00"
JUST_BEFORE_END = "2026-01-02T00:14:59.999999+00:00"
END = "2026-01-02T00:15:00.000000+00:00"

CREATED = product("p", 0).created_at
LATER = "2026-01-02T01:00:00.000000+00:00"
LINES = (OrderLine("p", 2, CREATED, 7), OrderLine("q", 3, CREATED, 7))
CAME_BACK = {"step_id": "rt-1", "quantities": {"q": 2}, "restock": True}


def row(status, **more):
    """Make the row of an order for 2 units of p and 3 units of q."""
    values = {"lines": LINES, "version": 4, "created_at": BEFORE, "last_updated_at": BEFORE} | more
    return OrderRecord("o", values.pop("user_id", "u"), status=status, **values)


def without_stock(status, **more):
    lines = tuple(OrderLine(line.product_id, line.quantity) for line in LINES)
    return row(status, lines=lines, **more)


def command(action, ended_by=JUST_BEFORE_END, order_id="o", **part):
    if action == "return" and not part:
        part = CAME_BACK
    return OrderCommand(order_id, OrderAction(action), ended_by, until=LATER, **part)


FIRST_PARCEL = Step("fulfil", BEFORE, "s-1", {"p": 1, "q": 2})
TOLD = ConfirmationRejection(BEFORE, "ORDER_EXPIRED")
ROWS = {
    "absent": None,
    "tombstone": row("CANCELLED", user_id=None, lines=()),
    "pending": row("PENDING"),
    "held": row("PENDING", hold_seconds=900, expires_at=END),
    "over": row("PENDING", hold_seconds=900, expires_at=END),
    "confirmed": row("CONFIRMED", confirmed_at=BEFORE),
    "shipping": row("CONFIRMED", confirmed_at=BEFORE, steps=(FIRST_PARCEL,)),
    "fulfilled": row(
        "FULFILLED", confirmed_at=BEFORE, fulfilled_at=BEFORE, steps=(Step("fulfil", BEFORE),)
    ),
    "rejected": without_stock("REJECTED", reason="INSUFFICIENT_STOCK"),
    "cancelled": row("CANCELLED"),
    "paid": row("CANCELLED", confirmed_at=BEFORE),
    "expired": row("EXPIRED", hold_seconds=900),
    "told": row("EXPIRED", confirmation_rejected=TOLD),
    "revived": row("PENDING", expires_at=END, confirmation_rejected=TOLD),
    "settled": row("CONFIRMED", confirmed_at=BEFORE, confirmation_rejected=TOLD),
    "foreign": row("PACKED", hold_seconds=900, expires_at=END),
}

# Each cell is the order's new status, `same` if the command was applied before, or the reason why it is refused. With
# `!`, the row records the reason.
TABLE = """
            confirm               extend                fulfil                cancel                expire                return
absent      UNKNOWN_ORDER         UNKNOWN_ORDER         UNKNOWN_ORDER         CANCELLED             NOT_HELD              UNKNOWN_ORDER
tombstone   ORDER_CANCELLED!      ORDER_CANCELLED       ORDER_CANCELLED       same                  NOT_HELD              ORDER_CANCELLED
pending     CONFIRMED             NOT_HELD              NOT_CONFIRMED         CANCELLED             NOT_HELD              NOT_FULFILLED
held        CONFIRMED             PENDING               NOT_CONFIRMED         CANCELLED             HOLD_NOT_ENDED        NOT_FULFILLED
over        CONFIRMED             PENDING               NOT_CONFIRMED         CANCELLED             EXPIRED               NOT_FULFILLED
confirmed   same                  NOT_HELD              FULFILLED             CANCELLED             NOT_HELD              NOT_FULFILLED
shipping    same                  NOT_HELD              FULFILLED             FULFILLED             NOT_HELD              CONFIRMED
fulfilled   same                  NOT_HELD              same                  ORDER_FULFILLED       NOT_HELD              FULFILLED
rejected    ORDER_REJECTED!       ORDER_REJECTED        ORDER_REJECTED        ORDER_REJECTED        NOT_HELD              ORDER_REJECTED
cancelled   ORDER_CANCELLED!      ORDER_CANCELLED       ORDER_CANCELLED       same                  NOT_HELD              ORDER_CANCELLED
paid        same                  ORDER_CANCELLED       ORDER_CANCELLED       same                  NOT_HELD              ORDER_CANCELLED
expired     ORDER_EXPIRED!        ORDER_EXPIRED         ORDER_EXPIRED         same                  same                  ORDER_EXPIRED
told        ORDER_EXPIRED         ORDER_EXPIRED         ORDER_EXPIRED         same                  same                  ORDER_EXPIRED
revived     ORDER_EXPIRED         PENDING               NOT_CONFIRMED         CANCELLED             HOLD_NOT_ENDED        NOT_FULFILLED
settled     ORDER_EXPIRED         NOT_HELD              FULFILLED             CANCELLED             NOT_HELD              NOT_FULFILLED
foreign     UNKNOWN_ORDER_STATUS  UNKNOWN_ORDER_STATUS  UNKNOWN_ORDER_STATUS  UNKNOWN_ORDER_STATUS  UNKNOWN_ORDER_STATUS  UNKNOWN_ORDER_STATUS
"""
HEAD, *STATES = (line.split() for line in TABLE.strip().splitlines())
CELLS = [
    (state, action, meaning)
    for state, *meanings in STATES
    for action, meaning in zip(HEAD, meanings, strict=True)
]


def bench_with(*records):
    """Make a shop with 8 units of p and 7 units of q."""
    bench = Bench(product("p", 8), product("q", 7))
    bench.put_record(*records)
    # Reads without strong consistency find nothing, because commands must not depend on them.
    bench.hides_records = True
    return bench


def stored(bench, order_id="o"):
    return bench.record(OrderKey(order_id))


def stocks(bench):
    return bench.stock("p"), bench.stock("q")


def changed(before, action, status):
    """Return the row after a step."""
    if before is None:
        cancelled = (Step("cancel", WRITTEN),)
        return OrderRecord("o", None, (), status, 1, WRITTEN, WRITTEN, WRITTEN, steps=cancelled)
    after = replace(before, status=status, version=5, last_updated_at=WRITTEN, expires_at=None)
    if status != before.status:
        after = replace(after, status_at=WRITTEN)
    step = Step(action, WRITTEN)
    if action == "fulfil":
        step = replace(step, out_page="out/4", out_version=1)
    if action == "confirm":
        after = replace(after, confirmed_at=WRITTEN)
    elif action == "extend":
        after = replace(after, expires_at=LATER)
    elif action == "return":
        step = Step(action, WRITTEN, "rt-1", {"q": 2}, {"q": 2}, restock=True)
    elif action != "fulfil":
        left = {"p": 1, "q": 1} if FIRST_PARCEL in before.steps else {"p": 2, "q": 3}
        step = Step(action, WRITTEN, None, left, dict.fromkeys(left, 2))
    if status == "FULFILLED" != before.status:
        after = replace(after, fulfilled_at=WRITTEN)
    version = before.changed_version if action == "extend" else 5
    return replace(after, steps=(*before.steps, step), changed_version=version)


@pytest.mark.parametrize(("state", "action", "meaning"), CELLS)
def test_what_a_command_does_in_each_status(state, action, meaning):
    before = ROWS[state]
    bench = bench_with(*([before] if before else []))
    ended_by = END if state == "over" else JUST_BEFORE_END
    (outcome,) = bench.apply(command(action, ended_by)).outcomes
    reason, after = meaning.rstrip("!"), before
    if meaning == "same":
        assert outcome.kind is REPLAYED
    elif reason in RejectionReason.__members__:
        assert (outcome.kind, outcome.rejection.reason) == (REJECTED, reason)
        assert outcome.is_written_rejection is ("!" in meaning)
        if "!" in meaning:
            told = ConfirmationRejection(WRITTEN, reason)
            after = replace(before, version=5, last_updated_at=WRITTEN, confirmation_rejected=told)
    else:
        assert outcome.kind is APPLIED
        after = changed(before, action, meaning)
    assert stored(bench) == after
    gives_back = before is not None and outcome.kind is APPLIED
    all_left = (9, 8) if state == "shipping" else (10, 10)
    came_back = {"cancel": all_left, "expire": all_left, "return": (8, 9)} if gives_back else {}
    stock = came_back.get(action, (8, 7))
    assert stocks(bench) == stock
    # The redelivered message finds that its work is done.
    (again,) = bench.apply(command(action, ended_by)).outcomes
    assert again.kind is (REPLAYED if outcome.kind is APPLIED else outcome.kind)
    assert not again.is_written_rejection
    assert (stored(bench), stocks(bench)) == (after, stock)


BROKEN = {
    "no version": ({"version": 0}, ["confirm", "cancel", "expire"]),
    "version as text": ({"version": "4"}, ["confirm", "cancel", "expire"]),
    "end is a number": ({"expires_at": 1_767_312_900}, ["expire"]),
    "end is not a time": ({"expires_at": "tomorrow"}, ["expire"]),
    "end without zone": ({"expires_at": "2026-01-02T00:15:00.000000"}, ["expire"]),
    "end in another zone": ({"expires_at": "2026-01-02T01:15:00.000000+01:00"}, ["expire"]),
    "no generation": ({"lines": (OrderLine("p", 2),)}, ["cancel", "expire"]),
    "no creation": ({"created_at": ""}, ["extend"]),
    "steps that move more than its lines": (
        {"status": "CONFIRMED", "steps": (Step("fulfil", BEFORE, "s-1", {"p": 3}),)},
        ["cancel"],
    ),
    "quantity as text": ({"lines": (replace(LINES[0], quantity="2"),)}, ["cancel", "expire"]),
}


@pytest.mark.parametrize(
    ("broken", "action"),
    [(broken, action) for broken, (_, actions) in BROKEN.items() for action in actions],
)
def test_a_row_broken_by_another_program_only_returns_its_own_command(broken, action):
    ended_by = END if action == "expire" else JUST_BEFORE_END
    values, _ = BROKEN[broken]
    bad, good = replace(ROWS["held"], **values), replace(ROWS["held"], order_id="good")
    bench = bench_with(bad, good)
    report = bench.apply(command(action, ended_by), command(action, ended_by, "good"))
    assert statuses(report) == [RETURNED, APPLIED]
    assert report.outcomes[0].cause == "CORRUPT_RECORD"
    assert bench.item(Table.ORDERS, "o") == encode(order_row(bad))


@pytest.mark.parametrize(
    "broken",
    [
        Step("return", BEFORE, "rt-1", {"q": "2"}),
        Step("cancel", BEFORE, "c", {"z": 1}),
        Step(7, BEFORE),
        Step("confirm", BEFORE, notes={"actor": 4711}),
    ],
)
def test_a_step_broken_by_another_program_only_returns_its_own_command(broken):
    bad = replace(ROWS["fulfilled"], steps=(*ROWS["fulfilled"].steps, broken))
    bench = bench_with(bad, replace(ROWS["fulfilled"], order_id="good"))
    report = bench.apply(
        command("return", step_id="rt-2", quantities={"q": 1}, restock=True),
        command("return", order_id="good"),
    )
    assert statuses(report) == [RETURNED, APPLIED]
    assert report.outcomes[0].cause == "CORRUPT_RECORD"


# ---------------------------------------------------------------- several commands of one order


def test_no_cancellation_overtakes_a_parcel_that_was_returned():
    """DynamoDB leaves the order out of its first answers, so the fulfilment is returned, and the cancellation waits."""
    bench = bench_with(ROWS["confirmed"], replace(ROWS["held"], order_id="other"))
    left_out = [8]

    def leave_out(operation, request):
        if operation == "BatchGetItem" and left_out[0]:
            left_out[0] -= 1
            return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}
        return None

    bench.before = leave_out
    parcel = command("fulfil", step_id="s-1", quantities={"p": 1})
    report = bench.apply(parcel, command("cancel"))
    assert [outcome.cause for outcome in report.outcomes] == [
        *("UNPROCESSED_KEYS", "BEHIND_A_RETURNED_MESSAGE")
    ]
    assert statuses(bench.apply(parcel, command("cancel"))) == [APPLIED, APPLIED]
    assert stored(bench).status == "FULFILLED"


def test_a_rejection_for_a_reason_that_the_service_does_not_know_is_a_row_to_repair():
    bench = bench_with(
        row("EXPIRED", confirmation_rejected=ConfirmationRejection(BEFORE, "WEATHER"))
    )
    (outcome,) = bench.apply(command("confirm")).outcomes
    assert (outcome.kind, "WEATHER" in outcome.detail) == (RETURNED, True)


def test_confirming_does_not_wait_for_a_count():
    bench = bench_with(ROWS["held"], replace(ROWS["held"], order_id="other"))
    bench.lease("p", 600)
    report = bench.apply(command("confirm"), command("expire", END, "other"))
    assert statuses(report) == [APPLIED, RETURNED]
    assert report.outcomes[1].cause == "LEASED"


# ---------------------------------------------------------------- line by line


def part(action, step_id, restock=None, **quantities):
    return command(action, step_id=step_id, quantities=quantities, restock=restock)


give_back = partial(part, "return", restock=True)


@pytest.mark.parametrize(
    ("state", "asked", "ends", "stock"),
    [
        (
            "fulfilled",
            [
                give_back("a", q=2),
                give_back("b", q=2),
                give_back("c", restock=False, q=1),
                give_back("d", p=2, q=1),
                give_back("e", tea=1),
                give_back("f", p=2),
            ],
            [APPLIED, "NOT_DELIVERED q", APPLIED, "NOT_DELIVERED q", "NOT_DELIVERED tea", APPLIED],
            (10, 9),
        ),
        (
            "shipping",
            [
                part("fulfil", "a", p=2),
                part("cancel", "b", q=1, z=1),
                part("cancel", "c", p=1, q=1),
                part("fulfil", "a", p=2),
            ],
            ["NOT_OPEN p", "NOT_OPEN z", APPLIED, "NOT_OPEN p"],
            (9, 8),
        ),
        # A step id belongs to one request.
        (
            "confirmed",
            [
                part("fulfil", "s", p=1),
                part("cancel", "s", p=1),
                part("fulfil", "s", p=2),
                part("fulfil", "s", q=1),
                give_back("s", p=1),
            ],
            [APPLIED, *[ID_REUSED] * 4],
            (8, 7),
        ),
    ],
)
def test_a_step_moves_units_that_its_order_has_once(state, asked, ends, stock):
    bench = bench_with(ROWS[state])
    for each, end in zip(asked, ends, strict=True):
        (outcome,) = bench.apply(each).outcomes
        found = outcome.rejection
        assert end == (f"{found.reason} {found.subject}" if found else outcome.kind)
    assert stocks(bench) == stock


ALL_NOTES = dict.fromkeys(("actor", "reference", "reason"), "\N{GRINNING FACE}" * 128)


def as_read(order):
    return read_record(encode(order_row(order)))


@pytest.mark.parametrize(("length", "last"), [(2, "fulfil"), (64, "expire")])
def test_a_row_takes_steps_until_it_is_full_and_then_still_its_end(length, last):
    """The largest order: each step names all of its 99 lines."""
    kinds = [("fulfil", None), ("cancel", None), ("cancel", False), ("return", True)]
    ids = [f"{number:02}".rjust(length, "p") for number in range(99)]
    lines = tuple(OrderLine(product_id, 1_000_000, CREATED, 10**11) for product_id in ids)
    units = dict.fromkeys(ids, 1_000)
    first = [Step("fulfil", BEFORE, "s" * 128, units)] * (340_000 // len(ids) // (length + 27))
    first = tuple(first[: MAX_NAMED_STEPS - 5])
    order = as_read(row("CONFIRMED", lines=lines, steps=first, attributes={"a": "b" * 2_000}))
    everything = {product_id: product(product_id, 1, version=10**11) for product_id in ids}
    for number in range(MAX_NAMED_STEPS + 1 - len(first)):
        action, restock = kinds[number % len(kinds)]
        step_id = f"{number:03}".rjust(128, "t")
        one = command(action, step_id=step_id, quantities=units, restock=restock, notes=ALL_NOTES)
        meaning = one.match(order)
        if isinstance(meaning, Rejection):
            break
        order = as_read(meaning.record(None, everything if one.restocks else {}, WRITTEN).after)
        assert order.size <= meaning.record_size
    assert meaning.reason == RejectionReason.TOO_MANY_STEPS
    is_full = order.size + one.step(WRITTEN, units).size > MAX_ROW_SIZE - 20_000
    assert is_full or len(first) + number == MAX_NAMED_STEPS
    for whole in ("extend", "confirm", last):
        status = "CONFIRMED" if whole in ("fulfil", "cancel") else "PENDING"
        held = replace(order, status=status, expires_at=BEFORE)
        end = OrderCommand("o", OrderAction(whole), LATER, until=LATER, notes=ALL_NOTES)
        order = as_read(end.match(held).record(None, everything, WRITTEN).after)
    pseudonymised = replace(order, user_id="u" * 128, pseudonymised_at=WRITTEN)
    item = encode(order_row(pseudonymised))
    assert size_of_item(item) <= as_read(pseudonymised).size <= MAX_ROW_SIZE


@pytest.mark.parametrize(
    ("until", "ends", "outcome"),
    [
        (LATER, LATER, APPLIED),
        (END, END, REPLAYED),
        (BEFORE, END, REPLAYED),
        ("2027-01-01T00:00:00.000000+00:00", "2026-01-08T23:00:00.000000+00:00", APPLIED),
    ],
)
def test_a_hold_is_extended_up_to_seven_days_after_its_order(until, ends, outcome):
    bench = bench_with(ROWS["held"])
    extension = OrderCommand("o", OrderAction.EXTEND, until=until)
    assert statuses(bench.apply(extension)) == [outcome]
    assert stored(bench).expires_at == ends
    assert statuses(bench.apply(extension)) == [REPLAYED]


def test_an_order_at_the_end_of_the_calendar_is_valid():
    bench = bench_with(replace(ROWS["held"], created_at="9999-12-31T00:00:00.000000+00:00"))
    assert statuses(bench.apply(command("extend"))) == [APPLIED]


def test_many_extensions_leave_one_step():
    bench = bench_with(ROWS["held"])
    for hour in range(10, 20):
        until = f"2026-01-03T{hour}:00:00.000000+00:00"
        assert statuses(bench.apply(OrderCommand("o", OrderAction.EXTEND, until=until))) == [
            APPLIED
        ]
    assert [step.action for step in stored(bench).steps] == ["extend"]
    assert stored(bench).expires_at == until


def test_the_actor_is_stored_and_not_part_of_the_request():
    bench = bench_with(ROWS["confirmed"])
    by_ann = replace(part("cancel", "c", p=1), notes={"actor": "ann", "reason": "broken"})
    by_bob = replace(by_ann, notes={"actor": "bob"})
    assert statuses(bench.apply(by_ann, by_bob)) == [APPLIED, REPLAYED]
    assert [step.notes for step in stored(bench).steps] == [{"actor": "ann", "reason": "broken"}]


# ---------------------------------------------------------------- holds and attributes of orders


@pytest.mark.parametrize(
    ("hold", "default", "end"),
    [
        (None, None, None),
        (900, None, END),
        (None, 900, END),
        (900, 60, END),
        (604_800, None, "2026-01-09T00:00:00.000000+00:00"),
    ],
)
def test_a_hold_ends_as_the_order_says_or_else_the_setting(hold, default, end):
    bench = bench_with()
    bench.apply(
        Order("o", "u", {"p": 1}, hold_seconds=hold, default_hold=default),
        Order("none left", "u", {"p": 100}, hold_seconds=hold, default_hold=default),
    )
    assert (stored(bench).hold_seconds, stored(bench).expires_at) == (hold, end)
    assert stored(bench, "none left").status == "REJECTED"
    assert stored(bench, "none left").expires_at is None


# ---------------------------------------------------------------- in the tables


@pytest.fixture
def shop(shop):
    shop.list("p", 10)
    shop.list("q", 10)
    return shop


def now(shop, seconds=0.0):
    return timestamp(datetime.fromtimestamp(shop.clock.now() + seconds, UTC))


HOLD = {"expiresAt", "expiryShard"}


@pytest.mark.parametrize("action", ["confirm", "cancel", "expire"])
def test_a_row_is_in_the_index_of_holds_only_while_it_waits_for_payment(shop, action):
    worker = shop.worker()
    order = Order("o", "u", {"p": 2}, hold_seconds=60, attributes={"channel": "web", "gift": True})
    shop.commit(worker, order)
    row = shop.order_row("o")
    assert row.keys() > HOLD
    assert (row["expiryShard"], row["holdSeconds"]) == (f"{crc32(b'o') % 32:02}", 60)
    assert row["attributes"] == {"channel": "web", "gift": True}
    created, ends = (datetime.fromisoformat(row[name]) for name in ("createdAt", "expiresAt"))
    assert (ends - created).total_seconds() == 60
    shop.commit(worker, command(action, now(shop, 61 if action == "expire" else 0)))
    row = shop.order_row("o")
    assert HOLD.isdisjoint(row)
    assert {"holdSeconds", "attributes"} < row.keys()
    assert shop.unexplained() == {"p": 0, "q": 0}


def test_other_programs_attributes_of_an_order_are_kept(shop):
    worker = shop.worker()
    shop.commit(worker, Order("o", "u", {"p": 2, "q": 1}, hold_seconds=60))
    (line, *others) = shop.order_row("o")["items"]
    added = {"items": [line | {"colour": "green"}, *others], "parcel": {"weight": 2}}
    shop.edit(Table.ORDERS, "o", **encode(added))
    asked = [command(name, now(shop)) for name in ("confirm", "fulfil")]
    came = command("return", step_id="rt-1", quantities={"p": 1}, restock=True)
    assert statuses(shop.commit(worker, *asked, came)) == [APPLIED] * 3
    row = shop.order_row("o")
    assert (row["parcel"], row["items"][0]["colour"]) == ({"weight": 2}, "green")
    assert [step["action"] for step in row["steps"]] == ["confirm", "fulfil", "return"]
    item = {"productId": "p", "quantity": 1, "returnedVersion": 3}
    assert row["steps"][-1]["items"] == [item]
    assert row["confirmedAt"] <= row["fulfilledAt"] <= row["lastUpdatedAt"]


# ---------------------------------------------------------------- through queues, and directly

GRACE = 60
DENIED = ServiceError("AccessDenied", "not authorized")


def place(shop, order_id="o", **more):
    return shop.invoke("place_orders", order_body(order_id, {"p": 2, "q": 3}) | more)


def expire(shop, order_id="o"):
    """Process the end of a hold, and return whether it must be processed again."""
    shop.send("Expiry", {"orderId": order_id})
    return shop.deliver("Expiry")


def ask(shop, action, order_id="o", **more):
    return shop.invoke("change_orders", asked(action, order_id, **more))


def codes(shop, queue):
    return [letter.code for letter in shop.dead_letters(queue)]


def asked(action, order_id="o", **more):
    return {"action": action, "orderId": order_id} | more


CAME = {"stepId": "rt-1", "items": [{"productId": "q", "quantity": 1}] * 2, "restock": True}


def test_no_hold_expires_during_its_grace_period(shop):
    shop.restart(HOLD_GRACE_SECONDS="")
    place(shop, holdSeconds=60)
    shop.clock.sleep(3600)
    with pytest.raises(ConfigurationError, match="HOLD_GRACE_SECONDS"):
        expire(shop)
    assert shop.status("o") == "PENDING"


@pytest.mark.parametrize("sent", [None, "soon", "9" * 20, "-" + "9" * 20, "9" * 400])
def test_a_command_is_carried_out_without_a_known_sending_time(shop, sent):
    def change(records):
        for record in records:
            record["attributes"]["SentTimestamp"] = sent
        return records

    place(shop, holdSeconds=60)
    shop.send("OrderCommand", asked("confirm"))
    assert shop.deliver("OrderCommand", change) == 0
    assert shop.status("o") == "CONFIRMED"


@pytest.mark.parametrize(
    ("early", "code"),
    [
        (asked("confirm", "never"), "UNKNOWN_ORDER"),
        (asked("fulfil"), "NOT_CONFIRMED"),
        (asked("return", **CAME), "NOT_FULFILLED"),
    ],
)
def test_a_message_that_stays_early_is_finally_dead_lettered(shop, early, code):
    place(shop, holdSeconds=604_800)
    name = "OrderCommand"
    shop.send(name, early)
    original_id = shop.queues[name].messages[0].message_id
    for delivery in range(1, 2 * EARLY_DELIVERIES):
        sent_again = delivery == EARLY_DELIVERIES
        assert shop.deliver(name) == (0 if sent_again else 1)
        assert codes(shop, name) == []
        shop.clock.sleep(LONGEST_DELAY_SECONDS)
    assert shop.deliver(name) == 0
    assert codes(shop, name) == [code]
    (dead_letter,) = shop.queues[f"{name}DeadLetter"].messages
    assert dead_letter.attributes["originalMessageId"]["StringValue"] == original_id
    assert shop.status("o") == "PENDING"


def test_copies_of_early_commands_are_applied_in_sending_order(shop):
    shop.send("OrderCommand", asked("confirm"))
    shop.clock.sleep(1)
    shop.send("OrderCommand", asked("fulfil"))
    for _ in range(EARLY_DELIVERIES):
        shop.deliver("OrderCommand")
        shop.clock.sleep(LONGEST_DELAY_SECONDS)
    place(shop)
    assert shop.deliver("OrderCommand", lambda records: records[::-1]) == 0
    assert shop.status("o") == "FULFILLED"


@pytest.mark.parametrize("deliveries", [None, 0, 1])
@pytest.mark.parametrize("commands", [500, 501])
def test_a_hold_does_not_expire_while_a_confirmation_may_wait(shop, commands, deliveries):
    """The confirmation is visible, delayed like the copy of an early message, or in flight."""
    place(shop, holdSeconds=60)
    shop.clock.sleep(60 + GRACE)
    shop.send("OrderCommand", *[asked("cancel", "gone")] * commands)
    if deliveries is not None:
        for message in shop.queues["OrderCommand"].messages:
            message.visible_at, message.receive_count = shop.clock.now() + 900, deliveries
    waits = commands > 500
    assert expire(shop) == waits
    assert shop.status("o") == ("PENDING" if waits else "EXPIRED")
    if waits:
        (expiry,) = shop.queues["Expiry"].messages
        assert expiry.visible_at - shop.clock.now() >= 9
        shop.queues["OrderCommand"].messages.clear()
        shop.clock.sleep(10)
        assert shop.deliver("Expiry") == 0
        assert shop.status("o") == "EXPIRED"


@pytest.mark.parametrize(("are_hidden", "status"), [(True, "EXPIRED"), (False, "PENDING")])
def test_commands_without_effect_do_not_prolong_a_hold_forever(shop, are_hidden, status):
    """A command without effect is returned for hours. If a few arrive each minute, more than 500 are always waiting."""
    place(shop, holdSeconds=60)
    shop.clock.sleep(60 + GRACE)
    shop.send("OrderCommand", *[asked("confirm", "never")] * 501)
    shop.send("Expiry", {"orderId": "o"})
    for message in shop.queues["OrderCommand"].messages:
        message.receive_count = 1
        message.visible_at = shop.clock.now() + (9000 if are_hidden else 0)
    assert shop.deliver("Expiry") == 1
    shop.clock.sleep(7199)
    assert shop.deliver("Expiry") == 1
    shop.clock.sleep(900)
    shop.deliver("Expiry")
    assert shop.status("o") == status


def test_a_hold_does_not_expire_while_the_depth_of_the_queue_is_unknown(shop, capsys):
    place(shop, holdSeconds=60)
    shop.clock.sleep(60 + GRACE)
    shop.send("Expiry", {"orderId": "o"})

    shop.refuse("GetQueueAttributes", DENIED)
    assert shop.deliver("Expiry") == 1
    assert shop.status("o") == "PENDING"
    logs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (line,) = (line for line in logs if line.get("message") == "requests to SQS failed")
    assert "not authorized" in line["errors"][0]


def test_direct_commands_are_answered_immediately(shop):
    unknown = {name: ask(shop, name) for name in ("confirm", "fulfil", "cancel")}
    unknown["return"] = ask(shop, "return", **CAME)
    assert {(a["result"], a["code"]) for a in unknown.values()} == {("REFUSED", "UNKNOWN_ORDER")}
    place(shop, holdSeconds=60)
    done = {"orderId": "o", "result": "APPLIED"}
    nothing = {"stockReturned": {}}
    assert ask(shop, "fulfil")["code"] == "NOT_CONFIRMED"
    confirmed = {"status": "CONFIRMED", "version": 2}
    assert ask(shop, "confirm") == done | nothing | confirmed
    replayed = {"orderId": "o", "result": "REPLAYED"} | confirmed
    assert ask(shop, "confirm").items() >= replayed.items()
    assert ask(shop, "fulfil") == done | nothing | {"status": "FULFILLED", "version": 3}
    assert ask(shop, "cancel")["code"] == "ORDER_FULFILLED"
    back = done | {"status": "FULFILLED", "version": 4}
    assert ask(shop, "return", **CAME) == back | {"stockReturned": {"q": 2}}
    damaged = CAME | {"stepId": "rt-2", "restock": False, "items": CAME["items"][:1]}
    assert ask(shop, "return", **damaged) == back | nothing | {"version": 5}
    assert ask(shop, "return", **CAME)["result"] == "REPLAYED"
    reused = ask(shop, "return", **CAME | {"restock": False})
    assert (reused["code"], reused["field"]) == ("STEP_ID_REUSED", "stepId")
    assert ask(shop, "return", **CAME | {"stepId": "rt-3"})["code"] == "NOT_DELIVERED"
    place(shop, "late", holdSeconds=60)
    both = {"status": "CANCELLED", "stockReturned": {"p": 2, "q": 3}}
    assert ask(shop, "cancel", "late") == done | both | {"orderId": "late", "version": 2}
    for action in ("expire", "place", None):
        assert ask(shop, action)["code"] == "UNSUPPORTED_EVENT"
    assert shop.unexplained() == {"p": 0, "q": 0}


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_an_order_repeated_after_its_end_is_not_reported_as_placed(shop, end):
    place(shop, holdSeconds=60)
    if end == "cancel":
        ask(shop, "cancel")
    else:
        shop.clock.sleep(70 + GRACE)
        expire(shop)
    again = place(shop, holdSeconds=60)
    status = {"cancel": "CANCELLED", "expire": "EXPIRED"}[end]
    assert (again["result"], again["status"]) == ("REPLAYED", status)
    assert again["message"] == (
        f"the order is {status} and takes no stock; to order again, send it under a new orderId"
    )


def test_an_extension_is_answered_with_the_end_of_the_hold(shop):
    place(shop, holdSeconds=60)
    created = datetime.fromisoformat(shop.order_row("o")["createdAt"])
    soon, latest, late = (
        (created + timedelta(**after)).isoformat(timespec="microseconds")
        for after in ({"hours": 1}, {"days": 7}, {"days": 8})
    )
    extended = ask(shop, "extend", until=soon)
    assert (extended["expiresAt"], "message" in extended) == (soon, False)
    for result in ("APPLIED", "REPLAYED"):
        cut = ask(shop, "extend", until=late)
        assert (cut["result"], cut["expiresAt"]) == (result, latest)
        assert f"ends at {latest}, not at {late}" in cut["message"]


def test_a_direct_order_is_answered_immediately(shop):
    shop.restart(HOLD_SECONDS="600")
    requests = []
    shop.before = lambda operation, _: requests.append(operation)
    placed = place(shop, action="place", attributes={"channel": "phone"})
    assert requests == ["BatchGetItem", "TransactWriteItems"], "the order's row is not read again"
    shop.calm()
    assert placed == {
        "result": "APPLIED",
        "orderId": "o",
        "status": "PENDING",
        "version": 1,
        "expiresAt": shop.order_row("o")["expiresAt"],
    }
    assert "holdSeconds" not in shop.order_row("o"), "the sender did not ask for this hold"
    replayed = place(shop, attributes={"channel": "phone"})
    assert replayed == placed | {"result": "REPLAYED"}
    reused = place(shop, attributes={"channel": "web"})
    assert (reused["code"], reused["field"]) == ("ORDER_ID_REUSED", "orderId")
    short = place(shop, "short", items=[{"productId": "p", "quantity": 9}])
    assert (short["result"], short["code"]) == ("REFUSED", "INSUFFICIENT_STOCK")
    assert (short["status"], short["version"]) == ("REJECTED", 1)
    wrong = place(shop, "wrong", holdSeconds=59)
    assert (wrong["code"], wrong["field"]) == ("SCHEMA_VIOLATION", "holdSeconds")
    assert shop.invoke("place_orders", {"action": "place"})["code"] == "UNSUPPORTED_EVENT"

    shop.refuse("TransactWriteItems", THROTTLED)
    later = place(shop, "later")
    assert (later["result"], later["orderId"]) == ("RETRY_LATER", "later")
    shop.calm()
    assert place(shop, "later")["result"] == "APPLIED"


def test_outcomes_of_orders_are_counted_once(shop, capsys):
    for order_id in ("o", "held", "late"):
        place(shop, order_id, holdSeconds=60)
    capsys.readouterr()
    shop.send("OrderCommand", *[asked("confirm")] * 2, asked("fulfil"), asked("return", **CAME))
    shop.deliver("OrderCommand")
    shop.clock.sleep(70 + GRACE)
    shop.send("OrderCommand", asked("cancel", "late"), *[asked("confirm", "late")] * 3)
    shop.deliver("OrderCommand")
    shop.send("Expiry", *[{"orderId": "held"}] * 2, {"orderId": "late"})
    shop.deliver("Expiry")
    ask(shop, "confirm", "held")
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    counted = {
        name: sum(emf.values_of(samples, name))
        for name in ("Confirmed", "Fulfilled", "Returned", "Cancelled", "Expired")
        for name in (f"Orders{name}",)
    }
    assert counted == dict.fromkeys(counted, 1)
    rejected = emf.values_of(samples, "ConfirmationsRejected")
    assert rejected == [1, 1], "`late` after its cancellation, and `held` after it expired"
    (delay,) = emf.values_of(samples, "ExpiryDelay")
    assert 9 < delay - GRACE < 12


# ---------------------------------------------------------------- refunds

ORDERED = {"p": 4, "q": 3, "r": 2}
PLACES = ("berlin", "", "lyon")
SUPPLY = {"p#berlin": 4, "q": 1, "q#berlin": 1, "q#lyon": 9, "r#lyon": 2}
UNITS = st.dictionaries(st.sampled_from([*ORDERED]), st.integers(1, 2), min_size=1, max_size=2)
PARTS = st.one_of(
    st.tuples(st.just("fulfil"), UNITS, st.none()),
    st.tuples(st.just("cancel"), UNITS, st.sampled_from([None, False])),
    st.tuples(st.just("return"), UNITS, st.booleans()),
)
WHOLE = [(action, {}, None) for action in ("confirm", "forget", "fulfil", "cancel", "expire")]
LIVES = st.tuples(
    st.sampled_from([[], [], [("cancel", {}, None)]]).map(
        lambda early: [*early, ("place", {}, None)]
    ),
    st.lists(PARTS, max_size=2),
    st.sampled_from([WHOLE[:1], WHOLE[:1], []]),
    st.lists(PARTS, max_size=6),
    st.lists(st.one_of(st.sampled_from(WHOLE), PARTS), max_size=4),
).map(lambda parts: [move for part in parts for move in part])
COUNTED = {"fulfil": "fulfilled", "cancel": "cancelled", "return": "returned"}


class Consumer:
    """The sample consumer of docs/orders.md, with what it was told and what it refunded."""

    def __init__(self):
        page = (ROOT / "docs" / "orders.md").read_text("utf-8")
        self.names = {"print": self.refund}
        exec(page[page.index("done, newest = ") : page.index("def listen(")], self.names)
        self.told, self.refunded, self.payments = {}, Counter(), 0

    def handle(self, event):
        self.names["handle"]({"detail-type": event.type, "detail": {"data": event.data}})
        if step := event.data.get("step"):
            self.told[step["action"], step.get("stepId")] = step["items"]

    def refund(self, _, order_id, *what):
        for words in what:
            units, _, product_id = words.partition(" ")
            if product_id:
                self.refunded[product_id] += int(units)
            else:
                self.payments += 1

    def units(self, action):
        told = (items for (made, _), items in self.told.items() if made == action)
        return sum(
            (Counter({i["productId"]: i["quantity"]}) for items in told for i in items), Counter()
        )


def order_of_a_life():
    return Order("o", "u", ORDERED, default_hold=900, locations=PLACES, split=True)


def make_move(bench, number, action, units, restock):
    if action == "place":
        bench.apply(order_of_a_life())
    elif action == "forget":
        named = replace(stored(bench), user_id="pseudonym", pseudonymised_at=WRITTEN)
        bench.put_record(named)
    else:
        part = {"step_id": f"s-{number}", "quantities": units, "restock": restock} if units else {}
        bench.apply(command(action, LATER, **part))


@given(LIVES, st.lists(st.integers(0, 2), min_size=15, max_size=15))
def test_the_steps_of_events_add_up_and_so_do_the_refunds(moves, copies):
    """Each event arrives twice, once, or only when the order is published again from its row."""
    bench, consumer = Bench(*(product(key, units) for key, units in SUPPLY.items())), Consumer()
    moved = {action: Counter() for action in (*COUNTED, "expire")}
    still_open, paid, refundable = Counter(), Counter(), Counter()
    before = None
    for number, (action, units, restock) in enumerate(moves):
        make_move(bench, number, action, units, restock)
        after = bench.order_row("o")
        for event in order_events(before, after) * copies[number]:
            consumer.handle(event)
        is_step = len(after.get("steps", ())) > len((before or {}).get("steps", ()))
        ended = Counter(units or still_open) if is_step else Counter()
        if action == "place" and "userId" not in (before or {}):
            still_open = Counter(ORDERED)
            if before is not None:
                moved["cancel"], still_open = still_open, Counter()
        elif is_step and action == "confirm":
            paid = still_open.copy()
        elif is_step:
            moved[action] += ended
            refundable += ended if paid and action in ("cancel", "return") else Counter()
            still_open -= ended if action != "return" else Counter()
        before = after
    for event in order_events(None, before):
        consumer.handle(event)
    note(f"{before['status']}, {len(before.get('steps', ()))} steps")
    assert {action: consumer.units(action) for action in moved} == moved
    assert consumer.refunded == refundable <= paid
    if paid:
        assert paid - refundable == still_open + moved["fulfil"] - moved["return"]
    assert consumer.payments == ("confirmationRejected" in before)
    for line in consumer.names["newest"]["o"]["items"]:
        counted = {action: line.get(name, 0) for action, name in COUNTED.items()}
        assert counted == {action: moved[action][line["productId"]] for action in COUNTED}
