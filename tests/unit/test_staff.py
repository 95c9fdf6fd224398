"""What the API shows only to operators and staff: who they are, what needs attention, open counts, and transfers in transit."""

import json

import pytest

from inventory_orders.api import products
from inventory_orders.store.tables import Table
from testing.world.events import sqs_event
from tests.support.http import BERLIN, TEA, WAIT, Api

GRANTS = {
    "pickers": ["orders.read", "orders.fulfil"],
    "stock": ["stock.read", "stock.adjust", "stock.count"],
    "readers": ["stock.read"],
    "tills": ["orders.place"],
}
ROLES = {"claim": "groups", "grants": GRANTS, "locationsClaim": "places"}


def staff(*roles, places="*"):
    """The claims of a token with these roles, as API Gateway passes them."""
    return {"sub": "ann", "groups": f"[{' '.join(roles)}]", "places": places}


@pytest.fixture
def api(tea_shop):
    """Make the API of a shop with roles that sells tea in two places."""
    tea_shop.restart(USER_ID_CLAIM="sub", ROLES=json.dumps(ROLES))
    api = Api(tea_shop)
    assert api("POST", "/products", BERLIN | {"openingStock": 9}).status == 201
    return api


def get(api, path, *roles, places="*"):
    """Get what staff with these roles are shown; without roles, what servers are shown."""
    said = api("GET", path, claims=staff(*roles, places=places) if roles else None)
    assert said.status == 200, said.text
    return said.document


def order(api, order_id="o-1", quantity=2, location=""):
    lines = [{"productId": TEA, "quantity": quantity, "locationId": location}]
    body = {"orderId": order_id, "userId": "u-7", "items": lines}
    assert api("POST", "/orders", body, WAIT).status == 201
    assert api("POST", f"/orders/{order_id}/confirm").status == 200


# ---------------------------------------------------------------------- about


def test_staff_learn_their_name_their_permissions_and_their_locations(api):
    about = get(api, "/about", "tills", "pickers", places="berlin (default)")
    assert about["caller"] == {
        "name": "ann",
        "permissions": ["orders.fulfil", "orders.place", "orders.read"],
        "locations": ["", "berlin"],
    }
    assert get(api, "/about", "tills", places="*")["caller"]["locations"] is None
    assert get(api, "/about", "tills", places="")["caller"]["locations"] == []


def test_everyone_but_customers_learns_about_the_stage(api):
    facts = {"stage": "shop", "production": True, "changes": True, "amendPaid": False}
    facts |= {"currency": {"code": "EUR", "digits": 2}}
    api.shop.restart(
        USER_ID_CLAIM="sub", ROLES=json.dumps(ROLES), ABOUT=json.dumps(facts), LOCATIONS="berlin,"
    )
    about = get(api, "/about")
    assert about.pop("caller") == {"name": "shop", "permissions": ["*"], "locations": None}
    assert about == facts | {"locations": ["berlin", ""], "movements": True}
    said = api("GET", "/about", claims={"sub": "u-7"})
    assert said.code == (403, "NOT_PERMITTED")
    assert said.document["detail"] == "this requires any of the permissions that staff have"


# ---------------------------------------------------------------------- today


def test_today_shows_the_counts_of_the_last_sweep(api):
    assert get(api, "/today", "pickers") == {"asOf": None}
    order(api, "o-1")
    order(api, "o-2", 9, "berlin")
    set_on_hand(api, 8)
    api.shop.invoke("sweep", {"action": "sweep"})
    api.shop.calls.clear()
    today = get(api, "/today", "pickers")
    assert api.shop.calls == ["BatchGetItem"]
    assert today.pop("asOf") > today["toShip"]["oldest"]
    none = {"count": 0, "isAll": True, "oldest": None}
    assert today == {
        "toShip": {"count": 2, "isAll": True, "oldest": today["toShip"]["oldest"]},
        "unpaid": none,
        "paidLate": none,
        "blocked": 1,
        "missing": {TEA: 1},
    }


def test_counts_of_all_locations_are_not_shown_to_staff_of_one(api):
    said = api("GET", "/today", claims=staff("pickers", places="berlin (default)"))
    assert said.code == (403, "OTHER_LOCATION")
    assert api("GET", "/today", claims=staff("stock")).code == (403, "NOT_PERMITTED")


def set_on_hand(api, units):
    """Set the units on hand in Berlin, as a loss would if no order had them."""
    api.shop.edit(Table.PRODUCTS, f"{TEA}#berlin", onHand={"N": str(units)})


