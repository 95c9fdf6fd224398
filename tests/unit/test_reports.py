"""Reports of stock, which include rows and lanes, and reports of orders."""

import csv
import io
import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import Mock

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from typer.testing import CliRunner

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import DEPOT, LaneLease, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import CorruptItemError, ThrottledError
from inventory_orders.lanes.levels import read_level
from inventory_orders.products.fold import Fold
from inventory_orders.products.lease import Lease
from inventory_orders.store.lane_leases import lease_lane
from inventory_orders.store.tables import Table
from local import ROOT
from local.commands import main
from operations import queues
from operations.aws import Aws
from operations.commands import books, common, reports
from operations.commands import queues as queue_commands
from operations.errors import UserError
from operations.stock import list_stock
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import lend
from testing.world.faults import cancelled
from tests.support.movements import record_movements
from tests.support.terminal import on_a_terminal

CONFLICT = cancelled("TransactionConflict")


@pytest.fixture
def shop(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for commands in (reports, books, queue_commands):
        monkeypatch.setattr(commands, "aws_of", lambda stage, console: shop.stack)
    shop.list("tea", 1000, low_stock_threshold=10, name="Earl Grey")
    shop.list("mug", 5, low_stock_threshold=5)
    shop.list("pot", 0)
    lend(shop.store, "tea", 60, {1: 20, 9: 30})
    return shop


def level(shop, product_id):
    client = shop.worker().client
    return read_level(client, product_id, Deadline.after(10, client.clock), CommitStats())


def show(*arguments):
    return CliRunner().invoke(main.app, ["stock", *arguments])


def test_a_count_that_was_left_open_is_shown_with_the_command_that_cancels_it(shop):
    assert "count" not in show("mug").output
    client = shop.worker().client
    deadline = Deadline.after(10, client.clock)
    how = {"holder": "shelf-7", "outlive_deadline": True}
    Lease.acquire(client, "mug", 600, deadline, **how)
    said, command = show("mug").output.splitlines()[-2:]
    assert "A count of mug is open: shelf-7 began or extended it at 20" in said
    arguments = shlex.split(command)
    payload = json.loads(arguments[arguments.index("--payload") + 1])
    assert shop.stack.invoke("CountStock", payload) == {"result": "RELEASED"}
    assert "count" not in show("mug").output
    Lease.acquire(client, "mug", 600, deadline, **how)
    assert "count" not in show("mug", "--json").output
    shop.clock.advance(601)
    assert "count" not in show("mug").output


def test_lanes_added_between_the_reads_are_read_too(shop):
    reads = []

    def before(operation, request):
        if operation == "TransactGetItems":
            reads.append(len(request["TransactItems"]))
            if len(reads) == 1:
                shop.before = lambda *_: None
                lend(shop.store, "tea", 0, {12: 40})
                shop.before = before

    shop.before = before
    found = level(shop, "tea")
    assert (found.on_hand, found.is_exact, found.in_lanes[12]) == (1000, True, 40)
    assert reads[0] < reads[1]


def fill_pages(shop, lanes):
    """Lend the product to lanes whose pages are close to the item size limit."""
    pages = shop.aws.dynamodb.tables["Allotments"].items
    lend(shop.store, "tea", 0, dict.fromkeys(lanes, 1) | {DEPOT: 0})
    for lane in lanes:
        key = (str(PageKey.of(lane, "tea")),)
        pages[key] = pages[key] | {"othersAttribute": {"S": "x" * 400_000}}


DISTURBANCES = {
    "contention": lambda shop: shop.refuse("TransactGetItems", CONFLICT),
    "pages too large for a transaction": lambda shop: fill_pages(shop, range(12)),
    "pages that grow": lambda shop: shop.once(
        "TransactGetItems", lambda _: fill_pages(shop, range(12))
    ),
}


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_a_product_that_cannot_be_read_at_one_moment_is_estimated(shop, disturbance):
    DISTURBANCES[disturbance](shop)
    found = level(shop, "tea")
    assert (found.on_hand, found.is_exact) == (1000, False)
    assert "tea: about 1,000 on hand, 0 committed, 1,000 available, ACTIVE" in show("tea").stdout


def test_units_of_another_generation_do_not_count(shop):
    row = shop.aws.dynamodb.tables["Products"].items["tea",]
    row["createdAt"] = {"S": "2020-01-01T00:00:00.000000+00:00"}
    assert level(shop, "tea").available == 890


def test_an_unreadable_page_is_an_error_instead_of_a_number(shop):
    page = PageKey.of(1, "tea")
    shop.aws.dynamodb.tables["Allotments"].items[str(page),]["units"] = {"S": "?"}
    with pytest.raises(CorruptItemError):
        level(shop, "tea")
    assert isinstance(show("tea").exception, UserError)


def test_the_list_starts_with_low_stock_and_includes_lanes(shop):
    shown = show().stdout
    products = [line.split()[0] for line in shown.splitlines()[1:-1]]
    assert products == ["pot", "mug", "tea"]
    assert "tea        1,000          0      1,000      10  ACTIVE        Earl Grey" in shown
    assert shown.endswith("3 products of 3 (1 out of stock, 1 low, 0 discontinued).\n")
    assert max(map(len, shown.splitlines())) <= 80


def test_all_products_are_read_by_the_megabyte_and_the_outbound_pages_once(shop):
    tea = replace(shop.product("tea"), stock_count=0, on_hand=0, lent_to=frozenset())
    # 3,000 rows of 500 bytes.
    shop.put(*(replace(tea, product_id=f"p-{n}", name="x" * 300) for n in range(3000)))
    shop.edit(Table.PRODUCTS, "p-7", status={"S": "?"})
    shop.calls.clear()
    assert len(list_stock(shop.stack)[0]) == 3002
    assert Counter(shop.calls) == {
        "Scan": 2,
        "BatchGetItem": 4,
    }, "tea is lent: a row, the level that the sweep has stored, and pages"

    shop.order("o-1", tea=3, mug=2)
    for action in (OrderAction.CONFIRM, OrderAction.FULFIL):
        shop.do(OrderCommand("o-1", action))
    shop.calls.clear()
    levels, unreadable = list_stock(shop.stack)
    # The pages have units, so a second read shows whether a sweep subtracted them from rows.
    assert Counter(shop.calls) == {"Scan": 2, "BatchGetItem": 5}
    assert [*unreadable] == ["p-7"]
    assert {one.product.product_id: one.outbound for one in levels if one.outbound} == {
        "tea": 3,
        "mug": 2,
    }


def test_units_that_a_sweep_takes_off_a_page_during_the_list_count_once(shop):
    shop.order("o-1", mug=2)
    for action in (OrderAction.CONFIRM, OrderAction.FULFIL):
        shop.do(OrderCommand("o-1", action))
    fold = Fold(shop.worker().client, shop.soon())
    shop.once("Scan", lambda _: fold.run() and None)
    (mug,) = (one for one in list_stock(shop.stack)[0] if one.product.product_id == "mug")
    assert (fold.folded, mug.on_hand, mug.committed, mug.available) == (1, 3, 0, 3)


def test_units_that_a_lane_borrows_during_the_list_count_once(shop):
    def borrow(request):
        shop.calm()
        lend(shop.store, "tea", 0, {9: 100})

    # The list has read the rows before it reads the lent ones again.
    shop.on("BatchGetItem", borrow, lambda request: "Products" in request["RequestItems"])
    (tea,) = (one for one in list_stock(shop.stack)[0] if one.product.product_id == "tea")
    assert (tea.in_lanes[9], tea.on_hand, tea.available) == (130, 1000, 1000)


def test_a_product_that_cannot_be_read_is_named_and_hides_no_other(shop):
    shop.aws.dynamodb.tables["Products"].items["mug",] |= {"status": {"S": "NEW"}}
    done = show()
    assert "product mug breaks the contract" in done.stderr
    assert done.stdout.endswith("2 products of 2 (1 out of stock, 0 low, 0 discontinued).\n")


def test_one_product_is_exact_and_says_where_its_units_are(shop):
    shown = show("tea").stdout
    assert re.search("its row +890 ", shown)
    assert re.search("the depot +60 ", shown)
    numbers = "1,000 on hand, 0 committed, 1,000 available"
    assert f"tea: {numbers}, ACTIVE (low at 10, backorders to 0)." in shown
    assert isinstance(show("no-such-thing").exception, UserError)


def orders(*arguments):
    return CliRunner().invoke(main.app, ["orders", *arguments])


def ids(*options):
    return [line.split()[0] for line in orders(*options).stdout.splitlines()[1:]]


@pytest.fixture
def placed(shop):
    worker = shop.worker()
    for number in range(3):
        assert shop.commit(worker, Order(f"o-{number}", "u-7", {"tea": number + 1})).outcomes
    for number in (2, 0):
        shop.commit(worker, OrderCommand(f"o-{number}", OrderAction.CONFIRM))


def test_the_orders_to_ship_come_with_their_lines_the_oldest_first(shop, placed):
    shown = orders("--status", "CONFIRMED").stdout.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["o-2", "o-0"]
    assert shown[1].split()[-2:] == ["3", "tea"]
    assert max(map(len, shown)) <= 80
    found = json.loads(orders("--status", "CONFIRMED", "--json").stdout)
    assert found[0]["items"] == [{"productId": "tea", "quantity": 3}]
    assert (
        "The first 1; --limit shows more." in orders("--status", "CONFIRMED", "--limit", "1").stdout
    )


def test_orders_to_ship_show_whether_their_units_are_on_hand(shop, placed):
    shop.list("cup", 1, backorder_limit=9)
    shop.list("jug", 5)
    worker = shop.worker()
    shop.commit(worker, Order("o-9", "u-7", {"cup": 3, "jug": 1}))
    shop.commit(worker, OrderCommand("o-9", OrderAction.CONFIRM))
    shown = [line.split() for line in orders("--status", "CONFIRMED").stdout.splitlines()]
    assert shown[0] == ["order", "goods", "since", "user", "items"]
    assert [line[:2] for line in shown[1:3]] == [["o-2", "ready"], ["o-0", "ready"]]
    assert "o-9 only 1 of 3 cup 20" in " ".join(shown[3])
    found = {
        one["orderId"]: one for one in json.loads(orders("--status", "CONFIRMED", "--json").stdout)
    }
    assert (found["o-2"]["shippable"], "missing" in found["o-2"]) == (True, False)
    missing = [{"productId": "cup", "wanted": 3, "onHand": 1}]
    assert (found["o-9"]["shippable"], found["o-9"]["missing"]) == (False, missing)
    assert "shippable" not in json.loads(orders("--user", "u-7", "--json").stdout)[0]
    shop.edit(Table.PRODUCTS, "jug", status={"S": "?"})
    assert "unknown" in orders("--status", "CONFIRMED").stdout.splitlines()[3]


def test_orders_are_listed_by_status_time_and_late_payment(shop, placed):
    worker = shop.worker()
    shop.commit(worker, OrderCommand("o-1", OrderAction.CANCEL))
    shop.clock.sleep(60)
    shop.commit(worker, OrderCommand("o-1", OrderAction.CONFIRM))
    shop.commit(worker, OrderCommand("o-2", OrderAction.FULFIL))
    shop.commit(worker, Order("o-5", "u-7", {"tea": 10**6}))

    assert ids("--status", "fulfilled") == ["o-2"]
    assert ids("--status", "CANCELLED") == ids("--late-payments") == ["o-1"]
    rejected = orders("--status", "REJECTED").stdout
    assert "o-5    REJECTED INSUFFICIENT_STOCK" in rejected
    at = shop.order_row("o-2")["statusAt"]
    assert ids("--status", "FULFILLED", "--since", at) == ["o-2"]
    assert ids("--user", "u-7", "--since", at) == ["o-5", "o-2"]
    assert orders("--status", "FULFILLED", "--until", at).stdout == "No orders.\n"
    assert ids("--late-payments", "--since", "2027-01-15T08:00") == ["o-1"]
    assert at[:16] in orders("--status", "FULFILLED").stdout
    assert shop.order_row("o-1")["latePaymentAt"][:16] in orders("--late-payments").stdout


def test_a_list_can_be_opened_in_a_spreadsheet(shop, placed):
    shop.commit(shop.worker(), Order("o-7", "=u", {"tea": 1, "mug": 2}, hold_seconds=60))
    shown = orders("--status", "PENDING", "--csv", "--limit", "2")
    first, second = csv.DictReader(io.StringIO(shown.stdout))
    row = shop.order_row("o-7")
    assert first["orderId"] == "o-1"
    assert second == {
        "orderId": "o-7",
        "userId": "'=u",
        "status": "PENDING",
        "reason": "",
        "statusAt": row["statusAt"],
        "createdAt": row["createdAt"],
        "expiresAt": row["expiresAt"],
        "latePaymentAt": "",
        "shippable": "",
        "items": "1 tea, 2 mug",
    }
    shown = orders("--status", "CONFIRMED", "--csv", "--limit", "1")
    (paid,) = csv.DictReader(io.StringIO(shown.stdout))
    assert (paid["orderId"], paid["shippable"]) == ("o-2", "true")
    assert "The first 1; --limit shows more." in shown.stderr


def test_lists_and_products_distinguish_on_hand_from_committed(shop, placed):
    parcel = OrderCommand("o-2", OrderAction.FULFIL, step_id="parcel-1", quantities={"tea": 2})
    shop.commit(shop.worker(), parcel)
    line = next(line for line in show().stdout.splitlines() if line.split()[0] == "tea")
    assert line.split()[1:5] == ["998", "4", "994", "10"]
    assert "tea: 998 on hand, 4 committed, 994 available" in show("tea").stdout
    (tea,) = json.loads(show("--in-lanes", "--json").stdout)
    assert (tea["onHand"], tea["committed"], tea["available"]) == (998, 4, 994)
    (line,) = (line for line in show("--in-lanes").stdout.splitlines() if "Earl Grey" in line)
    assert line.split()[4] == str(sum(tea["inLanes"].values()))


def test_what_is_left_to_ship_and_who_shipped_the_rest_is_shown(shop, placed):
    parcel = OrderCommand("o-2", OrderAction.FULFIL, step_id="parcel-1", quantities={"tea": 2})
    notes = {"actor": "anna", "reference": "tracking 7"}
    shop.commit(shop.worker(), replace(parcel, notes=notes))
    assert orders("--status", "CONFIRMED").stdout.splitlines()[1].split()[-2:] == ["1", "tea"]
    shown = orders("o-2").stdout.splitlines()
    assert shown[1].split()[-2:] == ["3", "tea"]
    assert shown[-1].split()[1:] == ["fulfil", "parcel-1", "2", "tea", "anna", "tracking", "7"]
    assert json.loads(orders("o-2", "--json").stdout)["steps"][-1]["actor"] == "anna"


def test_one_order_and_a_users_orders_are_shown(shop, placed):
    shown = orders("--user", "u-7").stdout.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["o-2", "o-1", "o-0"]
    assert orders("--user", "u-8").stdout == "No orders.\n"
    assert json.loads(orders("o-1", "--json").stdout)["status"] == "PENDING"
    assert str(orders("o-9").exception) == "there is no order o-9"
    shop.commit(shop.worker(), Order("o-much", "u-7", {"tea": 10_000}))
    assert "REJECTED INSUFFICIENT_STOCK" in orders("o-much").stdout


def test_limits_are_shown_with_their_product_and_with_an_order_that_exceeds_them(shop):
    limits = {"purchaseLimit": 2, "limitGroup": "drop", "safetyStock": 3}
    shop.invoke("manage_products", {"action": "change", "productId": "mug", **limits})
    shown = " ".join(show("mug").stdout.split())
    assert "backorders to 0, safety stock 3, at most 2 of drop per buyer)." in shown
    for number, units in ((1, 1), (2, 2)):
        shop.do(Order(f"o-{number}", "u-7", {"mug": units}, named_buyers=("u-7", "card")))
    lines = [line.split() for line in orders("o-2").stdout.splitlines()]
    assert lines[0:2][1][1:3] == ["REJECTED", "PURCHASE_LIMIT"]
    assert ["over", "the", "limit", "of", "limit", "wanted", "bought"] in lines
    assert ["drop", "2", "2", "1"] in lines
    assert ["Buyers:", "u-7,", "card."] in lines
    assert json.loads(orders("o-2", "--json").stdout)["buyers"] == ["u-7", "card"]


def test_an_order_that_is_a_dead_letter_is_found_by_its_id(shop, monkeypatch):
    def dead_letter(body):
        why = {"errorCode": "UNKNOWN_PRODUCT", "errorMessage": "there is no product cup yet"}
        named = {n: {"DataType": "String", "StringValue": value} for n, value in why.items()}
        url = shop.stack.outputs["OrderDeadLetterQueueUrl"]
        shop.stack.sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=named)

    for number in range(7):
        dead_letter(json.dumps({"orderId": f"o-{number}"}))
    assert str(orders("o-3").exception) == (
        "there is no order o-3, but it is a dead letter: UNKNOWN_PRODUCT in OrderQueue (there is no product cup yet). "
        "`.venv/bin/inventory-orders redrive` shows whether it can be sent back"
    )
    assert str(orders("o-33").exception) == "there is no order o-33"
    shown = CliRunner().invoke(main.app, ["redrive"]).stdout
    assert "o-0 o-1 o-2 o-3 o-4 and 2 more" in shown
    (listed,) = json.loads(CliRunner().invoke(main.app, ["redrive", "--json"]).stdout)[
        "deadLetters"
    ]
    assert (listed["count"], listed["orderIds"]) == (7, [f"o-{number}" for number in range(7)])
    status = json.loads(CliRunner().invoke(main.app, ["status", "--json"]).stdout)["deadLetters"]
    assert status == {"UNKNOWN_PRODUCT": {"count": 7, "example": "there is no product cup yet"}}
    monkeypatch.setattr(reports, "_DEAD_LETTERS", 1)
    assert "not all dead letters were searched" in str(orders("o-33").exception)
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no."}}, "ReceiveMessage")
    monkeypatch.setattr(shop.stack.sqs, "receive_message", Mock(side_effect=denied))
    assert "dead letters could not be searched for it: An error" in str(orders("o-33").exception)


