#!/usr/bin/env bash
# bloop gives an order line the note of another line, because it leaves empty texts out of lists.
#
# bloop is an object mapper for DynamoDB. One expects a list to come back as long as it was saved: the notes "", "fragile", "" belong to the
# lines 1, 2 and 3 of an order. DynamoDB stores empty texts in lists, as boto3 shows. bloop drops each element without a value: empty
# texts, None, empty lists, and maps in which nothing is left. "fragile" is then the note of line 1. A list of prices loses those that
# are unknown. Numbers stay, also 0. An empty text as an attribute of its own comes back right, so a test of a single note passes.
# It matters because lists that belong together no longer fit, without an error. Save a list of maps with a key that is never empty, such
# as the SKU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check bloop==3.1.0 boto3==1.44.8 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import os
import sys
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3
from bloop import BaseModel, Column, Engine, List, Map, Number, String
from moto import mock_aws


class Order(BaseModel):
    class Meta:
        table_name = "orders"

    id = Column(String, hash_key=True)
    note = Column(String)
    skus = Column(List(String))
    notes = Column(List(String))
    prices = Column(List(Number))
    lines = Column(List(Map(sku=String, note=String)))


lines = [{"sku": "TEA", "note": ""}, {"sku": "CUP", "note": "fragile"}]
saved = {"note": "", "skus": ["TEA", "CUP", "POT"], "notes": ["", "fragile", ""], "prices": [0, None, 12], "lines": lines}
print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("bloop", "boto3", "moto")))
with mock_aws():
    engine = Engine()
    engine.bind(Order)
    engine.save(Order(id="1001", **saved))
    order = Order(id="1001")
    engine.load(order)
    table = boto3.resource("dynamodb").Table("orders")
    table.put_item(Item={"id": "1002", "notes": saved["notes"]})
    notes = table.get_item(Key={"id": "1002"})["Item"]["notes"]
loaded = {name: getattr(order, name) for name in saved}
loaded["prices"] = [int(price) for price in loaded["prices"]]
print("Expected:", saved)
print("Seen:    ", loaded)
print("Seen:    ", notes, "(boto3)")
print("Why it matters: the tea is marked fragile, and the cup is not.")
sys.exit(not (loaded == {**saved, "notes": ["fragile"], "prices": [0, 12]} and notes == saved["notes"]))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
