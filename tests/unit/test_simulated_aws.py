"""The simulated AWS where the embedded AWS gives no answer to hold it against: capacity, time, faults."""

import time

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from simulated_aws import ManualClock, ServiceError, SimulatedAws, answered_by, virtual_time


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def model(clock):
    model = SimulatedAws(clock.now)
    model.dynamodb.answer(
        "CreateTable",
        {
            "TableName": "T",
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": "S"} for name in ("p", "u", "c")
            ],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "byU",
                    "KeySchema": [
                        {"AttributeName": "u", "KeyType": "HASH"},
                        {"AttributeName": "c", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["status"]},
                }
            ],
        },
    )
    return model


def put(model, key, size=0, **more):
    item = {"p": {"S": key}, **{name: {"S": value} for name, value in more.items()}}
    if size:
        # The names p and x, the key, and the rest: an item of exactly so many bytes.
        item["x"] = {"S": "x" * (size - 2 - len(key))}
    model.dynamodb.answer("PutItem", {"TableName": "T", "Item": item})


def units(model, operation, request):
    answer = model.dynamodb.answer(operation, request | {"ReturnConsumedCapacity": "INDEXES"})
    consumed = answer["ConsumedCapacity"]
    return consumed[0] if isinstance(consumed, list) else consumed


def test_capacity_of_reads(model):
    put(model, "big", 4097)
    get = {"TableName": "T", "Key": {"p": {"S": "big"}}}
    assert units(model, "GetItem", get)["CapacityUnits"] == 1.0
    assert units(model, "GetItem", get | {"ConsistentRead": True})["CapacityUnits"] == 2.0
    transaction = {"TransactItems": [{"Get": get}]}
    assert units(model, "TransactGetItems", transaction)["CapacityUnits"] == 4.0
    missing = {"TableName": "T", "Key": {"p": {"S": "none"}}, "ConsistentRead": True}
    assert units(model, "GetItem", missing)["CapacityUnits"] == 1.0
    assert model.dynamodb.tables["T"].consumed.reads == 8.0


def test_capacity_of_writes(model):
    item = {"p": {"S": "k"}, "x": {"S": "x" * 1022}}
    assert units(model, "PutItem", {"TableName": "T", "Item": item})["CapacityUnits"] == 2.0
    delete = {"TableName": "T", "Key": {"p": {"S": "k"}}}
    refused = delete | {"ConditionExpression": "attribute_not_exists(p)"}
    before = model.dynamodb.tables["T"].consumed.writes
    with pytest.raises(ServiceError):
        model.dynamodb.answer("DeleteItem", refused)
    assert model.dynamodb.tables["T"].consumed.writes - before == 2.0
    transaction = {"TransactItems": [{"Delete": delete}]}
    assert units(model, "TransactWriteItems", transaction)["CapacityUnits"] == 4.0


def test_index_units_stand_apart(model):
    item = {"p": {"S": "o"}, "u": {"S": "u-1"}, "c": {"S": "2026"}, "status": {"S": "PENDING"}}
    first = units(model, "PutItem", {"TableName": "T", "Item": item})
    assert first["Table"] == {"CapacityUnits": 1.0}
    assert first["GlobalSecondaryIndexes"] == {"byU": {"CapacityUnits": 1.0}}
    update = {
        "TableName": "T",
        "Key": {"p": {"S": "o"}},
        "ExpressionAttributeNames": {"#a": "other"},
        "ExpressionAttributeValues": {":v": {"S": "v"}},
        "UpdateExpression": "SET #a = :v",
    }
    assert "GlobalSecondaryIndexes" not in units(model, "UpdateItem", update)
    projected = update | {"ExpressionAttributeNames": {"#a": "status"}}
    assert units(model, "UpdateItem", projected)["CapacityUnits"] == 2.0
    moved = update | {"ExpressionAttributeNames": {"#a": "u"}}
    assert units(model, "UpdateItem", moved)["CapacityUnits"] == 3.0
    assert model.dynamodb.tables["T"].consumed.index_writes == {"byU": 4.0}


