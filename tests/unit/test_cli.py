"""The command line where people make mistakes: one line that says what to do, and nothing done."""

import errno
import gzip
import json
import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cli import main, operators
from local import ROOT, emulator, invoke
from operations import queues
from operations.errors import UserError
from operations.orders_file import count_orders, read_orders
from operations.redrive import CAUSES
from tests.support.messages import order_body

RUNNER = CliRunner()


def orders_file(folder, count=3):
    path = folder / "orders.jsonl"
    bodies = (json.dumps(order_body(f"o-{n}", {"tea": 1})) for n in range(count))
    path.write_text("".join(f"{body}\n" for body in bodies))
    return path


@pytest.fixture
def account(monkeypatch):
    """A stack on an account, as far as `send` can tell. Returns what was sent to it."""
    sent = []
    aws = SimpleNamespace(outputs={queues.STANDARD: "https://sqs.example/1/OrderQueue"})
    monkeypatch.setattr(operators, "aws_of", lambda stage: aws)
    monkeypatch.setattr(
        queues, "send", lambda aws, output, messages, **_: sent.extend(m.order_id for m in messages)
    )
    return sent


def test_what_is_no_order_is_named_by_line_and_nothing_is_sent(account, tmp_path):
    path = orders_file(tmp_path)
    path.write_text(path.read_text() + '{"orderId": "o-9"}\n\n[]\n')
    done = RUNNER.invoke(main.app, ["send", str(path)])
    assert isinstance(done.exception, UserError)
    said = str(done.exception)
    assert "2 of 5 lines" in said
    assert "line 4: userId" in said
    assert "line 6: " in said
    assert account == []
    assert RUNNER.invoke(main.app, ["send", str(path), "--limit", "3"]).exit_code == 0
    assert account == ["o-0", "o-1", "o-2"]
    RUNNER.invoke(main.app, ["send", str(path), "--unchecked"])
    assert account[3:] == ["o-0", "o-1", "o-2", None, None]


class PickySqs:
    """Takes one entry of a request, and refuses the rest: poison for good, the others for now."""

    def __init__(self):
        self.bodies = []

    def send_message_batch(self, QueueUrl, Entries):
        taken, *refused = Entries
        self.bodies.append(taken["MessageBody"])
        failed = [{"Id": e["Id"], "SenderFault": "poison" in e["MessageBody"]} for e in refused]
        return {
            "Successful": [{"Id": taken["Id"], "MessageId": taken["MessageBody"]}],
            "Failed": failed,
        }


def test_what_sqs_does_not_take_is_sent_again_and_what_it_never_will_is_named(monkeypatch):
    monkeypatch.setattr(queues.time, "sleep", lambda _: None)
    aws = SimpleNamespace(outputs={queues.STANDARD: "https://sqs.example/1/Q"}, sqs=PickySqs())
    messages = [SimpleNamespace(body=body) for body in ("a", "b", "c")]
    assert queues.send(aws, queues.STANDARD, messages) == aws.sqs.bodies == ["a", "b", "c"]
    with pytest.raises(UserError, match=r"does not accept a message .*: poison"):
        queues.send(aws, queues.STANDARD, [messages[0], SimpleNamespace(body="poison")])


def test_the_readme_is_no_file_of_orders():
    with pytest.raises(UserError, match="are no orders, so nothing was sent"):
        count_orders(ROOT / "README.md")


def test_an_account_is_asked_for(account, tmp_path):
    command = ["send", str(orders_file(tmp_path)), "--account", "dev"]
    asked = RUNNER.invoke(main.app, command, input="n\n")
    assert asked.exit_code == 1
    assert "Send 3 orders of" in asked.output
    assert "https://sqs.example/1/OrderQueue" in asked.output
    assert account == []
    assert RUNNER.invoke(main.app, command, input="y\n").exit_code == 0
    assert RUNNER.invoke(main.app, [*command, "--yes"]).exit_code == 0
    assert len(account) == 6


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("folder", None, "is a directory"),
        ("none.csv", "", "holds no orders"),
        ("cut.gz", gzip.compress(b"85123A,71053\n" * 9)[:-9], "is not a whole .gz file"),
        ("plain.gz", b"85123A\n", "is not a whole .gz file"),
        ("broken.gz", gzip.compress(b"85123A" * 99)[:20] + b"\x00\x01" * 20, "is not a whole .gz"),
        ("latin.csv", "Tee für zwei".encode("latin-1"), "is not UTF-8 text"),
    ],
    ids=["folder", "empty", "cut", "plain", "broken", "latin"],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, name, content, says):
    path = tmp_path / name
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content or b"")
    with pytest.raises(UserError, match=re.escape(says)):
        count_orders(path)
    if content != "":
        with pytest.raises(UserError, match=re.escape(says)):
            list(read_orders(path))


def test_a_directory_is_no_event(tmp_path):
    with pytest.raises(UserError, match="is a directory"):
        invoke.read_event(tmp_path)


def test_the_samples_are_named_in_order(tmp_path):
    with pytest.raises(UserError) as caught:
        invoke.read_event(tmp_path / "none.json")
    names = re.findall(r"events/\w+\.json", str(caught.value))
    assert len(names) > 20
    assert names == sorted(names)


def test_a_checkout_that_cannot_be_written_to_is_one_line(monkeypatch, capsys):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", "/opt/orders/.local")

    monkeypatch.setattr(emulator.STATE.__class__, "mkdir", read_only)
    monkeypatch.setattr("sys.argv", ["inventory-orders", "up"])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 1
    said = capsys.readouterr().err
    assert "/opt/orders/.local: Read-only file system. The commands write to" in said
    assert "Traceback" not in said


def test_an_error_of_ours_is_not_taken_for_one_of_a_file(monkeypatch):
    def broken():
        raise OSError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(main, "app", broken)
    with pytest.raises(OSError, match="refused"):
        main.main()


def test_an_unknown_cause_is_refused_with_the_known_ones(account):
    done = RUNNER.invoke(main.app, ["redrive", "--cause", "INVALID_JSON", "--cause", "NOPE"])
    assert isinstance(done.exception, UserError)
    assert "there is no cause NOPE" in str(done.exception)
    assert ", ".join(sorted(CAUSES)) in str(done.exception)


def test_the_known_causes_are_those_of_the_reference():
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    table = page.split("| `errorCode` | cause | who acts |\n|---|---|---|\n")[1].split("\n\n")[0]
    firsts = [row.split("|")[1] for row in table.splitlines()]
    named = {code for first in firsts for code in re.findall(r"`([A-Z_]+)`", first)}
    assert named | {queues.TOO_MANY_DELIVERIES} == CAUSES


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ({"result": "APPLIED"}, True),
        ({"result": "STALE"}, True),
        ({"batchItemFailures": []}, True),
        ({"batchItemFailures": [{"itemIdentifier": "m"}]}, False),
        ({"result": "REFUSED", "reason": "BELOW_FLOOR"}, False),
        ({"result": "RETRY_LATER", "reason": "LEASED"}, False),
        ({"errorCode": "SCHEMA_VIOLATION"}, False),
        (None, False),
    ],
)
def test_what_a_good_answer_is(answer, good):
    assert invoke.is_good(answer) is good
