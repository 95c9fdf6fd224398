#!/usr/bin/env bash
# A FIFO queue does not remove duplicates of messages that kombu, and so Celery, sends.
#
# A FIFO queue with content-based deduplication delivers a message once if it is sent twice within five minutes, so that a sender may
# safely try again. One expects the same for a message that kombu publishes twice with the same body and message id. kombu gives
# each publish a new random deduplication id, which overrides the queue's setting, and puts every message into one group named
# "default". Even without that id, the bodies differ, because kombu's envelope has a random delivery tag. With boto3 it works.
# It matters because an order that a web server publishes again after a timeout is placed twice, and because, in a single group, one
# order that fails holds up all the others. Pass MessageDeduplicationId and MessageGroupId to each publish.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kombu==5.7.0 pycurl==7.49.0 boto3==1.44.8 'moto[sqs]==5.2.5'

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

import boto3
from kombu import Connection
from moto import mock_aws

print("Versions:", *(f"{name} {version(name)}" for name in ("kombu", "boto3", "moto")))
order = {"orderId": "A-1", "product": "SHIRT-RED", "quantity": 2}
fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
seen = []


def receive(sqs, url):
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [message["Attributes"] for message in found]


with mock_aws():
    sqs = boto3.client("sqs", "eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
    url = sqs.create_queue(QueueName="orders.fifo", Attributes=fifo)["QueueUrl"]
    queues = {"region": "eu-west-1", "predefined_queues": {"orders.fifo": {"url": url}}}
    with Connection("sqs://test:test@", transport_options=queues) as connection:
        producer = connection.Producer()
        for title, own in (("by default", {}), ("with own ids", {"MessageDeduplicationId": "A-1", "MessageGroupId": "SHIRT-RED"})):
            for _ in range(2):
                producer.publish(order, routing_key="orders.fifo", message_id="A-1", **own)
            messages = []
            while batch := receive(sqs, url):
                messages += batch
            ids = {message["MessageDeduplicationId"] for message in messages}
            groups = sorted({message["MessageGroupId"] for message in messages})
            print("Expected: order A-1, published twice, is delivered once")
            print(f"Seen:     {title}, {len(messages)} delivered, deduplication ids {len(ids)}, groups {', '.join(groups)}")
            seen.append((len(messages), len(ids), groups))
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody='{"orderId": "A-1"}', MessageGroupId="SHIRT-RED")
    print(f"Seen:     with boto3 alone, {len(receive(sqs, url))} delivered")
print("Why it matters: a retry places the order twice, and one failed order holds up every product.")
sys.exit(seen != [(2, 2, ["default"]), (1, 1, ["SHIRT-RED"])])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