def test_a_token_is_forgotten_after_ten_minutes(model, clock):
    add = {
        "TransactItems": [
            {
                "Update": {
                    "TableName": "T",
                    "Key": {"p": {"S": "n"}},
                    "UpdateExpression": "ADD n :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
            }
        ],
        "ClientRequestToken": "token",
    }
    for seconds in (0, 599, 2):
        clock.sleep(seconds)
        model.dynamodb.answer("TransactWriteItems", add)
    assert model.dynamodb.tables["T"].items["n",]["n"] == {"N": "2"}


def test_a_transaction_is_limited_in_actions_and_size(model):
    many = [{"Delete": {"TableName": "T", "Key": {"p": {"S": str(n)}}}} for n in range(101)]
    with pytest.raises(ServiceError) as caught:
        model.dynamodb.answer("TransactWriteItems", {"TransactItems": many})
    assert caught.value.code == "ValidationException"
    for number in range(11):
        put(model, f"{number:02}", 400_000)
    with pytest.raises(ServiceError) as caught:
        model.dynamodb.answer(
            "TransactWriteItems",
            {
                "TransactItems": [
                    {"Delete": {"TableName": "T", "Key": {"p": {"S": f"{number:02}"}}}}
                    for number in range(11)
                ]
            },
        )
    assert "4 MB" in caught.value.message


def test_an_item_is_limited_in_size(model):
    with pytest.raises(ServiceError, match="maximum allowed size"):
        put(model, "k", 400 * 1024 + 1)


def test_unknown_parameters_are_not_ignored(model):
    with pytest.raises(NotImplementedError, match="AttributesToGet"):
        model.dynamodb.answer("GetItem", {"TableName": "T", "Key": {}, "AttributesToGet": []})


def test_what_a_request_touches(model):
    request = {
        "TransactItems": [
            {"Put": {"TableName": "T", "Item": {"p": {"S": "a"}, "n": {"N": "1"}}}},
            {"ConditionCheck": {"TableName": "T", "Key": {"p": {"S": "b"}}}},
        ]
    }
    reads, writes = model.dynamodb.touched("TransactWriteItems", request)
    assert (reads, writes) == ({("T", ("b",))}, {("T", ("a",))})


# ---------------------------------------------------------------------------------------------- queues


@pytest.fixture
def queue(model):
    dead_letters = model.sqs.create("dead")
    return model.sqs.create("queue", 30, dead_letters, max_receive_count=2)


def receive(model, queue, limit=10):
    answer = model.sqs.answer(
        "ReceiveMessage", {"QueueUrl": queue.url, "MaxNumberOfMessages": limit}
    )
    return answer.get("Messages", [])


def send(model, queue, body, **more):
    return model.sqs.answer("SendMessage", {"QueueUrl": queue.url, "MessageBody": body, **more})


def test_a_message_comes_back_until_it_is_given_up(model, clock, queue):
    send(model, queue, "body")
    for _ in range(2):
        assert [message["Body"] for message in receive(model, queue)] == ["body"]
        assert receive(model, queue) == []
        clock.sleep(30)
    assert receive(model, queue) == []
    assert [message.body for message in queue.dead_letters.messages] == ["body"]
    assert queue.messages == []


def test_an_old_receipt_handle_deletes_nothing(model, clock, queue):
    send(model, queue, "body")
    (old,) = receive(model, queue)
    clock.sleep(30)
    (new,) = receive(model, queue)
    for message, left in ((old, 1), (new, 0)):
        handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
        model.sqs.answer("DeleteMessage", handle)
        assert len(queue.messages) == left


def test_a_fifo_group_waits_for_its_message_in_flight(model, clock):
    queue = model.sqs.create("q.fifo", 30)
    for number in range(4):
        group = "ab"[number % 2]
        send(model, queue, str(number), MessageGroupId=group, MessageDeduplicationId=str(number))
    assert [message["Body"] for message in receive(model, queue, limit=1)] == ["0"]
    assert [message["Body"] for message in receive(model, queue)] == ["1", "3"]
    clock.sleep(30)
    assert [message["Body"] for message in receive(model, queue)] == ["0", "1", "2", "3"]


def test_fifo_deduplication_lasts_five_minutes(model, clock):
    queue = model.sqs.create("q.fifo")
    for seconds, count in ((0, 1), (299, 1), (1, 2)):
        clock.sleep(seconds)
        send(model, queue, "body", MessageGroupId="g", MessageDeduplicationId="d")
        assert len(queue.messages) == count


# ---------------------------------------------------------------------------------------------- the wire, and time


def test_clients_talk_to_the_model_below_their_own_retries(model, clock):
    lost = []

    def answer(service, operation, request):
        reply = model.answer(service, operation, request)
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
                TableName="T",
                Key={"p": {"S": "k"}},
                ConditionExpression="attribute_not_exists(p)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
    assert len(lost) == 1
    assert caught.value.response["Item"] == {"p": {"S": "k"}}


def test_errors_of_queues_have_their_known_codes(model):
    with answered_by(model.answer):
        client = boto3.client("sqs")
        with pytest.raises(ClientError) as caught:
            client.send_message(QueueUrl="https://sqs/1/none", MessageBody="b")
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert isinstance(caught.value, client.exceptions.QueueDoesNotExist)


def test_virtual_time_replaces_the_clock_of_the_process_and_gives_it_back(clock):
    before = time.time
    with virtual_time(clock):
        start = time.monotonic()
        time.sleep(1000)
        assert time.monotonic() - start == 1000
        assert time.time() == clock.seconds == time.perf_counter()
    assert time.time is before