def test_orders_are_listed_by_reference_and_product(shop, placed, monkeypatch):
    assert orders("--product", "tea").stdout.endswith(
        "No orders.\nNot all orders are recorded yet.\n"
    )
    shop.clock.sleep(60)
    fulfil = OrderCommand("o-2", OrderAction.FULFIL, notes={"reference": "1Z-7"})
    shop.commit(shop.worker(), fulfil)
    record_movements(shop)
    *listed, note = ids("--reference", "1Z-7")
    assert (listed, note) == (["o-2"], "Complete")
    *listed, _ = ids("--product", "tea")
    assert listed == ["o-2", "o-1", "o-0"]
    *listed, _ = ids("--product", "tea", "--status", "pending")
    assert listed == ["o-1"]
    *listed, _ = ids("--product", "tea", "--location", "berlin")
    assert listed == []
    assert json.loads(orders("--product", "tea", "--since", "2028-01-01", "--json").stdout) == []
    monkeypatch.setattr(Aws, "has_movements", False)
    assert "set movements to true" in str(orders("--product", "tea").exception)


WRONG = (
    "",
    "--reference 1Z-7 --product tea",
    "--reference 1Z-7 --user u-7",
    "--reference 1Z-7 --location berlin",
    "--product tea --late-payments",
    "o-1 --status CONFIRMED",
    "o-1 --since 2026-01-01",
    "--late-payments --user u-7",
    "--status PAID",
    "--since 2026-01-01",
)


