"""Every sample event is answered by its handler, and only ids and reasons are logged."""

import base64
import hashlib
import io
import json
import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from docs_generator import sample_events as samples
from local import ROOT, emulator
from local.commands import main
from local.invoke import FED_BY, addressee, invoke_deployed, is_good
from operations.errors import UserError
from testing.world.events import order_body, sqs_event
from testing.world.handlers import function_names

SAMPLES = sorted(path.stem for path in (ROOT / "events").glob("*.json"))
# A log line may include these, so that the message can be found.
NAMED = {
    *("orderId", "adjustmentId", "productId", "locationId", "eventId", "messageId", "createdAt"),
}


def leaves(value, name=""):
    """Yield every name and string in a document, each string with the name of its field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield "", key
            yield from leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, name)
    elif isinstance(value, str):
        yield name, value


def texts_of(event):
    """Yield the sender's data: whole bodies, strings that are not ids, and strings of rows."""
    if event.get("Records") and "dynamodb" in event["Records"][0]:
        yield from (text for name, text in leaves(event) if name == "S")
        return
    for body in [record["body"] for record in event.get("Records", ())] or [json.dumps(event)]:
        yield body
        try:
            document = json.loads(body)
        except ValueError:
            continue
        yield from (text for name, text in leaves(document) if name and name not in NAMED)


def test_the_index_lists_every_sample_with_the_answer_that_its_function_gives():
    assert sorted(samples.SHOWS) == SAMPLES
    assert samples.PAGE.read_text("utf-8") == samples.text(), "out of date: run `make docs`"


def test_a_split_order_takes_a_line_from_each_location():
    with samples.opened() as shop:
        for name in ("manage_products_create_place", "place_orders_locations"):
            assert samples.invoke(shop, samples.function_of(name), samples.event_of(name)).is_good
        lines = shop.order_row("sample-o-4101")["items"]
    assert [line.get("locationId") for line in lines] == ["berlin", None]


