"""Counts as of a time: they correct what was on hand when they began, whatever has moved since, and never twice."""

import json
import random

import pytest

from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import Outcome
from inventory_orders.lanes.levels import read_level
from inventory_orders.products.lease import Lease
from inventory_orders.store.tables import Table
from testing.schedules.in_turn.lanes import LaneShop
from tests.support.http import Api

BERLIN = "berlin"


@pytest.fixture
def shop(shop):
    shop.list("tea", 20)
    shop.list("tea#berlin", 8)
    shop.list("mug", 5)
    return shop


def begin(shop, product_id="tea", location_id="", **fields):
    asked = {"action": "begin", "productId": product_id, "locationId": location_id}
    return shop.invoke("count_stock", asked | {"adjustmentId": "new"} | fields)


def book(shop, begun, counted, adjustment_id="c-1", **fields):
    """Book a count that `begin` has begun."""
    names = ("productId", "locationId", "snapshot")
    asked = {"action": "count", **{name: begun[name] for name in names}}
    asked |= {"counted": counted, "adjustmentId": adjustment_id}
    return shop.invoke("count_stock", asked | fields)


def on_hand(shop, key="tea"):
    client = RetryingClient(shop.store)
    return read_level(client, key, shop.soon(), CommitStats()).on_hand


def moves(shop, chance):
    """Yield kinds of changes to the units on hand of `tea` at the default location; each returns the units it added."""
    number = 0

    def adjust(delta, reason):
        asked = {"action": "adjust", "productId": "tea", "locationId": "", "delta": delta}
        asked |= {"adjustmentId": f"a-{number}", "reason": reason}
        assert shop.invoke("adjust_stock", asked)["result"] == "APPLIED"
        return delta

    def sell(*actions):
        order_id = f"o-{number}"
        shop.do(Order(order_id, "u", {"tea": 1}))
        for action in actions:
            back = True if action == "return" else None
            named = {} if action == "confirm" else {"tea": 1}
            change = OrderCommand(order_id, OrderAction(action), "", f"s-{action}", named, back)
            assert shop.do(change) == [Outcome.APPLIED]
        return {(): 0, ("confirm", "fulfil"): -1, ("confirm", "fulfil", "return"): 0}[actions]

    def transfer(source, target, units):
        asked = {"action": "transfer", "productId": "tea", "from": source, "to": target}
        asked |= {"quantity": abs(units), "transferId": f"t-{number}"}
        assert shop.invoke("adjust_stock", asked)["result"] == "APPLIED"
        return units

    kinds = {
        "receipt": lambda: adjust(4, "RECEIPT"),
        "damage": lambda: adjust(-1, "DAMAGE"),
        "decrement": lambda: (
            shop.invoke(
                "adjust_stock",
                {"action": "decrement", "productId": "tea", "locationId": "", "quantity": 1}
                | {"adjustmentId": f"d-{number}", "mode": "atomic"},
            )
            and -1
        ),
        "sale": sell,
        "hand-over": lambda: sell("confirm", "fulfil"),
        "return": lambda: sell("confirm", "fulfil", "return"),
        "transfer": lambda: transfer("", BERLIN, -1),
        "arrival": lambda: transfer(BERLIN, "", 1),
        "fold": lambda: shop.invoke("sweep", {"action": "sweep"}) and 0,
    }
    while True:
        number += 1
        kind = yield
        yield kind, kinds[kind or chance.choice([*kinds])]()


@pytest.mark.parametrize("seed", range(12))
def test_a_count_is_exact_whatever_moves_before_during_and_after_it(shop, seed):
    chance, shelf = random.Random(seed), 18  # two units are missing
    going = moves(shop, chance)

    def move(times):
        nonlocal shelf
        for _ in range(times):
            next(going)
            _, units = next(going)
            shelf += units

    move(3)
    begun, counted = begin(shop), shelf
    move(chance.randrange(6))
    done = book(shop, begun, counted)
    assert (done["result"], done["counted"], done["delta"]) == ("APPLIED", counted, -2)
    assert on_hand(shop) == shelf
    move(3)
    assert on_hand(shop) == shelf
    # Even with no difference, the count is noted.
    assert book(shop, begin(shop), shelf, "c-2")["delta"] == 0
    assert set(shop.unexplained().values()) == {0}