@pytest.mark.parametrize("arguments", WRONG)
def test_the_orders_to_show_have_to_be_selected_in_one_way(shop, arguments):
    assert orders(*arguments.split()).exit_code == 2


def leave_out(table):
    """Make DynamoDB leave rows of a table out of each answer, and prevent snapshots by contention."""

    def before(operation, request):
        if operation == "TransactGetItems":
            raise CONFLICT
        if operation != "BatchGetItem" or table not in request["RequestItems"]:
            return None
        return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}

    return before


def test_incomplete_reads_are_errors_and_never_left_out(shop, placed):
    shop.before = leave_out("Orders")
    assert "UNPROCESSED_KEYS" in str(orders("--status", "CONFIRMED").exception)
    shop.before = leave_out("Products")
    with pytest.raises(ThrottledError, match="UNPROCESSED_KEYS"):
        level(shop, "mug")


@pytest.mark.parametrize(
    "broken", [{"S": "?"}, {"L": [{"M": {"productId": {"S": "tea"}, "quantity": {"S": "1"}}}]}]
)
def test_an_order_that_cannot_be_read_is_named_and_the_others_are_listed(shop, placed, broken):
    shop.aws.dynamodb.tables["Orders"].items["o-0",] |= {"items": broken}
    shown = orders("--status", "CONFIRMED")
    assert "order o-0 breaks the table's contract" in shown.stderr
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == ["o-2"]


