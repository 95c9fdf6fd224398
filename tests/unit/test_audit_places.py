"""The audit explains a product's stock by location, and finds contradictions between locations."""

import json

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import Outcome
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from local.commands import main
from operations import audit
from operations.commands import books
from testing.schedules.in_turn.lanes import LaneShop, lend
from tests.support.explained import explained

BERLIN, LYON = "tea#berlin", "tea#lyon"


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        shop.list("tea", 10)
        shop.list(BERLIN, 20)
        shop.list(LYON, 12)
        shop.list("cup", 5)
        shop.list("cup#lyon", 5)
        yield shop


def do(shop, *changes):
    assert set(shop.do(*changes)) == {Outcome.APPLIED}


def step(shop, action, restock=None, **quantities):
    """Change some units of an order."""
    step_id = f"{action}-{restock}"
    do(shop, OrderCommand("o-1", action, step_id=step_id, quantities=quantities, restock=restock))


def transfer(shop, transfer_id="t-1", source=BERLIN, target=LYON, units=4):
    do(shop, Transfer(source, target, transfer_id, units))


def accounts(shop):
    """Audit the shop, and return the accounts of existing rows by key."""
    found = audit.read_books(shop.stack).accounts
    return {account.product_id: account for account in found if account.version}


def numbers(shop):
    return {
        key: (account.on_hand, account.committed, account.available)
        for key, account in accounts(shop).items()
    }


def problems(shop):
    """Return the audit's findings by key, after checking that all other products balance."""
    found = audit.read_books(shop.stack).accounts
    assert all(account.settled for account in found)
    assert [a.product_id for a in found if a.differences != (0, 0, 0)] == []
    return {a.product_id: list(a.problems) for a in found if a.problems}


def edit(shop, key, **attributes):
    shop.edit(Table.PRODUCTS, key, **attributes)


def forget(shop, key, *names):
    """Remove these attributes of a row, or the whole row if no attributes are given."""
    rows = shop.items(Table.PRODUCTS)
    row = rows.pop((key,))
    if names:
        rows[key,] = {name: value for name, value in row.items() if name not in names}


# ---------------------------------------------------------------- the three equations


def test_each_location_has_books_of_its_own(shop):
    split = {"locations": ("berlin", "lyon", ""), "split": True}
    do(shop, Order("o-1", "u", {"tea": 15, "cup": 4}, **split))
    do(shop, Order("o-2", "u", {"tea": 7, "cup": 1}, locations=("lyon", "")))
    do(shop, Order("o-3", "u", {"tea": 3}, asked_locations={"tea": "berlin"}))
    do(shop, Order("o-4", "u", {"tea": 2}))
    for number in (1, 2):
        do(shop, OrderCommand(f"o-{number}", OrderAction.CONFIRM))
    step(shop, OrderAction.FULFIL, tea=6, cup=1)
    step(shop, OrderAction.CANCEL, tea=1)
    step(shop, OrderAction.CANCEL, restock=False, tea=2)
    step(shop, OrderAction.RETURN, restock=True, tea=5)
    do(shop, OrderCommand("o-2", OrderAction.FULFIL))
    do(shop, Adjustment(LYON, "r-1", 8, "RECEIPT"))
    transfer(shop)
    assert problems(shop) == {}
    assert numbers(shop) == {
        "tea": (10, 2, 8),
        BERLIN: (20 - 6 - 2 + 5 - 4, 15 - 6 - 1 - 2 + 3, 4),
        LYON: (12 - 7 + 8 + 4, 0, 17),
        "cup": (5, 0, 5),
        "cup#lyon": (5 - 1 - 1, 3, 0),
    }
    for account in accounts(shop).values():
        _, entries = explained(shop.stack, account.product_id)
        last = entries[-1]
        assert (last.on_hand, last.available) == (account.on_hand, account.available)


@pytest.mark.parametrize("attribute", ["stockCount", "onHand"])
def test_a_unit_missing_at_one_location_is_missing_only_there(shop, attribute):
    do(shop, Order("o-1", "u", {"tea": 2}, locations=("berlin",)))
    edit(shop, BERLIN, **{attribute: {"N": "16"}})
    wrong = {key: a.unexplained for key, a in accounts(shop).items() if a.unexplained}
    assert list(wrong) == [BERLIN]


def test_the_history_of_a_product_is_of_its_own_row_only(shop):
    edit(shop, "tea", stockCount={"N": "9"})
    account, _ = explained(shop.stack, "tea")
    assert (account.product_id, account.unexplained["available"]) == ("tea", -1)


