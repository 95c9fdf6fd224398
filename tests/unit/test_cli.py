"""The command line answers a user's mistake with one line that says what to do, and changes nothing."""

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from typer.testing import CliRunner

from inventory_orders.version import VERSION
from local import ROOT, emulator, invoke, shelf, stack
from local.commands import embedded, main, this_machine
from local.commands.this_machine import EnvFormat
from local.endpoint import embedded_settings
from operations import follow, queues
from operations.aws import Aws
from operations.commands import common, events, target
from operations.commands import queues as queue_commands
from operations.errors import UserError
from operations.follow import Heard
from operations.orders_file import OrderMessage
from operations.redrive import CAUSES, MAY_SUCCEED_NOW
from operations.words import counted
from testing.aws import SimulatedAws, answered_by
from testing.world.events import order_body
from tests.support.stack import in_the_background

RUNNER = CliRunner()


def raising(error):
    """Make a command that raises an error."""

    def command(*_, **__):
        raise error

    return command


@pytest.fixture
def ended(monkeypatch, capsys):
    """Run a failing command through `main`, and return its exit status and the line that it prints."""

    def run(error):
        monkeypatch.setattr(main, "app", raising(error))
        with pytest.raises(SystemExit) as caught:
            main.main()
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return caught.value.code, said

    return run


def orders_file(folder, count=3):
    path = folder / "orders.jsonl"
    bodies = (json.dumps(order_body(f"o-{n}", {"tea": 1})) for n in range(count))
    path.write_text("".join(f"{body}\n" for body in bodies))
    return path


