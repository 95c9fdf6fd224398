"""Exported tables: AWS accepts the requests for exports, and the reports read real rows."""

import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.order import Order
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.rows import encode
from inventory_orders.store.tables import Table
from local.commands import main
from local.commands.embedded import ThisCheckout
from operations import export
from operations.aws import Aws
from operations.commands import reports
from operations.errors import UserError
from testing.schedules.in_turn.shop import open_shop
from testing.world.clock import ManualClock, virtual_time

DAY = 86_400
STACK = "arn:aws:cloudformation:eu-west-1:123456789012:stack/InventoryOrders-prod/4f1d"
OWN_BUCKET = "inventory-orders-exports-123456789012-eu-west-1"
MOMENT = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)

# ---------------------------------------------------------------------- the requests


@pytest.fixture
def account(monkeypatch):
    """Fake an account with DynamoDB and S3. botocore checks each request against AWS's model."""
    dynamodb, s3 = (boto3.client(name, region_name="eu-west-1") for name in ("dynamodb", "s3"))
    session = SimpleNamespace(client=lambda _, **__: s3)
    outputs = {f"{table.value}TableName": f"{table.value}-1" for table in Table}
    outputs["EventBusName"] = "InventoryOrders-prod"
    aws = Aws(outputs, session, dynamodb, None, None, None, STACK)
    monkeypatch.setattr(reports, "aws_of", lambda _: aws)
    with Stubber(dynamodb) as tables, Stubber(s3) as buckets:
        yield SimpleNamespace(aws=aws, tables=tables, buckets=buckets)
        tables.assert_no_pending_responses()
        buckets.assert_no_pending_responses()


def recovery(moment):
    status = {"PointInTimeRecoveryStatus": "ENABLED", "LatestRestorableDateTime": moment}
    return {
        "ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": status if moment else {},
        }
    }


def arn_of(table):
    return f"arn:aws:dynamodb:eu-west-1:123456789012:table/{table.value}-1/export/01-{table.value}"


def expect_exports(account, bucket):
    for minute, table in enumerate(export.REPORTED):
        answer = recovery(MOMENT.replace(minute=30 + minute))
        name = {"TableName": f"{table.value}-1"}
        account.tables.add_response("describe_continuous_backups", answer, name)
    for table in export.REPORTED:
        account.tables.add_response(
            "export_table_to_point_in_time",
            {"ExportDescription": {"ExportArn": arn_of(table)}},
            {
                "TableArn": arn_of(table).split("/export")[0],
                "ExportTime": MOMENT,
                "S3Bucket": bucket,
                "S3Prefix": f"InventoryOrders-prod/{table.value}",
                "ExportFormat": "DYNAMODB_JSON",
            },
        )


def run(*options):
    return CliRunner().invoke(main.app, ["export", *options])


def test_all_tables_are_exported_as_of_the_same_moment(account, monkeypatch, tmp_path):
    monkeypatch.setattr(ThisCheckout, "folder", tmp_path)
    for table in export.REPORTED:
        size = {"Table": {"ItemCount": 1000, "TableSizeBytes": 10**10}}
        account.tables.add_response("describe_table", size, {"TableName": f"{table.value}-1"})
    expect_exports(account, "reports-of-the-shop")
    done = run("--stage", "prod", "--bucket", "reports-of-the-shop")
    place = "s3://reports-of-the-shop/InventoryOrders-prod/Orders/AWSDynamoDB/01-Orders/data/"
    assert f"Orders: {place}\n" in done.stdout
    assert "Exporting about 3,000 rows: no read units, and $3.00." in done.stdout
    assert "--query 'ExportSummaries[].[ExportArn,ExportStatus]'" in done.stdout
    assert f"LOCATION '{place}';" in (tmp_path / "reports-prod.sql").read_text()


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_bucket_one_of_the_account_is_used(account, is_there):
    expect_exports(account, OWN_BUCKET)
    location = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    if is_there:
        account.buckets.add_client_error("create_bucket", "BucketAlreadyOwnedByYou")
    else:
        account.buckets.add_response("create_bucket", {}, {"Bucket": OWN_BUCKET} | location)
    (first, *_) = export.start(account.aws, None)
    assert first.place.startswith(f"s3://{OWN_BUCKET}/")


