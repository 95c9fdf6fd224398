"""Behaviour of the simulated AWS that cannot be compared with the embedded AWS: capacity, time and faults."""

import hashlib
import time

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from inventory_orders.store.tables import Index
from testing.aws import ServiceError, SimulatedAws, answered_by
from testing.world.clock import ManualClock, virtual_time
from testing.world.tables import creation


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def aws(clock):
    aws = SimulatedAws(clock.now)
    index = Index("byU", ("u", "c"), ["status"])
    aws.dynamodb.answer("CreateTable", creation("T", ["p"], [index]))
    return aws


def put(aws, key, size=0, **more):
    item = {"p": {"S": key}, **{name: {"S": value} for name, value in more.items()}}
    if size:
        # The names p and x, the key and the value have exactly this many bytes in total.
        item["x"] = {"S": "x" * (size - 2 - len(key))}
    aws.dynamodb.answer("PutItem", {"TableName": "T", "Item": item})


KEY = {"TableName": "T", "Key": {"p": {"S": "k"}}}


def setting(name, value):
    """Make an update that sets one attribute of the item `k`."""
    values = {"ExpressionAttributeNames": {"#a": name}, "ExpressionAttributeValues": {":v": value}}
    return KEY | values | {"UpdateExpression": "SET #a = :v"}


def adding(key="k"):
    """Make an update that adds 1 to an item's number."""
    one = {"ExpressionAttributeValues": {":one": {"N": "1"}}}
    return {"TableName": "T", "Key": {"p": {"S": key}}, "UpdateExpression": "ADD n :one"} | one


@pytest.mark.parametrize(
    ("operation", "request_", "units"),
    [
        ("GetItem", KEY, 1.0),
        ("GetItem", KEY | {"ConsistentRead": True}, 2.0),
        ("TransactGetItems", {"TransactItems": [{"Get": KEY}]}, 4.0),
        ("Scan", {"TableName": "T"}, 1.0),
        ("Scan", {"TableName": "T", "ConsistentRead": True}, 2.0),
    ],
)
def test_reads_consume_units_by_size_and_consistency(aws, operation, request_, units):
    put(aws, "k", 4097)
    aws.dynamodb.answer(operation, request_)
    assert aws.dynamodb.tables["T"].consumed.reads == units


def test_a_read_of_nothing_consumes_a_unit(aws):
    aws.dynamodb.answer("GetItem", KEY | {"ConsistentRead": True})
    assert aws.dynamodb.tables["T"].consumed.reads == 1.0


def test_a_batch_is_read_up_to_16_mb_and_the_rest_is_left_out(aws):
    """In AWS's own example, about 52 of 100 items of 300 KB each are returned."""
    for number in range(60):
        put(aws, str(number), 300_000)
    keys = [{"p": {"S": str(number)}} for number in range(60)]
    request = {"RequestItems": {"T": {"Keys": keys, "ConsistentRead": True}}}
    answer = aws.dynamodb.answer("BatchGetItem", request)
    assert [{"p": item["p"]} for item in answer["Responses"]["T"]] == keys[:55]
    assert answer["UnprocessedKeys"] == {"T": {"Keys": keys[55:], "ConsistentRead": True}}
    rest = aws.dynamodb.answer("BatchGetItem", {"RequestItems": answer["UnprocessedKeys"]})
    assert (len(rest["Responses"]["T"]), rest["UnprocessedKeys"]) == (5, {})


def test_writes_consume_units_of_the_larger_item(aws):
    put(aws, "k", 1025)
    consumed = aws.dynamodb.tables["T"].consumed
    assert consumed.writes == 2.0
    with pytest.raises(ServiceError):
        aws.dynamodb.answer("DeleteItem", KEY | {"ConditionExpression": "attribute_not_exists(p)"})
    assert consumed.writes == 4.0
    aws.dynamodb.answer("TransactWriteItems", {"TransactItems": [{"Delete": KEY}]})
    assert consumed.writes == 8.0


def test_units_of_an_index_are_counted_separately(aws):
    put(aws, "k", u="u-1", c="2026", status="PENDING")
    consumed = aws.dynamodb.tables["T"].consumed
    assert (consumed.writes, consumed.index_writes) == (1.0, {"byU": 1.0})
    for name, written, why in (
        ("other", 1.0, "not projected"),
        ("status", 2.0, "projected"),
        ("u", 4.0, "moved: deleted and written"),
    ):
        aws.dynamodb.answer("UpdateItem", setting(name, {"S": "v"}))
        assert consumed.index_writes == {"byU": written}, why


