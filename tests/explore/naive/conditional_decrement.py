"""A conditional decrement: one update that takes stock while enough is left.

It never oversells, but it is not idempotent: a lost response or a redelivery takes the stock twice.
"""

import json
import os

import boto3
from botocore.exceptions import ClientError

_dynamodb = boto3.client("dynamodb")


def lambda_handler(event, context):
    for record in event["Records"]:
        order = json.loads(record["body"])
        (line,) = order["items"]
        taken = {"productId": {"S": line["productId"]}, "quantity": {"N": str(line["quantity"])}}
        row = {
            "orderId": {"S": order["orderId"]},
            "userId": {"S": order["userId"]},
            "status": {"S": "PENDING"},
            "createdAt": {"S": "now"},
            "_version": {"N": "1"},
        }
        try:
            product = _dynamodb.update_item(
                TableName=os.environ["PRODUCTS_TABLE_NAME"],
                Key={"productId": {"S": line["productId"]}},
                UpdateExpression="SET #stock = #stock - :quantity, #version = #version + :one, #status = :left",
                ConditionExpression="#stock >= :quantity",
                ExpressionAttributeNames={
                    "#stock": "stockCount",
                    "#version": "_version",
                    "#status": "status",
                },
                ExpressionAttributeValues={
                    ":quantity": {"N": str(line["quantity"])},
                    ":one": {"N": "1"},
                    ":left": {"S": "OUT_OF_STOCK"},
                },
                ReturnValues="ALL_NEW",
            )["Attributes"]
            taken |= {
                "productCreatedAt": product["createdAt"],
                "productVersion": product["_version"],
            }
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            row |= {"status": {"S": "REJECTED"}, "reason": {"S": "INSUFFICIENT_STOCK"}}
        row["items"] = {"L": [{"M": taken}]}
        _dynamodb.put_item(TableName=os.environ["ORDERS_TABLE_NAME"], Item=row)
    return {"batchItemFailures": []}