def test_a_bucket_of_another_account_is_refused(account):
    for table in export.REPORTED:
        name = {"TableName": f"{table.value}-1"}
        account.tables.add_response("describe_continuous_backups", recovery(MOMENT), name)
    account.buckets.add_client_error("create_bucket", "BucketAlreadyExists")
    with pytest.raises(UserError, match="BucketAlreadyExists"):
        export.start(account.aws, None)


def test_tables_without_recovery_are_not_exported(account):
    account.tables.add_response("describe_continuous_backups", recovery(None))
    with pytest.raises(UserError, match="Products-1 has no point-in-time recovery"):
        export.start(account.aws, "b")


def test_it_waits_for_all_exports_and_reports_failures(account):
    clock = ManualClock()
    exports = [export.Export(table, arn_of(table), "") for table in export.REPORTED[:2]]
    failed = {"ExportStatus": "FAILED", "FailureCode": "S3NoSuchBucket", "FailureMessage": "gone"}
    in_progress, completed = ({"ExportStatus": s} for s in ("IN_PROGRESS", "COMPLETED"))
    for answer in (in_progress, completed, failed):
        account.tables.add_response("describe_export", {"ExportDescription": answer})
    said = []
    with virtual_time(clock), pytest.raises(UserError, match=r"Orders .* S3NoSuchBucket: gone"):
        export.wait(account.aws, exports, said.append)
    assert said == ["Exporting Products"]


def test_the_embedded_aws_cannot_export():
    done = run()
    assert isinstance(done.exception, UserError)
    assert "--stage dev" in str(done.exception)


# ---------------------------------------------------------------------- the reports

SQL = export.reports(
    [export.Export(table, "", f"s3://{table.value}/") for table in Table], "my-shop"
)
STATEMENTS = [
    statement.strip() for statement in re.sub(r"--.*", "", SQL).split(";") if statement.strip()
]
QUERIES = dict(re.findall(r"-- Query: (.*?)[,:.] .*?\n\n(.*?);", SQL + "\n", flags=re.DOTALL))


SERDE = "org.apache.hive.hcatalog.data.JsonSerDe"


def columns_of(ddl):
    """Parse the type of `item` in a Hive statement: structs become dicts, arrays become lists."""
    ends = []

    def translated(token):
        if token[0] in ("struct<", "array<"):
            begin, end = "{}" if token[0] == "struct<" else "[]"
            ends.append(end)
            return begin
        return ends.pop() if token[0] == ">" else f'"{token[0]}"'

    item = ddl[ddl.index("struct<") : ddl.rindex(">") + 1]
    return json.loads(re.sub(r"struct<|array<|>|\w+", translated, item))


def type_of(columns):
    if isinstance(columns, dict):
        fields = ", ".join(f'"{name}" {type_of(inner)}' for name, inner in columns.items())
        return f"STRUCT({fields})"
    if isinstance(columns, list):
        return f"{type_of(columns[0])}[]"
    return "BOOLEAN" if columns == "boolean" else "VARCHAR"


def paths_of(columns, at=""):
    """Return the paths of all plain values in a type."""
    if isinstance(columns, dict):
        return {path for name, c in columns.items() for path in paths_of(c, f"{at}.{name}")}
    return paths_of(columns[0], at) if isinstance(columns, list) else {at}


def read_as(columns, value, at, seen):
    """Read an exported value as `SERDE` does: with names in lower case, and without undeclared fields."""
    if value is None:
        return None
    if isinstance(columns, dict):
        declared = [
            (name.lower(), inner) for name, inner in value.items() if name.lower() in columns
        ]
        found = dict(declared)
        assert len(found) == len(declared), f"{at} has the same name twice"
        return {
            name: read_as(inner, found.get(name), f"{at}.{name}", seen)
            for name, inner in columns.items()
        }
    if isinstance(columns, list):
        return [read_as(columns[0], inner, at, seen) for inner in value]
    assert isinstance(value, bool if columns == "boolean" else str)
    seen.add(at)
    return value


def step(action, at, restock=None, **items):
    """Make a step as an order's row stores it."""
    parts = [
        {"productId": product_id, "quantity": quantity}
        | ({"returnedVersion": 9} if is_back else {})
        for product_id, (quantity, is_back) in items.items()
    ]
    more = {} if restock is None else {"restock": restock}
    return {"action": action, "at": at} | ({"items": parts} if parts else {}) | more


