"""Publishing outcomes on the embedded AWS: from the change of a row to the consumer, and again from the rows."""

import json
import signal
import time
import uuid

import boto3
import pytest

from inventory_orders.store.rows import encode
from inventory_orders.store.tables import Table
from operations import queues
from operations.dead_letters import peek_dead_letters
from operations.errors import UserError
from operations.follow import listening
from operations.republish import republish, rows_of
from testing.world.events import order_body
from testing.world.streams import order_row
from tests.support.stack import (
    COMMAND,
    QUIET_SECONDS,
    cli,
    create,
    in_the_background,
    wait_until,
)


@pytest.fixture
def new_id():
    return f"ev-{uuid.uuid4().hex[:8]}"


def heard_of(listen, subject, count, seconds=QUIET_SECONDS):
    """Listen until the given number of events for one order or product have arrived."""
    found = []
    for heard in listen(seconds):
        data = heard.event["detail"]["data"]
        if subject in (data.get("orderId"), data.get("productId")):
            found.append(heard)
            if len(found) == count:
                return found
    raise AssertionError(f"only {len(found)} of {count} events of {subject} in {seconds} s")


def send(aws, queue, body):
    aws.sqs.send_message(QueueUrl=aws.outputs[queue], MessageBody=json.dumps(body))


def published(aws, *order_ids, send):
    return republish(aws, rows_of(aws, order_ids), send=send, on_progress=lambda _: None)


def types(found):
    return [heard.event["detail-type"] for heard in found]


def next_of(follower, subject, count=1):
    """Read the next events that `follow` prints for one order or product, by type."""
    found = {}
    for event in map(json.loads, follower.stdout):
        data = event["detail"]["data"]
        if subject in (data.get("orderId"), data.get("productId")):
            found[event["detail-type"]] = event["detail"]
            if len(found) == count:
                return found
    raise AssertionError(f"it ended after {found}")


def test_an_outcome_is_received_and_the_listener_leaves_nothing_behind(aws, new_id):
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    with in_the_background(COMMAND, "follow", "--json", "--seconds", "600") as follower:
        create(aws, new_id, 6, lowStockThreshold=2)
        assert any("Listening to" in line for line in follower.stderr)
        # Orders and products have separate streams, so these two events may arrive in any sequence.
        send(aws, queues.STANDARD, order_body(new_id, {new_id: 5}))
        assert set(next_of(follower, new_id, 2)) == {"OrderPlaced", "ProductLowOnStock"}
        send(aws, queues.COMMANDS, {"action": "cancel", "orderId": new_id})
        heard = next_of(follower, new_id, 2)
        assert set(heard) == {"OrderCancelled", "ProductStockRecovered"}
        assert published(aws, new_id, send=False).events == 1
        assert " published." in cli("republish", "--since", since, "--send").stdout
        again = next_of(follower, new_id)
        assert again == {"OrderCancelled": heard["OrderCancelled"]}, (
            "the same id and content as before"
        )
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(60) == 0
    events, bus = boto3.client("events"), aws.outputs["EventBusName"]
    rules = events.list_rules(EventBusName=bus)["Rules"]
    assert [rule["Name"] for rule in rules if "-follow-" in rule["Name"]] == []
    assert not aws.sqs.list_queues(QueueNamePrefix=f"{bus}-follow-").get("QueueUrls")


def status_by_hand(aws, order_id, status):
    aws.dynamodb.update_item(
        TableName=aws.tables[Table.ORDERS],
        Key={"orderId": {"S": order_id}},
        UpdateExpression="SET #status = :status",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":status": {"S": status}},
    )


def test_an_unknown_status_is_parked_and_delays_no_other_event(aws, new_id):
    """The test also covers the runbook's sections UndeliverableEvents and IteratorAge."""
    create(aws, new_id, 5)
    url = aws.outputs["UndeliverableEventsQueueUrl"]
    aws.sqs.purge_queue(QueueUrl=url)
    with listening(aws) as listen:
        send(aws, queues.STANDARD, order_body(new_id, {new_id: 1}))
        (placed,) = heard_of(listen, new_id, 1)
        assert 0 <= placed.delay < 60
        status_by_hand(aws, new_id, "ON_HOLD")
        send(aws, queues.STANDARD, order_body(f"{new_id}-2", {new_id: 1}))
        heard_of(listen, f"{new_id}-2", 1)
        wait_until(aws, lambda: peek_dead_letters(aws.sqs, url, 10))
        (parked,) = peek_dead_letters(aws.sqs, url, 10)
        assert parked.code == "UNKNOWN_ORDER_STATUS"
        image = json.loads(parked.body)["record"]["dynamodb"]["NewImage"]
        assert image["orderId"] == {"S": new_id}
        assert "ON_HOLD" in published(aws, new_id, send=True).problems[0]
        with pytest.raises(UserError, match="there is no order ev-unknown"):
            published(aws, new_id, "ev-unknown", send=True)
        status_by_hand(aws, new_id, "PENDING")
        assert types(heard_of(listen, new_id, 1)) == ["OrderPlaced"]
        aws.sqs.purge_queue(QueueUrl=url)


def test_an_order_of_more_than_256_kb_reaches_its_consumer(aws, new_id):
    row = order_row(new_id, attributes={"note": "x" * 390_000})
    with listening(aws) as listen:
        aws.dynamodb.put_item(TableName=aws.tables[Table.ORDERS], Item=encode(row))
        (placed,) = heard_of(listen, new_id, 1)
    assert placed.event["detail"]["data"]["attributes"] == row["attributes"]


def test_changes_while_the_stream_is_not_read_are_published_later(aws, new_id):
    create(aws, new_id, 5)
    found = aws.functions.list_event_source_mappings(
        FunctionName=aws.outputs["PublishEventsFunctionName"]
    )["EventSourceMappings"]
    (mapping,) = [m for m in found if m["EventSourceArn"] == aws.outputs["OrdersStreamArn"]]
    with listening(aws) as listen:
        aws.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        try:
            send(aws, queues.STANDARD, order_body(new_id, {new_id: 1}))
            with pytest.raises(AssertionError, match="only 0 of 1"):
                heard_of(listen, new_id, 1, seconds=1)
        finally:
            aws.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
        assert types(heard_of(listen, new_id, 1)) == ["OrderPlaced"]