def test_a_problem_of_a_line_is_reported_for_its_location(shop):
    do(shop, Order("o-1", "u", {"tea": 2}, locations=("berlin",)))
    do(shop, OrderCommand("o-1", OrderAction.CANCEL))
    shop.write(Table.ORDERS, shop.order_row("o-1") | {"status": "REJECTED"})
    assert problems(shop) == {BERLIN: ["order o-1 (REJECTED) took units of it, but is rejected"]}
    line = shop.order_row("o-1")["items"][0] | {"locationId": 5}
    shop.write(Table.ORDERS, shop.order_row("o-1") | {"items": [line]})
    assert list(audit.read_books(shop.stack).corrupt_rows) == ["Orders o-1"]


# ---------------------------------------------------------------- places and their rows


def test_a_location_without_a_row_is_found(shop):
    edit(shop, "tea", places={"SS": ["berlin", "lyon", "rome"]})
    said = "places of its row tea lists rome, but there is no row tea#rome"
    assert problems(shop) == {"tea": [said]}


def test_a_row_that_its_product_does_not_list_is_found(shop):
    edit(shop, "tea", places={"SS": ["berlin"]})
    said = f"there is a row {LYON}, but places of the row tea does not list it"
    assert problems(shop) == {LYON: [said]}
    forget(shop, "tea", "places")
    assert problems(shop).keys() == {BERLIN, LYON}


def test_a_row_whose_product_has_none_of_its_own_is_found(shop):
    shop.edit(Table.PRODUCTS, "cup", places={"SS": ["lyon"]})
    forget(shop, "cup")
    found = audit.read_books(shop.stack).accounts
    said = {a.product_id: a.problems for a in found if a.problems}
    assert said == {"cup#lyon": ("there is a row cup#lyon, but no row cup",)}


def test_no_conclusion_is_drawn_from_an_unreadable_row(shop):
    edit(shop, "tea", stockCount={"S": "?"})
    edit(shop, "cup#lyon", stockCount={"S": "?"})
    read = audit.read_books(shop.stack)
    assert [account.product_id for account in read.accounts if account.problems] == []
    assert list(read.corrupt_rows) == ["Products tea", "Products cup#lyon"]


@pytest.mark.parametrize(
    ("key", "attributes", "said"),
    [
        (BERLIN, {"of": "cup"}, "has of cup and locationId berlin: it must have of tea and locati"),
        (
            "cup",
            {"of": "cup"},
            "has of cup and no locationId: it must have no of and no locationId",
        ),
        (BERLIN, {}, "has no of and no locationId: it must have of tea and locationId berlin"),
    ],
)
def test_a_row_that_contradicts_its_key_is_found(shop, key, attributes, said):
    if not attributes:
        forget(shop, key, "of", "locationId")
    edit(shop, key, **{name: {"S": value} for name, value in attributes.items()})
    (found,) = problems(shop).pop(key)
    assert found.startswith(f"its row {key} {said}")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_location_listed_or_delisted_during_the_read_is_not_a_problem(shop, moment):
    reads = []

    def act():
        if moment == "before":
            shop.list("tea#rome", 3)
        else:
            shop.delist(LYON)

    def between(operation, request):
        """Read the product's row either before or after the location's row."""
        if operation == "Scan" and request["TableName"] == "Products" and not reads:
            shop.calm()
            reads.append(operation)
            answer = shop.aws.answer("dynamodb", operation, request)
            rows = {item["productId"]["S"]: item for item in answer["Items"]}
            act()
            later = {item["productId"]["S"]: item for item in shop.items(Table.PRODUCTS).values()}
            mixed = later | {"tea": rows["tea"]}
            return {**answer, "Items": list(mixed.values())}
        return None

    shop.before = between
    assert problems(shop) == {}
    assert reads


# ---------------------------------------------------------------- transfers


def half(shop, key, transfer_id="t-1"):
    return shop.items(Table.STOCK_ADJUSTMENTS)[key, transfer_id]


def move(shop, key, units, version=2):
    """Add a number to a row's units, so that they equal the sum of the row's adjustments."""
    row = decode(shop.row(key))
    count = {"N": str(row["stockCount"] + units)}
    edit(shop, key, stockCount=count, onHand=count, _version={"N": str(version)})


def test_a_transfer_is_complete_even_if_a_location_is_delisted_later(shop):
    transfer(shop)
    transfer(shop, "t-2", "tea", BERLIN)
    transfer(shop, "t-3", LYON, "tea")
    assert problems(shop) == {}
    shop.delist(LYON)
    assert problems(shop) == {}
    assert explained(shop.stack, BERLIN)[0].balances


