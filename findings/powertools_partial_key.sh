#!/usr/bin/env bash
# Powertools answers an order without an idempotency key with the customer's last such order, although it is to refuse missing keys.
#
# Powertools for AWS Lambda runs a handler once per key, which event_key_jmespath reads from the event. Customers may choose the same key,
# so it is often built from two fields: [customer, key]. With raise_on_no_idempotency_key=True, one expects an order without a key to be
# refused, as it is if the expression is just "key". The list [customer, null] counts as a key, though. Only if all of its fields are
# missing is there an error. The first such order is placed; each later one of this customer, whatever it contains, gets the answer to the
# first for an hour, and the handler does not run.
# It matters because the customer reads "order 1 accepted" and the order is lost. Use a JMESPath expression that is null if a field is
# missing: customer && key && [customer, key].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    aws-lambda-powertools==3.37.0 jmespath==1.0.1 boto3==1.44.8 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
import warnings
from importlib.metadata import version

from aws_lambda_powertools.utilities.idempotency import BasePersistenceLayer, IdempotencyConfig, idempotent
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyItemAlreadyExistsError, IdempotencyKeyError

print("Versions: aws-lambda-powertools", version("aws-lambda-powertools"))
warnings.simplefilter("ignore")  # about the remaining time, which only Lambda knows


class Store(BasePersistenceLayer):
    """Keeps in memory what Powertools stores, under the keys that Powertools computes."""

    def __init__(self):
        super().__init__()
        self.records = {}

    def _get_record(self, idempotency_key):
        return self.records[idempotency_key]

    def _put_record(self, data_record):
        if data_record.idempotency_key in self.records:
            raise IdempotencyItemAlreadyExistsError(old_data_record=self.records[data_record.idempotency_key])
        self.records[data_record.idempotency_key] = data_record

    def _update_record(self, data_record):
        self.records[data_record.idempotency_key] = data_record

    def _delete_record(self, data_record):
        del self.records[data_record.idempotency_key]


EVENTS = [{"customer": "c1", "product": "CUP"}, {"customer": "c1", "product": "TEA"}, {"product": "PEN"}]
seen = {}
for expression in ("key", "[customer, key]", "customer && key && [customer, key]"):

    @idempotent(
        persistence_store=Store(),
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
print("Why it matters: the answer to the order of TEA is that CUP was placed, and TEA is never delivered.")
sys.exit(list(seen.values()) != [["refused"] * 3, ["CUP", "CUP", "refused"], ["refused"] * 3])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
