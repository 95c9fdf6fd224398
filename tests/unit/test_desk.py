"""The desk without a browser: access, pages, changes and errors."""

import csv
import gzip
import io
import signal
import threading
from datetime import datetime
from unittest.mock import Mock
from urllib.parse import quote

import psutil
import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from infra.desk_files import desk_files
from inventory_orders.store.tables import Table
from local.commands import main, this_machine
from local.desk import work
from tests.support.desk import TEA, TOKEN, ask, desk_of_shop
from tests.support.movements import record_movements

PAGES = ("/", "/dashboard", "/try", "/contract")
OF_TEA = (f"product?id={TEA}", f"promised?id={TEA}", f"history?id={TEA}")
READS = ("about", "products", *OF_TEA, "orders", "order?id=o-1")
LISTS = ("today", "search?text=x", "lanes", "shelf", "events", f"drop?id={TEA}")
RECEIPT = {
    "action": "adjust",
    "adjustmentId": "desk-1",
    "productId": TEA,
    "delta": 7,
    "reason": "RECEIPT",
    "reference": "dn-7",
}
ACTOR = f"desk:{psutil.Process().username()}"


@pytest.fixture
def desk():
    with desk_of_shop() as desk:
        yield desk


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Desk_Token": None},
        {"X_Desk_Token": "another"},
        {"Host": "attacker.example"},
        {"Host": "attacker.example", "Origin": "http://attacker.example"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_page_of_another_origin_reads_nothing_and_changes_nothing(desk, headers):
    letter = desk.dead_letter("StockDeadLetterQueueUrl", "{}", "BELOW_FLOOR")
    before = desk.shop.stock(TEA)
    delete = {"queue": "StockDeadLetterQueueUrl", "messageId": letter, "action": "delete"}
    requests = [("GET", f"/data/{path}", None) for path in (*READS, *LISTS)]
    requests.append(("GET", "/local/dead-letters", None))
    requests += [("GET", "/as/operator/orders/o-1", None), ("POST", "/as/operator/orders", {})]
    requests += [("POST", "/data/command", RECEIPT), ("POST", "/local/dead-letter", delete)]
    for method, path, body in requests:
        reply = ask(desk.origin, method, path, body, **headers)
        assert (reply.status, reply.said.count("\n")) == (403, 1), path
    assert desk.shop.stock(TEA) == before
    assert desk.shop.waiting("StockDeadLetter") == ["{}"]


def test_the_files_hold_no_secret_and_are_for_this_machine_only(desk):
    for path in (*PAGES, *(f"/{name}" for name in desk_files())):
        reply = ask(desk.origin, "GET", path, X_Desk_Token=None)
        assert reply.status == 200
        is_compressed = reply.headers.get("content-encoding") == "gzip"
        content = gzip.decompress(reply.body) if is_compressed else reply.body
        assert TOKEN.encode() not in content
        assert ask(desk.origin, "GET", path, Host="attacker.example").status == 403
    assert ask(desk.origin, "GET", "/../pyproject.toml").status == 404


def test_no_page_runs_scripts_of_others_and_the_contract_alone_shows_images(desk):
    policies = []
    for path in PAGES:
        headers = ask(desk.origin, "GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "Python" not in headers["server"]
        policies.append(headers["content-security-policy"])
    *others, of_contract = policies
    (policy,) = set(others)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "data:" not in policy
    assert of_contract == policy.replace("img-src 'self'", "img-src 'self' data:")


def test_on_an_account_there_is_nothing_of_the_embedded_aws():
    with desk_of_shop(is_embedded=False, is_production=True) as desk:
        about = desk.get("about")
        assert (about["embedded"], about["production"]) == (False, True)
        assert "stack InventoryOrders-shop" in about["place"]
        for path in ("/try", "/dashboard", "/data/shelf", "/as/operator/orders/o"):
            assert ask(desk.origin, "GET", path).status == 404
        assert desk.post("command", RECEIPT)["done"]


def test_the_command_serves_an_account_until_ctrl_c_under_a_secret_address(desk, monkeypatch):
    addresses = []

    def interrupt(address, *_, **__):
        addresses.append(address)
        origin, token = address.split("/#token=")
        assert ask(origin, "GET", "/data/about").status == 403, (
            "a request without the token is refused"
        )
        assert ask(origin, "GET", "/data/about", X_Desk_Token=token).status == 200
        raise KeyboardInterrupt

    monkeypatch.setattr(this_machine, "aws_of", lambda stage, console: desk.aws)
    monkeypatch.setattr(this_machine, "_open", interrupt)
    handled = {}
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    before = set(threading.enumerate())
    for _ in range(2):
        done = CliRunner().invoke(main.app, ["desk", "--stage", "shop"], catch_exceptions=False)
        assert done.exit_code == 0
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive(), "the server still runs after Ctrl-C"
    first, second = (address.split("#token=")[1] for address in addresses)
    assert first != second
    assert len(first) >= 43, "the secret has 256 bits"
    # Otherwise the desk's queue and rule would remain on the account.
    assert handled == dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)


def test_a_receipt_is_booked_once_and_the_history_explains_the_stock(desk, monkeypatch):
    before = desk.shop.stock(TEA)
    answers = [desk.post("command", RECEIPT) for _ in range(2)]
    assert [(one["done"], one["result"]) for one in answers] == [
        (True, "APPLIED"),
        (True, "REPLAYED"),
    ]
    desk.place("o-1")
    shown = desk.get(f"product?id={TEA}")
    numbers = {name: shown[name] for name in ("onHand", "committed", "available")}
    assert numbers == {"onHand": before + 7, "committed": 3, "available": before + 4}
    record_movements(desk.shop)
    history = desk.get(f"history?id={TEA}")
    assert history["completeUntil"] >= history["entries"][0]["at"]
    order, receipt, opening = history["entries"]
    assert (order["action"], order["orderId"], order["delta"]) == ("place", "o-1", -3)
    assert (receipt["reason"], receipt["actor"], receipt["reference"]) == ("RECEIPT", ACTOR, "dn-7")
    assert (opening["reason"], opening["delta"], "actor" in opening) == ("OPENING", before, False)
    monkeypatch.setattr(work, "CHANGES_OF_A_PAGE", 2)
    first = desk.get(f"history?id={TEA}")
    rest = desk.get(f"history?id={TEA}&cursor={first['next']}")
    assert [first["entries"], rest["entries"]] == [[order, receipt], [opening]]
    assert "next" not in rest


def test_products_are_listed_page_by_page_and_those_that_are_out_come_first(desk, monkeypatch):
    monkeypatch.setattr(work, "PRODUCTS_OF_A_PAGE", 15)
    desk.command("ManageProducts", action="create", productId="zero", openingStock=0)
    desk.shop.calls.clear()
    found = [desk.get(f"products?pages={pages}") for pages in (1, 2, 3)]
    assert "Scan" not in desk.shop.calls
    assert [(len(one["products"]), one["isAll"]) for one in found] == [
        (15, False),
        (30, False),
        (41, True),
    ]
    assert found[0]["products"][0]["productId"] == "zero"


@pytest.mark.parametrize(
    ("query", "first", "more"),
    [
        ("user=auth0:anna", "21", "0"),
        ("status=PENDING", "01", "2"),
        ("status=CONFIRMED&location=", "3", "4"),
    ],
)
def test_a_list_of_orders_names_the_products_and_goes_on_page_by_page(
    desk, monkeypatch, query, first, more
):
    monkeypatch.setattr(work, "ORDERS_OF_A_PAGE", len(first))
    for number, seconds in enumerate((900, 300, 600)):
        desk.place(f"o-{number}", holdSeconds=seconds)
    for number in (3, 4):
        desk.sell(f"o-{number}", user="u-2")
    shown, both = desk.get(f"orders?{query}"), desk.get(f"orders?{query}&pages=2")
    ids = [[order["orderId"] for order in page["orders"]] for page in (shown, both)]
    assert ids == [[f"o-{each}" for each in numbers] for numbers in (first, first + more)]
    assert (shown["isAll"], both["isAll"], shown["unreadable"]) == (False, True, [])
    assert shown["names"] == desk.get("order?id=o-1")["names"] == {TEA: "Earl Grey"}
    assert desk.get("orders?status=CONFIRMED&location=berlin")["orders"] == []


def test_a_list_of_orders_is_saved_as_a_file(desk, monkeypatch):
    for number in range(3):
        desk.place(f"o-{number}")
    desk.command("ChangeOrders", action="cancel", orderId="o-0", actor="ann")
    desk.command("ChangeOrders", action="cancel", orderId="o-1", actor="ann")
    since = quote(desk.shop.order_row("o-1")["statusAt"])
    (found,) = desk.get(f"orders?status=CANCELLED&since={since}")["orders"]
    file = desk.get(f"orders.csv?status=CANCELLED&since={since}")
    (line,) = csv.DictReader(io.StringIO(file["csv"]))
    assert (line["orderId"], line["statusAt"]) == ("o-1", found["statusAt"])
    assert file["isAll"]
    monkeypatch.setattr(work, "ORDERS_OF_A_FILE", 1)
    file = desk.get("orders.csv?status=CANCELLED")
    assert (len(file["csv"].splitlines()), file["isAll"]) == (2, False)
    desk.shop.invoke("change_orders", {"action": "confirm", "orderId": "o-1"})
    assert [order["orderId"] for order in desk.get("orders?late")["orders"]] == ["o-1"]


def test_every_change_of_an_order_has_its_actor(desk):
    desk.place("o-1", (TEA, 2))
    part = {"stepId": "desk-2", "items": [{"productId": TEA, "quantity": 1}]}
    lost = {**part, "stepId": "desk-3", "restock": False}
    taken = part | {"stepId": "desk-4", "restock": True}
    actions = {"confirm": {}, "fulfil": part, "cancel": lost, "return": taken}
    for action, more in actions.items():
        assert desk.post("command", {"action": action, "orderId": "o-1", **more})["done"]
    again = desk.post("command", {"action": "confirm", "orderId": "o-1"})
    assert (again["done"], again["result"], again["status"]) == (True, "REPLAYED", "FULFILLED")
    steps = desk.get("order?id=o-1")["steps"]
    assert [(step["action"], step["actor"]) for step in steps] == [(one, ACTOR) for one in actions]


def test_a_count_that_was_left_open_is_shown(desk, monkeypatch):
    assert "count" not in desk.get(f"product?id={TEA}")
    monkeypatch.setattr("psutil.Process.username", lambda _: "SHOP\\jörg")
    acquire = {"action": "acquire", "productId": TEA, "seconds": 600, "outliveInvocation": True}
    with desk_of_shop() as other:
        assert other.post("command", acquire)["done"]
        count = other.get(f"product?id={TEA}")["count"]
        assert count["holder"] == "desk:SHOP-j-rg"
        begun = datetime.fromisoformat(count["since"]).timestamp()
        assert float(count["lease"]["expiresAt"]) == pytest.approx(begun + 600, abs=1)


def test_the_open_orders_of_a_product_are_counted_before_it_goes(desk, monkeypatch):
    nothing = {"units": 0, "isExact": True, "orders": 0, "ordersAreAll": True}
    assert desk.get(f"promised?id={TEA}") == nothing
    for number in range(4):
        desk.place(f"o-{number}")
    for action, order_id in (("confirm", "o-1"), ("fulfil", "o-1"), ("cancel", "o-2")):
        desk.post("command", {"action": action, "orderId": order_id})
    part = {"stepId": "s-1", "items": [{"productId": TEA, "quantity": 1}], "restock": False}
    desk.post("command", {"action": "cancel", "orderId": "o-3", **part})
    desk.place("o-4", ("tea-first-flush-drop", 1))
    desk.shop.edit(Table.ORDERS, "o-5", items={"L": [{"S": "no line"}]}, status={"S": "PENDING"})
    promised = {"units": 5, "isExact": True, "orders": 2, "ordersAreAll": True}
    desk.shop.calls.clear()
    assert desk.get(f"promised?id={TEA}") == promised
    assert "Scan" not in desk.shop.calls
    monkeypatch.setattr(work, "SECONDS_TO_COUNT_ORDERS", -1)
    at_least = desk.get(f"promised?id={TEA}")
    assert (at_least["units"], at_least["ordersAreAll"]) == (5, False)


# ---------------------------------------------------------------- several locations

BERLIN = {"productId": TEA, "locationId": "berlin"}


@pytest.fixture
def at_berlin(desk):
    """Make a desk whose tea also has 20 units in Berlin, with a low-stock threshold of 9."""
    opening = {"action": "create", **BERLIN, "openingStock": 20, "lowStockThreshold": 9}
    answer = desk.post("command", opening)
    assert answer["done"]
    assert "cannot buy" in answer["warnings"][0]
    return desk


def test_a_product_is_listed_once_with_its_total_and_its_places(at_berlin):
    desk, here = at_berlin, at_berlin.shop.stock(TEA)
    desk.place("o-1", {**BERLIN, "quantity": 2})
    change = {"action": "change", **BERLIN, "lowStockThreshold": 50}
    assert desk.post("command", change)["done"]
    out = {"action": "adjust", "adjustmentId": "t-1", "delta": -1, "reason": "TRANSFER_OUT"}
    out |= {"productId": TEA, "locationId": "", "reference": "van-7"}
    assert desk.post("command", out)["done"]
    here -= 1
    listed = desk.get("products")["products"]
    ids = [one["productId"] for one in listed]
    assert ids == sorted(set(ids)), "each product appears once, sorted by id"
    tea = listed[ids.index(TEA)]
    numbers = ("onHand", "committed", "available", "leftByDefault", "status", "name")
    shown = [here + 20, 2, here + 18, here, "ACTIVE", "Earl Grey"]
    assert [tea[name] for name in numbers] == shown
    at = [(one.get("locationId"), one["available"], one["status"]) for one in tea["places"]]
    assert at == [(None, here, "ACTIVE"), ("berlin", 18, "LOW_STOCK")]
    shown = desk.get(f"product?id={TEA}&location=berlin")
    assert (shown["onHand"], shown["committed"], shown["available"]) == (20, 2, 18)
    assert shown["total"] == tea | {"places": shown["total"]["places"], "isExact": True}
    at_home = desk.get(f"product?id={TEA}")
    assert at_home["available"] == here
    (lot,) = at_home["onTheWay"]
    assert (lot["reference"], lot["units"], lot["from"]) == ("van-7", 1, [""])
    del desk.shop.items(Table.PRODUCTS)[f"{TEA}#berlin",]
    reply = ask(desk.origin, "GET", f"/data/product?id={TEA}&location=berlin")
    assert (reply.status, reply.said) == (404, f"there is no product {TEA} at berlin\n")


def test_a_shop_without_places_sees_nothing_of_them(desk):
    shown = desk.get(f"product?id={TEA}")
    listed = {name for one in desk.get("products")["products"] for name in one}
    assert not {"locationId", "places", "total", "onTheWay"} & ({*shown} | listed)


def test_the_page_to_try_the_service_offers_a_product_once(desk):
    for where in ({}, {"locationId": "berlin"}):
        mug = {"action": "create", "productId": "mug", "openingStock": 5, **where}
        assert desk.post("command", mug)["done"]
    assert [one for one in desk.get("shelf") if "mug" in one] == ["mug"]


def test_what_ends_everywhere_counts_the_open_orders_of_all_locations(at_berlin):
    at_berlin.place("o-0")
    at_berlin.place("o-1", {**BERLIN, "quantity": 2})
    promised = {
        where: at_berlin.get(f"promised?id={TEA}&location={where}") for where in ("", "berlin")
    }
    assert [promised[""]["units"], promised["berlin"]["units"]] == [5, 2]
    assert [promised[""]["orders"], promised["berlin"]["orders"]] == [2, 1]


# ---------------------------------------------------------------- failures


def test_what_may_have_been_done_is_no_plain_failure(desk, monkeypatch):
    def failed(status):
        response = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        return ClientError(response, "X")

    died = {"FunctionError": "Unhandled", "Payload": io.BytesIO(b'{"errorMessage": "Timed out"}')}
    for came, status in ((died, 504), (failed(502), 504), (failed(429), 503)):
        monkeypatch.setattr(desk.aws.functions, "invoke", Mock(side_effect=[came]))
        assert ask(desk.origin, "POST", "/data/command", RECEIPT).status == status, came


def test_what_is_not_there_or_cannot_be_read_is_said_in_words(desk):
    for path in ("product?id=no", "promised?id=no", "history?id=no", "order?id=no"):
        reply = ask(desk.origin, "GET", f"/data/{path}")
        assert (reply.status, reply.said.endswith(" no\n")) == (404, True), reply.said
    expire = {"action": "expire", "orderId": "o-1"}
    assert ask(desk.origin, "POST", "/data/command", expire).status == 503
    del desk.aws.outputs["ProductsTableName"]
    reply = ask(desk.origin, "GET", "/data/products")
    assert (reply.status, reply.said) == (500, "KeyError: 'ProductsTableName'\n")


def test_a_product_is_listed_moved_and_taken_off_sale(desk):
    where = {"productId": "mug", "locationId": "berlin"}
    move = {"transferId": "t-1", "productId": "mug", "from": "", "to": "berlin", "quantity": 2}
    for command in (
        {"action": "create", "productId": "mug", "openingStock": 5},
        {"action": "create", **where, "openingStock": 0},
        {"action": "change", **where, "lowStockThreshold": 9, "backorderLimit": 2},
        {"action": "transfer", **move},
        {"action": "discontinue", **where},
        {"action": "listAgain", **where},
    ):
        assert desk.post("command", command)["done"], command
    shown = desk.get("product?id=mug&location=berlin")
    assert (shown["status"], shown["onHand"], shown["backorderLimit"]) == ("LOW_STOCK", 2, 2)
    entries = desk.get("history?id=mug&location=berlin")["entries"]
    assert [(one["delta"], one["actor"]) for one in entries if "actor" in one] == [(2, ACTOR)]
    delist = {"action": "delist", **where, "createdAt": shown["createdAt"]}
    assert desk.post("command", delist)["result"] == "APPLIED"
    assert ask(desk.origin, "GET", "/data/product?id=mug&location=berlin").status == 404