@pytest.mark.parametrize(
    ("lost", "left", "units"), [(LYON, BERLIN, -4), (BERLIN, LYON, 4)], ids=["in", "out"]
)
def test_half_a_transfer_is_found(shop, lost, left, units):
    transfer(shop)
    del shop.items(Table.STOCK_ADJUSTMENTS)[lost, "t-1"]
    move(shop, lost, units)
    said = f"transfer t-1 has no row under {lost}, its other side"
    assert problems(shop) == {left: [said]}


@pytest.mark.parametrize("attribute", ["delta", "reason", "transferWith"])
def test_mismatched_sides_of_a_transfer_are_found(shop, attribute):
    transfer(shop)
    side = half(shop, LYON)
    if attribute == "delta":
        side["delta"] = {"N": "3"}
        move(shop, LYON, -1)
    elif attribute == "reason":
        side["reason"] = {"S": "RECEIPT"}
    else:
        del side["transferWith"]
    found = problems(shop)
    assert found[BERLIN] == [f"transfer t-1 does not match its row under {LYON}, its other side"]
    assert (LYON in found) is (attribute != "transferWith")


def test_a_side_that_names_no_key_is_named_and_left_out(shop):
    transfer(shop)
    half(shop, LYON)["transferWith"] = {"N": "1"}
    assert list(audit.read_books(shop.stack).corrupt_rows) == [f"StockAdjustments {LYON}/t-1"]


def test_a_transfer_during_the_read_of_adjustments_is_not_a_problem(shop):
    rows = []

    def between(operation, request):
        if operation == "Scan" and request["TableName"] == "StockAdjustments" and not rows:
            shop.calm()
            transfer(shop)
            rows.append(shop.aws.answer("dynamodb", operation, request))
            rows[0]["Items"] = [i for i in rows[0]["Items"] if i["productId"]["S"] != LYON]
            return rows[0]
        return None

    shop.before = between
    found = audit.read_books(shop.stack).accounts
    assert rows
    assert all(account.balances for account in found), found


# ---------------------------------------------------------------- the commands


@pytest.fixture
def command(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(books, "aws_of", lambda *_: shop.stack)
    return lambda *arguments: CliRunner().invoke(main.app, arguments)


def test_the_command_prints_product_and_location_instead_of_keys(shop, command):
    transfer(shop, "t-1", "tea", BERLIN)
    transfer(shop, "t-2", BERLIN, "tea")
    done = command("audit")
    assert done.exit_code == 0
    assert "2 products (0 of them delisted) and 3 rows of other locations with 52 on" in done.stdout
    found = json.loads(command("audit", "tea", "--json").stdout)
    named = [(one["productId"], one.get("locationId")) for one in found["products"]]
    assert named == [("tea", None), ("tea", "berlin"), ("tea", "lyon")]
    shown = command("audit", "tea").stdout
    assert "Why does tea (since" in shown
    assert "Why does tea at berlin (since" in shown
    assert "TRANSFER_OUT t-1 to berlin" in shown
    assert "TRANSFER_IN t-2 from berlin" in shown
    assert "TRANSFER_IN t-1 from (default)" in shown
    assert "#" not in done.stdout + shown + json.dumps(found)


def test_the_command_can_report_a_single_location(shop, command):
    edit(shop, BERLIN, stockCount={"N": "19"})
    done = command("audit", "tea")
    assert done.exit_code == 1
    assert "tea at berlin has 19 available, but its adjustments and orders say 20" in done.stdout
    assert command("audit", "tea", "--location", "").exit_code == 0
    assert command("audit", "--location", "lyon").exit_code == 0
    shown = command("audit", "--location", "berlin")
    assert (shown.exit_code, "tea at berlin" in shown.stdout) == (1, True)
    error = command("audit", "tea", "--location", "rome").exception
    assert str(error) == ("there is no product tea at rome, and no order or adjustment names it")
    error = command("audit", "--location", "rome").exception
    assert str(error) == "there is no stock at rome, and no order or adjustment names it"


def test_lanes_of_a_location_are_shown(shop, command):
    shop.list("pot", 50)
    shop.list("pot#lyon", 100)
    lend(shop.store, "pot#lyon", 10, {1: 20})
    assert command("lanes", "pot").stdout.endswith("50 available.\n")
    shown = command("lanes", "pot", "--location", "lyon").stdout
    assert "lane 1" in shown
    assert shown.endswith("100 available.\n")
    found = json.loads(command("lanes", "pot", "--location", "lyon", "--json").stdout)
    assert (found["productId"], found["locationId"], found["available"]) == ("pot", "lyon", 100)
    error = command("lanes", "pot", "--location", "rome").exception
    assert str(error) == "there is no product pot at rome, and no lane holds units of it"
    assert command("lanes", "--location", "lyon").exit_code == 2
