#!/usr/bin/env bash
# distributed-counter drops the fraction of a product's first booking, and one of two first bookings that come at once.
#
# The package keeps counters, such as a stock, in DynamoDB, and increment() is documented to count atomically. One expects this of the
# first booking too, for which a default is given, and the stock that increment() returns to be the one that is stored. Later bookings are as
# one expects. The first makes an update that fails, and then writes its own sum whatever is there by then, after int(): 2.5 kg are returned
# and 2 stored.
# It matters because stock is wrong from the first delivery on, and no later booking shows it: a new product has its first deliveries
# often in several parcels at the same time. Write new counters with a condition of your own, or use DynamoDB's ADD, which
# begins at 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    distributed-counter==0.0.3 boto3==1.44.8 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import os
import sys
from decimal import Decimal
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="eu-central-1")
from distributed_counter import DistributedCounter
from moto import mock_aws


def with_a_booking_between(counter, book):
    """Let another program book after the counter's update has failed, before it writes the first sum."""
    waiting = [book]

    def once(**_):
        if waiting:
            waiting.pop()()

    counter.table.meta.client.meta.events.register("before-call.dynamodb.PutItem", once)


print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("distributed-counter", "boto3", "moto")))
with mock_aws():
    counter, other = DistributedCounter("stock"), DistributedCounter("stock")
    counter.create_table()
    returned = counter.increment("rice", Decimal("2.5"), default=0)
    first = other.get("rice")
    counter.increment("rice", Decimal("2.5"), default=0)
    second = other.get("rice")
    with_a_booking_between(counter, lambda: other.increment("tea", 7, default=0))
    counter.increment("tea", 5, default=0)
    both = other.get("tea")
print("Expected: 2.5 kg of rice are booked: 2.5 returned, 2.5 stored")
print(f"Seen:     2.5 kg of rice are booked: {returned} returned, {first} stored")
print("Expected: 2.5 kg more are booked: 5.0 stored")
print(f"Seen:     2.5 kg more are booked: {second} stored")
print("Expected: 7 and 5 of tea are booked first, at once: 12 stored")
print(f"Seen:     7 and 5 of tea are booked first, at once: {both} stored")
print("Why it matters: goods that lie in the warehouse are not sold, and nobody sees why.")
sys.exit((returned, first, second, both) != (Decimal("2.5"), 2, Decimal("4.5"), 5))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
