#!/usr/bin/env bash
# aws-sqs-batchlib finds every queue empty if it is told not to wait.
#
# receive_message() returns more than ten messages, and "accepts the same arguments" as boto3's. There, WaitTimeSeconds=0 is short polling:
# one request that is answered at once (Amazon SQS Developer Guide, "short and long polling"). One expects the same here, or requests
# until one returns nothing. It sends requests while the time that has passed is less than WaitTimeSeconds, which it never is for
# 0: it sends none, and returns an empty list.
# It matters because the list looks like an empty queue. A scheduled function that works off what is there, and is not to wait
# and pay for it, leaves all orders where they are, without an error, until they are too old and SQS deletes them. Wait at least one
# second.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    aws-sqs-batchlib==3.1.0 boto3==1.44.8 "moto[sqs]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import os
import sys
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="eu-central-1")
import aws_sqs_batchlib
import boto3
from moto import mock_aws

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("aws-sqs-batchlib", "boto3", "moto")))


def received(receive, name, wait):
    client = boto3.client("sqs")
    url = client.create_queue(QueueName=name)["QueueUrl"]
    for order in range(4):
        client.send_message(QueueUrl=url, MessageBody=f"order-{order}")
    requests = []
    client.meta.events.register("before-call.sqs.ReceiveMessage", lambda **_: requests.append(1))
    messages = receive(client, QueueUrl=url, MaxNumberOfMessages=4, WaitTimeSeconds=wait).get("Messages", [])
    return len(messages), len(requests)


def by_boto3(client, **arguments):
    return client.receive_message(**arguments)


def by_batchlib(client, **arguments):
    return aws_sqs_batchlib.receive_message(client, **arguments)


seen = []
with mock_aws():
    for wait in (0, 1):
        print("Expected: wait {} s: {} of 4 orders, {} request (boto3)".format(wait, *received(by_boto3, f"boto3-{wait}", wait)))
        seen.append(received(by_batchlib, f"batchlib-{wait}", wait))
        print("Seen:     wait {} s: {} of 4 orders, requests: {}".format(wait, *seen[-1]))
print("Why it matters: orders are never handled, and the queue seems to be empty.")
sys.exit(seen != [(0, 0), (4, 1)])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
