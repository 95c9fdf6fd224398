"""A product's stock at further locations is listed, changed, discontinued, counted and delisted."""

import json
from dataclasses import replace

import pytest

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.location import MAX_PLACES, stock_key
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    ProductNotFoundError,
    RejectedError,
    RepairNeededError,
)
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from testing.schedules.in_turn.lanes import LaneShop
from testing.world.events import order_body, sqs_event
from testing.world.faults import LOST, cancels, of_product

TEA, AT_BERLIN = "tea", "tea#berlin"


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        shop.list(TEA, 10)
        yield shop


def command(shop, action, **fields):
    return shop.invoke("manage_products", {"action": action, "productId": TEA, **fields})


def create(shop, location="berlin", stock=5, **fields):
    return command(shop, "create", locationId=location, openingStock=stock, **fields)


def delist(shop, location="", product_id=TEA):
    """Delist the current generation of a product at a location."""
    fields = {"locationId": location} if location else {}
    created_at = shop.row(stock_key(product_id, location))["createdAt"]["S"]
    return command(shop, "delist", createdAt=created_at, productId=product_id, **fields)


def places(shop):
    return decode(shop.row(TEA)).get("places")


def adjustments(shop, key):
    """Return the deltas of all adjustments under a key."""
    rows = [decode(item) for item in shop.items(Table.STOCK_ADJUSTMENTS).values()]
    return [row["delta"] for row in rows if row["productId"] == key]


def result(answer):
    return answer["result"], answer.get("code")


# ---------------------------------------------------------------- listing


def test_a_location_has_its_own_row_and_books_and_the_products_row_names_it(shop):
    before = shop.row(TEA)
    answer = create(shop, stock=5, lowStockThreshold=7, backorderLimit=2)
    assert answer == {
        "result": "APPLIED",
        "productId": TEA,
        "locationId": "berlin",
        "version": 1,
        "stockCount": 5,
        "status": "LOW_STOCK",
        "createdAt": answer["createdAt"],
        "warnings": [
            'orders that name no locations cannot buy tea at berlin: add "berlin" to the setting `locations`, or send '
            "orders with `locations`"
        ],
    }
    row = decode(shop.row(AT_BERLIN))
    assert (row["of"], row["locationId"], row["backorderLimit"]) == (TEA, "berlin", 2)
    assert shop.row(TEA) == before | {"places": {"SS": ["berlin"]}}
    assert (adjustments(shop, TEA), adjustments(shop, AT_BERLIN)) == ([10], [5])
    assert set(shop.unexplained().values()) == {0}
    create(shop, "Lyon-2")
    changed = command(shop, "change", lowStockThreshold=3)
    assert changed["places"] == ["Lyon-2", "berlin"]


def test_stock_that_orders_without_locations_can_buy_needs_no_warning(shop):
    shop.restart(LOCATIONS="berlin")
    assert "warnings" not in create(shop)
    assert "warnings" not in create(shop, location="", stock=0, productId="cup")
    (warning,) = create(shop, location="", productId="pot")["warnings"]
    assert 'cannot buy pot at the default location: add ""' in warning


def test_listing_an_existing_location_does_not_change_it(shop):
    create(shop)
    again = create(shop, stock=9)
    assert result(again) == ("REFUSED", "PRODUCT_EXISTS")
    assert again["message"].startswith("tea at berlin has existed since")
    assert (again["productId"], again["locationId"], again["stockCount"]) == (TEA, "berlin", 5)
    shop.once("TransactWriteItems", lambda _: create(shop, "lyon", 1) and None)
    assert result(create(shop, "lyon", 2)) == ("REFUSED", "PRODUCT_EXISTS")
    assert (shop.stock("tea#lyon"), places(shop)) == (1, ["berlin", "lyon"])


def test_a_place_needs_a_product(shop):
    unknown = create(shop, productId="cup")
    assert result(unknown) == ("REFUSED", "UNKNOWN_PRODUCT")
    assert unknown["message"] == "there is no product cup"
    shop.once("TransactWriteItems", lambda _: delist(shop) and None)
    assert result(create(shop)) == ("REFUSED", "UNKNOWN_PRODUCT")
    assert shop.items(Table.PRODUCTS) == {}


