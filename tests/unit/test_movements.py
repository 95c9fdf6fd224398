"""Movements of units by orders: their rows, how they are recorded and listed, and up to which time they are complete."""

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.publishing.movements import follow_movements
from inventory_orders.store import movements
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.lists import OrderFilter
from inventory_orders.store.movements import changed_rows, rows_of
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from local.commands import main
from operations import forget
from operations.audit import read_books
from operations.aws import Aws
from operations.commands import books, tables
from operations.errors import UserError
from operations.history import Rebuild
from testing.aws import ServiceError
from testing.world.streams import change, order_row
from tests.support.movements import stored

DAY = 24 * 3600


@pytest.fixture
def shop(running_shop):
    running_shop.list("tea", 100)
    running_shop.list("tin", 100)
    running_shop.changes.clear()
    return running_shop


def record(shop):
    """Record the changes to orders since the last call, and return them."""
    records = [each for each in shop.changes if "orderId" in each["dynamodb"]["Keys"]]
    shop.changes.clear()
    shop.invoke("record_movements", {"Records": records})
    return records


def command(shop, action, order_id, **more):
    answer = shop.ask("change_orders", action=action, orderId=order_id, **more)
    assert "code" not in answer, answer


def units(**quantities):
    return [{"productId": name, "quantity": number} for name, number in quantities.items()]


def live(shop, order_id="o-1"):
    """Let an order for two products be paid, shipped in two parcels, and returned in part."""
    shop.order(order_id, tea=3, tin=1)
    command(shop, "confirm", order_id)
    command(shop, "cancel", order_id, stepId="c", items=units(tea=1))
    for step, reference, items in (
        ("p1", "1Z-1", units(tea=1)),
        ("p2", "1Z-2", units(tea=1, tin=1)),
    ):
        command(
            shop, "fulfil", order_id, stepId=step, reference=reference, items=items, actor="ann"
        )
    command(shop, "return", order_id, stepId="r", restock=True, items=units(tea=1))
    command(shop, "return", order_id, stepId="b", restock=False, items=units(tea=1))


OF_TEA = [
    ("o-1", "return", 0, 0),
    ("o-1", "return", 1, 1),
    ("o-1", "fulfil", 0, -1),
    ("o-1", "fulfil", 0, -1),
    ("o-1", "cancel", 1, 0),
    ("o-1", "place", -3, 0),
]


def test_each_line_and_step_that_moves_units_is_one_row(shop):
    live(shop)
    record(shop)
    assert stored(shop, "tea") == OF_TEA
    assert stored(shop, "tin") == [("o-1", "fulfil", 0, -1), ("o-1", "place", -1, 0)]
    # The figures are those of the books.
    assert 100 + sum(move[2] for move in OF_TEA) == shop.stock("tea")
    row = next(movements.movements(shop.store, "tin", 9))
    assert (row["reference"], row["actor"], row["stepId"]) == ("1Z-2", "ann", "p2")


def test_replays_and_a_rebuild_write_the_same_rows(shop):
    live(shop)
    records = record(shop)
    once = dict(shop.items(Table.MOVEMENTS))
    for again in (records, records[3:], [change(None, shop.order_row("o-1"))]):
        shop.invoke("record_movements", {"Records": again})
        assert shop.items(Table.MOVEMENTS) == once


def test_an_undone_step_and_a_forgotten_note_change_the_rows(shop):
    live(shop)
    record(shop)
    before = shop.order_row("o-1")
    after = {**before, "steps": [dict(step) for step in before["steps"][:-2]]}
    for step in after["steps"]:
        step.pop("reference", None)
        step.pop("actor", None)
    shop.invoke("record_movements", {"Records": [change(before, after)]})
    assert stored(shop, "tea") == OF_TEA[2:]
    assert not any("actor" in row for row in shop.rows(Table.MOVEMENTS))
    assert changed_rows(before, None).keys() == rows_of(before).keys()
    assert set(changed_rows(before, None).values()) == {None}


def test_a_second_extension_does_not_renumber_the_steps_after_the_first():
    def step(action, at, **more):
        return {"action": action, "at": f"2026-01-02T00:00:0{at}.000000+00:00", **more}

    cancelled = step("cancel", 2, stepId="c", items=[{"productId": "tea", "quantity": 1}])
    before = order_row(steps=[step("extend", 1), cancelled])
    after = order_row(steps=[cancelled, step("extend", 3)])
    assert len(rows_of(before)) == 2
    assert changed_rows(before, after) == {}


