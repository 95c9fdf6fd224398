"""Files of commands on orders: what their lines mean, and that sending one again changes nothing."""

import json
import re

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.order import Order
from inventory_orders.store.tables import Table
from local import ROOT
from local.commands import main
from operations import queues
from operations.commands import queues as queue_commands
from operations.commands_file import read_commands
from operations.errors import UserError
from operations.file_errors import FileRefusedError

HEADER = "action,orderId,productId,quantity,stepId,restock,reference\n"


@pytest.fixture
def read(tmp_path):
    def read(content, name="commands.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [line.document for line in read_commands(path, **options)]

    return read


def refused(read, content, **options):
    with pytest.raises(FileRefusedError) as caught:
        read(content, **options)
    return [(bad.number, bad.code, bad.message) for bad in caught.value.bad]


def test_adjacent_rows_of_a_step_are_one_command_and_rows_without_products_one_each(read):
    rows = "confirm,o-1,,,,,\nconfirm,o-2,,,,,\nreturn,o-1,tea,1,,TRUE,rma 7\nreturn,o-1,mug,2,,TRUE,rma 7\n"
    *paid, back = read(f"{HEADER}{rows}return,o-3,tea,1,rt-1,False,\n")[:3]
    assert paid == [{"action": "confirm", "orderId": f"o-{n}"} for n in (1, 2)]
    assert back.pop("stepId").startswith("file-")
    items = [{"productId": "tea", "quantity": 1}, {"productId": "mug", "quantity": 2}]
    assert back == {"action": "return", "orderId": "o-1", "restock": True, "reference": "rma 7"} | {
        "items": items
    }
    last = read(f"{HEADER}{rows}return,o-3,tea,1,rt-1,False,\n")[-1]
    assert (last["stepId"], last["restock"]) == ("rt-1", False)


def test_derived_ids_depend_on_the_content_alone(read):
    def ids(*rows):
        return [one["stepId"] for one in read(HEADER + "".join(f"{row}\n" for row in rows))]

    same = ids(
        "cancel,o-1,tea,1,,,", "cancel,o-2,tea,1,,,", "cancel,o-1,tea,2,,,", "fulfil,o-1,tea,1,,,"
    )
    assert len({*same}) == 4
    line = {"action": "cancel", "orderId": "o-1", "items": [{"productId": "tea", "quantity": 1}]}
    (found,) = read(json.dumps(line | {"reason": "broken"}), "commands.jsonl")
    assert found["stepId"] == same[0]


def test_amends_name_locations_and_versions_and_hand_overs_are_undone_whole(read):
    header = "action,orderId,productId,quantity,locationId,ifVersion,force,attributes.gift\n"
    rows = "amend,o-1,4711,0,,2,,\namend,o-1,mug,2,berlin,2,,\nunfulfil,o-2,,,,,true,\n"
    amend, undone, moved = read(f"{header}{rows}amend,o-3,tea,1,(default),,,yes\n")
    assert moved.pop("stepId")
    assert moved == {"action": "amend", "orderId": "o-3", "attributes": {"gift": "yes"}} | {
        "items": [{"productId": "tea", "quantity": 1, "locationId": ""}]
    }
    assert amend.pop("stepId") != undone.pop("stepId")
    assert amend == {"action": "amend", "orderId": "o-1", "ifVersion": 2} | {
        "items": [
            {"productId": "4711", "quantity": 0},
            {"productId": "mug", "quantity": 2, "locationId": "berlin"},
        ]
    }
    assert undone == {"action": "unfulfil", "orderId": "o-2", "force": True}
    gift = {"action": "amend", "orderId": "o-1", "attributes": {"gift": True}}
    ids = {
        read(json.dumps(gift | more), "c.jsonl")[0]["stepId"] for more in ({}, {"attributes": {}})
    }
    assert len(ids) == 2
    bad = refused(
        read,
        "action,orderId,productId,quantity,locationId,restock,stepId\nreturn,o-1,tea,1,rome,true,s\n",
    )
    assert bad[0][2].startswith("locationId: ")


def test_commands_about_whole_orders_may_be_repeated_and_steps_may_not(read):
    assert len(read(f"{HEADER}confirm,o-1,,,,,\nconfirm,o-2,,,,,\nconfirm,o-1,,,,,\n")) == 2
    rows = "return,o-1,tea,1,,true,\nreturn,o-2,tea,1,a,true,\nreturn,o-1,tea,1,,true,\nreturn,o-2,mug,1,a,true,\n"
    bad = refused(read, HEADER + rows)
    assert [line for line, code, _ in bad if code == "DUPLICATE_LINE"] == [2, 4, 3, 5]
    assert bad[0][2].startswith(
        "stepId: lines 2 and 4 name the same units of order o-1 and no stepId; keep one"
    )
    assert bad[2][2].startswith("stepId: lines 3 and 5 have the same stepId, a; keep one")


def test_rows_of_one_command_that_name_a_product_twice_are_refused(read):
    row = "return,o-1,tea,1,,true,\n"
    bad = refused(read, f"{HEADER}{row}{row}return,o-1,mug,1,,true,\n")
    assert [line for line, *_ in bad] == [2, 3]
    assert bad[0][2].startswith("productId: lines 2 and 3 name tea in one command; keep one, write")


FAULTS = {
    "pay,o-1,,,,,": "action: must be one of confirm, extend, fulfil, cancel, return, unfulfil, amend, but is",
    "confirm,,,,,,": "orderId: is missing; the line must be a command such as",
    "return,o-1,,,,true,": "productId: is missing; name a product and its quantity",
    "return,o-1,tea,,,true,": "quantity: is missing; name a product and its quantity",
    "return,o-1,tea,1e1,,true,": 'quantity: must be a whole number from 1 to 1,000,000, without quotes or decimals, but is "1e1"',
    "return,o-1,tea,1,,maybe,": 'restock: must be true if the units can be sold again, else false, but is "maybe"',
    "confirm,o-1,tea,1,,,": "productId: confirm is about a whole order; leave productId and quantity empty",
    "amend,o-1,tea,-1,,,": "quantity: must be a whole number from 0 to 1,000,000, without quotes or decimals, but is",
    "amend,o-1,,,,,": "productId: is missing",
    "return,o-1,tea": "the row has 3 cells, but the header has 7",
}


def test_every_fault_is_named_by_line_and_column_and_nothing_else_is_refused(read):
    rows = "".join(f"{row}\n" for row in FAULTS)
    bad = refused(read, f"{HEADER}{rows}confirm,o-9,,,,,\n")
    assert [line for line, *_ in sorted(bad)] == list(range(2, 2 + len(FAULTS)))
    for (_, _, message), said in zip(sorted(bad), FAULTS.values(), strict=True):
        assert message.startswith(said), message


def test_faults_of_json_lines_are_named_too(read):
    lines = [
        '{"action": "confirm", "orderId": "o-1"',
        "[1]",
        '{"action": "return", "orderId": "o-1"}',
    ]
    (_, first, _), (_, _, second), (_, _, third) = refused(
        read, '{"action": "confirm", "orderId": "o-1"}\n' + "\n".join(lines), name="c.jsonl"
    )
    assert first == "INVALID_JSON"
    assert second.startswith("a line must be an object, such as")
    assert third.startswith("items: is missing; the line must be a command such as")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "orderId,userId,productId,quantity\n",
            'the column action is missing; the column "userId" is unknown',
        ),
        (HEADER, "contains no commands; nothing was sent"),
        ("", "the column action is missing; the column orderId is missing"),
    ],
)
def test_a_file_without_commands_is_refused(read, content, said):
    with pytest.raises(UserError, match=said):
        read(content)


