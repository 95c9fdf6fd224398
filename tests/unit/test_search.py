"""The words by which a search finds products: which there are, how they are written, and what a search reads."""

import json
from itertools import chain

import pytest
from typer.testing import CliRunner

from inventory_orders.api import products
from inventory_orders.domain.product import CatalogueEvent, NewProduct
from inventory_orders.domain.words import words_of, words_to_find
from inventory_orders.errors import LeaseHeldError, ProductNotFoundError
from inventory_orders.store import lists
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from local.commands import main
from operations.commands import books
from operations.product_words import repair_words
from testing.schedules.in_turn.lanes import lend
from testing.schedules.in_turn.shop import Fault, open_shop

TEA, DECAF = "tea-earl-grey", "tea-earl-grey-decaf"
LONG = "One two three four five six seven eight nine"


def listed(shop, product_id="p"):
    """Return the words under which a product is listed. The id `p` is too short for a word."""
    rows = [decode(item) for item in shop.items(Table.WORDS).values()]
    found = {
        row["word"].partition("#")[0]: row for row in rows if row["word"].endswith(f"#{product_id}")
    }
    for word, row in found.items():
        assert (row["prefix"], sorted(row["words"])) == (word[:2], sorted(found))
    return {*found}


def change(shop, action, **fields):
    return shop.invoke("manage_products", {"action": action, "productId": "p", **fields})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Earl Grey, 100 g", ["earl", "grey", "100"]),
        ("T-Shirt_red/XL", ["shirt", "red", "xl"]),
        ("Crème BRÛLÉE", ["creme", "brulee"]),
        ("Straße Smørrebrød Łódź", ["strasse", "smørrebrød", "łodz"]),
        ("ﬁne ½ ２号", ["fine", "2号"]),
        ("İstanbul ΌΣΟΣ", ["istanbul", "\u03bf\u03c3\u03bf\u03c3"]),
        ("हिन्दी がく", ["हनद", "かく"]),
        ("x" * 99, ["x" * 64, "x" * 35]),
        ("★ -- _", []),
    ],
)
def test_a_text_has_words_without_case_and_accents(text, words):
    assert words_of(text) == words


def test_a_search_leaves_out_words_that_others_imply():
    assert words_to_find("a cup of tea Teas te") == ["teas", "cup", "of"]
    assert words_to_find("a b") == words_to_find("-") == []


def test_a_product_is_listed_under_the_first_words_of_its_id_and_name(shop):
    change(shop, "create", openingStock=1, name=LONG)
    assert listed(shop) == {*LONG.casefold().split()[:8]}
    # All writes of words are in the transactions that write the row.
    assert "PutItem" not in shop.calls
    change(shop, "create", openingStock=1, locationId="berlin")
    assert listed(shop, "p#berlin") == set(), "the name is in the product's own row"
    change(shop, "change", name="Two, too")
    assert listed(shop) == {"two", "too"}
    shop.calls.clear()
    before = dict(shop.items(Table.WORDS))
    change(shop, "change", price=5)
    change(shop, "change", name="Too two")
    assert shop.items(Table.WORDS) == before
    change(shop, "delist", locationId="berlin", createdAt=shop.product("p#berlin").created_at)
    assert listed(shop) == {"two", "too"}
    change(shop, "delist", createdAt=shop.product().created_at)
    assert shop.items(Table.WORDS) == {}


def test_a_product_with_many_words_in_all_lanes_is_delisted(shop):
    """The transaction that reclaims the last units also deletes the words."""
    shop.list("aa-bb-cc-dd-ee-ff-gg-hh", name=LONG)
    lend(shop.store, "aa-bb-cc-dd-ee-ff-gg-hh", 100, dict.fromkeys(range(1, 91), 1))
    product = shop.product("aa-bb-cc-dd-ee-ff-gg-hh")
    assert (len(product.lent_to), len(product.words)) == (91, 16)
    assert shop.products.delist(product.product_id, product.created_at, shop.soon())
    assert (shop.items(Table.PRODUCTS), shop.items(Table.WORDS)) == ({}, {})


# ---------------------------------------------------------------------- catalogue events


def event(number, **details):
    at = f"2027-01-15T08:00:{number:02d}.000000+00:00"
    return CatalogueEvent("p", f"e-{number}", at, details)


