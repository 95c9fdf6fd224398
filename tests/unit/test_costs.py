"""docs/costs.md: its tables are what bench/costs.py computes, and units and log are what the handler consumes and writes."""

import math
import re
import sys
from uuid import UUID

import boto3
import pytest

from bench import costs
from bench.capacity import Call, Exchange, item_size
from inventory_orders.invocation import runtime
from local import ROOT
from local.invoke import FakeContext, load_handler
from local.sample_orders import catalogue
from tests.support.messages import order_body, sqs_event

PAGE = (ROOT / "docs" / "costs.md").read_text("utf-8")
TEAS = [product.product_id for product in catalogue()]


def test_the_tables_are_what_the_prices_say():
    assert costs.updated(PAGE) == PAGE, "run .venv/bin/python -m bench.costs"
    assert all(table in PAGE for table in costs.tables())


def orders_of(kind):
    sold_out = kind.updates == 0
    for number in range(kind.batch):
        # A hot product is the same for all; otherwise no two orders share one.
        first = 0 if kind.reads == 1 else number * kind.lines
        wanted = TEAS[first : first + kind.lines]
        yield order_body(f"cost-{number}", dict.fromkeys(wanted, 1_000_000 if sold_out else 1))


@pytest.mark.parametrize("kind", costs.KINDS, ids=lambda kind: kind.title)
def test_each_kind_takes_these_units_and_this_log_of_the_handler(kind, moto_environment, capsys):
    handler = load_handler("place_orders")
    handler.logger.registered_handler.stream = sys.stdout
    client = runtime.store()._client
    asked, used = [], []

    def before(params, **_):
        asked.append(params)

    def after(http_response, **_):
        request = asked[-1]
        exchange = Exchange(
            request["headers"]["X-Amz-Target"],
            request["body"],
            http_response.status_code,
            http_response.content,
            0.0,
            0.1,
        )
        used.append(Call(exchange, "Products", "Orders").usage)

    client.meta.events.register_first("before-call.dynamodb", before, unique_id="asked")
    client.meta.events.register_first("after-call.dynamodb", after, unique_id="used")
    event = sqs_event(*orders_of(kind))
    for number, record in enumerate(event["Records"]):
        # As long as SQS's own, which the log quotes.
        record["messageId"] = str(UUID(int=number))
    capsys.readouterr()
    try:
        answer = handler.lambda_handler(event, FakeContext("place_orders"))
    finally:
        client.meta.events.unregister("before-call.dynamodb", unique_id="asked")
        client.meta.events.unregister("after-call.dynamodb", unique_id="used")
    assert answer == {"batchItemFailures": []}
    assert len(capsys.readouterr().out) == pytest.approx(kind.log_bytes, rel=0.15)
    assert sum(one.write + one.index for one in used) == pytest.approx(
        kind.write_units * kind.batch
    )
    assert sum(one.read for one in used) == pytest.approx(kind.read_units * kind.batch)
    row = boto3.client("dynamodb").get_item(TableName="Orders", Key={"orderId": {"S": "cost-0"}})
    assert math.ceil(item_size(row["Item"]) / 1024) == kind.row_kilobytes


def test_what_a_kept_order_costs():
    (said,) = re.findall(r"\$(\d+\.\d\d) a month for each million orders kept", PAGE)
    assert float(said) == round(costs.storage_dollars(260, 90), 2)


def test_what_a_million_events_cost():
    alone, ten = re.search(
        r"million \[events\]\(\S+\) cost \$(\S+) if each comes alone, and \$(\S+) if ten", PAGE
    ).groups()
    assert float(alone) == round(costs.announcing_dollars(10**6, 1), 2)
    assert float(ten) == round(costs.announcing_dollars(10**6, 10), 2)