def test_a_sample_is_accepted_as_a_whole_unless_its_name_says_otherwise():
    rows = re.findall(
        r"^\| \[(\w+)\.json\].* (\d) \|$", samples.PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert dict(rows) == {name: "3" if samples.is_bad(name) else "0" for name in samples.SHOWS}


def test_a_sample_is_not_sent_to_another_function(monkeypatch):
    monkeypatch.setattr(emulator, "running", lambda: pytest.fail("it is about to be sent"))
    for sample in SAMPLES:
        path, meant = str(ROOT / "events" / f"{sample}.json"), samples.function_of(sample)
        other = next(function for function in function_names() if function != meant)
        done = CliRunner().invoke(main.app, ["invoke", other, path])
        assert isinstance(done.exception, UserError)
        said = f"{path} is an event for {meant}, not {other}; run: make invoke FUNCTION={meant} "
        assert said in str(done.exception)


def test_custom_events_are_refused_by_other_functions(tmp_path):
    """A batch is recognised by its queue or stream. A function refuses commands and requests for other functions."""
    with samples.opened() as shop:
        for sample in SAMPLES:
            event, meant = samples.event_of(sample), samples.function_of(sample)
            if "Records" in event:
                # Two functions read the stream of orders.
                wanted = meant.replace("record_movements", "publish_events")
                assert addressee(tmp_path / "event.json", event) == wanted
                continue
            assert addressee(tmp_path / "event.json", event) is None
            # Orders are amended where they are placed, too.
            also = {"place_orders"} if sample == "change_orders_amend" else set()
            for function in set(function_names()) - {meant} - also:
                assert not samples.invoke(shop, function, event).is_good, (sample, function)


def test_a_batch_from_a_deployed_queue_is_for_the_function_that_it_feeds(tmp_path):
    for queue, function in FED_BY.items():
        arn = f"arn:aws:sqs:eu-west-1:123456789012:InventoryOrders-dev-{queue}1A2B3C4D-x1y2z3.fifo"
        event = {"Records": [{"eventSource": "aws:sqs", "eventSourceARN": arn}]}
        assert addressee(tmp_path / "event.json", event) == function
    for strange in ([], {"Records": []}, {"Records": [1]}, {"Records": 1}, None):
        assert addressee(tmp_path / "event.json", strange) is None


@pytest.mark.parametrize(("sample", "status"), [("place_orders", 0), ("place_orders_invalid", 3)])
def test_the_exit_status_says_whether_everything_was_accepted(sample, status, monkeypatch):
    monkeypatch.setattr(emulator, "running", lambda: None)
    command = ["invoke", samples.function_of(sample), f"events/{sample}.json"]
    done = CliRunner().invoke(main.app, command)
    assert done.exit_code == status
    assert ("Not accepted: 13 dead letters" in done.stderr) is sample.endswith("invalid")


def test_a_log_that_lambda_has_cut_off_begins_with_a_whole_line():
    def invoked(log, **more):
        answer = {"Payload": io.BytesIO(b"{}"), "LogResult": base64.b64encode(log), **more}
        functions = SimpleNamespace(invoke=lambda **_: answer)
        outputs = {"SweepLogGroupName": "group"}
        aws = SimpleNamespace(functions=functions, live=lambda output: output, outputs=outputs)
        return invoke_deployed(aws, "sweep", {})

    whole = invoked(b"first\nlast\n")
    assert (whole.logs, whole.failed) == ("first\nlast\n", False)
    cut_off = invoked(b"cut off\nwhole\n".ljust(4096, b"."), FunctionError="Unhandled")
    note, line, _ = cut_off.logs.splitlines()
    assert (note, line) == ("(earlier lines are in the log group group)", "whole")
    assert cut_off.failed


@pytest.mark.parametrize("sample", [name for name in SAMPLES if "fifo" in name])
def test_a_message_of_the_fifo_queue_has_the_id_that_sqs_makes_of_its_body(sample):
    records = json.loads((ROOT / "events" / f"{sample}.json").read_text())["Records"]
    ids = [record["attributes"]["MessageDeduplicationId"] for record in records]
    bodies = [record["body"].encode() for record in records]
    assert ids == [hashlib.sha256(body).hexdigest() for body in bodies]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_answered_and_only_ids_of_what_its_sender_sent_are_logged(sample):
    event = samples.event_of(sample)
    with samples.opened() as shop:
        done = samples.invoke(shop, samples.function_of(sample), event)
    assert done.answer.keys() & {"batchItemFailures", "result", "statusCode"}
    if sample == "sweep":
        return  # the schedule's event has no sender's data
    assert not re.search('"(userId|items|quantity|body|details)":', done.logs)
    lines = [json.loads(line) for line in done.logs.splitlines()]
    logged = {text for line in lines if "_aws" not in line for _, text in leaves(line)}
    assert "Records" not in event or logged & {
        "batch done",
        "events published",
        "movements recorded",
    }
    for secret in filter(None, texts_of(event)):
        word = re.compile(rf"(?<![\w-]){re.escape(secret)}(?![\w-])")
        assert not [text for text in logged if word.search(text)], secret


def examples(heading):
    """Read the JSON documents under a heading of the reference, down to the next heading."""
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    section = re.split(r"^###? ", text.split(f"### {heading}\n")[1], flags=re.MULTILINE)[0]
    blocks = re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)
    lines = "".join(blocks).replace("\n ", " ").splitlines()
    return [json.loads(line) for line in lines]


def test_every_message_of_the_reference_is_applied(tea_shop):
    for heading, function in {
        "order": "place_orders",
        "command": "change_orders",
        "adjustment": "adjust_stock",
        "catalogue event": "manage_products",
    }.items():
        found = examples(heading)
        assert found
        done = samples.invoke(tea_shop, function, sqs_event(*found))
        assert '"ends":{"APPLIED":' in done.logs, (heading, done.logs)


def test_every_direct_command_of_the_reference_succeeds(tea_shop):
    tea_shop.invoke("place_orders", sqs_event(order_body("o-1002", {"tea-earl-grey": 2})))
    given = {"lease": None, "snapshot": None}
    # place_orders comes first, because the other examples refer to its order.
    for name in sorted(function_names(), key=lambda name: name != "place_orders"):
        # The API takes HTTP requests, and stream records are not commands.
        if name in ("api", "publish_events", "record_movements"):
            continue
        # The function's direct commands are the same as its messages.
        found = examples("command" if name == "change_orders" else name)
        assert found, name
        for command in found:
            command |= {each: given[each] for each in given if each in command}
            answer = tea_shop.invoke(name, command)
            assert is_good(answer), (command, answer)
            given |= {each: answer[each] for each in given if each in answer}