def test_an_event_that_keeps_the_name_is_one_update(shop):
    shop.list("p", name="Tea")
    shop.calls.clear()
    assert shop.products.change_details(event(1, name="Tea", price=5), shop.soon())[0]
    assert shop.calls == ["UpdateItem"]


def test_an_event_with_another_name_writes_its_words_with_the_row(shop):
    shop.list("p", name="Black tea")
    for number, name in ((1, "Green tea"), (2, None), (3, "White tea")):
        details = {} if name is None else {"name": name}
        shop.calls.clear()
        applied, product = shop.products.change_details(event(number, **details), shop.soon())
        assert shop.calls == ["UpdateItem", "GetItem", "TransactWriteItems"]
        assert (applied, product.name, shop.product()) == (True, name, product)
        assert listed(shop) == {*(name or "").casefold().split()}
    assert shop.products.change_details(event(3, name="White tea"), shop.soon())[0]
    assert not shop.products.change_details(event(2, name="Old"), shop.soon())[0]
    assert listed(shop) == {"white", "tea"}


@pytest.mark.parametrize(
    ("rival", "words"),
    [
        (lambda shop: shop.products.change("p", {"name": "Jug"}, shop.soon()), {"mug"}),
        (
            lambda shop: shop.products.change_details(event(9, name="Cup"), shop.soon()),
            {"cup"},
        ),
        (
            lambda shop: shop.products.change_details(event(1, name="Mug"), shop.soon()),
            {"mug"},
        ),
        (lambda shop: shop.order("o-1", p=1), {"mug"}),
    ],
    ids=["another change", "a newer event", "the same event", "an order"],
)
def test_another_writer_between_the_read_and_the_write_leaves_no_words_behind(shop, rival, words):
    shop.list("p", name="Tea")
    shop.planned["TransactWriteItems"].append(Fault(rival=rival))
    shop.products.change_details(event(5, name="Mug"), shop.soon())
    assert listed(shop) == words


def test_an_event_creates_no_row_for_a_product_that_has_just_been_delisted(shop):
    shop.list("p")
    created_at = shop.product().created_at
    rival = Fault(rival=lambda shop: shop.products.delist("p", created_at, shop.soon()))
    shop.planned["TransactWriteItems"].append(rival)
    with pytest.raises(ProductNotFoundError):
        shop.products.change_details(event(1, name="Tea"), shop.soon())
    assert (shop.items(Table.PRODUCTS), shop.items(Table.WORDS)) == ({}, {})


def test_a_lease_keeps_the_name_and_its_words(shop):
    shop.list("p", name="Tea")
    shop.invoke(
        "count_stock",
        {"action": "acquire", "productId": "p", "seconds": 300, "outliveInvocation": True},
    )
    with pytest.raises(LeaseHeldError):
        shop.products.change_details(event(1, name="Mug"), shop.soon())
    assert listed(shop) == {"tea"}


# ---------------------------------------------------------------------- the search over HTTP


def ask(shop, **query):
    """Send one search to the API, and return its answer."""
    event = {
        "version": "2.0",
        "routeKey": "GET /products",
        "requestContext": {"authorizer": {"iam": {"userArn": "x"}}},
        "queryStringParameters": query,
    }
    answer = shop.invoke("api", event)
    assert answer["statusCode"] == 200, answer
    return json.loads(answer["body"])


def search(shop, text, **query):
    """Return the ids on each page of a search."""
    found = [ask(shop, search=text, **query)]
    while "next" in found[-1]:
        found.append(ask(shop, search=text, cursor=found[-1]["next"], **query))
    return [[product["productId"] for product in page["products"]] for page in found]


def test_products_are_found_if_each_word_begins_one_of_theirs(tea_shop):
    assert search(tea_shop, "EARL gr") == search(tea_shop, "tea-earl") == [[TEA, DECAF]]
    assert search(tea_shop, "grey decaf e") == [[DECAF]]
    for text in ("arl", "earl nothing", f"{TEA}#berlin"):
        assert search(tea_shop, text) == [[]]


