#!/usr/bin/env bash
# Powertools answers an order without an idempotency key with the customer's last such order, although it is to refuse missing keys.
#
# Powertools for AWS Lambda runs a handler once per key, which event_key_jmespath reads from the event. Keys of different customers must
# not meet, so a key is often built from two fields: [customer, key]. With raise_on_no_idempotency_key=True, one expects an order without
# a key to be refused, as it is if the expression is just "key". The list [customer, null] counts as a key, though. Only if all of its
# fields are missing is there an error. The first such order is placed; each later one of this customer, whatever it contains, gets the
# answer to the first for an hour, and the handler does not run.
# It matters because the customer reads "order 1 accepted" and the order is lost. Use a JMESPath expression that is null if a field is missing:
# customer && key && [customer, key].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    aws-lambda-powertools==3.37.0 jmespath==1.0.1 boto3==1.44.8 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import os
import sys
import warnings
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="eu-central-1")
import boto3
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyKeyError
from moto import mock_aws

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("aws-lambda-powertools", "moto")))
warnings.simplefilter("ignore")  # about the remaining time, which only Lambda knows
EVENTS = [{"customer": "c1", "product": "CUP"}, {"customer": "c1", "product": "TEA"}, {"product": "PEN"}]
seen = {}
with mock_aws():
    for number, expression in enumerate(("key", "[customer, key]", "customer && key && [customer, key]")):
        boto3.client("dynamodb").create_table(
            TableName=f"keys{number}",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

        @idempotent(
            persistence_store=DynamoDBPersistenceLayer(table_name=f"keys{number}"),
            config=IdempotencyConfig(event_key_jmespath=expression, raise_on_no_idempotency_key=True),
        )
        def place(event, context):
            return {"placed": event["product"]}

        answers = []
        for event in EVENTS:
            try:
                answers.append(place(event, None)["placed"])
            except IdempotencyKeyError:
                answers.append("refused")
        seen[expression] = answers
        print(f"Expected: {expression}: CUP refused, TEA refused, PEN refused")
        print(f"Seen:     {expression}: " + ", ".join(f"{event['product']} {answer}" for event, answer in zip(EVENTS, answers)))
print('Why it matters: the answer to the order of TEA is that CUP was placed, and TEA is never delivered.')
sys.exit(list(seen.values()) != [["refused"] * 3, ["CUP", "CUP", "refused"], ["refused"] * 3])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