def test_lost_units_and_units_of_a_delisted_product_do_not_come_back(shop):
    lost = {"action": "cancel", "at": "2026-01-02T00:00:00.000000+00:00", "stepId": "l"}
    lost |= {"items": [{"productId": "tea", "quantity": 1}]}
    for more, figures in (({"restock": False, "outPage": "out/1"}, (0, -1)), ({}, (0, 0))):
        shop.invoke("record_movements", {"Records": [change(None, order_row(steps=[lost | more]))]})
        assert stored(shop, "tea")[0] == ("o-1", "cancel", *figures)


def test_lines_of_rejected_orders_are_not_movements(shop):
    shop.order("o-1", tea=1000)
    record(shop)
    assert shop.rows(Table.MOVEMENTS) == []


def test_only_lines_from_lanes_are_spread_over_several_keys(shop):
    def months_of(**line):
        rows = {}
        for number in range(40):
            row = order_row(f"o-{number}")
            row["items"] = [{**row["items"][0], **line}]
            rows |= rows_of(row)
        return movements.list_months(rows).keys()

    assert months_of() == {("months#tea", "2026-01#0")}
    lanes = {("months#tea", f"2026-01#{n}") for n in range(1, 9)}
    assert months_of(lanePage="3/0", laneVersion=2) == lanes


