#!/usr/bin/env bash
# A task that dramatiq-sqs should retry later than in 15 minutes is deleted, and no dead letter is left.
#
# SQS delays a message by at most 15 minutes. One expects a broker with a dead-letter queue to retry a longer backoff after 15 minutes,
# to keep the message, or to make it a dead letter. Here, enqueuing the retry raises MessageDelayTooLong in the middleware, the worker
# logs that, and acknowledges the message. Both queues are empty afterwards. With dramatiq's default settings (backoff from 15 seconds,
# doubled up to seven days, 20 retries) this happens at the eighth retry at the latest.
# It matters because a task such as "tell the carrier" is lost although its retries and its dead-letter queue are switched on. Set
# max_backoff to at most 900,000 ms.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dramatiq==2.2.1 dramatiq-sqs==0.4.4 'moto[sqs,server]==5.2.5'

cat > "$folder/check.py" <<'PYTHON'
import logging
import os
import sys
import time
from importlib.metadata import version

os.environ |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test")
os.environ["AWS_DEFAULT_REGION"] = "eu-central-1"
import boto3
import dramatiq
from dramatiq.common import compute_backoff
from dramatiq.middleware import Retries
from dramatiq_sqs import SQSBroker
from moto.server import ThreadedMotoServer

logging.disable(logging.CRITICAL)
MINUTE = 60_000
print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("dramatiq", "dramatiq-sqs", "moto")))
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
where = f"http://{host}:{port}"
broker = SQSBroker(endpoint_url=where, dead_letter=True, middleware=[Retries()])
dramatiq.set_broker(broker)


def left_after_a_failure(name, minutes):
    runs = []

    @dramatiq.actor(queue_name=name, actor_name=name, min_backoff=minutes * MINUTE)
    def tell_the_carrier(order):
        runs.append(order)
        raise RuntimeError("the carrier does not answer")

    tell_the_carrier.send("o-1")
    worker = dramatiq.Worker(broker, queues={name}, worker_timeout=100)
    worker.start()
    give_up_at = time.monotonic() + 30
    while not runs and time.monotonic() < give_up_at:
        time.sleep(0.1)
    time.sleep(2)
    worker.stop()
    sqs = boto3.client("sqs", endpoint_url=where)
    counts = ["", "NotVisible", "Delayed"]
    left = 0
    for url in sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]:
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        left += sum(int(attributes[f"ApproximateNumberOfMessages{count}"]) for count in counts)
    return len(runs), left



seen = []
for name, minutes in (("soon", 1), ("later", 40)):
    seen.append(left_after_a_failure(name, minutes))
    print(f"Expected: after one run that failed, with a retry in up to {minutes} minutes, 1 message is left")
    print(f"Seen:     {seen[-1][0]} run, {seen[-1][1]} messages in the queue and its dead-letter queue")
defaults = [compute_backoff(attempt, factor=15_000, max_backoff=7 * 24 * 60 * MINUTE, jitter=False)[1] for attempt in range(9)]
print("Seen:     dramatiq's default delays, without jitter:", ", ".join(f"{delay / 1000:,.0f} s" for delay in defaults))
print("Why it matters: a task is lost although it has retries left and a dead-letter queue.")
server.stop()
sys.exit(seen != [(1, 1), (1, 0)] or not any(delay > 15 * MINUTE for delay in defaults))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