def test_a_count_of_a_product_in_lanes_includes_their_units():
    with LaneShop().open() as lanes:
        lanes.list_lent("tea", 100)
        begun = begin(lanes)
        lanes.sell_from(1, "tea", 2)
        assert book(lanes, begun, 97)["delta"] == -3
        assert on_hand(lanes) == 97
        # More than the row has: the units come back from the lanes.
        assert book(lanes, begin(lanes), 10, "c-2")["delta"] == -87
        assert (on_hand(lanes), lanes.total("tea")) == (10, 10)


def test_of_two_counts_that_overlap_one_is_booked(shop):
    first, second = begin(shop), begin(shop)
    assert book(shop, first, 17, "c-1", actor="ann")["delta"] == -3
    refused = book(shop, second, 17, "c-2", actor="ben")
    assert (refused["result"], refused["code"]) == ("REFUSED", "COUNTED_SINCE")
    assert on_hand(shop) == 17
    assert book(shop, begin(shop), 18, "c-2", actor="ben")["delta"] == 1
    assert on_hand(shop) == 18


def test_a_count_that_was_booked_says_who_found_what_and_when(shop):
    begun = begin(shop, adjustmentId="c-1")
    assert begun["result"] == "BEGUN"
    notes = {"actor": "ann", "reference": "Winter"}
    done = book(shop, begun, 17, **notes)
    shown = {"adjustmentId": "c-1", "counted": 17, "delta": -3, **notes}
    shown |= {"productId": "tea", "locationId": "", "countedAt": begun["countedAt"]}
    assert shown.items() <= done.items()
    assert shown.items() <= begin(shop, adjustmentId="c-1").items()
    assert begin(shop, adjustmentId="c-1")["result"] == "COUNTED_BEFORE"
    # The same number again changes nothing, and another one is told so.
    again = book(shop, begun, 17, actor="ben")
    assert (again["result"], again["actor"], again["delta"]) == ("REPLAYED", "ann", -3)
    other = book(shop, begun, 16, actor="ben")
    assert (other["code"], on_hand(shop)) == ("ADJUSTMENT_ID_REUSED", 17)
    assert "counted (stored 17, sent 16)" in other["message"]


def test_a_count_under_a_lease_and_one_as_of_a_time_exclude_each_other(shop):
    begun, client = begin(shop), RetryingClient(shop.store)
    lease = Lease.acquire(client, "tea", 900.0, shop.soon(), outlive_deadline=True)
    assert book(shop, begun, 17)["code"] == "LEASED"
    lease.commit(17, "leased", shop.soon())
    assert book(shop, begun, 17)["code"] == "COUNTED_SINCE"
    assert on_hand(shop) == 17


def test_a_count_of_another_generation_is_refused(shop):
    begun = begin(shop, "mug")
    created_at = shop.row("mug")["createdAt"]["S"]
    delist = {"action": "delist", "productId": "mug", "createdAt": created_at}
    assert shop.invoke("manage_products", delist)["result"] == "APPLIED"
    assert book(shop, begun, 4)["code"] == "UNKNOWN_PRODUCT"
    shop.list("mug", 5)
    assert book(shop, begun, 4)["code"] == "COUNTED_SINCE"


def test_open_orders_limit_what_a_count_can_take_away(shop):
    shop.do(Order("o", "u", {"mug": 4}))
    refused = book(shop, begin(shop, "mug"), 3)
    assert (refused["code"], refused["shortages"][0]["wanted"]) == ("BELOW_FLOOR", 2)
    assert book(shop, begin(shop, "mug"), 4)["delta"] == -1


def test_beginning_and_booking_say_what_is_wrong(shop):
    assert begin(shop, "rum")["code"] == "UNKNOWN_PRODUCT"
    for text in ("x", begin(shop)["snapshot"][:-1], begin(shop)["snapshot"] + " 1"):
        wrong = book(shop, begin(shop) | {"snapshot": text}, 1)
        assert (wrong["code"], wrong["field"]) == ("SCHEMA_VIOLATION", "snapshot")
    receipt = {"action": "adjust", "productId": "mug", "delta": 1, "reason": "RECEIPT"}
    shop.invoke("adjust_stock", receipt | {"adjustmentId": "r"})
    assert begin(shop, "mug", adjustmentId="r")["result"] == "BEGUN"
    assert book(shop, begin(shop, "mug"), 6, "r")["code"] == "ADJUSTMENT_ID_REUSED"


def test_a_blind_count_does_not_show_the_units_before_it(shop):
    assert begin(shop, "mug")["onHand"] == 5
    begun = begin(shop, "mug", blind=True)
    assert begun.keys() == {"result", "productId", "locationId", "snapshot", "countedAt"}


