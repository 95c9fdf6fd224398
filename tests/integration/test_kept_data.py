"""After `make down KEEP=1`, the next start restores the data of the embedded AWS, or says that it cannot."""

import io
import socket
import time
import zipfile

import boto3
import psutil
import pytest

from local import emulator
from operations.errors import UserError

ITEMS = 60

PRINTS_WHAT_IT_HEARS = """
def handler(event, _):
    for record in event["Records"]:
        print(f"heard {record['dynamodb']['Keys']['s']['N']}!")
"""


def client(running, service="sqs"):
    return boto3.client(service, endpoint_url=running.endpoint, region_name="us-east-1")


def put(running, *numbers):
    items = [
        {"PutRequest": {"Item": {"p": {"S": str(n % 7)}, "s": {"N": str(n)}}}} for n in numbers
    ]
    for begin in range(0, len(items), 25):
        client(running, "dynamodb").batch_write_item(
            RequestItems={"Table": items[begin : begin + 25]}
        )


def fill(running):
    """Create a table, a function that prints the records of its stream, and a queue."""
    table = client(running, "dynamodb").create_table(
        TableName="Table",
        AttributeDefinitions=[
            {"AttributeName": "p", "AttributeType": "S"},
            {"AttributeName": "s", "AttributeType": "N"},
        ],
        KeySchema=[
            {"AttributeName": "p", "KeyType": "HASH"},
            {"AttributeName": "s", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )["TableDescription"]
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("f.py", PRINTS_WHAT_IT_HEARS)
    functions = client(running, "lambda")
    functions.create_function(
        FunctionName="f",
        Runtime="python3.11",
        Role="arn:aws:iam::000000000000:role/r",
        Handler="f.handler",
        Code={"ZipFile": code.getvalue()},
    )
    functions.create_event_source_mapping(
        EventSourceArn=table["LatestStreamArn"], FunctionName="f", StartingPosition="TRIM_HORIZON"
    )
    put(running, *range(ITEMS))
    url = client(running).create_queue(QueueName="kept")["QueueUrl"]
    for body in ("a", "b"):
        client(running).send_message(QueueUrl=url, MessageBody=body)
    client(running).receive_message(QueueUrl=url)
    return url


def wait_until_heard(running, number):
    give_up_at = time.monotonic() + 60
    logs, said = client(running, "logs"), ""
    while f"heard {number}!" not in said:
        assert time.monotonic() < give_up_at, said
        time.sleep(0.05)
        try:
            events = logs.filter_log_events(logGroupName="/aws/lambda/f")["events"]
        except logs.exceptions.ResourceNotFoundException:
            continue
        said = "".join(event["message"] for event in events)


def test_kept_data_is_restored_at_the_same_port_and_otherwise_deleted(data, monkeypatch):
    first = emulator.start()
    url = fill(first)
    wait_until_heard(first, ITEMS - 1)
    said = []

    def keep_it_busy(doing):
        said.append(doing)
        if len(said) == 1:
            psutil.Process(first.pid).suspend()
        if len(said) == 10:
            psutil.Process(first.pid).resume()

    assert emulator.stop(keep=True, report=keep_it_busy)
    assert "Writing its data" in said[9]
    assert emulator.is_kept()
    second = emulator.start()
    assert second.port == first.port
    assert client(second).list_queues()["QueueUrls"] == [url]
    assert client(second, "dynamodb").scan(TableName="Table")["Count"] == ITEMS
    put(second, ITEMS)
    wait_until_heard(second, ITEMS)
    assert emulator.stop()
    assert not emulator.is_kept()
    with socket.create_server(("127.0.0.1", second.port)):
        ports = [second.port, emulator.free_port()]
        monkeypatch.setattr(emulator, "free_port", lambda: ports.pop(0))
        third = emulator.start()
    assert third.port != second.port
    assert client(third).list_queues().get("QueueUrls", []) == []
    emulator.stop()
    assert emulator.start().port == third.port, "a port that is free is used again"


def test_incompletely_written_data_is_reported_as_lost(data):
    client(emulator.start()).create_queue(QueueName="lost")
    (data / "sqs.json").mkdir(parents=True)
    with pytest.raises(UserError, match=r"could not be kept.* failed to save sqs"):
        emulator.stop(keep=True)
    assert not emulator.is_kept()
    assert not data.exists()


def test_unusable_kept_data_is_an_error_in_one_line(data):
    client(emulator.start()).create_queue(QueueName="kept")
    emulator.stop(keep=True)
    whole = (data / "sqs.json").read_bytes()
    for damaged, why in (
        (whole[:-1], r"sqs.json was changed after the last stop"),
        (b"?" * len(whole), r"failed to load sqs: Expecting value.*"),
    ):
        (data / "sqs.json").write_bytes(damaged)
        with pytest.raises(UserError) as refused:
            emulator.start()
        assert refused.match(rf"^the kept data cannot be used \(.*{why}\); .*`make down`$")
        assert emulator.is_kept()
    (data / "sqs.json").write_bytes(whole)
    assert client(emulator.start()).list_queues()["QueueUrls"]
    assert list(data.glob("*.json")) == [], "later data must not be mixed with the kept data"