def lost(_):
    raise ReadTimeoutError(endpoint_url="https://dynamodb")


def throttled(_):
    raise ServiceError("ThrottlingException", "Rate exceeded")


@pytest.mark.parametrize("failure", [lost, throttled])
@pytest.mark.parametrize(
    ("operation", "report"),
    [
        ("Scan", ["stock"]),
        ("GetItem", ["orders", "o-1"]),
        ("Query", ["orders", "--status", "CONFIRMED"]),
        ("Query", ["orders", "--user", "u-7"]),
    ],
)
def test_a_temporary_failure_does_not_end_a_report(shop, placed, operation, report, failure):
    expected = CliRunner().invoke(main.app, report).stdout
    shop.once(operation, failure)
    done = CliRunner().invoke(main.app, report)
    assert (done.exit_code, done.stdout) == (0, expected), done.exception


def long(letter):
    """Make an id that is wider than any terminal."""
    return f"[{letter * 197}]"


PRODUCT, USER, ORDER, STEP, WORKER = map(long, "PUOSW")
NAME = " ".join(["name"] * 40)


@pytest.fixture
def wide(shop, monkeypatch):
    """Make a product with a long name, orders, a lane and a dead letter. Their ids have 200 characters."""
    shop.list(PRODUCT, 10**9, low_stock_threshold=10**8, name=NAME)
    lend(shop.store, PRODUCT, 10**8, dict.fromkeys(range(1, 91), 10**6))
    now = shop.clock.now()
    lease_lane(shop.store, LaneLease(1, WORKER, now + 40), datetime.fromtimestamp(now, UTC))
    worker = shop.worker()
    shop.commit(worker, Order(ORDER, USER, {PRODUCT: 10**6}))
    shop.commit(worker, OrderCommand(ORDER, OrderAction.CONFIRM))
    shop.commit(worker, OrderCommand(ORDER, OrderAction.CANCEL, "", STEP, {PRODUCT: 1}))
    sqs = boto3.session.Session("k", "s", region_name="us-east-1").client("sqs")
    names = (*queues.QUEUES, *queues.DEAD_LETTERS, queues.UNDELIVERABLE_EVENTS)
    outputs = shop.stack.outputs | {name: shop.aws.sqs.create(name).url for name in names}
    aws = replace(shop.stack, outputs=outputs, sqs=sqs)
    for commands in (reports, books, queue_commands):
        monkeypatch.setattr(commands, "aws_of", lambda stage, console: aws)
    why = {"errorCode": "UNKNOWN_PRODUCT", "errorMessage": f"there is no product {PRODUCT} yet"}
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in why.items()}
    sqs.send_message(
        QueueUrl=outputs["StockDeadLetterQueueUrl"], MessageBody="{}", MessageAttributes=attributes
    )


