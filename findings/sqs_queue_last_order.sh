#!/usr/bin/env bash
# sqs_queue gives the order that a program handled last to the next program again, if the loop was left with break.
#
# The package's loop, for message in queue, deletes a message when the program asks for the next one, as that shows that it was handled.
# One expects that a message counts as handled at the end of the loop's body, or that the package has a function to say so. A program that
# leaves the loop after it has handled one, with break or return, because its time or its batch is over, never asks: the message, and up to
# nine others that were received with it, come back after the visibility timeout. The documentation has defer(), to keep a message, but
# nothing to delete one.
# It matters because each run ends with an order that the next run ships or charges once more, although no error was raised and nothing
# was retried. Go on to the end with drain=True, or call message.sqs_message.delete() before break.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --no-compile --quiet --disable-pip-version-check \
    sqs_queue==1.0.3 boto3==1.44.8 "moto[sqs]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import logging
import os
import sys
import time
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3
from moto import mock_aws
from sqs_queue import Queue

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("sqs_queue", "moto")))
logging.disable(logging.CRITICAL)
ORDERS = ["1040", "1041", "1042", "1043"]


def shipped(name, leave):
    """Return the orders that are shipped by runs of up to two orders, until the queue is empty."""
    resource = boto3.resource("sqs").create_queue(QueueName=name, Attributes={"VisibilityTimeout": "1"})
    queue = Queue(queue=resource, drain=True, poll_wait=0, trap_sigterm=False)
    for order in ORDERS:
        queue.publish({"order": order})
    orders = []
    for _ in range(len(ORDERS) * 2):
        handled = 0
        for message in queue:
            orders.append(message["order"])
            handled += 1
            if handled == 2:
                leave(message)
                break
        if not handled:
            return orders
        time.sleep(1.2)
    return orders


with mock_aws():
    left = shipped("left", lambda message: None)
    deleted = shipped("deleted", lambda message: message.sqs_message.delete())
print("Expected:", *ORDERS)
print("Seen:    ", *left)
print("Seen:     with sqs_message.delete() before break:", *deleted)
print("Why it matters: orders are shipped twice.")
known = set(left) == set(ORDERS) and len(left) > len(ORDERS) and sorted(deleted) == ORDERS
sys.exit(0 if known else 1)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