def test_a_product_has_at_most_40_places(shop):
    for number in range(MAX_PLACES - 1):
        create(shop, f"l-{number}")
    shop.once("TransactWriteItems", lambda _: create(shop, "last") and None)
    refused = create(shop, "one-too-many")
    assert result(refused) == ("REFUSED", "TOO_MANY_PLACES")
    assert refused["message"].startswith(
        "tea is already listed at the maximum of 40 locations (not counting the default)"
    )
    assert result(create(shop, "last")) == ("REFUSED", "PRODUCT_EXISTS")
    assert adjustments(shop, "tea#one-too-many") == []
    delist(shop, "last")
    assert create(shop, "one-too-many")["result"] == "APPLIED"
    assert len(places(shop)) == MAX_PLACES


def test_name_and_price_belong_to_the_product(shop):
    for name, value in (("name", "Tea"), ("price", 1)):
        refused = create(shop, **{name: value})
        assert (*result(refused), refused["field"]) == ("INVALID", "SCHEMA_VIOLATION", name)
        changed = command(shop, "change", locationId="berlin", lowStockThreshold=1, **{name: value})
        assert (*result(changed), changed["field"]) == ("INVALID", "SCHEMA_VIOLATION", name)
    for location in ("x" * 33, "a#b", "a b", "\u00e9"):
        assert create(shop, location)["field"] == "locationId"
    default = command(shop, "change", locationId="", name="Tea", price=1)
    assert (default["name"], "locationId" in default) == ("Tea", False)
    nothing = command(shop, "change", locationId="berlin")
    assert result(nothing) == ("INVALID", "SCHEMA_VIOLATION")


# ---------------------------------------------------------------- delisting


def test_the_products_own_row_is_delisted_last(shop):
    create(shop)
    create(shop, "lyon")
    refused = delist(shop)
    assert result(refused) == ("REFUSED", "HAS_PLACES")
    assert refused["message"] == "tea is also listed at berlin, lyon; delist it there first"
    for location in ("berlin", "lyon"):
        gone = delist(shop, location)
        assert (gone["productId"], gone["locationId"]) == (TEA, location)
    assert places(shop) is None
    assert delist(shop)["result"] == "APPLIED"
    assert shop.items(Table.PRODUCTS) == {}
    assert adjustments(shop, AT_BERLIN) == [5, -5]


def test_a_products_own_row_that_dynamodb_refuses_needs_an_operator(shop):
    shop.once("TransactWriteItems", cancels("ValidationError", lambda each: "Update" in each))
    refused = create(shop)
    assert result(refused) == ("RETRY_LATER", "CORRUPT_PRODUCT")
    assert "the list `places` in the row of product tea cannot be changed" in refused["message"]


@pytest.mark.parametrize("is_lent", [False, True])
def test_a_location_whose_product_has_lost_its_own_row_needs_an_operator(shop, is_lent):
    created_at = create(shop)["createdAt"]
    if is_lent:
        shop.lend(AT_BERLIN, {1: 2}, depot=1)
    del shop.items(Table.PRODUCTS)[TEA,]
    with pytest.raises(
        CorruptItemError, match="the list `places` in the row of product tea cannot be changed"
    ):
        shop.products.delist(AT_BERLIN, created_at, shop.soon())
    assert shop.total(AT_BERLIN) == 5
    assert (TEA,) not in shop.items(Table.PRODUCTS)


# ---------------------------------------------------------------- changes


def test_a_place_is_changed_and_discontinued_on_its_own(shop):
    create(shop, stock=5)
    changed = command(shop, "change", locationId="berlin", lowStockThreshold=9)
    assert (changed["locationId"], changed["status"]) == ("berlin", "LOW_STOCK")
    ended = command(shop, "discontinue", locationId="berlin")
    assert (ended["locationId"], ended["status"], ended["committed"]) == (
        *("berlin", "DISCONTINUED"),
        0,
    )
    assert (shop.product(TEA).status, shop.product(TEA).version) == ("ACTIVE", 1)
    assert command(shop, "listAgain", locationId="berlin")["status"] == "LOW_STOCK"
    unknown = command(shop, "discontinue", locationId="lyon")
    assert (*result(unknown), unknown["message"]) == (
        *("REFUSED", "UNKNOWN_PRODUCT"),
        "there is no product tea at lyon",
    )


