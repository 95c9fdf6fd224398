"""Restores in place, on tables in memory: rows get their former content, with versions above all published ones."""

import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Outcome
from inventory_orders.products.fold import Fold
from inventory_orders.store.rows import decode, encode
from inventory_orders.store.tables import Table
from local.commands import main
from operations import restore as restores
from operations.audit import read_books
from operations.commands import tables as table_commands
from operations.errors import UserError
from operations.republish import Republished
from operations.restore import JUMP, Moment, Restore, restored
from testing.schedules.in_turn.shop import Shop, open_shop
from testing.world.clock import virtual_time

THEN = datetime(2026, 1, 1, 9, tzinfo=UTC)
NOW = THEN + timedelta(hours=3)
MOMENT = Moment(THEN, NOW)
APPLIED = Outcome.APPLIED


class RememberedShop:
    """Products that are sold from rows and lanes, and a copy of the tables at one moment."""

    def __init__(self, tables):
        self.tables = tables
        self.tables.before = self.tag
        self.tags = []
        self.worker = tables.worker(lanes=2)
        # The worker behaves as if it had met contention on every row, so it sells from lanes.
        self.worker.client.rivals.has = lambda product_id: True
        self.restore = Restore(tables.stack, THEN)
        tables.list("tea", 1000)
        tables.list("pot", 5)

    def tag(self, operation, request):
        if operation == "TagResource":
            self.tags += request["Tags"]
            return {}
        if operation == "UntagResource":
            self.tags = [tag for tag in self.tags if tag["Key"] not in request["TagKeys"]]
            return {}
        return {"Tags": self.tags} if operation == "ListTagsOfResource" else None

    def do(self, *changes):
        return [o.kind for o in self.tables.commit(self.worker, *changes).outcomes]

    def place(self, order_id, **lines):
        assert self.do(Order(order_id, "u", lines, hold_seconds=900)) == [APPLIED]

    def command(self, action, order_id):
        at = "2026-01-01T00:00:00.000000+00:00"
        assert self.do(OrderCommand(order_id, action, at)) == [APPLIED]

    def remember(self):
        """Keep a copy of the tables as the state to restore."""
        self.then = copy.deepcopy(self.items())
        for table, name in self.restore.beside.tables.items():
            known = self.tables.aws.dynamodb.tables
            known[name] = copy.deepcopy(known[table.value])

    def fold(self):
        assert Fold(RetryingClient(self.tables.store), self.tables.soon()).run().folded

    def out_pages(self):
        rows = self.items()[Table.ALLOTMENTS].values()
        return {row["page"]["S"]: row for row in rows if row["page"]["S"].startswith("out/")}

    def items(self):
        tables = self.tables.aws.dynamodb.tables
        return {table: dict(tables[table.value].items) for table in Table}

    def put_back(self):
        return self.restore.put_back(lambda _: None)


@pytest.fixture
def shop():
    with open_shop() as tables:
        yield RememberedShop(tables)


def content(item):
    unimportant = {"_version", "changedVersion", "lastUpdatedAt", "expiresAt"}
    return {name: value for name, value in item.items() if name not in unimportant}


def version(item):
    return int(item.get("_version", {"N": "0"})["N"])


