#!/usr/bin/env bash
# aws-embedded-metrics writes properties of one order into the metrics of the next.
#
# The package, which AWS publishes for Python and JavaScript, writes metrics as lines of a log, with properties such as the order's id next
# to them. flush() writes a line and, as both documentations say, "resets all properties and metric values". One expects an order without a
# voucher to have no voucher. In both languages all properties stay until they are set to another value; only the metrics are reset.
# It matters because a search of the log for a voucher finds orders that had none, and a search for an error all orders after it. Create a logger
# for each order, as metric_scope does for each call, or set each property every time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aws-embedded-metrics==3.5.0 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts aws-embedded-metrics@4.2.1
export AWS_EMF_ENVIRONMENT=Local AWS_EMF_SERVICE_NAME=shop AWS_EMF_SERVICE_TYPE=shop

cat > orders.cjs <<'JAVASCRIPT'
const { createMetricsLogger } = require('aws-embedded-metrics');
(async () => {
  const metrics = createMetricsLogger();
  metrics.setProperty('order', '1001').setProperty('voucher', 'SPRING').putMetric('Orders', 1, 'Count');
  await metrics.flush();
  metrics.setProperty('order', '1002').putMetric('Orders', 1, 'Count');
  await metrics.flush();
})();
JAVASCRIPT

cat > check.py <<'PYTHON'
import asyncio
import contextlib
import io
import json
import subprocess
import sys
from importlib.metadata import version

from aws_embedded_metrics.logger.metrics_logger_factory import create_metrics_logger


async def orders():
    metrics = create_metrics_logger()
    metrics.set_property("order", "1001").set_property("voucher", "SPRING").put_metric("Orders", 1, "Count")
    await metrics.flush()
    metrics.set_property("order", "1002").put_metric("Orders", 1, "Count")
    await metrics.flush()


def shown(line):
    fields = json.loads(line)
    return {"order": fields["order"], "voucher": fields.get("voucher"), "Orders": fields["Orders"]}


with contextlib.redirect_stdout(io.StringIO()) as output:
    asyncio.run(orders())
python = [shown(line) for line in output.getvalue().splitlines()]
lines = subprocess.run(["node", "orders.cjs"], capture_output=True, text=True, check=True).stdout.splitlines()
node = [shown(line) for line in lines if line.startswith("{")]
first, second = ({"order": order, "voucher": "SPRING", "Orders": 1} for order in ("1001", "1002"))
print(f"Versions: aws-embedded-metrics {version('aws-embedded-metrics')} for Python and 4.2.1 for JavaScript")
print("Expected:", first, {**second, "voucher": None})
print("Seen:    ", *python, "(Python)")
print("Seen:    ", *node, "(JavaScript)")
print("Why it matters: order 1002 is counted as one with the voucher SPRING.")
sys.exit(not (python == node == [first, second]))
PYTHON
venv/bin/python check.py
