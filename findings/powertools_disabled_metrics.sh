#!/usr/bin/env bash
# Powertools keeps the metrics of orders that it was told not to emit, and counts them with the next order.
#
# With POWERTOOLS_METRICS_DISABLED=true, which is meant for tests and local runs, log_metrics prints nothing after an invocation. One
# expects it to drop the metrics, as it clears them after it has printed them. Powertools for AWS Lambda keeps them: the next invocation
# adds its own, and as soon as metrics are on again, one record has the values of all orders since, under the last one's time.
# It matters to test suites: a test that switches metrics off makes a later test in the same process find three orders placed instead of
# one, depending on their order. Call metrics.clear_metrics() where metrics are switched off.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aws-lambda-powertools==3.37.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import io
import json
import os
import sys
from contextlib import redirect_stdout
from importlib.metadata import version

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

print("Versions: aws-lambda-powertools", version("aws-lambda-powertools"))
metrics = Metrics(namespace="Shop", service="orders")


@metrics.log_metrics
def place(event, context):
    metrics.add_metric(name="OrdersPlaced", unit=MetricUnit.Count, value=1)


def printed():
    said = io.StringIO()
    with redirect_stdout(said):
        place({}, None)
    return [json.loads(line)["OrdersPlaced"] for line in said.getvalue().splitlines()]


os.environ["POWERTOOLS_METRICS_DISABLED"] = "true"
quiet = printed() + printed()
os.environ["POWERTOOLS_METRICS_DISABLED"] = "false"
third = printed()
print("Expected: two orders without metrics: [], the third order: [[1.0]]")
print(f"Seen:     two orders without metrics: {quiet}, the third order: {third}")
print("Why it matters: whether a test finds one order or three depends on the tests that ran before it.")
sys.exit((quiet, third) != ([], [[1.0, 1.0, 1.0]]))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