def test_the_sample_in_the_reference_is_a_file_of_commands(read):
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    _, shown = re.findall(r"```csv\n(.*?)```", page, flags=re.DOTALL)
    assert [document["action"] for document in read(shown)] == ["fulfil", "return"]


# ---------------------------------------------------------------- sending


@pytest.fixture
def send(shop, monkeypatch, tmp_path):
    """A function that sends a file of commands, and delivers them."""
    shop.list_all("tea", "mug")
    for number in (1, 2, 3):
        shop.do(Order(f"o-{number}", "u", {"tea": 3, "mug": 1}))
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: shop.stack)
    path = tmp_path / "day.csv"

    def send(content, *options):
        path.write_text(HEADER + content)
        return CliRunner().invoke(main.app, ["send", "--commands", str(path), *options])

    return send


def carry_out(shop):
    """Deliver the commands. Those that arrive before what they need come back for a while."""
    for _ in range(5):
        shop.deliver("OrderCommand")
        shop.clock.advance(10)


DAY = (
    "confirm,o-1,,,,,\n"
    "fulfil,o-1,,,,,\n"
    "return,o-1,tea,1,,true,rma 7\n"
    "cancel,o-2,,,,,\n"
    "confirm,o-2,,,,,\n"
    "fulfil,o-3,,,,,\n"
    "confirm,o-9,,,,,\n"
)


