#!/usr/bin/env bash
# sqs-router ships an order before its payment is retried, and deletes messages of async handlers unhandled.
#
# The package calls a function for each type of message in a Lambda's batch. With partial_failure, it reports the messages that failed, and SQS
# delivers only those again. In a FIFO queue the messages of one order must stay in sequence, so one expects the later messages of a group
# not to be handled once one has failed, and to be reported with it, as AWS asks for and fastsqs does. sqs-router handles them: the order
# is shipped, and after that its payment is tried again. A handler with "async def", which fastsqs awaits, is called but never runs:
# the message counts as handled and is deleted, with nothing but Python's warning that a coroutine was never awaited.
# It matters because FIFO queues are chosen for their sequence, and tests in which all goes well pass. Use fastsqs, or Powertools'
# SqsFifoPartialProcessor.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sqs-router==0.1.0 fastsqs==1.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import json
import logging
import sys
import warnings
from importlib.metadata import version

from fastsqs import FastSQS, SQSEvent
from sqs_router import SQSRouter

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("sqs-router", "fastsqs")))


def batch(*kinds):
    """A batch of messages about one order, as Lambda gets it from a FIFO queue."""
    return {
        "Records": [
            {
                "messageId": kind,
                "receiptHandle": kind,
                "body": json.dumps({"type": kind, "order": "1001"}),
                "attributes": {"MessageGroupId": "1001", "SequenceNumber": str(number), "ApproximateReceiveCount": "1"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:orders.fifo",
            }
            for number, kind in enumerate(kinds)
        ]
    }


def failed(response):
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


def with_router():
    router, done = SQSRouter(message_type_field="type", partial_failure=True), []

    @router.on("paid")
    def pay(message, metadata):
        raise TimeoutError("no answer from the bank")

    @router.on("shipped")
    def ship(message, metadata):
        done.append("shipped")

    @router.on("refunded")
    async def refund(message, metadata):
        done.append("refunded")

    return failed(router.dispatch(batch("paid", "shipped"))), failed(router.dispatch(batch("refunded"))), done


def with_fastsqs():
    app, done = FastSQS(), []

    class Paid(SQSEvent):
        order: str

    class Shipped(SQSEvent):
        order: str

    class Refunded(SQSEvent):
        order: str

    @app.route(Paid)
    def pay(msg: Paid):
        raise TimeoutError("no answer from the bank")

    @app.route(Shipped)
    def ship(msg: Shipped):
        done.append("shipped")

    @app.route(Refunded)
    async def refund(msg: Refunded):
        done.append("refunded")

    return failed(app.handler(batch("paid", "shipped"), None)), failed(app.handler(batch("refunded"), None)), done


router, other = with_router(), with_fastsqs()
print("Expected: paid and shipped are reported as failed, and only the refund is done")
print(f"Seen:     {router[0]} and {router[1]} reported, {router[2]} done")
print(f"Seen:     {other[0]} and {other[1]} reported, {other[2]} done (fastsqs)")
print("Why it matters: goods leave before the money has come, and no customer is refunded.")
sys.exit(not (router == (["paid"], [], ["shipped"]) and other == (["paid", "shipped"], [], ["refunded"])))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
