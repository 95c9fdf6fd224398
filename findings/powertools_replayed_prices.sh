#!/usr/bin/env bash
# Powertools: the second call of an idempotent function returns prices as text, and twice "12.50" is "12.5012.50".
#
# idempotent_function stores what a function returns, and returns that again if it is called with the same key. One expects the second
# call to return what the first did, or the first to fail because JSON has no decimals. The first call returns the function's own objects;
# the second what JSON made of them: Decimal("12.50") is "12.50", a tuple is a list, and the key 1 of a dictionary is "1". The caller
# computes with a Decimal until the day of the first retry, and no test without a retry shows the difference.
# It matters because a retry multiplies a text: two units at 12.50 cost 12.5012.50, and a sum raises an error halfway through an order.
# Give the decorator an output_serializer, or return texts and numbers only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    aws-lambda-powertools==3.37.0 jmespath==1.0.1 boto3==1.44.8 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
import warnings
from decimal import Decimal
from importlib.metadata import version

from aws_lambda_powertools.utilities.idempotency import BasePersistenceLayer, IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyItemAlreadyExistsError

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


@idempotent_function(
    data_keyword_argument="order", persistence_store=Store(), config=IdempotencyConfig(event_key_jmespath="id")
)
def quote(*, order):
    return {"price": Decimal("12.50"), "range": (1, 9), "by_quantity": {1: "full price"}}


first, second = quote(order={"id": "order-1042"}), quote(order={"id": "order-1042"})
print("Expected: both calls return the same, or the first raises an error")
for name, answer in (("first", first), ("second", second)):
    print(f"Seen:     {name} call: price {answer['price']!r}, range {answer['range']!r}, by_quantity {answer['by_quantity']!r}")
    print(f"Seen:     {name} call: two units cost {answer['price'] * 2}")
print("Why it matters: only a retry has the wrong total.")
sys.exit(second != {"price": "12.50", "range": [1, 9], "by_quantity": {"1": "full price"}} or first["price"] * 2 != 25)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