def test_a_check_says_what_each_command_would_do_now_and_sends_nothing(shop, send, tmp_path):
    done = send(DAY, "--check")
    assert (done.exit_code, shop.waiting("OrderCommand")) == (1, [])
    said = " ".join(done.stdout.split())
    for action in ("cancel", "confirm", "fulfil", "return"):
        assert f"1 {action}: would be carried out" in said
    assert "Bad lines: 3" in said
    assert said.endswith("7 commands checked; nothing was sent.")
    report = (tmp_path / "day.csv.errors.csv").read_text("utf-8-sig").splitlines()
    assert [row.split(",")[:5] for row in report[1:]] == [
        ["6", "o-2", "", "", "ORDER_CANCELLED"],
        ["7", "o-3", "", "", "NOT_CONFIRMED"],
        ["8", "o-9", "", "", "UNKNOWN_ORDER"],
    ]


def test_commands_take_effect_once_however_often_the_file_is_sent(shop, send):
    good = "".join(DAY.splitlines(keepends=True)[:4])
    for _ in range(2):
        done = send(good)
        assert (done.exit_code, len(shop.waiting("OrderCommand"))) == (0, 4)
        assert done.stdout.startswith("4 messages sent to OrderCommand")
        assert "`send --commands --check` with the same file shows what" in done.stdout
        carry_out(shop)
        assert (shop.status("o-1"), shop.status("o-2")) == ("FULFILLED", "CANCELLED")
        # Three orders took three each; one is cancelled, and one unit came back.
        assert shop.stock("tea") == 1000 - 9 + 3 + 1
    done = send(good, "--check")
    assert (done.exit_code, "would be" in done.stdout) == (0, False)
    assert "return: carried out before" in done.stdout
    assert set(shop.unexplained().values()) == {0}


def test_a_check_follows_amends_and_hand_overs_that_are_undone(shop, send):
    rows = "amend,o-1,tea,5,,,\nconfirm,o-1,,,,,\nfulfil,o-1,tea,5,p,,\nunfulfil,o-1,tea,5,u,,\namend,o-1,tea,6,,,\n"
    done = send(rows, "--check")
    assert "ALREADY_PAID" in done.stdout
    assert "Bad lines: 1" in " ".join(done.stdout.split())
    send("".join(rows.splitlines(keepends=True)[:4]))
    carry_out(shop)
    assert (shop.status("o-1"), shop.stock("tea")) == ("CONFIRMED", 1000 - 9 - 2)
    assert "carried out before" in send(rows, "--check").stdout
    assert set(shop.unexplained().values()) == {0}


def test_returns_of_the_same_units_are_two_if_their_references_differ(shop, send):
    send("confirm,o-1,,,,,\nfulfil,o-1,,,,,\n")
    carry_out(shop)
    before, note = shop.stock("tea"), "has neither a stepId nor a reference"
    for row, back in (("rma 7", 1), ("rma 8", 2), ("rma 8", 2), ("", 3), ("", 3)):
        done = send(f"return,o-1,tea,1,,true,{row}\n")
        assert (note in " ".join(done.stdout.split())) == (not row)
        carry_out(shop)
        assert shop.stock("tea") == before + back
    assert note not in send("return,o-1,tea,1,rt-1,true,\nconfirm,o-1,,,,,\n", "--check").stdout


def test_a_check_reports_orders_it_cannot_read_and_steps_with_other_content(shop, send):
    send("confirm,o-1,,,,,\nfulfil,o-1,tea,1,parcel,,\n")
    carry_out(shop)
    shop.edit(Table.ORDERS, "o-2", items={"S": "?"})
    done = send(
        "fulfil,o-1,tea,2,parcel,,\ncancel,o-2,,,,,\ncancel,o-8,,,,,\ncancel,o-8,,,,,\n", "--check"
    )
    assert done.exit_code == 1
    assert "stepId" in done.stdout
    assert "line 2: " in done.stdout
    assert "STEP_ID_REUSED" in done.stdout
    assert "CORRUPT_RECORD" in done.stdout
    # A cancellation may arrive before its order.
    assert "1  cancel: would be carried out" in done.stdout


@pytest.mark.parametrize("option", [["--unchecked"], ["--queue", "fifo"]])
def test_options_for_orders_are_not_for_commands(send, option):
    assert send(DAY, *option).exit_code == 2


def test_a_file_of_orders_can_be_checked_without_sending_it(monkeypatch, tmp_path):
    monkeypatch.setattr(queues, "send", None)
    path = tmp_path / "orders.csv"
    path.write_text("orderId,userId,productId,quantity\no-1,u,tea,1\n")
    done = CliRunner().invoke(main.app, ["send", str(path), "--check"])
    assert (done.exit_code, done.stdout) == (0, "1 order checked; nothing was sent.\n")
