"""The runbook on the embedded AWS: tests cause each situation, diagnose it with the page's commands, and fix it."""

import json
import re
import shlex
import subprocess
import time
from contextlib import contextmanager
from functools import partial

import boto3
import jmespath
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from docs_generator.runbook import sections
from local.invoke import invoke_deployed
from operations import queues
from operations.audit import read_books, read_orders
from operations.dead_letters import peek_dead_letters
from operations.emf import read_samples, values_of
from testing.world.events import order_body, sqs_event
from tests.support.faults import LIMIT, Fault, FaultyProxy
from tests.support.runbook import aws_call, commands, expand
from tests.support.stack import cli, configured, create, unscheduled, wait_until, wait_until_settled

ONE_ATTEMPT = Config(retries={"total_max_attempts": 1})
FUNCTION = "PlaceOrdersFunctionName"


def run(aws, heading, operation, instead=("", ""), **variables):
    """In a section of the runbook, run the first command that calls an operation."""
    calls = [expand(command) for command in commands(sections()[heading])]
    return answer(aws, next(c for c in calls if f" {operation} " in c).replace(*instead), variables)


def assigned(aws, heading, name):
    """Run a section's command that sets a variable, and return the value."""
    (command,) = (c for c in commands(sections()[heading]) if c.startswith(f"{name}="))
    words = shlex.split(substituted(aws, expand(command), {}))
    return jmespath.search(words[words.index("--query") + 1], answer(aws, expand(command), {}))


def substituted(aws, command, variables):
    for name, value in (aws.outputs | variables).items():
        command = command.replace(f"$(output {name})", value).replace(f"${name}", value)
    return re.sub(r"\$\(basename [^\s)]+/([^\s)]+)\)", r"\1", command)


def answer(aws, command, variables):
    service, method, parameters = aws_call(substituted(aws, command, variables))
    return getattr(boto3.client(service), method)(**parameters)


def log(aws, heading, operation="filter-log-events", instead=("", "")):
    """Read the log lines that a section's command finds."""
    return [event["message"] for event in run(aws, heading, operation, instead)["events"]]


def logged(aws, heading, instead=("", ""), **about):
    """Read the log lines that a section's command finds, as JSON, and keep the ones with these values."""
    lines = [json.loads(line) for line in log(aws, heading, instead=instead)]
    return [line for line in lines if about.items() <= line.items()]


def emitted(aws, function, name, since):
    """Read the values of a metric that a function has emitted since a given time (in Unix milliseconds)."""
    return values_of(read_samples(aws, f"{function}LogGroupName", since), name)


def status_of(aws, order_id):
    return read_orders(aws, [order_id]).get(order_id, {}).get("status")


@contextmanager
def changed_environment(aws, change):
    """Change a function's environment variables and timeout, and restore them afterwards."""
    settings = aws.functions.get_function_configuration(FunctionName=aws.outputs[FUNCTION])
    variables = change(settings["Environment"]["Variables"])
    with configured(aws, "PlaceOrders", Environment={"Variables": variables}, Timeout=6):
        yield


@contextmanager
def throttles(aws, embedded_aws):
    """Throttle a third of the function's requests to DynamoDB."""
    with (
        FaultyProxy(embedded_aws[1].endpoint, {Fault.THROTTLED: 0.33}, seed=5) as proxy,
        changed_environment(aws, lambda own: {**own, "AWS_ENDPOINT_URL_DYNAMODB": proxy.endpoint}),
    ):
        yield proxy


@contextmanager
def visibility(aws, seconds):
    """Shorten the order queue's visibility timeout, so that a failed message returns within the test."""
    place = {"QueueUrl": aws.outputs[queues.STANDARD]}
    name = "VisibilityTimeout"
    own = aws.sqs.get_queue_attributes(**place, AttributeNames=[name])["Attributes"]
    aws.sqs.set_queue_attributes(**place, Attributes={name: str(seconds)})
    try:
        yield
    finally:
        aws.sqs.set_queue_attributes(**place, Attributes=own)


def send_order(aws, order_id, *product_ids):
    aws.sqs.send_message(
        QueueUrl=aws.outputs[queues.STANDARD],
        MessageBody=json.dumps(order_body(order_id, dict.fromkeys(product_ids, 1))),
    )


def mapping_of(aws, function, queue):
    arn = queues.arn_of(aws.sqs, aws.outputs[queue])
    found = run(aws, "OldestMessage", "list-event-source-mappings", (FUNCTION, function))
    return next(m for m in found["EventSourceMappings"] if m["EventSourceArn"] == arn)