# ---------------------------------------------------------------------- an order to ship


def test_an_order_to_ship_shows_missing_units_and_its_etag_changes_with_them(api):
    order(api, "o-1", 9, "berlin")
    path = "/orders/o-1"
    assert get(api, path, "pickers")["shippable"] is True
    assert get(api, path)["shippable"] is True
    tags = [api("GET", path).headers["ETag"]]
    for on_hand in (8, 7):
        set_on_hand(api, on_hand)
        said = api("GET", path, headers={"if-none-match": tags[-1]})
        assert said.status == 200
        tags.append(said.headers["ETag"])
        assert said.document["shippable"] is False
        (line,) = said.document["missing"]
        at = {"productId": TEA, "locationId": "berlin"}
        assert line == at | {"wanted": 9, "onHand": on_hand}
    assert len({*tags}) == 3
    assert api("GET", path, headers={"if-none-match": tags[-1]}).status == 304
    listed = api("GET", "/orders", query={"status": "CONFIRMED"}).document["orders"]
    assert listed == [get(api, path)]
    theirs = api("GET", path, claims={"sub": "u-7"}).document
    assert not {"shippable", "missing"} & theirs.keys()
    assert api("POST", "/orders/o-1/cancel").status == 200
    assert "shippable" not in get(api, path)


def test_an_order_is_shown_without_the_mark_while_a_product_is_unreadable(api):
    order(api, "o-1", 9, "berlin")
    tag = api("GET", "/orders/o-1").headers["ETag"]
    api.shop.edit(Table.PRODUCTS, f"{TEA}#berlin", onHand={"S": "?"})
    said = api("GET", "/orders/o-1", headers={"if-none-match": tag})
    assert said.status == 200
    assert "shippable" not in said.document


# ---------------------------------------------------------------------- counts


def test_stock_shows_an_open_count_and_its_lease_to_those_who_may_count(api):
    counting = {"action": "acquire", "productId": TEA, "locationId": "berlin", "seconds": 60}
    lease = api("POST", "/counts", counting | {"holder": "bo"}).document["lease"]
    path = f"/stock/{TEA}"
    here, berlin = get(api, path, "stock")["places"]
    assert "count" not in here
    assert (berlin["count"]["holder"], berlin["count"]["lease"]) == ("bo", lease)
    assert get(api, path, "stock", places="berlin")["count"] == berlin["count"]
    assert get(api, path)["places"][1]["count"]["lease"] == lease
    shown = get(api, path, "readers", places="berlin")["count"]
    assert shown == {"holder": "bo", "since": berlin["count"]["since"]}
    api.shop.clock.sleep(60)
    assert "count" not in get(api, path, "stock", places="berlin")


@pytest.mark.parametrize(
    ("name", "holder"),
    [("ann", "ann"), ("ann o'hara@shop.example/" * 3, ("ann-o-hara-shop.example-" * 3)[:64])],
)
def test_a_count_without_a_holder_names_the_caller(api, name, holder):
    counting = {"action": "acquire", "productId": TEA, "locationId": "berlin", "seconds": 60}
    said = api("POST", "/counts", counting, claims=staff("stock") | {"sub": name})
    assert said.status == 200, said.text
    shown = get(api, f"/stock/{TEA}", "stock", places="berlin")["count"]
    assert shown["holder"] == holder


# ---------------------------------------------------------------------- transfers


def move(api, reason, number, units, location="", reference="van-7", product_id=TEA, **more):
    adjustment = {"adjustmentId": f"m-{number}", "delta": units, "reason": reason}
    body = adjustment | {"reference": reference, "locationId": location} | more
    said = api("POST", f"/products/{product_id}/adjustments", body)
    assert said.status == 200, said.text


def transfers(api, *roles, places="*"):
    found = get(api, "/transfers", *roles, places=places)
    return [(each["reference"], each["units"], each["from"]) for each in found["transfers"]]


