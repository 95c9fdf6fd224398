"""Messages and events for the service."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def sqs_event(
    *bodies: Any, group: str | None = None, receive_count: int = 1, queue: str = "queue"
) -> dict[str, Any]:
    """Build an SQS event as Lambda does. A body that is not a string is encoded as JSON."""
    fifo = ".fifo" if group is not None else ""
    attributes = {"ApproximateReceiveCount": str(receive_count)}
    if group is not None:
        attributes["MessageGroupId"] = group
    return {
        "Records": [
            {
                "messageId": f"m-{number}",
                "receiptHandle": f"r-{number}",
                "body": body if isinstance(body, str) else json.dumps(body),
                "attributes": dict(attributes),
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{queue}{fifo}",
            }
            for number, body in enumerate(bodies)
        ]
    }


def http_event(order: Mapping[str, Any], wait_seconds: int) -> dict[str, Any]:
    """Build the event of a caller who places an order over HTTP, and waits for its outcome."""
    return {
        "version": "2.0",
        "routeKey": "POST /orders",
        "headers": {"content-type": "application/json", "prefer": f"wait={wait_seconds}"},
        "requestContext": {"authorizer": {"iam": {"userArn": "arn:aws:iam::1:user/shop"}}},
        "body": json.dumps(order),
    }


def event_of_received(messages: Iterable[Mapping[str, Any]], arn: str) -> dict[str, Any]:
    """Build the event that Lambda passes to a handler, from messages as ReceiveMessage returns them."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {
                    name: {
                        "dataType": value["DataType"],
                        "stringValue": value["StringValue"],
                    }
                    for name, value in message.get("MessageAttributes", {}).items()
                },
                "eventSource": "aws:sqs",
                "eventSourceARN": arn,
            }
            for message in messages
        ]
    }


def order_body(order_id: str, lines: dict[str, int], user_id: str = "u-1") -> dict[str, Any]:
    """Build the body of an order."""
    items = [
        {"productId": product_id, "quantity": quantity} for product_id, quantity in lines.items()
    ]
    return {"orderId": order_id, "userId": user_id, "items": items}