def test_rows_are_restored_with_versions_above_all_later_writes(shop):
    for number in range(4):
        shop.place(f"before-{number}", tea=2)
    shop.command(OrderAction.CONFIRM, "before-3")
    shop.remember()
    shop.command(OrderAction.CONFIRM, "before-1")
    shop.command(OrderAction.CANCEL, "before-2")
    for number in range(5):
        shop.place(f"since-{number}", tea=30, pot=1)
    shop.command(OrderAction.CANCEL, "since-4")
    shop.do(Adjustment("tea", "r-1", 7, "RECEIPT"))
    shop.tables.list("cup", 10)
    shop.place("cups", cup=3)
    live = shop.items()
    assert "lanePage" in shop.tables.order_row("since-3")["items"][1], (
        "the product was sold from lanes"
    )

    found = shop.put_back()

    after = shop.items()
    for table, rows in shop.then.items():
        for key, then in rows.items():
            assert content(after[table][key]) == content(then) or "lockedBy" in then
            if after[table][key] != live[table].get(key):
                assert version(after[table][key]) > version(live[table][key])
                # A payment for a version in between is not one for this order.
                if table is Table.ORDERS:
                    assert after[table][key]["changedVersion"] == after[table][key]["_version"]
    assert ("cup",) not in after[Table.PRODUCTS]
    assert after[Table.WORDS] == shop.then[Table.WORDS] != live[Table.WORDS]
    assert after[Table.STOCK_ADJUSTMENTS] == shop.then[Table.STOCK_ADJUSTMENTS]
    assert found.cancelled == {"PENDING": 5, "CANCELLED": 1}
    assert {shop.tables.order_row(f"since-{n}")["status"] for n in range(5)} == {"CANCELLED"}
    assert shop.tables.order_row("before-3") == decode(shop.then[Table.ORDERS]["before-3",])
    assert set(shop.tables.unexplained().values()) == {0}


def test_rows_that_were_already_restored_are_not_written_again(shop):
    shop.place("o", tea=1)
    shop.command(OrderAction.CONFIRM, "o")
    shop.remember()
    shop.command(OrderAction.CANCEL, "o")
    shop.place("since", tea=1)
    assert shop.restore.rows_are_back_since is None
    shop.put_back()
    assert shop.restore.rows_are_back_since is not None
    before = shop.items()
    assert not shop.put_back().back
    assert shop.items() == before


@pytest.fixture
def run_command(shop, monkeypatch):
    """Run the command `restore`, but without stopping the service and without the audit."""
    monkeypatch.setattr(table_commands, "aws_of", lambda _: shop.tables.stack)
    monkeypatch.setattr(table_commands, "show_audit", lambda _: True)
    for step in ("make_tables", "stop", "start"):
        monkeypatch.setattr(Restore, step, lambda *_: None)
    monkeypatch.setattr(Restore, "republish", lambda *_: Republished())
    command = ["restore", "--to", THEN.isoformat()[:19], "--yes"]
    return lambda: CliRunner().invoke(main.app, command)


def test_a_second_restore_to_the_same_second_restores_rows_again(shop, run_command):
    shop.remember()
    for order_id in ("first", "second"):
        shop.place(order_id, tea=1)
        done = run_command()
        assert done.exit_code == 0, done.output
        assert shop.tables.order_row(order_id)["status"] == "CANCELLED"


def test_a_run_after_an_interrupted_one_says_that_it_cannot_compare(shop, run_command, monkeypatch):
    shop.remember()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Restore, "republish", interrupted)
        assert "Delete these" in run_command().output
    assert "An earlier" in run_command().output


def test_looking_changes_nothing(shop):
    shop.place("o", tea=1)
    shop.remember()
    shop.place("since", tea=1)
    before = shop.items()
    found = shop.restore.look(lambda _: None)
    assert (found.cancelled, shop.items()) == ({"PENDING": 1}, before)


def test_units_handed_over_since_the_moment_are_on_hand_again(shop):
    for order_id in ("before", "open"):
        shop.place(order_id, pot=2)
        shop.command(OrderAction.CONFIRM, order_id)
    shop.command(OrderAction.FULFIL, "before")
    shop.remember()
    shop.fold()
    shop.command(OrderAction.FULFIL, "open")
    shop.place("since", pot=1, tea=1)
    shop.command(OrderAction.CONFIRM, "since")
    lost = OrderCommand(
        "since", OrderAction.CANCEL, step_id="lost", quantities={"tea": 1}, restock=False
    )
    assert shop.do(lost) == [APPLIED]
    shop.command(OrderAction.FULFIL, "since")
    again = OrderCommand(
        "before", OrderAction.RETURN, step_id="back", quantities={"pot": 1}, restock=True
    )
    assert shop.do(again) == [APPLIED]
    pages = shop.out_pages()
    assert pages

    shop.put_back()

    numbers = {a.product_id: (a.on_hand, a.committed, a.available) for a in shop.tables.accounts()}
    assert numbers == {"tea": (1000, 0, 1000), "pot": (3, 2, 1)}
    after = shop.out_pages()
    assert all(version(after[name]) > version(page) for name, page in pages.items())
    shop.command(OrderAction.FULFIL, "open")
    shop.fold()
    assert {a.product_id: (a.on_hand, a.goods) for a in shop.tables.accounts()}["pot"] == (1, 1)
    assert all(account.balances for account in shop.tables.accounts())


