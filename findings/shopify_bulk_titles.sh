#!/usr/bin/env bash
# shopify-bulk calls each product without variants "Default Title", and keeps one stock for all places in other scripts.
#
# The package turns Shopify's export of all products into rows. One expects the column "title" to be the product's title. It writes each
# option of a variant into a column with the option's name, after the product's columns. In Shopify a product without variants has one, with
# the option "Title" and the value "Default Title", so its row has that title. An option called Status or Handle replaces the product's
# status or handle in the same way. Columns of stock are named after the place, without characters other than a to z and digits: each
# place in Japan or Greece is inventory_location_, which keeps the last one's stock.
# It matters because most products of small shops have no variants. Their names are lost, and a test with sizes and colours passes. Rename
# the columns, or read the nodes from parse_jsonl_stream() yourself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check shopify-bulk==0.1.1 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import json
import sys
from importlib.metadata import version

from shopify_jsonl.expander import expand_products
from shopify_jsonl.parser import parse_jsonl_stream

print("Versions: shopify-bulk", version("shopify-bulk"))


def exported(number, title, options, stock):
    """The lines of an export with one product, its variant and its levels."""
    product = {"__typename": "Product", "id": f"gid://shopify/Product/{number}", "title": title, "handle": title.lower(), "status": "ACTIVE"}
    variant = {
        "__typename": "ProductVariant",
        "id": f"gid://shopify/ProductVariant/{number}",
        "title": " / ".join(options.values()),
        "sku": title.upper(),
        "price": "9.90",
        "selectedOptions": [{"name": name, "value": value} for name, value in options.items()],
        "inventoryItem": {"id": f"gid://shopify/InventoryItem/{number}"},
        "__parentId": product["id"],
    }
    levels = [
        {
            "__typename": "InventoryLevel",
            "location": {"id": f"gid://shopify/Location/{place}", "name": place},
            "quantities": [{"name": "available", "quantity": quantity}],
            "__parentId": variant["inventoryItem"]["id"],
        }
        for place, quantity in stock.items()
    ]
    return [product, variant, *levels]


lines = [
    *exported(1, "Cup", {"Colour": "Blue"}, {"Berlin": 5, "Lyon": 7}),
    *exported(2, "Tea", {"Title": "Default Title"}, {"Berlin": 5, "Lyon": 7}),
    *exported(3, "Lamp", {"Status": "Second hand"}, {"東京": 5, "大阪": 7}),
]
rows = list(expand_products(parse_jsonl_stream(map(json.dumps, lines))))
seen = [
    (row["title"], row["status"], {name: value for name, value in row.items() if name.startswith("inventory_location")}) for row in rows
]
expected = [
    ("Cup", "active", {"inventory_location_berlin": 5, "inventory_location_lyon": 7}),
    ("Tea", "active", {"inventory_location_berlin": 5, "inventory_location_lyon": 7}),
    ("Lamp", "active", {"inventory_location_東京": 5, "inventory_location_大阪": 7}),
]
for one, other in zip(expected, seen, strict=True):
    print("Expected:", *one)
    print("Seen:    ", *other)
print("Why it matters: all simple products of a shop have one name.")
known = [expected[0], ("Default Title", "active", expected[1][2]), ("Lamp", "Second hand", {"inventory_location_": 7})]
sys.exit(seen != known)
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
