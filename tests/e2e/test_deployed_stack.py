"""The deployed stack from end to end: CDK, SQS, Lambda, DynamoDB, and the command line."""

import json
from unittest.mock import MagicMock

import psutil
import pytest

from local import sample_orders, stack
from local.desk import background
from operations.audit import read_books
from testing.world.events import order_body
from tests.support.demo_figures import check_sums, figures
from tests.support.stack import cli, create, wait_until_settled


def test_the_embedded_aws_listens_on_loopback_only(embedded_aws):
    process = psutil.Process(embedded_aws[1].pid)
    addresses = {
        connection.laddr.ip
        for one in (process, *process.children(recursive=True))
        for connection in one.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_up_does_nothing_when_nothing_changed(embedded_aws):
    said = []
    assert stack.up(said.append) == embedded_aws[1]
    assert said == []


def test_the_demonstration_loses_nothing_and_its_books_balance(demonstration):
    result = demonstration.result
    sent = result["ordersSent"]
    assert sent == result["ordersPlaced"] + result["ordersRejected"] >= 150
    assert result["ordersLost"] == 0
    # One of a hundred orders, not counting those of the drop, is made invalid.
    assert result["deadLetters"] >= 1
    assert result["booksBalance"] is True
    assert result["seconds"] > 0
    assert result["ordersPerSecond"] == pytest.approx(sent / result["seconds"], rel=0.01)
    assert 0 <= result["conflictRate"] < 1
    assert 0 < result["transactions"] <= result["commitAttempts"]
    lines = demonstration.output.splitlines()
    hot = next(n for n, line in enumerate(lines) if "tea-first-flush-drop" in line)
    left = {line.split()[0]: line.split()[4] for line in lines[hot : hot + 4]}
    assert set(left.values()) == {"0"}, "the hot product is sold out at every location"
    assert {*left} > {"(default)", "demo-berlin", "demo-store"}
    assert all(result["ordersPlacedFrom"].values())
    assert sent > result["ordersNotFromFirstLocation"] > 0
    assert result["unitsTransferred"] == 40
    assert "The books balance." in demonstration.output
    check_sums(demonstration.output)
    assert result["eventsMissing"] == result["eventDifferences"] == 0
    # Delays depend on the machine, so they have no limit here.
    assert 0 < result["eventDelayP50"] <= result["eventDelayP99"]
    events = result["eventsByType"]
    assert events["OrderPlaced"] == result["ordersPlaced"] + sample_orders.UNPAID
    assert events["OrderRejected"] == result["ordersRejected"]
    assert events["OrderExpired"] == sample_orders.UNPAID
    assert events["OrderConfirmed"] > events["OrderFulfilled"] > events["OrderReturned"] == 1
    assert result["unitsShipped"] > result["unitsLost"] > 0
    assert result["unitsMissingInCount"] == 2


def test_a_file_of_two_orders_is_demonstrated_with_its_own_products(aws, tmp_path, monkeypatch):
    create(aws, "mug", 7)
    monkeypatch.setattr(sample_orders, "HOLD_SECONDS", 1)
    # The usual demonstration also starts the desk, which takes seconds.
    monkeypatch.setattr(background, "start", MagicMock())
    file = tmp_path / "orders.csv"
    file.write_text("orderId,userId,productId,quantity\no-1,u-1,mug,1\no-2,u-1,mug,5\n")
    said = cli("demo", "--orders", str(file)).stdout
    check_sums(said)
    assert figures(said)["placed"][0] == 2
    assert "The books balance." in said
    (mug,) = [account for account in read_books(aws).accounts if account.product_id == "mug"]
    assert (mug.available, mug.sold) == (7, 0)


def test_env_points_any_client_at_the_embedded_aws(embedded_aws, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "work")
    unset, *lines, aws_cli = cli("env").stdout.splitlines()
    assert "AWS_PROFILE" in unset.removeprefix("unset ").split()
    assert all(line.startswith(("export AWS_", "export NODE_EXTRA_CA_CERTS=")) for line in lines)
    assert f"export AWS_ENDPOINT_URL={embedded_aws[1].endpoint}" in lines
    assert aws_cli.startswith("aws() {")


def test_send_invoke_and_status_work_on_the_deployed_stack(aws, tmp_path):
    file = tmp_path / "orders.jsonl"
    file.write_text(
        "".join(json.dumps(order_body(f"cli-{n}", {"e2e": 1})) + "\n" for n in range(25))
    )
    assert "25 messages sent" in cli("send", str(file)).stdout
    table = tmp_path / "orders.csv"
    rows = "csv-1,u-1,85123A,2\ncsv-1,u-1,71053,1\ncsv-2,u-1,BANK CHARGES,1\n"
    table.write_text(f"orderId,userId,productId,quantity\n{rows}")
    refused = cli("send", str(table), check=False).stderr
    assert "column productId" in refused
    assert "line 4: productId" in refused
    sent = cli("send", str(table), "--queue", "fifo", "--unchecked").stdout
    assert "2 messages sent" in sent
    doubled = cli("send", str(file), "--duplicates", "100", "--limit", "5", "--rate", "500").stdout
    assert "10 messages sent" in doubled
    wait_until_settled(aws)
    rows = read_books(aws).orders
    assert sum(key.startswith("cli-") for key in rows) == 25
    assert rows["csv-1"]["reason"] == "UNKNOWN_PRODUCT"
    assert "SCHEMA_VIOLATION" in cli("status").stdout

    answer = cli("invoke", "place_orders", "events/place_orders.json")
    assert json.loads(answer.stdout) == {"batchItemFailures": []}
    assert "batch done" in answer.stderr