def test_locations_are_restored_and_an_undone_order_takes_units_from_none(shop):
    for key in ("tea#berlin", "tea#lyon"):
        shop.tables.list(key, 20)
    split = {"locations": ("berlin", "lyon"), "split": True}
    assert shop.do(Order("before", "u", {"tea": 4}, hold_seconds=900, **split)) == [APPLIED]
    shop.remember()
    assert shop.do(Transfer("tea#berlin", "tea#lyon", "t-1", 5)) == [APPLIED]
    asked = {"asked_locations": {"tea": "lyon"}}
    assert shop.do(Order("since", "u", {"tea": 3}, hold_seconds=900, **asked)) == [APPLIED]
    shop.tables.list("tea#rome", 7)
    shop.tables.delist("tea#berlin")
    assert decode(shop.items()[Table.PRODUCTS]["tea",])["places"] == ["lyon", "rome"]

    shop.put_back()

    numbers = {a.product_id: (a.on_hand, a.available) for a in shop.tables.accounts()}
    assert numbers == {
        "tea": (1000, 1000),
        "pot": (5, 5),
        "tea#berlin": (20, 16),
        "tea#lyon": (20, 20),
    }
    assert all(account.balances for account in shop.tables.accounts()), shop.tables.accounts()
    assert shop.tables.order_row("before")["items"][0]["locationId"] == "berlin"
    (line,) = shop.tables.order_row("since")["items"]
    assert line == {"productId": "tea", "quantity": 3, "askedLocationId": "lyon"}
    again = shop.do(Order("since", "u", {"tea": 3}, hold_seconds=900, **asked))
    assert again == [Outcome.REPLAYED]


def test_a_fold_during_a_restore_is_a_concurrent_writer(shop):
    shop.place("o", pot=2)
    shop.command(OrderAction.CONFIRM, "o")
    shop.remember()
    shop.command(OrderAction.FULFIL, "o")
    assert shop.do(Adjustment("pot", "r-1", 7, "RECEIPT")) == [APPLIED]

    def fold_first(operation, request):
        if operation == "PutItem" and request["TableName"] == "Products":
            shop.tables.before = shop.tag
            shop.fold()
        return shop.tag(operation, request)

    shop.tables.before = fold_first
    with pytest.raises(UserError, match="another program has just written pot of Products"):
        shop.put_back()
    assert shop.restore.rows_are_back_since is None
    shop.put_back()
    assert all(account.balances for account in shop.tables.accounts())


def test_a_write_whose_response_was_lost_is_not_a_concurrent_writer(shop):
    shop.place("o", tea=1)
    shop.remember()
    shop.command(OrderAction.CONFIRM, "o")
    shop.tables.list("cup", 1)
    written = []

    def write_first(operation, request):
        if operation in ("PutItem", "DeleteItem"):
            written.append(operation)
            shop.tables.aws.dynamodb.answer(operation, request)
        return shop.tag(operation, request)

    shop.tables.before = write_first
    shop.put_back()
    assert set(written) == {"PutItem", "DeleteItem"}
    assert shop.tables.order_row("o")["status"] == "PENDING"
    assert ("cup",) not in shop.items()[Table.PRODUCTS]