def test_a_product_that_moves_once_a_month_is_read_with_one_request_a_month(shop):
    for number in range(24):
        at = timestamp(datetime(2025 + number // 12, number % 12 + 1, 5, tzinfo=UTC))
        row = order_row(f"o-{number:02}", createdAt=at)
        shop.invoke("record_movements", {"Records": [change(None, row)]})
    shop.calls.clear()
    found, _ = movements.list_history(shop.store, "tea", 20, None, has_movements=True)
    orders = [row["orderId"] for row in found if "orderId" in row]
    # The list of months, 20 months, and the adjustments.
    assert shop.calls == ["Query"] * (1 + 20 + 1)
    assert orders[-1] == "o-05"


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_pages_of_a_history_add_up_to_the_whole(shop, size):
    for number in range(3):
        adjustment = {"action": "adjust", "productId": "tea", "delta": 1, "reason": "FOUND"}
        shop.invoke("adjust_stock", adjustment | {"adjustmentId": f"a-{number}"})
        live(shop, f"o-{number}")
    # Equal times are sorted by id, although an index does not sort them.
    for number in range(4):
        row = decode(shop.item(Table.STOCK_ADJUSTMENTS, "tea", "a-0"))
        shop.write(Table.STOCK_ADJUSTMENTS, {**row, "adjustmentId": f"b-{3 - number}"})
    record(shop)
    seen, after = [], None
    while True:
        page, after = movements.list_history(shop.store, "tea", size, after, has_movements=True)
        assert len(page) <= size
        seen += page
        if after is None:
            break
    places = list(map(movements.position_of, seen))
    assert len(places) == len({*places}) == 1 + 3 + 4 + 3 * len(OF_TEA)
    assert places == sorted(places, reverse=True)


def test_orders_are_found_by_product_and_by_each_of_their_references(shop):
    for number in range(3):
        live(shop, f"o-{number}")
    command(shop, "return", "o-0", stepId="r2", restock=True, items=units(tin=1), reference="1Z-2")
    record(shop)

    def pages(size, **wanted):
        found, after, is_first = [], None, True
        while is_first or after is not None:
            is_first = False
            page, after = movements.list_orders(shop.store, OrderFilter(**wanted), size, after)
            found.append([order.id for order in page])
        return found

    for wanted in ({"product_key": "tea"}, {"reference": "1Z-1"}, {"reference": "1Z-2"}):
        # A later step with the same reference does not list its order again.
        assert pages(2, **wanted) == [["o-2", "o-1"], ["o-0"]]
        assert pages(1, **wanted) == [["o-2"], ["o-1"], ["o-0"]]
        assert pages(9, **wanted) == [["o-2", "o-1", "o-0"]]
    assert pages(9, reference="1Z") == [[]]
    middle = shop.order_row("o-1")["createdAt"]
    assert pages(9, product_key="tea", since=middle) == [["o-2", "o-1"]]
    assert pages(1, product_key="tea", until=middle) == [["o-0"]]
    never = {"since": middle, "until": "2026"}
    assert pages(9, product_key="tea", **never) == pages(9, reference="1Z-1", **never) == [[]]
    rows = [decode(item) for item in shop.items(Table.MOVEMENTS).values()]
    first = [row["orderId"] for row in rows if row.get("firstReference") == "1Z-2"]
    assert sorted(first) == ["o-0", "o-1", "o-2"], "the index has one row for each order"


def test_orders_placed_at_the_same_time_are_each_listed_whatever_their_ids(shop):
    ids = ["a", "a!", 'a"', "a$", "b"]
    for order_id in ids:
        shop.invoke("record_movements", {"Records": [change(None, order_row(orderId=order_id))]})
    found, after = [], None
    while len(found) < len(ids):
        page, after = movements.list_orders(shop.store, OrderFilter(product_key="tea"), 1, after)
        found += [place.id for place in page]
    assert (sorted(found), after) == (sorted(ids), None)


def test_an_unreadable_change_is_parked_and_stops_no_other(shop):
    shop.order("o-1", tea=1)
    (good,) = [each for each in shop.changes if "orderId" in each["dynamodb"]["Keys"]]
    broken = change(None, order_row("o-2", createdAt="yesterday"))
    answer = shop.invoke("record_movements", {"Records": [broken, good, {}]})
    assert (answer["unreadable"], stored(shop, "tea")) == (2, [("o-1", "place", -1, 0)])
    parked = shop.aws.sqs.queues["UnrecordedMovementsQueue"].messages
    assert [m.attributes["errorCode"]["StringValue"] for m in parked] == ["UNREADABLE_ROW"] * 2
    # A repaired row is recorded as a whole.
    repaired = order_row("o-2", createdAt=shop.order_row("o-1")["createdAt"])
    broken_before = order_row("o-2", createdAt="yesterday")
    shop.invoke("record_movements", {"Records": [change(broken_before, repaired)]})
    assert len(stored(shop, "tea")) == 2


def test_if_a_change_cannot_be_parked_the_batch_is_repeated(shop):
    def refuse(operation, _):
        if operation == "SendMessage":
            raise ServiceError("ServiceUnavailable", "no", 503)

    shop.before = refuse
    with pytest.raises(Exception, match="1 unreadable changes have not been parked"):
        shop.invoke("record_movements", {"Records": [{}]})


def test_rows_that_dynamodb_leaves_out_are_written_again(shop):
    live(shop)
    left_out = []

    def leave_out(operation, request):
        if operation == "BatchWriteItem" and not left_out:
            ((name, requests),) = request["RequestItems"].items()
            left_out.extend(requests[:3])
            shop.aws.dynamodb.answer(operation, {"RequestItems": {name: requests[3:]}})
            return {"UnprocessedItems": {name: left_out}}
        return None

    shop.before = leave_out
    record(shop)
    assert len(left_out) == 3
    assert stored(shop, "tea") == OF_TEA


def test_while_the_table_is_throttled_the_batch_fails_and_is_repeated(shop):
    live(shop)

    def throttle(operation, _):
        if operation == "BatchWriteItem":
            raise ServiceError("ThrottlingException", "slow down")

    shop.before = throttle
    with pytest.raises(Exception, match="slow down"):
        record(shop)
    assert stored(shop, "tea") == []


# ---------------------------------------------------------------------- complete up to which time


def ago(seconds):
    return SystemClock().now() - timedelta(seconds=seconds)


def sweep(shop):
    """Return the time up to which movements are complete after a sweep, and the time a minute before that sweep."""
    now = SystemClock().now()
    movements.advance(shop.store, now)
    return movements.complete_until(shop.store), timestamp(now - timedelta(seconds=60))


def attempt(shop, changed_at, number=1):
    """Try to record a change of this time."""
    record = change(None, order_row(f"o-{number}"))
    record["dynamodb"]["ApproximateCreationDateTime"] = changed_at.timestamp()
    shop.invoke("record_movements", {"Records": [record]})


def test_before_the_first_sweep_nothing_is_known(shop):
    assert movements.complete_until(shop.store) is None


def test_without_late_changes_movements_are_complete_up_to_a_minute_ago(shop):
    attempt(shop, ago(2))
    until, minute_ago = sweep(shop)
    assert until == minute_ago
    shop.clock.sleep(DAY)
    # No order has changed for a day.
    until, minute_ago = sweep(shop)
    assert until == minute_ago


def test_a_late_change_holds_the_time_back_until_a_while_after_the_last_attempt(shop):
    changed_at = ago(3600)
    attempt(shop, changed_at)
    minute = timestamp(changed_at.replace(second=0, microsecond=0))
    assert sweep(shop)[0] == minute
    # The next batch of the same shard may begin between two sweeps.
    shop.clock.sleep(250)
    attempt(shop, changed_at, 2)
    shop.clock.sleep(250)
    assert sweep(shop)[0] == minute
    shop.clock.sleep(100)
    until, minute_ago = sweep(shop)
    assert until == minute_ago
    assert not [row for row in shop.rows(Table.MOVEMENTS) if "triedAt" in row]


def test_after_an_unreadable_change_movements_are_incomplete_until_a_rebuild(shop):
    changed_at = ago(3600)
    broken = change(None, order_row("o-2", createdAt="yesterday"))
    broken["dynamodb"]["ApproximateCreationDateTime"] = changed_at.timestamp()
    assert shop.invoke("record_movements", {"Records": [broken]})["unreadable"] == 1
    # A readable change of the same minute is recorded late, too.
    attempt(shop, changed_at)
    shop.clock.sleep(DAY)
    minute = timestamp(changed_at.replace(second=0, microsecond=1))
    assert sweep(shop)[0] == minute
    shop.edit(Table.ORDERS, "bad", items={"S": "?"}, userId={"S": "u"})
    Rebuild(shop.stack, lambda _: None).run()
    assert sweep(shop)[0] == minute, "an order is still unreadable"
    del shop.items(Table.ORDERS)["bad",]
    Rebuild(shop.stack, lambda _: None).run()
    until, minute_ago = sweep(shop)
    assert until == minute_ago


def test_a_late_change_is_noted_even_if_it_cannot_be_recorded(shop):
    def throttle(operation, _):
        if operation == "BatchWriteItem":
            raise ServiceError("ThrottlingException", "slow down")

    shop.before = throttle
    changed_at = ago(600)
    with pytest.raises(Exception, match="slow down"):
        attempt(shop, changed_at)
    shop.before = lambda *_: None
    assert sweep(shop)[0] <= timestamp(changed_at)


@pytest.mark.parametrize(
    ("mapping", "is_known"),
    [
        ({"LastProcessingResult": "No records processed"}, True),
        ({"LastProcessingResult": "OK"}, True),
        ({"LastProcessingResult": "PROBLEM: Function call failed"}, False),
        # The changes since it was disabled have not been read yet.
        ({"State": "Enabling"}, False),
        ({"State": "Disabled"}, False),
    ],
)
def test_movements_are_complete_only_if_lambda_can_call_the_function(
    shop, monkeypatch, mapping, is_known
):
    monkeypatch.setattr(Store, "stream", lambda *_: "arn")
    found = {"EventSourceArn": "arn", "State": "Enabled", **mapping}
    functions = SimpleNamespace(get_event_source_mapping=lambda UUID: found)
    report = follow_movements(shop.store, functions, ["uuid"])
    assert (movements.complete_until(shop.store) is not None) == is_known
    assert bool(report.problems) == (mapping.get("State") == "Disabled")


def test_while_lambda_does_not_answer_it_is_unknown_whether_movements_are_complete(shop):
    def throttle(UUID):
        raise ClientError({"Error": {"Code": "TooManyRequestsException"}}, "GetEventSourceMapping")

    functions = SimpleNamespace(get_event_source_mapping=throttle)
    report = follow_movements(shop.store, functions, ["uuid"])
    assert (report.problems, "TooManyRequests" in report.unfinished) == ({}, True)
    assert movements.complete_until(shop.store) is None


# ---------------------------------------------------------------------- operators


@pytest.fixture
def told(shop, monkeypatch):
    """Return a function that runs a command of operators in the shop."""
    monkeypatch.setenv("COLUMNS", "120")
    for commands in (books, tables):
        monkeypatch.setattr(commands, "aws_of", lambda *_: shop.stack)

    def run(*arguments):
        done = CliRunner().invoke(main.app, [*arguments], catch_exceptions=False)
        # Progress goes to standard error.
        return done.exit_code, done.stdout if "--json" in arguments else done.output

    return run


def test_operators_see_the_history_of_a_product(shop, told):
    live(shop)
    record(shop)
    status, text = told("history", "tea", "--limit", "3")
    assert (status, "There are older changes" in text) == (0, True)
    assert "Movements of orders are not known to be complete." in text
    assert [line.split()[1] for line in text.splitlines()[1:4]] == ["return", "return", "fulfil"]
    until, _ = sweep(shop)
    status, text = told("history", "tea", "--json")
    found = json.loads(text)
    assert (found["completeUntil"], found["hasMore"]) == (until, False)
    assert [change["action"] for change in found["entries"]][-2:] == ["place", "adjust"]
    opened_at = found["entries"][-1]["at"]
    _, text = told("history", "tea", "--until", opened_at, "--json")
    assert [change["action"] for change in json.loads(text)["entries"]] == ["adjust"]
    with pytest.raises(UserError, match="there is no product tea at berlin"):
        told("history", "tea", "--location", "berlin")


def test_the_audit_compares_movements_with_orders_that_have_not_just_changed(shop, told):
    live(shop)
    # They are not complete up to now, so it is not known what is missing.
    assert told("audit")[0] == 0
    record(shop)
    shop.clock.sleep(120)
    sweep(shop)
    status, text = told("audit")
    number = sum(len(shop.items(table)) for table in Table if table is not Table.WORDS)
    assert (status, f"Reading about {number} rows" in text) == (0, True)
    rows = shop.items(Table.MOVEMENTS)
    month, _ = next(key for key in rows if key[0].endswith("#tea") and key[0][0] == "2")
    lost = next(key for key in rows if key[0] == month)
    stray = (month, f"{lost[1]}9")
    rows[stray] = {**rows.pop(lost), "movementId": {"S": stray[1]}}
    status, text = told("audit")
    assert status == 1
    said = "1 are missing or differ from their orders, and no order accounts for 1"
    assert said in " ".join(text.split())
    assert json.loads(told("audit", "--json")[1])["wrongMovements"] == 2
    assert told("rebuild-movements", "--yes")[0] == 0
    assert (lost in rows, stray in rows) == (True, False)
    assert told("audit")[0] == 0


def test_an_order_that_changes_during_an_audit_is_not_compared(shop):
    shop.order("o-1", tea=1)
    command(shop, "confirm", "o-1")
    record(shop)
    shop.clock.sleep(120)
    sweep(shop)

    def ship(operation, request):
        if operation == "Scan" and request["TableName"] == Table.MOVEMENTS:
            shop.before = lambda *_: None
            command(shop, "fulfil", "o-1")
            record(shop)

    shop.before = ship
    assert read_books(shop.stack).movements == (0, 0)
    assert len(stored(shop, "tea")) == 2


@pytest.mark.parametrize("pages", range(1, 12, 2))
def test_a_rebuild_that_is_interrupted_continues_where_it_stopped(shop, told, pages):
    for number in range(40):
        shop.order(f"o-{number}", tea=1)
    shop.changes.clear()
    scan, left = shop.aws.dynamodb.answer, [pages * 7]

    def interrupt(operation, request):
        if operation != "Scan" or "Segment" not in request:
            return None
        left[0] -= 1
        if left[0] == 0:
            raise ServiceError("ProvisionedThroughputExceededException", "later")
        return scan(operation, {**request, "Limit": 1})

    shop.before = interrupt
    with pytest.raises(ClientError, match="later"):
        Rebuild(shop.stack, lambda _: None).run()
    shop.before = lambda *_: None
    counts = []
    done = Rebuild(shop.stack, lambda done: counts.append(done.orders)).run()
    assert (done.orders, done.deleted, max(counts)) == (40, 0, 40)
    assert done.written < 40 or pages == 1
    assert len(stored(shop, "tea")) == 40
    assert not [key for key in shop.items(Table.MOVEMENTS) if key[0] == "rebuild"]


def test_a_rebuild_keeps_no_note_that_is_forgotten_at_the_same_time(shop, monkeypatch):
    monkeypatch.setattr(forget, "LOOK_AGAIN_SECONDS", 0)
    live(shop)
    record(shop)
    rounds = []

    def interfere(operation, _):
        if operation == "BatchWriteItem":
            rounds.append(operation)
            shop.before = lambda *_: None
            forget.Forgetting(shop.stack, "u", b"k" * 32).run()
            record(shop)

    # The orders have been read, but their rows are not written yet.
    shop.before = interfere
    Rebuild(shop.stack, lambda _: None).run()
    assert len(rounds) == 1
    assert stored(shop, "tea") == OF_TEA
    assert not [row for row in shop.rows(Table.MOVEMENTS) if "actor" in row or "reference" in row]


def test_a_rebuild_says_first_what_it_takes_and_leaves_out_unreadable_orders(shop, told):
    live(shop)
    shop.edit(Table.ORDERS, "bad", items={"S": "?"}, userId={"S": "u"})
    status, text = told("rebuild-movements")
    assert status == 1
    assert "Orders to read: about 2" in text
    assert "Write units: about 8." in text
    assert stored(shop, "tea") == []
    status, text = told("rebuild-movements", "--yes")
    assert (status, "Left out: 1 order" in text) == (0, True)
    assert stored(shop, "tea") == OF_TEA


def test_without_the_setting_nothing_can_be_rebuilt(shop, told, monkeypatch):
    monkeypatch.setattr(Aws, "has_movements", False)
    with pytest.raises(UserError, match="set movements to true"):
        told("rebuild-movements")
    assert told("audit")[0] == 0
