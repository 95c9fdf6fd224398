"""Writes stock levels to Shopify. A queue with the service's `ProductStockChanged` events invokes it.

Events may arrive twice, late and out of order, and functions run side by side. So a table keeps the newest level of each
product, and after each write a function checks whether there is a newer one.
"""

import json
import os
import traceback
import uuid
from contextlib import suppress

import boto3
from shop import ask, id_of, skus_of

dynamodb = boto3.client("dynamodb")
TABLE = os.environ["TABLE_NAME"]
LOCATIONS = json.loads(os.environ["LOCATIONS"])
BUFFER = int(os.environ["BUFFER"])
ATTEMPTS = 5

READ = """
query ($skus: String!, $location: ID!) {
  inventoryItems(first: 50, query: $skus) {
    nodes {
      id sku
      inventoryLevel(locationId: $location) { quantities(names: ["available"]) { quantity } }
    }
  }
}
"""
WRITE = """
mutation ($input: InventorySetQuantitiesInput!, $key: String!) {
  inventorySetQuantities(input: $input) @idempotent(key: $key) { userErrors { code message } }
}
"""


def handler(event, _context):
    """Write the levels of a batch. The queue delivers those again that failed, and in the end to the dead-letter queue."""
    failed = []
    for record in event["Records"]:
        try:
            write_back(json.loads(record["body"])["detail"]["data"])
        except Exception:
            traceback.print_exc()
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}


def write_back(level):
    """Bring Shopify's level of a product to the newest one of the service."""
    product_id, place = level["productId"], level.get("locationId", "")
    if place not in LOCATIONS:
        return
    key = {"product": {"S": product_id}, "location": {"S": place or "(default)"}}
    remember(key, level)
    for _ in range(ATTEMPTS):
        newest = dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]
        if not set_level(product_id, LOCATIONS[place], int(newest["units"]["N"])):
            continue
        if newest == dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]:
            return
    raise RuntimeError(f"the level of {product_id} changed {ATTEMPTS} times in a row")


def remember(key, level):
    """Store a level, unless the table has a newer one."""
    is_sold = level["status"] != "DISCONTINUED"
    units = max(0, level["available"] - BUFFER) if is_sold else 0
    with suppress(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.update_item(
            TableName=TABLE,
            Key=key,
            UpdateExpression="SET readAt = :at, units = :units",
            ConditionExpression="attribute_not_exists(readAt) OR readAt < :at",
            ExpressionAttributeValues={":at": {"S": level["at"]}, ":units": {"N": str(units)}},
        )


def set_level(product_id, location, units):
    """Set a level. Returns False if a sale came between the read and the write."""
    found = [item for item in items_of(product_id, location) if item["inventoryLevel"]]
    if len(found) > 1:
        raise RuntimeError(f"{len(found)} variants have the SKU of {product_id}")
    for item in found:
        (there,) = item["inventoryLevel"]["quantities"]
        if there["quantity"] != units:
            change = {"inventoryItemId": item["id"], "locationId": location, "quantity": units}
            quantities = [change | {"changeFromQuantity": there["quantity"]}]
            request = {"name": "available", "reason": "correction", "quantities": quantities}
            # Each attempt is a request of its own: with an earlier key, Shopify would repeat its earlier answer.
            answer = ask(WRITE, input=request, key=str(uuid.uuid4()))
            errors = answer["inventorySetQuantities"]["userErrors"]
            if any(error["code"] != "CHANGE_FROM_QUANTITY_STALE" for error in errors):
                raise RuntimeError(errors)
            return not errors
    return True


def items_of(product_id, location):
    """Find Shopify's inventory items of a product. The search also finds SKUs that are only similar."""
    quoted = (sku.replace("\\", "\\\\").replace('"', '\\"') for sku in skus_of(product_id))
    skus = " OR ".join(f'sku:"{sku}"' for sku in quoted)
    nodes = ask(READ, skus=skus, location=location)["inventoryItems"]["nodes"]
    return [node for node in nodes if node["sku"] and id_of(node["sku"]) == product_id]
