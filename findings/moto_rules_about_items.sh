#!/usr/bin/env bash
# moto never delivers an event to a rule that asks for a product among an order's items.
#
# The event of an order has a list of items, and a rule may ask for one of them: {"detail": {"items": {"sku": ["TEA-1"]}}}. EventBridge looks into
# each object of a list, and all fields of a pattern must match in the same object (README of AWS's event-ruler, on arrays). One expects
# an emulator to do so, or to refuse such a pattern. moto looks into lists of texts and numbers, but not of objects: the rule is accepted
# and never matches, without a message, and a rule that such a field does not exist always matches. The Python package event-ruler
# agrees with AWS.
# It matters because a test that an order of something else is not delivered passes for the wrong reason, and the test that fails is that
# of a correct rule. Such rules are rewritten until moto is content, for example with the SKUs in a list of their own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "moto[events,sqs]==5.2.5" boto3==1.44.8 event-ruler==0.3.0 2> /dev/null
cd "$folder"

cat > check.py <<'PYTHON'
import json
import os
import sys
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3
from event_ruler import event_ruler
from moto import mock_aws

ORDER = {"orderId": "o-1", "items": [{"sku": "TEA-1", "quantity": 1}, {"sku": "MUG-2", "quantity": 12}], "tags": ["web", "gift"]}
RULES = [
    ("TEA-1 is among the items", {"items": {"sku": ["TEA-1"]}}, True),
    ("12 of MUG-2", {"items": {"sku": ["MUG-2"], "quantity": [12]}}, True),
    ("12 of TEA-1", {"items": {"sku": ["TEA-1"], "quantity": [12]}}, False),
    ("no item has a SKU", {"items": {"sku": [{"exists": False}]}}, False),
    ("it has the tag gift", {"tags": ["gift"]}, True),
]
PATTERNS = [pattern for _, pattern, _ in RULES]


@mock_aws
def delivered():
    events, sqs = boto3.client("events"), boto3.client("sqs")
    urls = []
    for number, pattern in enumerate(PATTERNS):
        url = sqs.create_queue(QueueName=f"q-{number}")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        events.put_rule(Name=f"r-{number}", EventPattern=json.dumps({"source": ["shop"], "detail": pattern}))
        events.put_targets(Rule=f"r-{number}", Targets=[{"Id": "q", "Arn": arn}])
        urls.append(url)
    events.put_events(Entries=[{"Source": "shop", "DetailType": "OrderPlaced", "Detail": json.dumps(ORDER)}])
    return ["Messages" in sqs.receive_message(QueueUrl=url) for url in urls]


seen = {"moto": delivered()}
event = json.dumps({"detail": ORDER})
seen["event-ruler"] = [event_ruler.test_event_pattern(event, json.dumps({"detail": pattern})) for pattern in PATTERNS]
print(f"Versions: moto {version('moto')}, boto3 {version('boto3')}, event-ruler {version('event-ruler')}")
print("Sent:     an order of 1 TEA-1 and 12 MUG-2 with the tags web and gift")
for number, (rule, _, expected) in enumerate(RULES):
    found = ", ".join(f"{name} {matches[number]}" for name, matches in seen.items())
    print(f"Expected: {rule}: {expected}")
    print(f"Seen:     {rule}: {found}")
print("Why it matters: a consumer's rule is tested against something that is not EventBridge.")
expected = [matches for _, _, matches in RULES]
known = {"moto": [False, False, False, True, True], "event-ruler": expected}
sys.exit(seen != known)
PYTHON
"$folder/venv/bin/python" check.py || { echo "The behaviour has changed."; exit 1; }