@pytest.fixture
def unread():
    """Replace standard output with a pipe whose reader has gone, as with `| head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        yield type(common.screen)(file=pipe)


@pytest.mark.parametrize("status", [0, 1])
def test_a_closed_pipe_does_not_change_a_commands_exit_status(monkeypatch, unread, status):
    def command():
        for _ in range(3):
            unread.print("a line")
        raise SystemExit(status)

    monkeypatch.setattr(main, "app", command)
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == status


def test_an_event_of_stock_names_product_and_location(monkeypatch, capsys):
    data = {"productId": "tea", "locationId": "berlin", "onHand": 5, "available": 4}
    metadata = {"eventId": "e-1", "occurredAt": "2026-01-01T00:00:00.000000+00:00"}
    detail = {"metadata": metadata, "data": data}
    heard = Heard({"detail-type": "ProductStockChanged", "detail": detail}, None)
    aws = SimpleNamespace(outputs={"EventBusName": "bus"})
    monkeypatch.setattr(events, "aws_of", lambda *_: aws)
    monkeypatch.setattr(
        follow, "listening", lambda _: contextlib.nullcontext(lambda _: iter([heard]))
    )
    monkeypatch.setenv("COLUMNS", "200")
    events.follow(seconds=1)
    assert "tea at berlin 5 on hand, 4 available" in capsys.readouterr().out


STACK = "arn:aws:cloudformation:eu-west-1:123456789012:stack/InventoryOrders-prod/4f1d"


def test_the_command_names_its_version_without_loading_the_cdk():
    program = "import sys; from local.commands.main import app; app(['--version'], standalone_mode=False); "
    program += "assert 'aws_cdk' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT
    )
    assert done.stdout.decode() == f"inventory-orders {VERSION}\n"


def test_a_report_says_which_aws_it_read(monkeypatch, capsys):
    aws = Aws({}, *[None] * 5, STACK)
    running = SimpleNamespace(endpoint="http://127.0.0.1:4566")
    monkeypatch.setattr(Aws, "of_stack", lambda *_: aws)
    monkeypatch.setattr(emulator, "running", lambda: running)
    monkeypatch.setattr(embedded, "use_embedded", lambda _: None)
    monkeypatch.setenv("COLUMNS", "20")
    place = "account 123456789012, eu-west-1, stack InventoryOrders-prod"
    assert target.aws_of(target.Target("InventoryOrders-prod")) is aws
    assert capsys.readouterr().out == f"AWS: {place}\n"
    assert target.aws_of(None) is aws
    assert capsys.readouterr().out == f"The embedded AWS at http://127.0.0.1:4566: {place}\n"


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 orders"), (1, "1 order"), (2, "2 orders"), (1000, "1,000 orders")]
)
def test_numbers_have_singular_and_plural_nouns(number, said):
    assert counted(number, "order") == said


@pytest.fixture
def account(monkeypatch):
    """Fake a stack on an account for `send`, and return the messages sent to it."""
    sent = []
    aws = SimpleNamespace(outputs={queues.STANDARD: "https://sqs.example/1/OrderQueue"})
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: aws)
    monkeypatch.setattr(
        queues, "send", lambda aws, output, messages, **_: sent.extend(m.order_id for m in messages)
    )
    return sent


def test_invalid_orders_are_named_by_line_and_nothing_is_sent(account, tmp_path):
    path = orders_file(tmp_path)
    path.write_text(path.read_text() + '{"orderId": "o-9"}\n\n[]\n')
    done = RUNNER.invoke(main.app, ["send", str(path)])
    assert isinstance(done.exception, UserError)
    said = str(done.exception)
    assert "2 errors in 5 orders" in said
    assert "\n    line 4: userId" in said
    assert "\n    line 6: " in said
    report = path.with_name(f"{path.name}.errors.csv")
    assert f"\n{report} lists all of them with ids, columns and values" in said
    header, *rows = report.read_text("utf-8-sig").splitlines()
    assert header == "line,orderId,column,value,code,message"
    assert rows[0].startswith('4,o-9,userId,,SCHEMA_VIOLATION,"userId: is missing')
    other = tmp_path / "other.csv"
    other.write_text("mine")
    done = RUNNER.invoke(main.app, ["send", str(path), "--errors", str(other)])
    assert f"\n{other} exists and is not a report of bad lines, so they are" in str(done.exception)
    assert (account, other.read_text()) == ([], "mine")
    assert RUNNER.invoke(main.app, ["send", str(path), "--limit", "3"]).exit_code == 0
    assert (account, report.exists()) == (["o-0", "o-1", "o-2"], False)
    RUNNER.invoke(main.app, ["send", str(path), "--unchecked"])
    assert account[3:] == ["o-0", "o-1", "o-2", None, None]
    apart = "orderId,userId,productId,quantity\no-1,u,a,1\no-2,u,a,1\no-1,u,b,1\n"
    path.with_suffix(".csv").write_text(apart)
    for options in ([], ["--unchecked"], ["--unchecked", "--limit", "1"]):
        done = RUNNER.invoke(main.app, ["send", str(path.with_suffix(".csv")), *options])
        assert "line 4: orderId: the order o-1 began at line 2" in str(done.exception)
    assert account[8:] == []


class PickySqs:
    """Accepts one entry of a request and refuses the rest: invalid ones permanently, the others temporarily."""

    def __init__(self):
        self.bodies = []

    def send_message_batch(self, QueueUrl, Entries):
        taken, *refused = Entries
        self.bodies.append(taken["MessageBody"])
        failed = [{"Id": e["Id"], "SenderFault": "invalid" in e["MessageBody"]} for e in refused]
        return {
            "Successful": [{"Id": taken["Id"], "MessageId": taken["MessageBody"]}],
            "Failed": failed,
        }


def test_refused_messages_are_retried_and_invalid_ones_are_named(monkeypatch):
    monkeypatch.setattr(queues.time, "sleep", lambda _: None)
    aws = SimpleNamespace(outputs={queues.STANDARD: "https://sqs.example/1/Q"}, sqs=PickySqs())
    messages = [SimpleNamespace(body=body) for body in ("a", "b", "c")]
    assert queues.send(aws, queues.STANDARD, messages) == aws.sqs.bodies == ["a", "b", "c"]
    with pytest.raises(UserError, match=r"does not accept a message .*: invalid"):
        queues.send(aws, queues.STANDARD, [messages[0], SimpleNamespace(body="invalid")])


def sending(queue, on_request):
    """Fake a stack with one queue that accepts every message."""

    def send_message_batch(QueueUrl, Entries):
        on_request(Entries)
        return {"Successful": [{"Id": e["Id"], "MessageId": e["MessageBody"]} for e in Entries]}

    sqs = SimpleNamespace(send_message_batch=send_message_batch)
    return SimpleNamespace(outputs={queue: "https://sqs.example/1/Q"}, sqs=sqs)


@pytest.mark.parametrize(
    ("queue", "calls"), [(queues.FIFO, ["ab", "cd", "e"]), (queues.STANDARD, ["abcde"])]
)
def test_messages_of_a_group_are_not_sent_concurrently(queue, calls):
    sent = []

    aws = sending(queue, lambda entries: sent.append("".join(e["MessageBody"] for e in entries)))
    groups = {"a": "tea", "b": "mug", "c": "tea", "d": "pot", "e": "pot"}
    messages = [OrderMessage(body, group=group) for body, group in groups.items()]
    assert queues.send(aws, queue, messages) == list("abcde")
    assert sent == calls


@pytest.mark.parametrize(("characters", "calls"), [(110_000, [9, 2]), (262_144, [4, 4, 3])])
def test_large_orders_are_sent_in_as_many_calls_as_sqs_requires(characters, calls):
    simulated, sizes = SimulatedAws(time.time), []
    url = simulated.sqs.create("Q").url
    messages = [OrderMessage(chr(ord("a") + n) * characters, group="g") for n in range(11)]

    def answer(service, operation, request):
        sizes.append(len(request["Entries"]))
        return simulated.answer(service, operation, request)

    with answered_by(answer):
        aws = SimpleNamespace(outputs={queues.STANDARD: url}, sqs=boto3.client("sqs"))
        assert len(queues.send(aws, queues.STANDARD, messages, rate=1e9)) == 11
    assert sizes == calls
    assert len(simulated.sqs.queues["Q"].messages) == 11


def test_after_ctrl_c_only_requests_in_flight_are_completed(monkeypatch):
    may_end, sent = Event(), []

    class Pool(ThreadPoolExecutor):
        """A pool of threads in which every request lasts until the pool is shut down."""

        def shutdown(self, wait=True, **how):
            super().shutdown(wait=False, **how)
            may_end.set()
            super().shutdown(wait)

    def take(entries):
        sent.extend(entries)
        assert may_end.wait(60)

    def interrupted():
        yield from (OrderMessage("{}") for _ in range(1000))
        raise KeyboardInterrupt

    monkeypatch.setattr(queues, "ThreadPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        queues.send(sending(queues.STANDARD, take), queues.STANDARD, interrupted())
    assert len(sent) <= 40, "each of four senders sends at most ten messages"


def test_the_demo_finds_a_file_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    refused = str(RUNNER.invoke(main.app, ["demo", "--orders", "~/orders.csv"]).exception)
    assert refused.startswith(f"{tmp_path / 'orders.csv'} cannot be read")


def test_the_demo_refuses_what_send_refuses_before_it_starts_anything(monkeypatch, tmp_path):
    monkeypatch.setattr(this_machine, "start_embedded", lambda _: pytest.fail("it was started"))
    for path in (ROOT / "README.md", tmp_path, tmp_path / "none"):
        refused = [
            str(RUNNER.invoke(main.app, command).exception)
            for command in (["demo", "--orders", str(path)], ["send", str(path)])
        ]
        assert refused[0] == refused[1] != "None"
        assert str(path) in refused[0]


@pytest.mark.parametrize("command", ["env", "tokens", "audit", "lanes", "redrive"])
def test_the_hint_about_stages_appears_only_for_commands_that_take_one(monkeypatch, command):
    monkeypatch.setattr(emulator, "running", lambda: None)
    said = str(RUNNER.invoke(main.app, [command]).exception)
    assert "start it with `make up`" in said
    takes_stage = "--stage" in RUNNER.invoke(main.app, [command, "--help"]).output
    assert ("--stage dev (or STAGE=dev with make)" in said) == takes_stage


@pytest.mark.parametrize("command", ["stock", "audit", "lanes", "orders"])
def test_an_id_that_begins_with_a_minus_is_not_an_option(monkeypatch, command):
    monkeypatch.setattr(emulator, "running", lambda: None)
    given = RUNNER.invoke(main.app, [command, "-5"])
    assert "the embedded AWS is not running" in str(given.exception)
    wrong = RUNNER.invoke(main.app, [command, "-5", "--jsn"])
    assert wrong.exit_code == 2
    assert "jsn" in wrong.output
    assert "No such option: --jsn" in RUNNER.invoke(main.app, [command, "--jsn"]).output
    assert "Write -- before an id" in RUNNER.invoke(main.app, [command, "-abc"]).output
    given = RUNNER.invoke(main.app, [command, "--", "-abc"])
    assert "the embedded AWS is not running" in str(given.exception)


SHELLS = [shell for shell in ("sh", "bash", "zsh") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_env_names_the_endpoint_to_every_version_of_the_aws_cli(monkeypatch, tmp_path, shell):
    """Version 1 of the AWS CLI ignores AWS_ENDPOINT_URL and would call the real SQS."""
    endpoint = "http://127.0.0.1:1234"
    monkeypatch.setattr(emulator, "running", lambda: SimpleNamespace(endpoint=endpoint))
    settings = RUNNER.invoke(main.app, ["env"]).stdout
    program = tmp_path / "aws"
    program.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = 'eval "$1"; aws sqs x "a  b"; unset AWS_ENDPOINT_URL; aws sqs x "a  b"'
    done = subprocess.run(
        [shell, "-c", script, shell, settings], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"--endpoint-url={endpoint}|sqs|x|a  b|sqs|x|a  b|"


def test_env_has_the_same_values_in_each_form(monkeypatch):
    endpoint = "http://127.0.0.1:1234"
    monkeypatch.setattr(emulator, "running", lambda: SimpleNamespace(endpoint=endpoint))
    forms = {form: RUNNER.invoke(main.app, ["env", "--format", form]).stdout for form in EnvFormat}
    settings = json.loads(forms["json"])
    assert settings == embedded_settings(endpoint)
    lines = [f"{name}={value}" for name, value in settings.items()]
    assert forms["dotenv"].splitlines() == lines
    assert forms["shell"] == RUNNER.invoke(main.app, ["env"]).stdout
    exported = re.findall("^export (.*)$", forms["shell"], re.MULTILINE)
    assert [" ".join(shlex.split(line)) for line in exported] == lines


@pytest.fixture
def starts(monkeypatch, tmp_path):
    """Let `make up` start and deploy nothing. Returns the embedded AWS, whether its data is kept, and calls that list samples."""
    state = SimpleNamespace(running=None, kept=False, listed=0)
    new = emulator.Emulator(1, 1.0, 1234)

    def start(**_):
        state.running = new
        return new

    def fill(_):
        state.listed += 1

    monkeypatch.setattr(emulator, "STATE", tmp_path)
    monkeypatch.setattr(emulator, "start", start)
    monkeypatch.setattr(emulator, "stop", lambda **_: None)
    monkeypatch.setattr(emulator, "running", lambda: state.running)
    monkeypatch.setattr(emulator, "is_kept", lambda: state.kept)
    monkeypatch.setattr(stack.background, "stop", lambda: None)
    monkeypatch.setattr(stack, "_deploy", lambda *_, **__: None)
    monkeypatch.setattr(stack, "_NO_SAMPLES", tmp_path / "no-samples")
    monkeypatch.setattr(stack, "_DEPLOYMENT", tmp_path / "deployed.json")
    monkeypatch.setattr(embedded, "use_embedded", lambda _: None)
    monkeypatch.setattr(embedded.Aws, "of_stack", lambda _: None)
    monkeypatch.setattr(shelf, "fill", fill)
    return state


def up(*options):
    return RUNNER.invoke(main.app, ["up", *options])


def test_a_shop_without_sample_products_stays_without_them_until_its_data_is_deleted(starts):
    assert "1234, without sample products." in up("--no-samples").stdout
    for kept in (False, True):
        starts.kept = kept
        starts.running = None if kept else starts.running
        embedded.start_embedded(common.screen)
        assert "without sample products" in up().stdout
        assert up("--no-samples").exit_code == 0
    assert starts.listed == 0
    starts.running, starts.kept = None, False
    assert "with the sample products listed" in " ".join(up().stdout.split())
    assert starts.listed == 1


@pytest.mark.parametrize("kept", [False, True])
def test_sample_products_that_are_listed_are_not_removed(starts, kept):
    up()
    starts.running, starts.kept = None if kept else starts.running, kept
    refused = str(up("--no-samples").exception)
    assert refused.startswith(
        "the embedded AWS was started with the sample products; to start without"
    )


def test_sending_to_an_account_asks_first(account, tmp_path):
    command = ["send", str(orders_file(tmp_path)), "--stage", "dev"]
    asked = RUNNER.invoke(main.app, command, input="n\n")
    assert asked.exit_code == 1
    assert "Send 3 orders of" in asked.output
    assert "https://sqs.example/1/OrderQueue" in asked.output
    assert account == []
    assert RUNNER.invoke(main.app, command, input="y\n").exit_code == 0
    assert RUNNER.invoke(main.app, [*command, "--yes"]).exit_code == 0
    assert len(account) == 6


def test_an_unknown_function_is_refused_with_the_known_ones():
    unknown = RUNNER.invoke(main.app, ["invoke", "fly", "events/place_orders.json"]).exception
    assert "the functions are adjust_stock, api, change_orders" in str(unknown)


def test_a_directory_is_not_an_event(tmp_path):
    with pytest.raises(UserError, match="is a directory"):
        invoke.read_event(tmp_path, "place_orders")


def test_an_event_may_begin_with_a_byte_order_mark_but_is_utf8(tmp_path):
    event = tmp_path / "event.json"
    event.write_text("\ufeff{}")
    assert invoke.read_event(event, "sweep") == {}
    event.write_text("{}", "utf-16")
    with pytest.raises(UserError, match="is not UTF-8; save the file as UTF-8"):
        invoke.read_event(event, "sweep")


def test_the_samples_for_the_function_are_named_each_on_a_line(tmp_path):
    with pytest.raises(UserError, match=r"\n +events/sweep.json$"):
        invoke.read_event(tmp_path / "none.json", "sweep")


def test_a_read_only_checkout_is_an_error_in_one_line(ended):
    status, said = ended(OSError(errno.EROFS, "Read-only file system", "/opt/orders/.local"))
    assert status == 1
    assert "/opt/orders/.local: Read-only file system. The commands write to" in said


DENIED = (
    "User: u is not authorized to perform: sqs:ReceiveMessage on resource: arn:q because no policy"
)
NEEDED = "not allowed: this needs sqs:ReceiveMessage on arn:q. Grant it to your credentials"


def refusal(code, message):
    return ClientError({"Error": {"Code": code, "Message": message}}, "Scan")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (refusal("AccessDenied", DENIED), NEEDED),
        (refusal("ThrottlingException", "Slow"), "(ThrottlingException)"),
        (EndpointConnectionError(endpoint_url="https://x"), 'connect to the endpoint URL: "https'),
    ],
)
def test_an_error_of_aws_is_one_line(ended, error, says):
    status, said = ended(error)
    assert status == 1
    assert says in said
    assert "Run the command again" in said


@pytest.mark.parametrize(
    "error",
    [
        UserError("AWS does not let you listen"),
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_command_whose_embedded_aws_was_stopped_says_so(monkeypatch, capsys, ended, error):
    server = SimpleNamespace(endpoint="http://127.0.0.1:1")
    monkeypatch.setattr(emulator, "in_use", {server.endpoint})
    for now in (None, SimpleNamespace(endpoint="http://127.0.0.1:2")):
        monkeypatch.setattr(emulator, "running", lambda now=now: now)
        status, said = ended(error)
        assert status == 1
        assert said.startswith("Error: the embedded AWS stopped before this command finished. `")
    monkeypatch.setattr(emulator, "running", lambda: server)
    with pytest.raises((SystemExit, ConnectionRefusedError)):
        main.main()
    assert "stopped" not in capsys.readouterr().err


def test_a_bug_is_not_reported_as_a_file_error(ended):
    with pytest.raises(OSError, match="refused"):
        ended(OSError(errno.ECONNREFUSED, "Connection refused"))


def test_an_unknown_cause_is_refused_with_the_known_ones(account):
    done = RUNNER.invoke(main.app, ["redrive", "--cause", "INVALID_JSON", "--cause", "NOPE"])
    assert isinstance(done.exception, UserError)
    assert "there is no cause NOPE" in str(done.exception)
    assert ", ".join(sorted(CAUSES)) in str(done.exception)


def test_the_help_of_redrive_shows_causes_in_full_on_a_narrow_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = re.findall(r"\w+", RUNNER.invoke(main.app, ["redrive", "--help"]).output)
    assert set(words) >= MAY_SUCCEED_NOW
    assert set(queue_commands.AnyQueue) <= set(words)


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ({"result": "STALE"}, True),
        ({"batchItemFailures": []}, True),
        ({"batchItemFailures": [{"itemIdentifier": "m"}]}, False),
        ({"result": "REFUSED", "code": "BELOW_FLOOR"}, False),
        (None, False),
    ],
)
def test_which_answers_count_as_success(answer, good):
    assert invoke.is_good(answer) is good


A_LONG_COMMAND = """
import signal, time
from local.commands import main

def app():
    try:
        print(signal.getsignal(signal.SIGINT).name, flush=True)
        # A signal that comes just before a long sleep would not end it.
        while True:
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("tidied up")

main.app = app
main.main()
"""


def test_a_command_can_be_interrupted_even_if_sigint_was_ignored():
    # Under `nohup`, these tests ignore SIGHUP, and the command would inherit that.
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with in_the_background(sys.executable, "-c", A_LONG_COMMAND) as command:
            assert command.stdout.readline() == "SIG_IGN\n"
            command.send_signal(signal.SIGHUP)
            assert command.stdout.read() == "tidied up\n"
            assert command.wait() == 0
    finally:
        signal.signal(signal.SIGHUP, inherited)


def test_a_command_under_nohup_outlives_its_terminal():
    with in_the_background("nohup", sys.executable, "-c", A_LONG_COMMAND) as command:
        assert command.stdout.readline() == "SIG_IGN\n"
        command.send_signal(signal.SIGHUP)
        assert command.poll() is None
        command.send_signal(signal.SIGTERM)
        assert command.stdout.read() == "tidied up\n"