def test_an_order_that_replaced_a_tombstone_is_kept(shop):
    cancel = OrderCommand("o", OrderAction.CANCEL, "2026-01-01T00:00:00.000000+00:00")
    shop.do(cancel)
    assert "userId" not in shop.tables.order_row("o")
    shop.remember()
    shop.do(Order("o", "u", {"tea": 1}))
    before = shop.tables.order_row("o")
    assert before["userId"] == "u"
    shop.put_back()
    assert shop.tables.order_row("o") == before


def row(version, **more):
    return encode({"orderId": "o", "_version": version, "createdAt": "c"} | more)


@pytest.mark.parametrize("is_unchanged", [False, True])
def test_a_hold_has_as_much_time_left_as_it_had(is_unchanged):
    held = {"expiresAt": "2026-01-01T09:10:00.000000+00:00", "expiryShard": "07"}
    then = row(4, status="PENDING", **held)
    live = row(5, status="PENDING", **held) if is_unchanged else row(5, status="EXPIRED")
    after = decode(restored(Table.ORDERS, live, then, MOMENT))
    assert after["expiresAt"] == "2026-01-01T12:10:00.000000+00:00"
    assert (after["status"], after["_version"], after["expiryShard"]) == ("PENDING", 6, "07")
    assert after["lastUpdatedAt"] == "2026-01-01T12:00:00.000000+00:00"


@pytest.mark.parametrize("live", [None, row(2, createdAt="another generation")])
def test_a_version_jumps_if_no_row_shows_the_latest_one(live):
    after = decode(restored(Table.PRODUCTS, live, row(40), MOMENT))
    assert after["_version"] == 40 + JUMP


@pytest.mark.parametrize("status", ["REJECTED", "CANCELLED"])
def test_an_order_that_took_nothing_is_unchanged(status):
    lines = [{"productId": "tea", "quantity": 1}]
    live = row(1, status=status, items=lines)
    assert restored(Table.ORDERS, live, None, MOMENT) is live


def test_an_old_lease_is_not_restored_and_a_current_one_is_kept():
    lease = encode({"page": "1/lease", "lockedBy": "a worker"})
    assert restored(Table.ALLOTMENTS, None, lease, MOMENT) is None
    assert restored(Table.ALLOTMENTS, lease, None, MOMENT) is lease
    locked = row(3, stockCount=1, lockedBy="a count", lockTime=99)
    after = restored(Table.PRODUCTS, row(4, stockCount=2), locked, MOMENT)
    assert "lockedBy" not in after


def test_a_page_that_did_not_exist_is_emptied_and_never_deleted():
    page = encode({"page": "1/3", "_version": 7, "epoch": "e", "units": b"some"})
    after = restored(Table.ALLOTMENTS, page, None, MOMENT)
    assert (after["_version"], after["epoch"]) == ({"N": "8"}, {"S": "e"})
    assert restored(Table.ALLOTMENTS, after, None, MOMENT) is after


def test_aws_accepts_the_request_and_the_command_waits_for_the_tables():
    """botocore checks the request against AWS's model."""
    client = boto3.client("dynamodb")
    tables = Shop()
    aws = tables.stack
    object.__setattr__(aws, "dynamodb", client)
    work = Restore(aws, THEN.astimezone())
    with virtual_time(tables.clock), Stubber(client) as stub:
        for table in work.beside.tables:
            name = f"{table.value}-20260101T090000Z"
            stub.add_client_error("describe_table", "ResourceNotFoundException")
            stub.add_response(
                "restore_table_to_point_in_time",
                {},
                {"SourceTableName": table.value, "TargetTableName": name, "RestoreDateTime": THEN},
            )
        stub.add_client_error("describe_table", "ResourceNotFoundException")
        for status in ("CREATING", *["ACTIVE"] * len(work.beside.tables)):
            stub.add_response("describe_table", {"Table": {"TableStatus": status}})
        said = []
        work.make_tables(said.append)
        stub.assert_no_pending_responses()
    assert said == ["Products is not created yet", "Products is CREATING"]