def test_dead_letters_can_be_purged(aws):
    # test_redrive.py tests the redrive itself.
    url = aws.outputs["OrderDeadLetterQueueUrl"]
    since = int(time.time() * 1000)
    aws.sqs.send_message(QueueUrl=aws.outputs[queues.STANDARD], MessageBody="no order")
    wait_until(aws, lambda: peek_dead_letters(aws.sqs, url, 100))
    assert "INVALID_JSON" in cli("redrive", "--queue", "standard").stdout
    wait_until(aws, lambda: sum(emitted(aws, "PlaceOrders", "MessagesDeadLettered", since)) == 1)
    run(aws, "DeadLetters", "purge-queue")
    assert "There are no dead letters." in cli("redrive", "--queue", "standard").stdout


def test_oldest_message_is_placed_once_its_queue_is_connected_again(aws):
    create(aws, "rb-oldest", 5)
    mapping = mapping_of(aws, FUNCTION, queues.STANDARD)
    assert mapping["State"] == "Enabled"
    aws.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    send_order(aws, "rb-oldest-1", "rb-oldest")
    assert mapping_of(aws, FUNCTION, queues.STANDARD)["State"] != "Enabled"
    assert queues.depth(aws, queues.STANDARD).waiting == 1
    assert not any("rb-oldest-1" in line for line in log(aws, "OldestMessage"))
    assert status_of(aws, "rb-oldest-1") is None
    uuid = assigned(aws, "OldestMessage", "UUID")
    assert uuid == mapping["UUID"]
    run(aws, "OldestMessage", "update-event-source-mapping", UUID=uuid)
    wait_until(aws, lambda: status_of(aws, "rb-oldest-1") == "PENDING")
    assert mapping_of(aws, FUNCTION, queues.STANDARD)["State"] == "Enabled"


def test_oldest_message_for_an_unknown_product_is_booked_once_it_is_listed(aws):
    receipt = {"adjustmentId": "rb-1", "productId": "rb-early", "delta": 3, "reason": "RECEIPT"}
    aws.sqs.send_message(QueueUrl=aws.outputs[queues.STOCK], MessageBody=json.dumps(receipt))
    other = ("PlaceOrders", "AdjustStock")
    since = int(time.time() * 1000)

    def returned():
        return {line["code"] for line in logged(aws, "OldestMessage", other, productId="rb-early")}

    wait_until(aws, returned)
    assert returned() == {"UNKNOWN_PRODUCT"}
    create(aws, "rb-early", 1)
    wait_until_settled(aws)
    # The message's first delay is at least a second.
    ages = partial(emitted, aws, "AdjustStock", "TimeSinceFirstReceive", since)
    wait_until(aws, lambda: any(age >= 1 for age in ages()))
    (account,) = [a for a in read_books(aws).accounts if a.product_id == "rb-early"]
    assert (account.available, account.difference) == (4, 0)