def test_a_product_is_discontinued_everywhere_and_again_where_it_was_interrupted(shop):
    for location in ("a", "b", "c"):
        create(shop, location)
    shop.count("tea#b", 2)
    leased = shop.invoke("manage_products", {"action": "discontinue", "productId": TEA}, 1.5)
    assert result(leased) == ("RETRY_LATER", "LEASED")
    assert leased["message"].startswith("tea at b is leased for")
    assert statuses(shop) == {"": "DISCONTINUED", "a": "DISCONTINUED", "b": "ACTIVE", "c": "ACTIVE"}
    shop.clock.sleep(5)
    done = command(shop, "discontinue")
    assert (done["result"], done["productId"], "locationId" in done) == ("APPLIED", TEA, False)
    assert set(statuses(shop).values()) == {"DISCONTINUED"}
    assert command(shop, "discontinue")["result"] == "REPLAYED"
    assert command(shop, "listAgain")["result"] == "APPLIED"
    assert set(statuses(shop).values()) == {"ACTIVE"}
    assert command(shop, "listAgain")["result"] == "REPLAYED"


def test_the_default_location_alone_is_discontinued_and_listed_again(shop):
    create(shop)
    assert command(shop, "discontinue", locationId="")["result"] == "APPLIED"
    assert statuses(shop) == {"": "DISCONTINUED", "berlin": "ACTIVE"}
    command(shop, "discontinue", locationId="berlin")
    assert command(shop, "listAgain", locationId="")["result"] == "APPLIED"
    assert statuses(shop) == {"": "ACTIVE", "berlin": "DISCONTINUED"}


def statuses(shop):
    rows = [decode(item) for item in shop.items(Table.PRODUCTS).values()]
    return {row.get("locationId", ""): row["status"] for row in rows}


def test_a_location_that_is_delisted_during_the_change_is_skipped(shop):
    create(shop)
    shop.once("TransactWriteItems", lambda _: delist(shop, "berlin") and None)
    assert command(shop, "discontinue")["result"] == "APPLIED"
    assert statuses(shop) == {"": "DISCONTINUED"}


def test_an_edit_may_not_change_the_places(shop):
    create(shop)
    with pytest.raises(ValueError, match="places"):
        shop.products.update_with_retry(TEA, lambda p: replace(p, places=frozenset()), shop.soon())


# ---------------------------------------------------------------- counts


def test_a_place_is_counted_on_its_own(shop):
    create(shop)
    acquire = {"action": "acquire", "productId": TEA, "locationId": "berlin", "seconds": 60}
    begun = shop.invoke("count_stock", acquire | {"outliveInvocation": True})
    assert (begun["productId"], begun["locationId"], begun["onHand"]) == (TEA, "berlin", 5)
    assert begun["lease"].items() >= {"productId": TEA, "locationId": "berlin"}.items()
    again = shop.invoke("count_stock", acquire)
    assert again["message"].startswith("tea at berlin is leased for")
    lease = {"lease": begun["lease"]}
    renewed = shop.invoke("count_stock", {"action": "renew", "seconds": 90, **lease})
    commit = {"action": "commit", "counted": 4, "adjustmentId": "c-1", "lease": renewed["lease"]}
    done = shop.invoke("count_stock", commit)
    assert (done["result"], done["productId"], done["locationId"]) == ("COMMITTED", TEA, "berlin")
    assert (shop.stock(AT_BERLIN), shop.stock(TEA)) == (4, 10)
    assert adjustments(shop, AT_BERLIN) == [5, -1]
    lost = shop.invoke("count_stock", commit | {"adjustmentId": "c-2"})
    assert result(lost) == ("REFUSED", "LEASE_LOST")
    assert "on tea at berlin is over" in lost["message"]
    unknown = shop.invoke("count_stock", acquire | {"locationId": "lyon"})
    assert unknown["message"] == "there is no product tea at lyon"