LISTS = {
    "status": [PRODUCT],
    "redrive": [PRODUCT],
    "stock": [PRODUCT],
    "stock PRODUCT": [PRODUCT],
    "orders ORDER": [ORDER, USER, PRODUCT, STEP],
    "orders --status CONFIRMED": [ORDER, USER, PRODUCT],
    "orders --user USER": [ORDER, USER, PRODUCT],
    "audit PRODUCT": [PRODUCT, ORDER],
    "lanes": [WORKER],
    "lanes PRODUCT": [],
    "settings": ["queues.OrderCommandQueue.maximumConcurrency"],
}


def listed(command):
    """Run a command, check that it prints the ids in full, and return its output."""
    ids = LISTS[command]
    for name, value in (("PRODUCT", PRODUCT), ("USER", USER), ("ORDER", ORDER)):
        command = command.replace(name, value)
    shown = CliRunner().invoke(main.app, command.split(), catch_exceptions=False).stdout
    assert [one for one in ids if one not in shown] == []
    assert "…" not in shown
    return shown


@pytest.mark.parametrize("command", LISTS)
def test_a_pipe_gets_whole_rows_each_on_a_line(wide, command):
    shown = listed(command)
    assert NAME in shown or command != "stock"
    # A wrapped cell would continue below its own column.
    assert not re.search(r"^ {20,}[^ 0-9]", shown, re.MULTILINE)


