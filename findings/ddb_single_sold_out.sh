#!/usr/bin/env bash
# ddb-single does not find products that are sold out, and empties the fields of a product that an update does not name.
#
# The package keeps models in one table of DynamoDB. For a field with search_key=True it writes another item, by which search() finds
# the product. One expects stock.lt(5) to find each product with a stock below 5. For 0 it writes no such item, and removes it if
# the stock falls to 0. Its documentation finds a product again by its unique field for an update of others, and shows the rest
# unchanged after it; one expects that. The rest becomes empty.
# It matters because a search for what to reorder returns what is low, and leaves out what is gone. An update of the stock takes the
# product's shelf with it, and then nobody finds it there either. Add 1 to numbers that are searched, and read a product before
# its update.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ddb-single==0.7.0 boto3==1.44.8 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import os
import sys
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="eu-central-1")
from ddb_single import BaseModel, DBField, Query, Table
from ddb_single.table import FieldType
from moto import mock_aws

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("ddb-single", "boto3", "moto")))
with mock_aws():
    table = Table(table_name="shop", region_name="eu-central-1")
    table.init()

    class Product(BaseModel):
        __table__ = table
        __model_name__ = "product"
        sku = DBField(unique_key=True)
        stock = DBField(type=FieldType.NUMBER, search_key=True)
        shelf = DBField(search_key=True)

    query = Query(table)

    def found(condition):
        return ", ".join(sorted(product["sku"] for product in query.model(Product).search(condition)))

    for sku, stock in (("CUP", 0), ("POT", 3), ("TEA", 4), ("TRAY", 9)):
        query.model(Product(sku=sku, stock=stock, shelf="A1")).create()
    low = found(Product.stock.lt(5))
    query.model(Product(sku="TEA", stock=0, shelf="A1")).update()
    later = found(Product.stock.lt(5))
    query.model(Product(sku="POT", stock=2)).update()
    pot = query.model(Product).get_by_unique("POT")
    shelf = found(Product.shelf.eq("A1"))
print("Expected: below 5: CUP, POT, TEA")
print(f"Seen:     below 5: {low}")
print("Expected: below 5, after the last TEA was sold: CUP, POT, TEA")
print(f"Seen:     below 5, after the last TEA was sold: {later}")
print("Expected: POT after an update of its stock: stock 2, shelf A1; on shelf A1: CUP, POT, TEA, TRAY")
print(f"Seen:     POT after an update of its stock: stock {pot['stock']:.0f}, shelf {pot['shelf']}; on shelf A1: {shelf}")
print("Why it matters: what is sold out is not reordered.")
sys.exit((low, later, pot["stock"], pot["shelf"], shelf) != ("POT, TEA", "POT", 2, None, "CUP, TEA, TRAY"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