# ---------------------------------------------------------------- bookings

UNNAMED = {
    "adjust": ("adjust_stock", {"delta": -2, "reason": "CORRECTION"}),
    "decrement": ("adjust_stock", {"quantity": 2}),
    "atomic decrement": ("adjust_stock", {"quantity": 2, "mode": "atomic"}),
    "acquire": ("count_stock", {"seconds": 30, "outliveInvocation": True}),
}


def booking(name):
    function, fields = UNNAMED[name]
    ids = {"adjustmentId": "a"} if function == "adjust_stock" else {}
    return function, {"action": name.rpartition(" ")[2], "productId": TEA, **ids, **fields}


@pytest.mark.parametrize("name", UNNAMED)
def test_a_booking_that_names_none_of_several_locations_is_refused_until_it_does(shop, name):
    function, command = booking(name)
    # The process has seen the product without locations.
    if function == "adjust_stock":
        assert shop.invoke(function, command | {"adjustmentId": "before"})["result"] == "APPLIED"
    create(shop)
    create(shop, "lyon")
    before = shop.row(TEA)
    refused = shop.invoke(function, command)
    assert result(refused) == ("REFUSED", "LOCATION_REQUIRED")
    assert refused["message"] == (
        "tea is also at berlin, lyon; name the location in locationId (empty for the default one)"
    )
    assert (shop.row(TEA), sum(adjustments(shop, TEA))) == (before, shop.stock(TEA))
    # The refusal is not final, and the answer says where the units are booked.
    named = shop.invoke(function, command | {"locationId": ""})
    assert result(named) in (("APPLIED", None), ("ACQUIRED", None))
    assert named["locationId"] == ""


@pytest.mark.parametrize("name", ["adjust", "decrement", "atomic decrement"])
def test_a_repetition_is_recognised_although_the_product_has_got_locations_since(shop, name):
    function, command = booking(name)
    shop.invoke(function, command)
    create(shop)
    assert shop.invoke(function, command)["result"] == "REPLAYED"
    assert shop.stock(TEA) == 8


def test_a_receipt_in_the_queue_that_names_no_location_is_booked_at_the_default_one(shop):
    create(shop)
    receipt = {"adjustmentId": "r", "productId": TEA, "delta": 4, "reason": "RECEIPT"}
    assert shop.invoke("adjust_stock", sqs_event(receipt)) == {"batchItemFailures": []}
    assert (shop.stock(TEA), shop.stock(AT_BERLIN)) == (14, 5)


@pytest.mark.parametrize(
    ("first", "answer", "deltas"),
    [
        ("neither", "APPLIED", [5, -5, 1, 4]),
        ("rival", "REPLAYED", [5, 4, -9, 1]),
        ("lost", "APPLIED", [5, 4, -9, 1]),
    ],
)
def test_a_receipt_is_booked_once_if_its_location_is_listed_again(shop, first, answer, deltas):
    """Before the location is listed again, the receipt is booked by a rival, or its response is lost, or neither."""
    create(shop)
    receipt = {"action": "adjust", "adjustmentId": "r", "productId": TEA, "locationId": "berlin"}
    receipt |= {"delta": 4, "reason": "RECEIPT"}

    def meanwhile(request):
        if first == "rival":
            shop.invoke("adjust_stock", receipt)
        elif first == "lost":
            shop.aws.answer("dynamodb", "TransactWriteItems", request)
        delist(shop, "berlin")
        create(shop, stock=1)
        if first == "lost":
            raise LOST

    shop.once("TransactWriteItems", meanwhile)
    answers = [shop.invoke("adjust_stock", receipt)["result"] for _ in range(2)]
    assert answers == [answer, "REPLAYED"]
    assert sorted(adjustments(shop, AT_BERLIN)) == sorted(deltas)
    assert shop.stock(AT_BERLIN) == (5 if first == "neither" else 1)
    assert set(shop.unexplained().values()) == {0}


# ---------------------------------------------------------------- purchase limits