def test_the_product_with_the_most_writes_is_found_when_writers_conflict(aws, tmp_path):
    create(aws, "rb-busy", 1)
    create(aws, "rb-quiet", 1)
    *_, versions, pipeline = commands(sections()["ConflictRate"])
    query = re.search(r'--query "(.+?)"', versions)[1]

    def write_versions(name):
        rows = jmespath.search(query, answer(aws, expand("versions"), {}))
        (tmp_path / name).write_text("".join("\t".join(row) + "\n" for row in rows))

    write_versions("before")
    for number in range(5):
        receipt = {"adjustmentId": f"rb-{number}", "productId": "rb-busy", "delta": 1}
        invoke_deployed(aws, "adjust_stock", {"action": "adjust", "reason": "RECEIPT"} | receipt)
    write_versions("after")
    pipeline = pipeline.replace("sleep 60; versions", "cat after")
    pipeline = pipeline.replace("versions", "cat before")
    done = subprocess.run(
        ["bash", "-c", pipeline], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "5 rb-busy" in done.stdout.splitlines()[:3]


@contextmanager
def given_up_at_once(aws):
    """Make SQS dead-letter messages that have already been delivered once."""
    arn = assigned(aws, "Errors", "ARN")

    def set_to(count):
        instead = ('maxReceiveCount\\": 5', f'maxReceiveCount\\": {count}')
        run(aws, "Errors", "set-queue-attributes", instead, ARN=arn)

    url = aws.outputs[queues.STANDARD]
    own = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    set_to(1)
    try:
        yield
    finally:
        set_to(1000)
    after = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    before, now = (json.loads(found["Attributes"]["RedrivePolicy"]) for found in (own, after))
    assert now == before


def test_errors_end_once_the_message_is_given_up_and_the_environment_is_restored(aws):
    create(aws, "rb-error", 5)

    def broken(own):
        return {name: value for name, value in own.items() if name != "PRODUCTS_TABLE_NAME"}

    with visibility(aws, 3):
        with changed_environment(aws, broken):
            send_order(aws, "rb-error-1", "rb-error")
            # The embedded AWS requires all terms of a filter; AWS requires any of them.
            any_error = re.search("'([?]ERROR .*?)'", sections()["Errors"])[1]
            errors = partial(log, aws, "Errors", instead=(any_error, "ERROR"))
            wait_until(aws, lambda: any("PRODUCTS_TABLE_NAME" in line for line in errors()))
            shown = run(aws, "Errors", "get-function-configuration")["Environment"]["Variables"]
            assert "PRODUCTS_TABLE_NAME" not in shown
            assert status_of(aws, "rb-error-1") is None
            assert queues.depth(aws, queues.STANDARD).total == 1
            mapping = mapping_of(aws, FUNCTION, queues.STANDARD)
            uuid = assigned(aws, "Errors", "UUID")
            assert uuid == mapping["UUID"]
            run(aws, "Errors", "update-event-source-mapping", UUID=uuid)
            assert mapping_of(aws, FUNCTION, queues.STANDARD)["BatchSize"] == 1
            with given_up_at_once(aws):
                wait_until(aws, lambda: queues.depth(aws, queues.STANDARD).total == 0)
        aws.functions.update_event_source_mapping(
            UUID=mapping["UUID"],
            **{name: mapping[name] for name in ("BatchSize", "MaximumBatchingWindowInSeconds")},
        )
        (back,) = (c for c in commands(sections()["Errors"]) if " redrive " in c)
        assert "1 sent back" in cli(*back.split()[1:]).stdout
        wait_until(aws, lambda: status_of(aws, "rb-error-1") == "PENDING")
    wait_until_settled(aws)


def test_throttles_end_once_the_functions_limit_is_removed(aws):
    name = aws.outputs[FUNCTION]
    limits = run(aws, "Throttles", "get-account-settings")["AccountLimit"]
    assert limits["ConcurrentExecutions"] > 0
    aws.functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    shown = run(aws, "Throttles", "get-function-concurrency")
    assert shown["ReservedConcurrentExecutions"] == 0
    with pytest.raises(ClientError, match="TooManyRequestsException"):
        boto3.client("lambda", config=ONE_ATTEMPT).invoke(FunctionName=name, Payload=b"{}")
    run(aws, "Throttles", "delete-function-concurrency")
    assert "ReservedConcurrentExecutions" not in run(aws, "Throttles", "get-function-concurrency")
    assert not invoke_deployed(aws, "place_orders", sqs_event()).failed


def test_throttles_of_a_table_and_of_its_index_delay_but_lose_nothing(aws, embedded_aws):
    heading = "ReadThrottles, WriteThrottles"
    found = run(aws, heading, "describe-table")
    assert found["Table"]["TableStatus"] == "ACTIVE"
    create(aws, "rb-throttled", 40)
    with visibility(aws, 5), throttles(aws, embedded_aws) as proxy:
        for number in range(40):
            send_order(aws, f"rb-throttled-{number}", "rb-throttled")
        wait_until_settled(aws)
        assert proxy.counts[Fault.THROTTLED] > 0
    wait_until(aws, lambda: log(aws, heading))
    assert {(line["limit"], line["resource"]) for line in logged(aws, heading)} == {
        (LIMIT["reason"], "throttled")
    }
    (account,) = [a for a in read_books(aws).accounts if a.product_id == "rb-throttled"]
    assert (account.available, account.sold, account.difference) == (0, 40, 0)


def test_the_sweep_is_silent_until_its_schedule_is_enabled(aws):
    with unscheduled(aws) as deployed:
        found = run(aws, "Silence", "get-schedule")
        assert found["State"] == "DISABLED"
        target = f"'{json.dumps(assigned(aws, 'Silence', 'TARGET'))}'"
        run(aws, "Silence", "update-schedule", instead=('"$TARGET"', target))
        enabled = run(aws, "Silence", "get-schedule")
        assert enabled["State"] == "ENABLED"
        assert deployed.items() <= enabled.items()
    assert invoke_deployed(aws, "sweep", {"action": "sweep"}).answer["result"] == "SWEPT"
    wait_until(aws, lambda: log(aws, "Silence"))
