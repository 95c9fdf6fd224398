"""The command that forgets a person, despite replays, cancellations, crashes and an index that lags behind."""

import hashlib
import hmac
import re
from dataclasses import replace

import pytest
from botocore.exceptions import ReadTimeoutError
from typer.testing import CliRunner

from inventory_orders.domain.events import order_events
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import Outcome
from inventory_orders.store.tables import Table
from local.commands import main
from operations import forget as forgets
from operations.audit import read_books
from operations.commands import tables as table_commands
from operations.errors import UserError
from testing.world.world import World
from tests.support.orders import parse_order

KEY = "a key of the shop's own, which is long enough"
PSEUDONYM = "forgotten-" + hmac.new(KEY.encode(), b"u-7", hashlib.sha256).hexdigest()
ORDER = Order("o-1", "u-7", {"tea": 2}, attributes={"channel": "web", "gift": True})


@pytest.fixture
def shop(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv(forgets.KEY_VARIABLE, KEY)
    monkeypatch.setattr(table_commands, "aws_of", lambda stage: shop.stack)
    shop.list("tea", 100)
    return shop


def forget(*arguments, **more):
    return CliRunner().invoke(main.app, ["forget", *arguments], **more)


def place(shop, *orders):
    assert shop.do(*orders) == [Outcome.APPLIED] * len(orders)


def command(action, order_id="o-1"):
    return OrderCommand(order_id, action)


def balances(shop):
    return set(shop.unexplained().values()) == {0}


def test_a_users_orders_get_a_pseudonym_and_lose_their_attributes(shop):
    place(
        shop,
        replace(ORDER, placed_by="ben"),
        Order("o-2", "u-7", {"tea": 1}),
        Order("o-3", "u-8", {"tea": 1}),
    )
    place(shop, command(OrderAction.CONFIRM, "o-2"), command(OrderAction.FULFIL, "o-2"))
    before, handed_over, others = (
        shop.order_row("o-1"),
        shop.order_row("o-2"),
        shop.order_row("o-3"),
    )
    done = forget("u-7", "--yes")
    assert done.exit_code == 0
    assert f"2 orders pseudonymised: {PSEUDONYM}" in done.stdout
    after = shop.order_row("o-1")
    assert before.pop("attributes") == {"channel": "web", "gift": True}
    assert before.pop("placedBy") == "ben"
    changed = {
        "userId": PSEUDONYM,
        "pseudonymisedAt": after["lastUpdatedAt"],
        "lastUpdatedAt": after["lastUpdatedAt"],
        "_version": 2,
    }
    assert after == before | changed
    assert after["lastUpdatedAt"] > before["lastUpdatedAt"]
    assert order_events(before, after) == (), "a change of the user id is not published"
    assert shop.order_row("o-2")["userId"] == PSEUDONYM
    assert "outPage" in handed_over["steps"][-1]
    assert shop.order_row("o-2")["steps"] == handed_over["steps"]
    assert shop.order_row("o-3") == others
    assert balances(shop)


def test_a_pseudonym_is_a_valid_user_and_needs_the_key():
    key = KEY.encode()
    pseudonym = forgets.pseudonym_of("u" * 128, key)
    body = f'{{"orderId": "o", "userId": "{pseudonym}", "items": [{{"productId": "p", "quantity": 1}}]}}'
    assert parse_order(body).user_id == pseudonym
    assert forgets.is_pseudonym(pseudonym)
    assert forgets.pseudonym_of("u" * 128, key + b"!") != pseudonym
    assert forgets.pseudonym_of("u-8", key) != PSEUDONYM == forgets.pseudonym_of("u-7", key)


def test_nothing_is_changed_before_confirmation(shop):
    place(shop, ORDER)
    before = shop.order_row("o-1")
    asked = forget("u-7", input="n\n")
    assert asked.exit_code == 1
    assert "Forget u-7 in 1 order of Orders? You cannot undo it." in asked.stdout
    assert shop.order_row("o-1") == before
    assert forget("u-7", input="y\n").exit_code == 0
    assert shop.order_row("o-1")["userId"] == PSEUDONYM


def test_an_unknown_user_is_an_error_that_says_what_was_searched(shop):
    place(shop, ORDER)
    unknown = forget("u-77", "--yes").exception
    assert isinstance(unknown, UserError)
    assert "Orders has no order of u-77 (index byUser) or with that buyer, and none of" in str(
        unknown
    )
    assert shop.order_row("o-1")["userId"] == "u-7"


@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_open_orders_are_listed_before_they_lose_their_user(shop, options):
    place(shop, *(Order(f"o-{n}", "u-7", {"tea": 1}) for n in range(1, 5)))
    place(shop, *(command(OrderAction.CONFIRM, order_id) for order_id in ("o-2", "o-3")))
    place(shop, command(OrderAction.FULFIL, "o-3"), command(OrderAction.CANCEL, "o-4"))
    said = forget("u-7", *options, input="n\n").stdout
    assert re.findall(r"^ *(o-\d) +(\w.*?) *$", said, re.MULTILINE) == [
        ("o-1", "not paid yet"),
        ("o-2", "paid, to ship"),
    ]
    assert "Ship or cancel these orders first" in said
    assert (shop.order_row("o-2")["userId"] == "u-7") == (not options)


def test_the_same_order_is_still_recognised_and_nothing_else(shop):
    rejected = Order("o-2", "u-7", {"tea": 1000})
    assert shop.do(ORDER, rejected) == [Outcome.APPLIED, Outcome.REJECTED]
    forget("u-7", "--yes")
    assert shop.do(ORDER, rejected) == [Outcome.REPLAYED] * 2
    more = replace(ORDER, quantities={"tea": 3})
    held = replace(ORDER, hold_seconds=60)
    assert shop.do(more) == [Outcome.INVALID]
    assert shop.do(held) == [Outcome.INVALID]
    assert shop.order_row("o-1")["userId"] == PSEUDONYM
    assert shop.stock("tea") == 98
    assert balances(shop)


def test_notes_of_a_later_command_are_removed_by_the_next_run(shop):
    place(shop, ORDER)
    forget("u-7", "--yes")
    first = shop.order_row("o-1")["pseudonymisedAt"]
    notes = {"actor": "ann", "reason": "Anna Smith moved to Paris"}
    place(shop, OrderCommand("o-1", OrderAction.CANCEL, notes=notes))
    assert shop.order_row("o-1")["steps"][-1]["reason"] == notes["reason"]
    assert "1 order pseudonymised" in forget("u-7").stdout
    assert not notes.keys() & shop.order_row("o-1")["steps"][-1].keys()
    assert shop.order_row("o-1")["pseudonymisedAt"] == first
    before = shop.order_row("o-1")
    assert "0 orders pseudonymised" in forget("u-7").stdout
    assert shop.order_row("o-1") == before


@pytest.mark.parametrize("lost", [False, True], ids=["beforehand", "in its place"])
def test_a_cancellation_in_between_counts_and_so_does_the_pseudonym(shop, lost):
    """One case writes the cancellation between the pseudonymisation's read and write. The other does the reverse."""
    place(shop, ORDER)
    if lost:
        shop.once("TransactWriteItems", lambda _: forget("u-7", "--yes") and None)
        place(shop, command(OrderAction.CANCEL))
    else:
        shop.once("TransactWriteItems", lambda _: place(shop, command(OrderAction.CANCEL)))
        assert "1 order " in forget("u-7", "--yes").stdout
    found = shop.order_row("o-1")
    assert (found["status"], found["userId"], found["_version"]) == ("CANCELLED", PSEUDONYM, 3)
    assert "attributes" not in found
    assert shop.stock("tea") == 100
    assert balances(shop)


def test_a_lost_response_is_recognised_as_its_own_write(shop):
    place(shop, ORDER)

    def loses_the_answer(request):
        shop.aws.answer("dynamodb", "TransactWriteItems", request)
        raise ReadTimeoutError(endpoint_url="https://dynamodb")

    shop.once("TransactWriteItems", loses_the_answer)
    assert "1 order pseudonymised" in forget("u-7", "--yes").stdout
    assert (shop.order_row("o-1")["_version"], shop.order_row("o-1")["userId"]) == (2, PSEUDONYM)


def test_after_a_crash_the_same_command_does_the_rest(shop):
    place(shop, *(Order(f"o-{n}", "u-7", {"tea": 1}) for n in range(5)))
    writes = []

    def dies_at_the_third(operation, _):
        if operation == "TransactWriteItems":
            writes.append(operation)
            if len(writes) == 3:
                raise KeyboardInterrupt

    shop.before = dies_at_the_third
    assert forget("u-7", "--yes").exit_code != 0
    shop.before = lambda *_: None
    versions = sorted(shop.order_row(f"o-{n}")["_version"] for n in range(5))
    assert versions == [1, 1, 1, 2, 2]
    assert "3 orders" in forget("u-7", "--yes").stdout
    assert {
        (shop.order_row(f"o-{n}")["_version"], shop.order_row(f"o-{n}")["userId"]) for n in range(5)
    } == {(2, PSEUDONYM)}


def test_an_order_that_a_stale_index_misses_is_found_too(shop):
    place(shop, ORDER, Order("o-2", "u-7", {"tea": 1}))
    looks = []

    def late(operation, request):
        if operation != "Query":
            return None
        looks.append(operation)
        answer = shop.aws.answer("dynamodb", operation, request)
        if len(looks) < 4:
            answer["Items"] = [item for item in answer["Items"] if item["orderId"]["S"] == "o-1"]
        return answer

    shop.before = late
    assert "2 orders" in forget("u-7", "--yes").stdout
    assert {shop.order_row(o)["userId"] for o in ("o-1", "o-2")} == {PSEUDONYM}


def test_a_row_that_the_index_still_shows_is_left_alone(shop):
    place(shop, ORDER)
    looks = []

    def late(operation, request):
        if operation != "Query":
            return None
        looks.append(shop.aws.answer("dynamodb", operation, request))
        return looks[0] if len(looks) < 6 else None

    shop.before = late
    assert "1 order " in forget("u-7", "--yes").stdout
    assert len(looks) > 6, "the command waits for the index"
    assert shop.order_row("o-1")["_version"] == 2


def test_a_row_that_cannot_be_changed_is_named_and_the_others_are_done(shop):
    place(shop, *(Order(f"o-{n}", "u-7", {"tea": 1}) for n in (1, 2, 3)))
    orders = shop.aws.dynamodb.tables["Orders"].items
    orders["o-1",] = {name: v for name, v in orders["o-1",].items() if name != "items"}
    orders["o-2",] = {name: v for name, v in orders["o-2",].items() if name != "status"}
    done = forget("u-7", "--yes")
    assert done.exit_code == 1
    assert "1 order pseudonymised" in done.stdout
    assert len(re.findall("Not changed: .*repair the item", done.stdout)) == 2
    assert [shop.order_row(f"o-{n}")["userId"] for n in (1, 2, 3)] == ["u-7", "u-7", PSEUDONYM]


def test_the_key_comes_from_a_file_or_the_environment_and_is_long(shop, tmp_path, monkeypatch):
    place(shop, ORDER)
    file = tmp_path / "key"
    file.write_text("too short, and even a line's end does not help\n"[-32:])
    with pytest.raises(UserError, match=r"has only 31 bytes.*needs 32 or more"):
        forgets.read_key(file, {})
    monkeypatch.delenv(forgets.KEY_VARIABLE)
    none = forget("u-7", "--yes").exception
    assert isinstance(none, UserError)
    assert "--key-file" in str(none)
    assert shop.order_row("o-1")["userId"] == "u-7"
    file.write_text(KEY + "\n")
    assert forget("u-7", "--yes", "--key-file", str(file)).exit_code == 0
    assert shop.order_row("o-1")["userId"] == PSEUDONYM


def test_a_pseudonym_is_not_forgotten_again(shop):
    assert forget(PSEUDONYM, "--yes").exit_code == 2
    assert shop.calls[-1] != "Query"


def bought(shop, buyer):
    row = shop.row_of(Table.PURCHASES, buyer)
    return row and row["units"]


def limited_shop(shop):
    """Place an order of u-7 under two keys, of which a unit is cancelled, and one of another customer with the same card."""
    shop.list("shoe", 100, purchase_limit=9)
    shop.row_of = lambda table, key: World.row(shop, table, key)
    mine = Order("o-1", "u-7", {"shoe": 3, "tea": 1}, named_buyers=("u-7", "card"))
    cancelled = OrderCommand("o-1", OrderAction.CANCEL, step_id="s", quantities={"shoe": 1})
    place(shop, mine, Order("o-2", "u-7", {"shoe": 1}))
    place(shop, cancelled, Order("o-3", "u-8", {"shoe": 2}, named_buyers=("u-8", "card")))
    assert [bought(shop, each) for each in ("u-7", "card", "u-8")] == [
        {"shoe": 3},
        {"shoe": 4},
        {"shoe": 2},
    ]


def test_a_forgotten_customer_may_buy_up_to_each_limit_again(shop):
    limited_shop(shop)
    assert forget("u-7", "--yes").exit_code == 0
    assert [bought(shop, each) for each in ("u-7", "card", "u-8")] == [
        None,
        {"shoe": 2},
        {"shoe": 2},
    ]
    assert "buyers" not in shop.order_row("o-1")
    assert "u-7" not in str(shop.items(Table.PURCHASES))
    place(shop, command(OrderAction.CANCEL), command(OrderAction.CANCEL, "o-2"))
    assert bought(shop, "card") == {"shoe": 2}, "a later cancellation gives nothing back again"
    assert read_books(shop.stack).purchases == []
    assert "0 orders" in forget("u-7").stdout


def test_other_keys_of_a_forgotten_customer_may_stay_and_go_later(shop):
    limited_shop(shop)
    assert forget("u-7", "--yes", "--keep-limits").exit_code == 0
    assert [bought(shop, each) for each in ("u-7", "card")] == [None, {"shoe": 4}]
    assert shop.order_row("o-1")["buyers"] == ["card"]
    place(shop, command(OrderAction.CANCEL))
    assert bought(shop, "card") == {"shoe": 2}, "what is still counted is refunded"
    assert read_books(shop.stack).purchases == []
    assert "0 orders" in forget("u-7", "--keep-limits").stdout
    assert "1 order " in forget("u-7").stdout
    assert "buyers" not in shop.order_row("o-1")
    assert bought(shop, "card") == {"shoe": 2}


def test_orders_of_others_no_longer_name_a_forgotten_buyer(shop):
    shop.list("shoe", 100, purchase_limit=9)
    shop.row_of = lambda table, key: World.row(shop, table, key)
    gift = Order("o-1", "u-8", {"shoe": 2}, named_buyers=("u-7", "card"), attributes={"a": 1})
    only = Order("o-2", "u-8", {"shoe": 1}, named_buyers=("u-7",))
    place(shop, gift, only, Order("o-3", "u-7-2", {"shoe": 1}))
    before = shop.order_row("o-1")
    refused = forget("u-7", input="n\n")
    assert "Forget u-7 in 2 orders" in refused.stdout
    assert shop.order_row("o-1") == before
    assert "2 orders pseudonymised" in forget("u-7", "--yes").stdout
    assert "u-7'" not in str(shop.items(Table.ORDERS)) + str(shop.items(Table.PURCHASES))
    after = shop.order_row("o-1")
    assert (after["userId"], after["attributes"], after["buyers"]) == ("u-8", {"a": 1}, ["card"])
    assert (bought(shop, "u-7"), bought(shop, "card")) == (None, {"shoe": 2})
    assert shop.do(gift, only) == [Outcome.REPLAYED] * 2
    place(shop, command(OrderAction.CANCEL), command(OrderAction.CANCEL, "o-2"))
    assert bought(shop, "card") == {"shoe": 0}
    assert read_books(shop.stack).purchases == []
    assert isinstance(forget("u-7").exception, UserError)


@pytest.mark.parametrize(
    ("broken", "left"),
    [({"units": {"M": {"shoe": {"N": "1"}}}}, 1), ({"_version": {"S": "x"}}, 4)],
)
def test_an_erasure_goes_on_without_a_row_that_another_program_changed(shop, broken, left):
    limited_shop(shop)
    shop.items(Table.PURCHASES)["card",] |= broken
    del shop.items(Table.PURCHASES)["u-7",]
    assert forget("u-7", "--yes").exit_code == 0
    assert (bought(shop, "card"), bought(shop, "u-7")) == ({"shoe": left}, None)
    assert {shop.order_row(each)["userId"] for each in ("o-1", "o-2")} == {PSEUDONYM}


def test_a_contradictory_order_is_a_problem_only_if_it_counts_towards_a_limit(
    shop,
):
    shop.list("shoe", 9, purchase_limit=2)
    place(shop, ORDER, Order("o-2", "u-7", {"shoe": 1}), Order("o-3", "u-7", {"shoe": 1}))
    for order_id in ("o-1", "o-2"):
        line = shop.items(Table.ORDERS)[order_id,]["items"]["L"][0]["M"]
        line["quantity"] = {"S": "x"}
    run = forget("u-7", "--yes")
    assert "o-2 has steps that contradict its lines" in " ".join(run.output.split())
    users = [shop.order_row(order_id)["userId"] for order_id in ("o-1", "o-2", "o-3")]
    assert users == [PSEUDONYM, "u-7", PSEUDONYM]
