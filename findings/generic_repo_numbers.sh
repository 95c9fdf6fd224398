#!/usr/bin/env bash
# generic-repo stores the stock of a product as text once the product has been read, changed and saved again.
#
# boto3 returns each number of DynamoDB as a Decimal. The package, which promises "automatic data type conversion", returns products like
# that. One expects that what it has loaded can be changed and saved by it. It saves through JSON with default=str, and JSON has no Decimal,
# so each of them becomes text: stock 5 is a number after the first save, made from an int, and the text "4" after the second. Prices given
# as Decimal are text from the start. update() does the same. No error is raised, as DynamoDB has no fixed types for attributes other than
# keys.
# It matters because in DynamoDB text neither equals a number nor is greater than one: searches and conditions on the stock leave the
# product out, and ADD fails. The shop has goods that it cannot sell. Convert each Decimal to int or float before save().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Later versions, up to 2.0.9, have the same line, but need Python 3.12.
"$folder/venv/bin/pip" install --no-compile --quiet --disable-pip-version-check \
    generic-repo==2.0.4 aioboto3==15.5.0 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import logging
import os
import sys
from decimal import Decimal
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3
from generic_repo import GenericRepository
from moto import mock_aws

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("generic-repo", "boto3", "moto")))
logging.disable(logging.CRITICAL)

with mock_aws():
    client = boto3.client("dynamodb")
    client.create_table(
        TableName="products",
        KeySchema=[{"AttributeName": "sku", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "sku", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    products = GenericRepository(table_name="products", primary_key_name="sku")

    def stored(sku):
        return client.get_item(TableName="products", Key={"sku": {"S": sku}})["Item"]["stock"]

    def with_stock(units):
        return sorted(product["sku"] for product in products.load_all({"stock": units}))

    for sku in ("CUP", "TEA"):
        products.save(sku, {"stock": 5})
    before = stored("TEA"), with_stock(5)
    product = products.load("TEA")
    product["stock"] -= 1
    products.save("TEA", product)
    after = stored("TEA"), with_stock(4)
    try:
        products.table.update_item(Key={"sku": "TEA"}, UpdateExpression="ADD stock :one", ExpressionAttributeValues={":one": 1})
        added = "accepted"
    except client.exceptions.ClientError as error:
        added = error.response["Error"]["Code"]
    products.update("CUP", {"stock": products.load("CUP")["stock"] - 1})
    updated = stored("CUP")
    products.save("POT", {"stock": 2, "price": Decimal("19.99")})
    price = client.get_item(TableName="products", Key={"sku": {"S": "POT"}})["Item"]["price"]

print("Expected: a stock that is a number, before and after one unit of TEA is sold")
print(f"Seen:     before: {before[0]}; products with a stock of 5: {before[1]}")
print(f"Seen:     after load(), -1 and save(): {after[0]}; products with a stock of 4: {after[1]}; ADD 1: {added}")
print(f"Seen:     after load(), -1 and update(): {updated}")
print(f"Seen:     a price of Decimal('19.99'), saved for the first time: {price}")
print("Why it matters: a product cannot be sold any more, although it is there.")
known = (
    before == ({"N": "5"}, ["CUP", "TEA"])
    and (after, added) == (({"S": "4"}, []), "ValidationException")
    and (updated, price) == ({"S": "4"}, {"S": "19.99"})
)
sys.exit(0 if known else 1)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
