"""Changes to the tables that another program might make, bypassing the service."""

from __future__ import annotations

from operations.aws import Aws


def add_by_hand(aws: Aws, product_id: str, units: int, attribute: str = "stockCount") -> None:
    """Change a product's available or `onHand` units without booking the change. The service never does this."""
    aws.dynamodb.update_item(
        TableName=aws.outputs["ProductsTableName"],
        Key={"productId": {"S": product_id}},
        # Without a new version, the next order would overwrite the change.
        UpdateExpression="SET #units = #units + :units, #_version = #_version + :one",
        ExpressionAttributeNames={"#units": attribute, "#_version": "_version"},
        ExpressionAttributeValues={":units": {"N": str(units)}, ":one": {"N": "1"}},
    )