def limit(shop, key):
    row = decode(shop.row(key))
    return row.get("purchaseLimit", 0), row.get("limitGroup")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (2, "leaves")),
        ({"purchaseLimit": 3}, (3, "leaves")),
        ({"limitGroup": "cans"}, (2, "cans")),
        ({"purchaseLimit": 3, "limitGroup": "cans"}, (3, "cans")),
        ({"purchaseLimit": 0}, (0, None)),
    ],
)
def test_a_new_location_has_the_limit_of_the_others_unless_it_names_its_own(shop, given, found):
    command(shop, "change", purchaseLimit=2, limitGroup="leaves")
    assert create(shop, **given)["result"] == "APPLIED"
    assert limit(shop, AT_BERLIN) == found


def test_a_new_location_has_to_name_its_limit_if_the_others_differ(shop):
    create(shop)
    command(shop, "change", locationId="berlin", purchaseLimit=2)
    for given in ({}, {"purchaseLimit": 2}):
        refused = create(shop, "lyon", **given)
        assert (refused["result"], refused["field"]) == ("INVALID", "purchaseLimit")
        assert refused["message"].startswith("purchaseLimit: tea has different limits at its")
    assert create(shop, "lyon", purchaseLimit=0)["result"] == "APPLIED"
    assert create(shop, "rome", purchaseLimit=2, limitGroup=TEA)["result"] == "APPLIED"
    assert result(create(shop, "berlin")) == ("INVALID", "SCHEMA_VIOLATION")


def test_a_limit_that_is_set_while_a_location_is_listed_applies_there_too(shop):
    limited = {"purchaseLimit": 2, "limitGroup": "leaves"}
    shop.once("TransactWriteItems", lambda _: command(shop, "change", **limited) and None)
    assert result(create(shop)) == ("RETRY_LATER", "CONTENTION")
    assert create(shop)["result"] == "APPLIED"
    shop.once("TransactWriteItems", lambda _: create(shop, "lyon") and None)
    command(shop, "change", purchaseLimit=5)
    assert {limit(shop, key) for key in (TEA, AT_BERLIN, "tea#lyon")} == {(5, "leaves")}


def test_a_group_without_a_limit_is_refused_and_changes_nothing(shop):
    create(shop)
    group = {"limitGroup": "leaves"}
    for refused in (
        command(shop, "change", **group),
        command(shop, "change", **group, purchaseLimit=0),
        create(shop, "lyon", **group),
        create(shop, "", productId="cup", **group),
    ):
        assert (refused["result"], refused["field"]) == ("INVALID", "limitGroup")
        assert refused["message"].startswith("limitGroup: leaves has no effect without a limit")
    assert {limit(shop, key) for key in (TEA, AT_BERLIN)} == {(0, None)}
    command(shop, "change", purchaseLimit=2)
    command(shop, "change", locationId="berlin", purchaseLimit=0)
    assert command(shop, "change", **group)["result"] == "APPLIED"
    assert command(shop, "change", purchaseLimit=0)["result"] == "APPLIED"


# ---------------------------------------------------------------- on both implementations


def test_places_are_added_and_taken_off_as_the_engines_do(each_store):
    products = ProductCatalogue(RetryingClient(each_store))
    soon = Deadline.after(60, SystemClock())
    with pytest.raises(ProductNotFoundError):
        products.create(NewProduct(AT_BERLIN, 1), soon)
    _, tea = products.create(NewProduct(TEA, 1), soon)
    made = [products.create(NewProduct(f"tea#{n}", 1), soon)[1] for n in range(MAX_PLACES)]
    with pytest.raises(RejectedError):
        products.create(NewProduct(AT_BERLIN, 1), soon)
    with pytest.raises(RejectedError):
        products.delist(TEA, tea.created_at, soon)
    for place in made:
        assert products.delist(place.product_id, place.created_at, soon)
    assert products.get(TEA, soon) == tea
    assert products.delist(TEA, tea.created_at, soon)


# ---------------------------------------------------------------- messages

BERLIN = {"productId": TEA, "locationId": "berlin"}


def spoil(**attributes):
    return lambda shop: shop.edit(Table.PRODUCTS, AT_BERLIN, **attributes)


