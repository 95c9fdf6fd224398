"""A rehearsal of a restore on the deployed stack, with orders before, during and after it, and published events."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from inventory_orders.store.tables import Table
from local.commands.main import app
from local.invoke import invoke_deployed, is_good
from operations import queues, restore
from operations.audit import read_books, read_orders
from operations.commands import tables as table_commands
from operations.follow import listening
from operations.restore import Restore
from testing.world.events import order_body, sqs_event
from tests.support.shell import make_fresh
from tests.support.stack import create, wait_until, wait_until_settled

PATIENCE = 300.0
THEN = datetime(2026, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def aws(aws):
    make_fresh(aws)
    return aws


@pytest.fixture
def work(aws):
    """Prepare a restore of the current rows, because the embedded AWS has no backups of earlier ones."""
    made = Restore(aws, THEN)
    yield made
    for name in made.beside.tables.values():
        aws.dynamodb.delete_table(TableName=name)


def place(aws, *order_ids):
    bodies = [order_body(order_id, {"tea": 2, "pot": 1}) for order_id in order_ids]
    assert is_good(invoke_deployed(aws, "place_orders", sqs_event(*bodies)).answer)


def command(aws, action, order_id):
    body = {"action": action, "orderId": order_id}
    assert invoke_deployed(aws, "change_orders", body).answer["result"] == "APPLIED"


def test_all_rows_are_restored_and_orders_and_events_continue(aws, work, monkeypatch):
    create(aws, "tea", 1000)
    create(aws, "pot", 100)
    before, since, after = ([f"{when}-{n}" for n in range(5)] for when in ("be", "si", "af"))
    newest, everything = {}, {*before, *since, *after, "mean-0"}

    def hear(listen):
        """Keep the data of the highest version, as a consumer does, until the event of the last command arrives."""
        for heard in listen(PATIENCE):
            data = heard.event["detail"]["data"]
            name = data.get("orderId", "")
            if name and data["version"] >= newest.get(name, data)["version"]:
                newest[name] = data
            is_last = name == "af-0" and data["status"] == "CONFIRMED"
            if is_last and newest.keys() >= everything:
                return

    class Standstill:
        """Sends an order while the service is stopped, instead of waiting."""

        @staticmethod
        def sleep(_):
            aws.sqs.send_message(
                QueueUrl=aws.outputs[queues.STANDARD],
                MessageBody=json.dumps(order_body("mean-0", {"tea": 2, "pot": 1})),
            )

    monkeypatch.setattr(restore, "time", Standstill)
    monkeypatch.setattr(table_commands, "aws_of", lambda _: aws)
    with listening(aws) as listen, ThreadPoolExecutor() as pool:
        heard = pool.submit(hear, listen)
        place(aws, *before)
        command(aws, "confirm", "be-4")
        command(aws, "fulfil", "be-4")
        work.make_tables(lambda _: None)
        place(aws, *since)
        command(aws, "confirm", "be-0")
        command(aws, "fulfil", "be-0")
        sweep(aws)
        command(aws, "cancel", "be-1")
        command(aws, "confirm", "si-0")
        streams = {t: describe(aws, t)["LatestStreamArn"] for t in (Table.ORDERS, Table.PRODUCTS)}

        done = CliRunner().invoke(app, ["restore", "--to", "2026-01-01T09:00", "--yes"])

        assert done.exit_code == 0, done.output
        assert done.output.count("The books balance") == 2, (
            "the books balance at the restored time and now"
        )
        assert streams == {t: describe(aws, t)["LatestStreamArn"] for t in streams}
        wait_until(aws, lambda: read_orders(aws, ["mean-0"]))
        place(aws, *after)
        command(aws, "confirm", "be-0")
        command(aws, "confirm", "af-0")
        heard.result()
    rows = read_orders(aws, everything)
    assert {row["status"] for name, row in rows.items() if name in since} == {"CANCELLED"}
    statuses = [rows[name]["status"] for name in ("be-0", "be-1", "be-4")]
    assert statuses == ["CONFIRMED", "PENDING", "FULFILLED"]
    assert {name: row["status"] for name, row in rows.items()} == {
        name: data["status"] for name, data in newest.items()
    }
    sweep(aws)
    wait_until_settled(aws)
    tea = next(a for a in read_books(aws).accounts if a.product_id == "tea")
    # Units handed over from the earlier orders, and units of all orders: earlier, later, and the one sent during the
    # restore.
    assert (tea.on_hand, tea.available) == (1000 - 2, 1000 - 2 * (5 + 5 + 1))
    assert all(account.balances for account in read_books(aws).accounts)


def sweep(aws):
    swept = invoke_deployed(aws, "sweep", {"action": "sweep"}).answer
    assert swept.get("result") == "SWEPT", swept


def describe(aws, table):
    return aws.dynamodb.describe_table(TableName=aws.tables[table])["Table"]