def test_a_token_is_forgotten_after_ten_minutes(aws, clock):
    add = {"TransactItems": [{"Update": adding()}], "ClientRequestToken": "token"}
    for seconds in (0, 599, 2):
        clock.sleep(seconds)
        aws.dynamodb.answer("TransactWriteItems", add)
    assert aws.dynamodb.tables["T"].items["k",]["n"] == {"N": "2"}


@pytest.mark.parametrize(
    ("operation", "kind"), [("TransactWriteItems", "Delete"), ("TransactGetItems", "Get")]
)
def test_a_transaction_has_a_limit_of_size(aws, operation, kind):
    keys = [{"TableName": "T", "Key": {"p": {"S": f"{number:02}"}}} for number in range(11)]
    for key in keys:
        put(aws, key["Key"]["p"]["S"], 400_000)
    items = [{kind: key} for key in keys]
    with pytest.raises(ServiceError, match="4 MB") as caught:
        aws.dynamodb.answer(operation, {"TransactItems": items})
    assert caught.value.code == "ValidationException"
    aws.dynamodb.answer(operation, {"TransactItems": items[:10]})


def test_a_transaction_has_a_limit_of_actions(aws):
    many = [{"Delete": {"TableName": "T", "Key": {"p": {"S": str(n)}}}} for n in range(101)]
    with pytest.raises(ServiceError) as caught:
        aws.dynamodb.answer("TransactWriteItems", {"TransactItems": many})
    assert caught.value.code == "ValidationException"


def test_an_item_has_a_limit_of_size(aws):
    with pytest.raises(ServiceError, match="maximum allowed size"):
        put(aws, "k", 400 * 1024 + 1)


def test_an_unknown_parameter_is_an_error(aws):
    with pytest.raises(NotImplementedError, match="AttributesToGet"):
        aws.dynamodb.answer("GetItem", {"TableName": "T", "Key": {}, "AttributesToGet": []})


def test_a_request_touches_the_items_that_it_names(aws):
    request = {
        "TransactItems": [
            {"Put": {"TableName": "T", "Item": {"p": {"S": "a"}, "n": {"N": "1"}}}},
            {"ConditionCheck": {"TableName": "T", "Key": {"p": {"S": "b"}}}},
        ]
    }
    reads, writes = aws.dynamodb.touched("TransactWriteItems", request)
    assert (reads, writes) == ({("T", ("b",))}, {("T", ("a",))})


# ---------------------------------------------------------------------------------------------- queues


@pytest.fixture
def queue(aws):
    dead_letters = aws.sqs.create("dead")
    return aws.sqs.create("queue", 30, dead_letters, max_receive_count=2)


def receive(aws, queue, limit=10):
    answer = aws.sqs.answer("ReceiveMessage", {"QueueUrl": queue.url, "MaxNumberOfMessages": limit})
    return answer.get("Messages", [])


def send(aws, queue, body, **more):
    return aws.sqs.answer("SendMessage", {"QueueUrl": queue.url, "MessageBody": body, **more})


def test_a_message_is_redelivered_until_it_is_dead_lettered(aws, clock, queue):
    send(aws, queue, "body")
    for _ in range(2):
        assert [message["Body"] for message in receive(aws, queue)] == ["body"]
        assert receive(aws, queue) == []
        clock.sleep(30)
    assert receive(aws, queue) == []
    assert [message.body for message in queue.dead_letters.messages] == ["body"]
    assert queue.messages == []


def test_an_old_receipt_handle_deletes_nothing(aws, clock, queue):
    send(aws, queue, "body")
    (old,) = receive(aws, queue)
    clock.sleep(30)
    (new,) = receive(aws, queue)
    for message, left in ((old, 1), (new, 0)):
        handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
        aws.sqs.answer("DeleteMessage", handle)
        assert len(queue.messages) == left


def test_a_fifo_group_waits_for_its_message_in_flight(aws, clock):
    queue = aws.sqs.create("q.fifo", 30)
    for number in range(4):
        group = "ab"[number % 2]
        send(aws, queue, str(number), MessageGroupId=group, MessageDeduplicationId=str(number))
    assert [message["Body"] for message in receive(aws, queue, limit=1)] == ["0"]
    assert [message["Body"] for message in receive(aws, queue)] == ["1", "3"]
    clock.sleep(30)
    assert [message["Body"] for message in receive(aws, queue)] == ["0", "1", "2", "3"]


