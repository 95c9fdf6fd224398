#!/usr/bin/env bash
# fastsqs drops the order of one shop as a duplicate of another shop's order.
#
# SQS may deliver a message twice, so fastsqs has an IdempotencyMiddleware. Its key is the payload's "id" by default, "matching CloudEvents", for
# which the package has a model, too. In CloudEvents an id is unique per source only: source and id together name an event, and shops that number
# their orders use the same ids. One expects two events with different sources to be handled. The second is skipped, and deleted from the
# queue as done. Its type does not count either: "order paid" with the id of "order placed" is skipped. One path is all that key_path can name.
# It matters because the order is lost without an error, a retry or a dead letter. Let producers make ids that are unique everywhere,
# or put the source and the id into one field before the middleware runs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check fastsqs==1.2.0 pydantic==2.14.4 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import json
import logging
import sys
from importlib.metadata import version

from fastsqs import CloudEvent, FastSQS, IdempotencyMiddleware, InMemoryIdempotencyStore
from pydantic import BaseModel

logging.disable(logging.CRITICAL)
print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("fastsqs", "pydantic")))


class Order(BaseModel):
    total: int


class OrderPlaced(CloudEvent[Order]):
    pass


class OrderPaid(CloudEvent[Order]):
    pass


app, handled = FastSQS(), []
app.add_middleware(IdempotencyMiddleware(InMemoryIdempotencyStore()))


@app.route(OrderPlaced)
def placed(msg: OrderPlaced):
    handled.append(("placed", msg.source, msg.id))


@app.route(OrderPaid)
def paid(msg: OrderPaid):
    handled.append(("paid", msg.source, msg.id))


SENT = [
    ("placed", "berlin.example", "1001"),
    ("placed", "lyon.example", "1001"),
    ("placed", "lyon.example", "1002"),
    ("paid", "oslo.example", "1002"),
]
records = [
    {
        "messageId": str(number),
        "receiptHandle": str(number),
        "body": json.dumps({"specversion": "1.0", "type": f"order_{what}", "source": source, "id": event_id, "data": {"total": 5}}),
        "attributes": {},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:orders",
    }
    for number, (what, source, event_id) in enumerate(SENT)
]
failures = app.handler({"Records": records}, None)["batchItemFailures"]
print("Expected:", *SENT)
print("Seen:    ", *sorted(handled), f"and {len(failures)} failures")
print("Why it matters: the queue is empty, and two shops wait for their goods.")
sys.exit(not (sorted(handled) == [SENT[0], SENT[2]] and failures == []))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
