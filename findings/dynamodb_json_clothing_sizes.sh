#!/usr/bin/env bash
# Stock by clothing size does not survive dynamodb-json.
#
# DynamoDB labels each value with its type: S for a string, N for a number, M for a map, L for a list. A shop that sells clothes has a
# map whose keys are the sizes S, M and L. boto3 reads such a row correctly. dynamodb-json takes the map's own key S, M or L for a type
# label: it returns one value instead of the whole map and drops the other sizes. It does this to rows that it wrote itself, and raises
# no error. A map with the keys XS and XL is safe, so a test with those sizes passes.
# It matters because stock of three sizes becomes one number, and writing the row back deletes the other two.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dynamodb-json==1.4.2 boto3==1.44.8

cat > "$folder/check.py" <<'PYTHON'
import json
import sys
from importlib.metadata import version

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from dynamodb_json import json_util

print("Versions:", *(f"{name} {version(name)}" for name in ("dynamodb-json", "boto3")))

rows = [
    {"sku": "SHIRT", "stock": {"S": 3, "M": 2, "L": 1}},
    {"sku": "COAT", "stock": {"M": 7, "XL": 4}},
    {"sku": "SOCKS", "stock": {"XS": 9, "XL": 5}},
]
print("Expected: each row is the same after it was written and read.")
seen = []
for row in rows:
    stored = json_util.dumps(row)
    typed = {name: TypeSerializer().serialize(value) for name, value in row.items()}
    by_boto3 = {name: TypeDeserializer().deserialize(value) for name, value in typed.items()}
    assert json.loads(stored) == typed and by_boto3 == row
    read = json_util.loads(stored)
    seen.append(read["stock"])
    print(f"Seen:     {row['sku']}: {row['stock']} comes back as {read['stock']!r}, from boto3 unchanged")
print("Why it matters: sizes S, M and L are ordinary keys in a clothes shop. The other sizes' stock disappears without an error.")
sys.exit(seen != ["3", 7, {"XS": 9, "XL": 5}])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