@pytest.mark.parametrize("command", LISTS)
def test_a_terminal_wraps_between_words_and_never_inside_an_id(wide, monkeypatch, command):
    on_a_terminal(monkeypatch)
    assert NAME not in listed(command)


def test_short_rows_fit_80_columns_and_their_text_wraps(shop, monkeypatch):
    shop.list("jug", 7, name=NAME)
    on_a_terminal(monkeypatch)
    shown = show().stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert " ".join(shown).split().count("name") == 1 + 40


def test_an_id_is_not_printed_as_an_emoji(shop):
    shop.list("a:tea:b", 7)
    assert "a:tea:b " in show().stdout


def test_text_from_senders_cannot_control_the_terminal(shop, monkeypatch):
    """Another program may have written such a name; the service does not accept control characters."""
    controls = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F)]
    unsafe = "".join(map(chr, [*controls, *range(0x2066, 0x206A)]))
    shop.list("jug", 7, name=f"A{unsafe}Z")
    on_a_terminal(monkeypatch, 300)
    with common.screen.capture() as printed:
        common.print_problems("Error", [f"A{unsafe}Z", "\ud800"])
    shown = show().stdout + printed.get()
    assert shown.count("A\N{REPLACEMENT CHARACTER}") == 2
    assert not {*unsafe, "\ud800"}.intersection(shown) - {"\n"}


def test_every_command_prints_to_consoles_that_do_not_truncate():
    made = {
        str(path.relative_to(ROOT))
        for folder in ("local", "operations")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\bConsole\(", path.read_text("utf-8"))
    }
    assert not made


def test_the_audits_json_says_the_same_as_its_text(shop, placed):
    def audit(*arguments):
        return CliRunner().invoke(main.app, ["audit", *arguments, "--json"])

    found = json.loads(audit().stdout)
    assert (found["balanced"], found["corruptPages"]) == (True, {})
    tea = next(one for one in found["products"] if one["productId"] == "tea")
    numbers = ("onHand", "committed", "available", "adjusted", "sold", "open", "unexplained")
    assert [tea[name] for name in numbers] == [1000, 6, 994, 1000, 6, 6, 0]
    assert sum(tea["inLanes"].values()) + tea["inRow"] == 994
    assert "history" not in tea