def lease(shop):
    acquire = {"action": "acquire", **BERLIN, "seconds": 900, "outliveInvocation": True}
    assert shop.invoke("count_stock", acquire)["result"] == "ACQUIRED"


def refuse_writes(code):
    def act(shop):
        shop.on("TransactWriteItems", cancels(code, of_product(AT_BERLIN)), of_product(AT_BERLIN))

    return act


def spoil_pages(shop):
    """Leave units of an unknown generation on a page of a lane and at the depot."""
    shop.lend(AT_BERLIN, {1: 1}, 1)
    spoil(createdAt={"S": "2020-01-01T00:00:00.000000+00:00"})(shop)


FAULTS = {
    "none": lambda shop: None,
    "gone": lambda shop: delist(shop, "berlin"),
    "leased": lease,
    "corrupt": spoil(stockCount={"S": "?"}),
    "corrupt pages": spoil_pages,
    "full": refuse_writes("ValidationError"),
    "contended": refuse_writes("TransactionConflict"),
    "throttled": refuse_writes("ThrottlingError"),
}


def ask(shop):
    """Send every command and message that may name a product at a location. Yields the answers."""
    order = order_body("o-1", {TEA: 3}) | {"locations": ["berlin"]}
    short = order | {"orderId": "o-2", "items": [{"productId": TEA, "quantity": 99}]}
    for body in (order, short):
        shop.send("Order", body)
    yield shop.invoke("place_orders", {"action": "place", **short, "orderId": "d"})
    for adjustment_id, delta in (("a1", -999), ("a2", 1), ("a2", 2)):
        body = {**BERLIN, "adjustmentId": adjustment_id, "delta": delta, "reason": "CORRECTION"}
        yield shop.invoke("adjust_stock", body | {"adjustmentId": f"b{adjustment_id}"})
        shop.send("Stock", body)
    for mode in ("optimistic", "atomic"):
        taken = {"action": "decrement", **BERLIN, "adjustmentId": mode, "quantity": 50}
        yield shop.invoke("adjust_stock", taken | {"mode": mode})
    moved = {"productId": TEA, "transferId": "t", "from": "berlin", "to": "", "quantity": 77}
    yield shop.invoke("adjust_stock", {"action": "transfer", **moved})
    acquire = {"action": "acquire", **BERLIN, "seconds": 60, "outliveInvocation": True}
    begun = shop.invoke("count_stock", acquire)
    yield begun
    for counted, adjustment_id in ((0, "c"), (5, "ba2"), (5, "c")):
        commit = {"action": "commit", "counted": counted, "adjustmentId": adjustment_id}
        yield shop.invoke("count_stock", commit | {"lease": begun.get("lease", {})})
    for action, fields in (
        ("create", {"openingStock": 1}),
        ("change", {"backorderLimit": 0}),
        *(("discontinue", {}), ("listAgain", {})),
        ("delist", {"createdAt": "2020-01-01T00:00:00.000000+00:00"}),
    ):
        yield command(shop, action, locationId="berlin", **fields)
    yield command(shop, "delist", createdAt=shop.row(TEA)["createdAt"]["S"])
    for action in ("confirm", "cancel"):
        yield shop.invoke("change_orders", {"action": action, "orderId": "o-1"})


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_log_or_dead_letter_has_the_key_of_a_location(shop, fault, capsys):
    create(shop, stock=5)
    FAULTS[fault](shop)
    answers = list(ask(shop))
    for _ in range(3):
        for queue in ("Order", "Stock"):
            shop.deliver(queue, lambda records: [late(record) for record in records])
        shop.clock.advance(3_600)
    try:
        answers.append(shop.invoke("sweep", {"action": "sweep"}))
    except RepairNeededError as error:
        answers.append(str(error))
    letters = [str(letter) for queue in ("Order", "Stock") for letter in shop.dead_letters(queue)]
    said = json.dumps([answers, letters], default=str) + capsys.readouterr().out
    assert AT_BERLIN not in said
    assert "tea at berlin" in said


def late(record):
    attributes = {**record["attributes"], "ApproximateReceiveCount": "20"}
    return record | {"attributes": attributes}