def test_fifo_deduplication_lasts_five_minutes(aws, clock):
    queue = aws.sqs.create("q.fifo")
    for seconds, count in ((0, 1), (299, 1), (1, 2)):
        clock.sleep(seconds)
        send(aws, queue, "body", MessageGroupId="g", MessageDeduplicationId="d")
        assert len(queue.messages) == count


def test_the_attributes_of_a_message_count_as_well(aws, queue):
    named = {"MessageAttributes": {"name": {"DataType": "String", "StringValue": "value"}}}
    largest = "x" * (1_048_576 - len("name" + "String" + "value"))
    send(aws, queue, largest, **named)
    for body, attributes in ((largest + "x", named), ("x" * 1_048_577, {})):
        with pytest.raises(ServiceError, match="1048576"):
            send(aws, queue, body, **attributes)
    entries = [{"Id": "0", "MessageBody": "x"}, {"Id": "1", "MessageBody": largest[1:], **named}]
    request = {"QueueUrl": queue.url, "Entries": entries}
    assert len(aws.sqs.answer("SendMessageBatch", request)["Successful"]) == 2
    entries[0]["MessageBody"] += "x"
    with pytest.raises(ServiceError, match="Batch requests"):
        aws.sqs.answer("SendMessageBatch", request)


def test_sqs_refuses_characters_that_xml_does_not_allow(aws, queue):
    for body in ("\x00", "a\x1f", "\ud800", "\ufffe"):
        with pytest.raises(ServiceError, match="Invalid binary character"):
            send(aws, queue, body)


def test_the_body_is_the_deduplication_id_of_a_message_without_one(aws):
    queue = aws.sqs.create("q.fifo", content_based=True)
    attributes = {"a": {"DataType": "String", "StringValue": "1"}}
    hashed = hashlib.sha256(b"body").hexdigest()
    for body, more, count in (
        ("body", {}, 1),
        ("body", {"MessageAttributes": attributes}, 1),
        ("body", {"MessageDeduplicationId": hashed}, 1),
        ("another", {"MessageDeduplicationId": hashed}, 1),
        ("body ", {}, 2),
        ("body", {"MessageDeduplicationId": "own"}, 3),
    ):
        send(aws, queue, body, MessageGroupId="g", **more)
        assert len(queue.messages) == count
    with pytest.raises(ServiceError, match="ContentBasedDeduplication"):
        send(aws, aws.sqs.create("without.fifo"), "body", MessageGroupId="g")


def test_deduplication_has_the_group_as_its_scope_as_in_the_stack(aws):
    queue = aws.sqs.create("q.fifo")
    for group in "aba":
        send(aws, queue, "body", MessageGroupId=group, MessageDeduplicationId="d")
    assert [message.group for message in queue.messages] == ["a", "b"]


# ---------------------------------------------------------------------------------------------- the wire, and time


def test_clients_call_the_simulation_below_their_own_retries(aws, clock):
    lost = []

    def answer(service, operation, request):
        reply = aws.answer(service, operation, request)
        if operation == "PutItem" and not lost:
            lost.append(request)
            raise ReadTimeoutError(endpoint_url="https://dynamodb")
        return reply

    config = Config(retries={"total_max_attempts": 2, "mode": "standard"})
    with virtual_time(clock), answered_by(answer):
        client = boto3.client("dynamodb", config=config)
        client.put_item(TableName="T", Item={"p": {"S": "k"}})
        with pytest.raises(client.exceptions.ConditionalCheckFailedException) as caught:
            client.delete_item(
                **KEY,
                ConditionExpression="attribute_not_exists(p)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
    assert len(lost) == 1
    assert caught.value.response["Item"] == {"p": {"S": "k"}}


def test_errors_of_queues_have_the_codes_that_the_sdk_shows(aws):
    with answered_by(aws.answer):
        client = boto3.client("sqs")
        with pytest.raises(ClientError) as caught:
            client.send_message(QueueUrl="https://sqs/1/none", MessageBody="b")
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert isinstance(caught.value, client.exceptions.QueueDoesNotExist)


def test_virtual_time_replaces_the_clock_of_the_process_and_restores_it(clock):
    before = time.time
    with virtual_time(clock):
        start = time.monotonic()
        time.sleep(1000)
        assert time.monotonic() - start == 1000
        assert time.time() == clock.seconds == time.perf_counter()
    assert time.time is before