# ---------------------------------------------------------------------- lists


def test_a_location_lists_what_was_not_counted_longest(shop):
    api = Api(shop)

    def due(**query):
        return api("GET", "/counts", query=query).document

    assert [one["productId"] for one in due()["counts"]] == ["tea", "mug"]
    assert due(locationId=BERLIN)["counts"][0].items() > {("locationId", BERLIN)}
    begun = begin(shop)
    book(shop, begun, 20)
    page = due(limit="1")
    assert [one["productId"] for one in page["counts"]] == ["mug"]
    last = due(limit="1", cursor=page["next"])["counts"]
    created = shop.product("tea").created_at
    assert last == [{"productId": "tea", "countedAt": begun["countedAt"], "createdAt": created}]
    never = page["counts"][0]
    assert never["countedAt"] == never["createdAt"] == shop.product("mug").created_at
    # A count under a lease is one, too.
    lease = Lease.acquire(RetryingClient(shop.store), "mug", 5.0, shop.soon())
    lease.commit(5, "leased", shop.soon())
    assert [one["productId"] for one in due()["counts"]] == ["tea", "mug"]
    assert shop.row("mug")["countPlace"] == {"S": "(default)"}


def test_a_stocktake_lists_its_counts_and_no_others(shop):
    api = Api(shop)
    book(shop, begin(shop), 18, "c-1", reference="Winter 26", actor="ann")
    book(shop, begin(shop, "mug"), 5, "c-2", reference="winter 26", actor="ben")
    book(shop, begin(shop, "tea", BERLIN), 9, "c-3", reference="Summer")
    book(shop, begin(shop, "tea", BERLIN), 9, "c-4")
    asked = {"action": "adjust", "productId": "mug", "locationId": "", "delta": 1}
    shop.invoke(
        "adjust_stock",
        asked | {"adjustmentId": "r", "reason": "RECEIPT", "reference": "Winter 26"},
    )
    first = api("GET", "/counts", query={"reference": "WINTER 26", "limit": "1"}).document
    rest = api("GET", "/counts", query={"reference": "WINTER 26", "cursor": first["next"]})
    found = [*first["counts"], *rest.document["counts"]]
    shown = [(one["productId"], one["counted"], one["delta"], one["actor"]) for one in found]
    assert shown == [("mug", 5, 0, "ben"), ("tea", 18, -2, "ann")]
    assert {"stocktake"}.isdisjoint(found[0])
    for location_id, there in (("", 2), (BERLIN, 0)):
        at_one = {"reference": "winter 26", "locationId": location_id}
        assert len(api("GET", "/counts", query=at_one).document["counts"]) == there
    rows = shop.items(Table.STOCK_ADJUSTMENTS).values()
    assert sum("stocktake" in row for row in rows) == 3
    for no_note in ("", "x" * 129):
        refused = api("GET", "/counts", query={"reference": no_note})
        assert (refused.status, refused.document["field"]) == (400, "reference")


def test_staff_see_and_count_at_their_own_locations(shop):
    grants = {"counters": ["stock.count"]}
    roles = {"claim": "cognito:groups", "grants": grants, "locationsClaim": "custom:locations"}
    shop.restart(USER_ID_CLAIM="sub", ROLES=json.dumps(roles))
    api = Api(shop)
    book(shop, begin(shop), 20, "c-1", reference="Winter")
    book(shop, begin(shop, "tea", BERLIN), 8, "c-2", reference="Winter")
    carl = {"cognito:groups": "[counters]", "custom:locations": BERLIN, "sub": "carl"}
    claims = {"claims": carl}
    listed = api("GET", "/counts", query={"reference": "Winter"}, **claims)
    assert [one["adjustmentId"] for one in listed.document["counts"]] == ["c-2"]
    assert api("GET", "/counts", **claims).document == {"counts": []}
    there = {"action": "begin", "productId": "tea", "locationId": BERLIN, "adjustmentId": "c-3"}
    assert api("POST", "/counts", there | {"locationId": ""}, **claims).status == 403
    begun = api("POST", "/counts", there, **claims).document
    count = {"action": "count", "productId": "tea", "locationId": BERLIN, "counted": 7}
    count |= {"snapshot": begun["snapshot"], "adjustmentId": "c-3"}
    assert api("POST", "/counts", count, **claims).document["actor"] == "carl"