def delist(tables, product_id):
    products = ProductCatalogue(RetryingClient(tables.store))
    products.delist(product_id, tables.product(product_id).created_at, tables.soon())


@pytest.fixture(scope="module")
def shop():
    """Make a shop with two days of orders, and a third day on which the rest of an order is shipped."""
    with open_shop() as tables:
        days = [timestamp(SystemClock().now())]
        for product_id, stock in (
            ("tea", 100),
            ("=mug", 50),
            ("pot", 1),
            ("cup", 9),
            ("vase", 3),
            ("verify-1", 5),
        ):
            tables.list(product_id, stock, name=product_id.title())
        tables.list("vase#-b", 8)
        worker, orders = tables.worker(), tables.aws.dynamodb.tables["Orders"].items

        def place(order_id, locations=None, **items):
            attributes = {"Channel": "web", "channel": "w-7"}
            order = Order(order_id, "u", items, attributes=attributes, locations=locations)
            tables.commit(worker, order)

        def change(order_id, status, *steps, **more):
            orders[order_id,] |= encode({"status": status, "steps": list(steps)} | more)

        place("o-1", **{"tea": 10, "=mug": 5})
        place("o-2", pot=2)
        place("o-7", cup=4)
        short = {"productId": "pot", "wanted": 2, "available": 1}
        change("o-2", "REJECTED", shortages=[short])
        tables.clock.sleep(DAY)
        days.append(timestamp(SystemClock().now()))
        days.append("9998-12-31")
        place("o-3", tea=7)
        place("o-4", tea=1)
        place("o-5", **{"-nothing": 3})
        place("o-6", tea=3)
        place("o-8", ("-b", ""), vase=5)
        place("o-9", ("", "-b"), vase=9)
        place("verify-1-sold", **{"verify-1": 1})
        place("verify-1-none", nothing=1)
        tables.commit(worker, Adjustment("tea", "r-1", 20, "RECEIPT"))
        tables.commit(worker, Transfer("vase#-b", "vase", "t-1", 1))
        change(
            "o-1",
            "FULFILLED",
            step("confirm", days[1]),
            step("cancel", days[1], **{"=mug": (2, True)}),
            step("fulfil", days[1], tea=(4, False)),
            step("fulfil", days[2]),
            step("return", days[1], restock=True, tea=(4, True)),
            step("return", days[1], restock=False, **{"=mug": (1, False)}),
            confirmedAt=days[1],
            fulfilledAt=days[2],
        )
        lost = step("cancel", days[1], restock=False, tea=(1, False))
        change("o-3", "PENDING", step("fulfil", days[1], tea=(3, False)), lost)
        back = step("cancel", days[1], vase=(1, True))
        change("o-8", "PENDING", back, step("fulfil", days[1], vase=(2, False)))
        # Its product has been delisted by the time it is handed over.
        delist(tables, "cup")
        change("o-7", "CONFIRMED", step("fulfil", days[1], cup=(4, False)))
        change("o-4", "CANCELLED", step("cancel", days[1], tea=(1, True)))
        change(
            "o-6",
            "FULFILLED",
            step("fulfil", days[1], tea=(2, False)),
            step("cancel", days[2], tea=(1, True)),
            fulfilledAt=days[2],
        )
        tables.days = days
        yield tables


@pytest.fixture(scope="module")
def athena(shop):
    """Return a database with the tables and views, and the paths of columns that no row has."""
    import duckdb  # importing it here saves time in other processes

    engine, missing = duckdb.connect(), set()
    for statement in STATEMENTS:
        created = re.match(r"CREATE EXTERNAL TABLE ([\w.]+)", statement)
        if created is None:
            if "VIEW" in statement or "DATABASE" in statement:
                engine.execute(statement.replace("DATABASE", "SCHEMA"))
            continue
        name, columns, seen = created[1], columns_of(statement), set()
        table = re.search(r"LOCATION 's3://(\w+)/'", statement)[1]
        engine.execute(f"CREATE TABLE {name} (item {type_of(columns)})")
        for item in shop.aws.dynamodb.tables[table].items.values():
            engine.execute(f"INSERT INTO {name} VALUES (?)", [read_as(columns, item, "", seen)])
        missing |= {f"{table}{path}" for path in paths_of(columns) - seen}
    return engine, missing