def test_transfers_are_listed_until_their_units_have_arrived_or_are_lost(api):
    move(api, "TRANSFER_OUT", 1, -5, "berlin")
    move(api, "TRANSFER_OUT", 2, -4, "", "van-8", "tea-lady-grey")
    both = [("van-7", 5, ["berlin"]), ("van-8", 4, [""])]
    assert transfers(api) == transfers(api, "readers") == both
    move(api, "TRANSFER_IN", 3, 2)
    assert transfers(api, "readers", places="berlin") == [("van-7", 3, ["berlin"])]
    assert transfers(api, "readers", places="(default)") == [both[1]]
    move(api, "TRANSFER_LOST", 4, 0, "berlin", comment="fell off the van")
    move(api, "TRANSFER_IN", 5, 4, "", "van-8", "tea-lady-grey")
    assert get(api, "/transfers") == {"transfers": [], "completeSince": None}
    said = api("GET", f"/products/{TEA}/adjustments", query={"locationId": "berlin"})
    comments = [one.get("comment") for one in said.document["adjustments"]]
    assert comments == [None, "fell off the van", None]


def test_units_are_sent_only_to_a_location_of_their_product(api):
    steps = {"adjustmentId": "m-1", "delta": -5, "reason": "TRANSFER_OUT", "reference": "van-7"}
    sent = steps | {"locationId": "berlin", "sentTo": "rome"}
    said = api("POST", f"/products/{TEA}/adjustments", sent)
    assert said.code == (404, "UNKNOWN_PRODUCT")
    assert said.document["detail"].startswith(f"there is no product {TEA} at rome")
    queued = sqs_event(json.dumps(sent | {"productId": TEA}))
    assert api.shop.invoke("adjust_stock", queued)["batchItemFailures"]
    assert (api.shop.stock(f"{TEA}#berlin"), transfers(api)) == (9, [])
    assert (
        api("POST", "/products", BERLIN | {"locationId": "rome", "openingStock": 0}).status == 201
    )
    said = api("POST", f"/products/{TEA}/adjustments", sent)
    assert (said.document["result"], said.document["stockCount"]) == ("APPLIED", 4)
    assert transfers(api) == [("van-7", 5, ["berlin"])]


def test_staff_see_the_transfers_to_their_locations(api):
    assert (
        api("POST", "/products", BERLIN | {"locationId": "rome", "openingStock": 0}).status == 201
    )
    move(api, "TRANSFER_OUT", 1, -5, "berlin", sentTo="")
    move(api, "TRANSFER_OUT", 2, -1, "berlin", "van-8", sentTo="rome")
    assert transfers(api, "readers", places="(default)") == [("van-7", 5, ["berlin"])]
    (found,) = get(api, "/transfers", "readers", places="rome")["transfers"]
    assert (found["to"], found["since"] == found["changedAt"]) == (["rome"], True)
    assert transfers(api, "readers", places="milan") == []
    body = {"adjustmentId": "m-3", "delta": -1, "reason": "TRANSFER_OUT", "sentTo": "rome"}
    said = api("POST", f"/products/{TEA}/adjustments", body)
    assert said.code == (400, "SCHEMA_VIOLATION")
    assert said.document["detail"].startswith("reference: is missing")


def test_an_ended_transfer_is_taken_off_its_list_after_a_day(api):
    move(api, "TRANSFER_OUT", 1, -5, "berlin")
    move(api, "TRANSFER_IN", 2, 6)
    move(api, "TRANSFER_OUT", 3, -4, "berlin", "van-8")

    def listed():
        return {
            row["adjustmentId"]
            for row in api.shop.rows(Table.STOCK_ADJUSTMENTS)
            if "transferShard" in row
        }

    api.shop.invoke("sweep", {"action": "sweep"})
    assert listed() == {"m-1", "m-2", "m-3"}
    api.shop.clock.sleep(86_401)
    api.shop.invoke("sweep", {"action": "sweep"})
    assert listed() == {"m-3"}
    # What has ended is forgotten, so a later transfer with the same reference counts from the beginning.
    move(api, "TRANSFER_OUT", 4, -2)
    assert transfers(api) == [("van-8", 4, ["berlin"]), ("van-7", 2, [""])]


def test_of_many_steps_the_newest_are_read_and_no_arrival_is_taken_for_missing(api, monkeypatch):
    monkeypatch.setattr(products, "_MOST_STEPS", 4)
    move(api, "TRANSFER_OUT", 1, -2, "", "van-old")
    move(api, "TRANSFER_IN", 2, 2, "berlin", "van-old")
    for number in range(3, 6):
        move(api, "TRANSFER_OUT", number, -1, "berlin", f"van-{number}")
    found = get(api, "/transfers")
    # The departure of the oldest transfer was not read, so its arrival must not count either.
    assert [each["reference"] for each in found["transfers"]] == ["van-3", "van-4", "van-5"]
    assert found["completeSince"] < found["transfers"][0]["since"]
