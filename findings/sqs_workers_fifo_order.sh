#!/usr/bin/env bash
# sqs-workers handles the payment and the cancellation of an order before the order itself, although the queue is FIFO.
#
# In a FIFO queue, messages of one group are received in sequence, and a message that was received and not deleted blocks those after it
# (Amazon SQS Developer Guide, "FIFO queue delivery logic"). sqs-workers has functions for such queues, and an argument for the group. One
# expects that, if "placed" fails, "paid" of the same order waits for the retry. The worker receives up to ten messages at a time, which may
# all belong to one order. It logs the failure, handles the others and deletes them, and only then retries the first one.
# It matters because one short failure, such as a time-out of a database, turns a cancelled order into a placed one, which is then shipped.
# Most tests pass: if nothing fails, the sequence is right. Compare the order's version in the handler, or receive one message at a time
# by overriding get_raw_messages().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    sqs-workers==0.7.3 typing-extensions==4.15.0 boto3==1.44.8 "moto[sqs]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import logging
import os
import sys
import time
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
from moto import mock_aws
from sqs_workers import SQSEnv, create_fifo_queue
from sqs_workers.backoff_policies import ConstantBackoff

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("sqs-workers", "moto")))
logging.disable(logging.CRITICAL)
CHANGES = ["placed", "paid", "cancelled"]


def handled(batch_size):
    """Return the changes of one order in the sequence in which they are handled, if the first one fails once."""
    env = SQSEnv(queue_prefix=f"{batch_size}_", backoff_policy=ConstantBackoff(1))
    create_fifo_queue(env, "orders.fifo", visibility_timeout=30)
    queue = env.queue("orders.fifo")
    receive = queue.get_raw_messages
    queue.get_raw_messages = lambda wait, limit=10: receive(wait, min(limit, batch_size))
    seen = []

    @queue.processor("change")
    def change(order, status):
        if not seen:
            seen.append("placed (fails)")
            raise TimeoutError
        seen.append(status)

    for number, status in enumerate(CHANGES):
        change.delay(order="1042", status=status, _group_id="1042", _deduplication_id=f"1042-{number}")
    until = time.monotonic() + 10
    while len(seen) < len(CHANGES) + 1 and time.monotonic() < until:
        queue.process_batch()
        time.sleep(0.2)
    return seen


with mock_aws():
    by_ten, by_one = handled(10), handled(1)
print("Expected: placed (fails), placed, paid, cancelled")
print("Seen:    ", ", ".join(by_ten))
print("Seen:     one message at a time:", ", ".join(by_one))
print("Why it matters: the last change that the shop knows of is that the order was placed, so it is shipped.")
known = by_ten == ["placed (fails)", "paid", "cancelled", "placed"] and by_one == ["placed (fails)", *CHANGES]
sys.exit(0 if known else 1)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