def test_rows_have_all_columns_of_the_tables(athena):
    assert athena[1] == set()
    assert len(QUERIES) == 6


def test_attributes_of_an_order_may_differ_in_case_alone(shop):
    row = shop.aws.dynamodb.tables["Orders"].items["o-1",]
    assert row["attributes"]["M"].keys() == {"Channel", "channel"}
    assert re.findall(r"ROW FORMAT SERDE '(.*)'\n", SQL) == [SERDE] * len(export.REPORTED)


def answer(athena, title, dates=None):
    query = QUERIES[title]
    for date, other in (dates or {}).items():
        assert date in query
        query = query.replace(date, other)
    return athena[0].execute(query).fetchall()


def test_tables_of_other_stages_and_programs_are_kept(athena):
    """Every statement must name the database, or its tables would not be found."""
    schemas = "SELECT DISTINCT table_schema FROM information_schema.tables"
    assert athena[0].execute(schemas).fetchall() == [("inventory_orders_my_shop",)]
    dropped = re.findall(r"DROP TABLE IF EXISTS (\w+)\.", SQL)
    assert dropped == ["inventory_orders_my_shop"] * SQL.count("DROP")


def test_sales_by_day(shop, athena):
    first, second, _ = (day[:10] for day in shop.days)
    found = answer(athena, "sales by day")
    assert found == [(first, 2, 1, 13 + 4), (second, 3, 0, 7 - 1 + 2 + 4)]


def test_best_sellers(shop, athena):
    first, second, _ = shop.days
    title = "best sellers of a month"
    dates = {"2026-11-01": first[:10], "2026-12-01": "9999"}
    tea, cup, vase, mug = answer(athena, title, dates)
    assert vase == ("vase", "Vase", 1, 4)
    assert (tea, mug) == (("tea", "Tea", 3, 18), ("'=mug", "'=Mug", 1, 3))
    assert (cup[0], *cup[2:]) == ("cup", 1, 4)
    dates = {"2026-11-01": second[:10], "2026-12-01": "9999"}
    assert answer(athena, title, dates) == [("tea", "Tea", 2, 8), vase]


def test_stock_at_a_date(shop, athena):
    """The report shows the units on hand, committed and available."""
    dates = {"2026-12-01": shop.days[1]}
    assert answer(athena, "stock at a date", dates) == [
        *[("'=mug", "", 50, 5, 45), ("cup", "", 9, 4, 5), ("pot", "", 1, 0, 1)],
        *[("tea", "", 100, 10, 90), ("vase", "", 3, 0, 3), ("vase", "'-b", 8, 0, 8)],
    ]
    dates = {"2026-12-01": "9999"}
    on_hand = 100 + 20 - 10 - 3 - 1 - 2 + 4
    available = 90 - 7 - 1 - 3 + 20 + 4 + 1 + 1
    assert answer(athena, "stock at a date", dates) == [
        *[("'=mug", "", 50 - 3, 0, 45 + 2), ("cup", "", 0, 0, 0), ("pot", "", 1, 0, 1)],
        ("tea", "", on_hand, 7 - 3 - 1, available),
        *[("vase", "", 4, 0, 4), ("vase", "'-b", 8 - 2 - 1, 5 - 1 - 2, 8 - 5 + 1 - 1)],
    ]


def test_rejections_by_product(athena):
    assert answer(athena, "rejections by product") == [
        ("'-nothing", "UNKNOWN_PRODUCT", 1, 3),
        ("pot", "INSUFFICIENT_STOCK", 1, 2),
        ("vase", "INSUFFICIENT_STOCK", 1, 9),
    ]


def test_shipped_by_day(shop, athena):
    second, third = shop.days[1][:10], shop.days[2][:10]
    # o-1 was shipped in two parts, o-3 only in part, and o-6 in part before the rest was cancelled.
    assert answer(athena, "shipped by day") == [
        (second, 1, 4 + 3 + 2 + 4 + 2),
        (third, 1, 10 + 5 - 2 - 4),
    ]


def test_returns(athena):
    assert answer(athena, "returns by product") == [("tea", 1, 4, 4), ("'=mug", 1, 1, 0)]
