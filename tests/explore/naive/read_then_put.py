"""The handler of many tutorials: read the product, check its stock, put it back.

It loses updates, so it oversells.
"""

import json
import os

import boto3

_dynamodb = boto3.client("dynamodb")


def lambda_handler(event, context):
    for record in event["Records"]:
        order = json.loads(record["body"])
        key = {"orderId": {"S": order["orderId"]}}
        if "Item" in _dynamodb.get_item(TableName=os.environ["ORDERS_TABLE_NAME"], Key=key):
            continue
        (line,) = order["items"]
        products = os.environ["PRODUCTS_TABLE_NAME"]
        product = _dynamodb.get_item(
            TableName=products,
            Key={"productId": {"S": line["productId"]}},
            ConsistentRead=True,
        )["Item"]
        stock, version = int(product["stockCount"]["N"]), int(product["_version"]["N"]) + 1
        row = {
            **key,
            "userId": {"S": order["userId"]},
            "status": {"S": "REJECTED"},
            "reason": {"S": "INSUFFICIENT_STOCK"},
            "_version": {"N": "1"},
        }
        taken = {"productId": {"S": line["productId"]}, "quantity": {"N": str(line["quantity"])}}
        if stock >= line["quantity"]:
            stock -= line["quantity"]
            product |= {"stockCount": {"N": str(stock)}, "_version": {"N": str(version)}}
            product["status"] = {"S": "ACTIVE" if stock else "OUT_OF_STOCK"}
            _dynamodb.put_item(TableName=products, Item=product)
            row["status"] = {"S": "PENDING"}
            del row["reason"]
            taken |= {
                "productCreatedAt": product["createdAt"],
                "productVersion": product["_version"],
            }
        row |= {"items": {"L": [{"M": taken}]}, "createdAt": {"S": "now"}}
        _dynamodb.put_item(TableName=os.environ["ORDERS_TABLE_NAME"], Item=row)
    return {"batchItemFailures": []}
