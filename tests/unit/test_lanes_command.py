"""The command `lanes`, which shows and empties lanes, on tables in memory."""

import json

import pytest
from typer.testing import CliRunner

from inventory_orders.clock import SystemClock
from inventory_orders.domain.allotments import DEPOT, LaneLease, PageKey
from inventory_orders.errors import ThrottledError
from inventory_orders.store.lane_leases import lease_lane
from local.commands import main
from operations import lanes as lanes_of_stack
from operations.commands import books
from operations.errors import UserError
from testing.schedules.in_turn.lanes import lend


@pytest.fixture
def shop(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(books, "aws_of", lambda stage, console: shop.stack)
    return shop


def lanes(*arguments, **more):
    return CliRunner().invoke(main.app, ["lanes", *arguments], **more)


def words(done):
    return [line.split() for line in done.stdout.splitlines()]


def lend_two(shop):
    for product_id in ("tea", "mug"):
        shop.list(product_id, 1000)
        lend(shop.store, product_id, 60, {1: 20, 9: 30})


def entries(shop):
    pages = lanes_of_stack.read_pages(shop.stack).by_name.values()
    return {page.key.lane: dict(page.entries) for page in pages if page.entries}


def test_it_shows_the_owners_and_contents_of_lanes(shop):
    assert lanes().stdout == "No lane has ever been used.\n"
    lend_two(shop)
    now = SystemClock().now()
    lease_lane(shop.store, LaneLease(1, "lane-0123456789abcdef", now.timestamp() + 40), now)
    lease_lane(shop.store, LaneLease(9, "gone", now.timestamp() - 1), now)
    lease_lane(shop.store, LaneLease(3, "new", now.timestamp() + 40), now)
    heading, depot, first, third, ninth = words(lanes())
    assert heading == ["lane", "in", "use", "by", "for", "another", "products", "units", "written"]
    assert depot[:5] == ["the", "depot", "-", "2", "120"]
    assert first[:4] == ["lane", "1", "lane-0123456789abcdef", "40"]
    assert first[5:7] == ["2", "40"]
    assert third == ["lane", "3", "new", "40", "s", "0", "0"]
    assert ninth[:5] == ["lane", "9", "-", "2", "60"]
    found = json.loads(lanes("--json").stdout)["lanes"]
    assert [(one["lane"], one["worker"], one["units"]) for one in found] == [
        *((0, None, 120), (1, "lane-0123456789abcdef", 40)),
        *((3, "new", 0), (9, None, 60)),
    ]
    assert [one["leaseSeconds"] > 0 for one in found] == [False, True, True, False]


def test_with_a_product_it_shows_where_its_units_are(shop):
    lend_two(shop)
    # The test must not depend on the screen's width.
    shown = " ".join(lanes("tea").stdout.split())
    page = PageKey.of(DEPOT, "tea").number
    assert "its row 890 ACTIVE, lanes that may hold more: the depot, lane 1, lane 2," in shown
    assert f"the depot 60 page 0/{page}, version 1, lanes up to 9 may be filled" in shown
    assert f"lane 1 20 page 1/{page}, version 1" in shown
    assert "lane 9 30 " in shown
    assert shown.endswith("1,000 available.")
    found = json.loads(lanes("tea", "--json").stdout)
    assert (found["available"], found["row"]["units"]) == (1000, 890)
    assert [place["units"] for place in found["pages"]] == [60, 20, 30]
    assert json.loads(lanes("--json").stdout)["corruptPages"] == {}
    assert isinstance(lanes("no-such-thing").exception, UserError)


def test_all_lanes_are_emptied_but_only_after_confirmation(shop):
    lend_two(shop)
    asked = lanes("--empty", input="n\n")
    assert "Reclaim 2 products from all lanes?" in asked.stdout
    assert asked.exit_code == 1
    assert len(entries(shop)) == 3
    done = lanes("--empty", "--yes")
    assert done.exit_code == 0
    assert "All lanes are empty: 2 products reclaimed" in done.stdout
    assert entries(shop) == {}
    assert [shop.stock("tea"), shop.stock("mug")] == [1000, 1000]
    assert all("lentTo" not in shop.row(product_id) for product_id in ("tea", "mug"))
    assert set(shop.unexplained().values()) == {0}
    assert lanes("--empty", "--yes").stdout == "All lanes are empty.\n"


def test_a_row_that_is_wrongly_marked_as_lent_is_corrected(shop):
    shop.list("pot", 50)
    lend(shop.store, "pot", 0, {})
    assert shop.row("pot")["lentTo"] == {"SS": ["0"]}
    assert lanes("--empty", "--yes").exit_code == 0
    assert "lentTo" not in shop.row("pot")


def test_more_products_than_one_visit_takes_are_reclaimed(shop, monkeypatch):
    monkeypatch.setattr(lanes_of_stack, "_RECLAIMED_TOGETHER", 3)
    many = [f"p{n:03}" for n in range(8)]
    for product_id in many:
        shop.list(product_id, 100)
        lend(shop.store, product_id, 5, {1: 5})
    done = lanes("--empty", "--yes")
    assert "8 products reclaimed" in done.stdout
    assert {shop.stock(product_id) for product_id in many} == {100}


def test_products_that_dynamodb_left_out_of_an_answer_are_reclaimed_too(shop):
    lend_two(shop)

    def left_out(request):
        shop.calm()
        return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}

    shop.on("BatchGetItem", left_out, lambda request: "Products" in request["RequestItems"])
    assert lanes("--empty", "--yes").exit_code == 0
    assert [shop.stock("tea"), shop.stock("mug")] == [1000, 1000]


def test_a_corrupt_page_is_named_and_the_others_are_emptied(shop):
    lend_two(shop)
    page = str(PageKey.of(1, "tea"))
    assert page != str(PageKey.of(1, "mug")), "if they shared a page, both products would be lost"
    shop.aws.dynamodb.tables["Allotments"].items[page,]["units"] = {"B": "eA=="}
    shown = lanes()
    assert f"page {page} breaks the contract" in shown.stdout
    assert f"page {page} breaks the contract" in lanes("tea").stdout
    done = lanes("--empty", "--yes")
    assert done.exit_code == 1
    assert f"page {page} breaks the contract" in done.stdout
    assert "Still in lanes, or lent again: 1 product (tea)" in done.stdout
    assert [shop.stock("tea"), shop.stock("mug")] == [890, 1000]


def test_an_id_in_brackets_is_not_markup(shop):
    shop.list("[red]", 100)
    lend(shop.store, "[red]", 5, {1: 5})
    page = str(PageKey.of(1, "[red]"))
    shop.aws.dynamodb.tables["Allotments"].items[page,]["units"] = {"B": "eA=="}
    assert "1 product ([red])" in lanes("--empty", "--yes").stdout


def test_an_emptying_that_fails_can_be_run_again(shop, monkeypatch):
    lend_two(shop)

    def fail(*_, **__):
        raise ThrottledError("CONTENTION", "rivals")

    with monkeypatch.context() as broken:
        broken.setattr(lanes_of_stack, "reclaim", fail)
        error = lanes("--empty", "--yes").exception
    assert isinstance(error, UserError)
    assert "run the same command again" in str(error)
    assert lanes("--empty", "--yes").exit_code == 0


@pytest.mark.parametrize("other", ["--json", "tea"])
def test_an_emptying_lists_nothing_and_is_about_all_products(shop, other):
    assert lanes(other, "--empty").exit_code == 2