class Lambda:
    """Functions and event source mappings whose changes take time, as on AWS."""

    class exceptions:  # noqa: N801 - as in boto3
        class ResourceInUseException(Exception):  # noqa: N818 - AWS's name
            pass

    def __init__(self):
        self.state = {"of a queue": "Enabling", "of a stream": "Enabled"}
        self.calls = []

    def get_event_source_mapping(self, UUID):
        state = self.state[UUID]
        self.state[UUID] = {"Enabling": "Enabled", "Disabling": "Disabled"}.get(state, state)
        return {"State": state}

    def update_event_source_mapping(self, UUID, Enabled):
        if not self.calls:
            self.calls.append("refused")
            raise self.exceptions.ResourceInUseException
        self.state[UUID] = "Enabling" if Enabled else "Disabling"

    def put_function_concurrency(self, FunctionName, ReservedConcurrentExecutions):
        self.calls.append((FunctionName, ReservedConcurrentExecutions, self.state["of a queue"]))

    def delete_function_concurrency(self, FunctionName):
        self.calls.append((FunctionName, None, self.state["of a queue"]))


def test_the_service_stops_queues_first_and_restarts_as_deployed(shop, monkeypatch):
    aws, functions = shop.tables.stack, Lambda()
    names = ("PlaceOrders", "Api", "PublishEvents", "RecordMovements")
    object.__setattr__(aws, "functions", functions)
    object.__setattr__(
        aws, "stack_id", "arn:aws:cloudformation:eu-west-1:123456789012:stack/Shop/1"
    )
    object.__setattr__(aws, "outputs", aws.outputs | {f"{n}FunctionName": n for n in names})
    resources = {
        "AWS::Lambda::Function": {
            "PlaceOrders": {"Timeout": 30},
            "Api": {"Timeout": 50, "ReservedConcurrentExecutions": 9},
            "PublishEvents": {"Timeout": 900},
            "RecordMovements": {"Timeout": 900},
            "the CDK's own": {"Timeout": 900},
        },
        "AWS::Lambda::EventSourceMapping": {
            "of a queue": {},
            "of a stream": {"StartingPosition": "TRIM_HORIZON"},
        },
    }
    every = [name for kind in resources.values() for name in kind]
    deployed = SimpleNamespace(of_type=resources.get, physical=dict(zip(every, every, strict=True)))
    monkeypatch.setattr(restores.Deployed, "of", lambda *_: deployed)
    work = Restore(aws, THEN)
    began = shop.tables.clock.now()
    work.stop(lambda _: None)
    assert functions.calls == ["refused", ("PlaceOrders", 0, "Disabled"), ("Api", 0, "Disabled")]
    assert shop.tables.clock.now() - began >= 50
    functions.calls.clear()
    functions.calls.append("")
    work.start(lambda _: None)
    assert functions.calls[1:] == [("PlaceOrders", None, "Disabled"), ("Api", 9, "Disabled")]
    assert functions.state == {"of a queue": "Enabled", "of a stream": "Enabled"}


def test_purchases_are_restored_with_the_orders_that_charged_them(shop):
    shop.tables.products.change("tea", {"purchase_limit": 9}, shop.tables.soon())
    shop.place("before", tea=2)
    shop.remember()
    shop.place("since", tea=3)
    shop.do(Order("other", "v", {"tea": 1}))
    shop.command(OrderAction.CANCEL, "before")
    shop.put_back()
    rows = {row["buyer"]: row["units"] for row in shop.tables.rows(Table.PURCHASES)}
    assert rows == {"u": {"tea": 2}}
    assert "limitGroup" not in shop.tables.order_row("since")["items"][0]
    assert read_books(shop.tables.stack).purchases == []
    shop.tables.restart()
    assert shop.do(Order("new", "u", {"tea": 7}), Order("more", "u", {"tea": 1})) == [
        APPLIED,
        Outcome.REJECTED,
    ]