def test_pages_of_a_search_list_each_product_once(tea_shop, monkeypatch):
    # Words of one product begin alike.
    for number in range(5):
        tea_shop.list(f"te{number}", name=f"Tea teapot {number}")
    (whole,) = search(tea_shop, "te", limit="100")
    assert len(whole) == len({*whole}) == 45
    for limit in (1, 7):
        found = search(tea_shop, "te", limit=str(limit))
        assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
        assert [*chain(*found)] == whole
    monkeypatch.setattr(lists, "_WORDS_OF_A_PAGE", 3)
    assert [*chain(*search(tea_shop, "te"))] == whole
    # All pages look up the same word.
    assert [*chain(*search(tea_shop, "teapo tea"))] == [f"te{number}" for number in range(5)]


def test_a_search_leaves_out_products_that_cannot_be_read_or_are_gone(tea_shop):
    tea_shop.edit(Table.PRODUCTS, TEA, stockCount={"S": "many"})
    del tea_shop.items(Table.PRODUCTS)[DECAF,]
    assert ask(tea_shop, search="earl") == {"products": [], "unreadable": [TEA]}


def test_a_search_continues_after_the_products_whose_rows_were_read(tea_shop, monkeypatch):
    monkeypatch.setattr(products, "_MOST_ROWS", 1)
    assert search(tea_shop, "earl") == [[TEA], [DECAF]]


# ---------------------------------------------------------------------- costs


def units(shop):
    """Return the read units and write units of all tables so far."""
    found = [table.consumed for table in shop.aws.dynamodb.tables.values()]
    return sum(each.reads for each in found), sum(each.writes for each in found)


def test_a_search_costs_the_same_with_ten_times_as_many_products_and_orders():
    costs = []
    for size in (250, 2500):
        with open_shop(
            [NewProduct(f"p-{n:05}", 9, name=f"Porcelain {n}") for n in range(size)]
        ) as shop:
            for number in range(size // 10):
                shop.order(f"o-{number}", **{f"p-{number:05}": 1})
            before = units(shop)[0]
            # The second word is looked up if too many products have the longest one.
            for text, count in (("00077", 1), ("porc", 20), ("porcelain 00077", 1), ("x9", 0)):
                found = ask(shop, search=text)
                assert (len(found["products"]), "next" in found) == (count, count == 20)
            costs.append(units(shop)[0] - before)
    # One unit for each text that could be a barcode.
    assert costs == [18.5, 18.5]


def test_a_product_costs_two_write_units_for_each_word(shop):
    """Each row of the product, its opening adjustment and each word is written in a transaction."""
    for product_id, name, words in (("p", None, 0), ("q", "Large mug", 2), ("p-12", LONG, 9)):
        before = units(shop)[1]
        shop.list(product_id, name=name)
        assert units(shop)[1] - before == 2 * (2 + words)


# ---------------------------------------------------------------------- repair


def test_words_that_are_missing_wrong_or_left_over_are_repaired(shop, monkeypatch):
    shop.list_all("cup", "mug", "pot", "can")
    shop.list("t", name="Tea time")
    shop.list("t#berlin")
    whole = dict(shop.items(Table.WORDS))
    assert repair_words(shop.stack) == (0, 0)
    words = shop.items(Table.WORDS)
    del words["cu", "cup#cup"]
    words["mu", "mug#mug"] = words["mu", "mug#mug"] | {"words": {"SS": ["mug", "tea"]}}
    for word, product_id in (("tee", "t"), ("jug", "jug")):
        key = {"prefix": {"S": word[:2]}, "word": {"S": f"{word}#{product_id}"}}
        words[word[:2], f"{word}#{product_id}"] = key | {"words": {"SS": [word]}}
    # Unreadable, so its name is not known.
    shop.edit(Table.PRODUCTS, "pot", stockCount={"S": "?"})
    monkeypatch.setattr(books, "aws_of", lambda *_: shop.stack)
    run = CliRunner().invoke(main.app, ["audit", "--repair-words"])
    assert "The words of 4 products are repaired." in run.stderr
    assert words == whole


def test_words_of_a_product_that_changes_during_the_repair_are_left_alone(shop):
    shop.list("p", name="Tea")
    del shop.items(Table.WORDS)["te", "tea#p"]
    rival = Fault(rival=lambda shop: shop.products.change("p", {"name": "Cup"}, shop.soon()))
    shop.planned["TransactWriteItems"].append(rival)
    assert repair_words(shop.stack) == (0, 1)
    assert listed(shop) == {"cup"}
    assert repair_words(shop.stack) == (0, 0)
