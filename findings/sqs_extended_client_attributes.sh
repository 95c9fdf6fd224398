#!/usr/bin/env bash
# amazon-sqs-extended-client: after one large order, a small one with the same attributes cannot be received, and stops all others.
#
# AWS's extended client for Python puts the body of a large message into S3, and marks the message with a reserved attribute. One expects
# that the caller's own dictionary of attributes, which boto3 never changes, stays as it is. The client adds its mark to it. A program that
# keeps its attributes in a constant sends the next message, which is small and not in S3, with the mark too.
# Whoever receives it then takes its body for a pointer into S3, and the whole receive fails: up to nine good messages with it. The next
# large message with these attributes is refused before it is sent.
# It matters because one large order stops a queue, for every consumer, until someone finds and deletes the small one after it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    amazon-sqs-extended-client==1.0.1 boto3==1.44.8 "moto[s3,sqs]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import json
import os
import sys
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3
import sqs_extended_client
from moto import mock_aws

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("amazon-sqs-extended-client", "boto3", "moto")))


def outcome(call):
    try:
        return f"{len(call().get('Messages', ())) or 'one'} message(s)"
    except sqs_extended_client.exceptions.SQSExtendedClientException as error:
        return f"{type(error).__name__}: {error}".strip()


with mock_aws():
    boto3.client("s3").create_bucket(Bucket="orders")
    sqs = boto3.client("sqs")
    sqs.large_payload_support = "orders"
    queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
    attributes = {"source": {"DataType": "String", "StringValue": "shop"}}

    def send(order_id, note="", **more):
        return sqs.send_message(QueueUrl=queue, MessageBody=json.dumps({"orderId": order_id, "note": note}), **more)

    def receive():
        return sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=0)

    send("o-1", "engraving " * 30_000, MessageAttributes=attributes)
    before = outcome(receive)
    send("o-2", MessageAttributes=attributes)
    send("o-3")
    after = [outcome(receive) for _ in range(2)]
    again = outcome(lambda: send("o-4", "engraving " * 30_000, MessageAttributes=attributes))

print("Expected: the attributes are still ['source'], and all three orders are received")
print(f"Seen:     {sorted(attributes)}")
print(f"Seen:     with the large order alone, a receive returns {before}")
print(f"Seen:     with a small one of the same attributes, and one without: {after[0]}")
print(f"Seen:     the next large one: {again}")
print("Why it matters: one large order stops the queue for every consumer.")
failed = all("Invalid payload format" in text for text in after)
sys.exit(not (len(attributes) == 2 and before == "1 message(s)" and failed and "reserved" in again))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
