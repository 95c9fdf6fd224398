"""Sends Shopify's orders, payments and cancellations to the service. Its function URL receives the webhooks."""

import base64
import hashlib
import hmac
import json
import os
from collections import Counter

import boto3
from shop import credentials, id_of

sqs = boto3.client("sqs")
ACTIONS = {"orders/paid": "confirm", "orders/cancelled": "cancel"}


def handler(event, _context):
    """Answer 200 once the message is in the queue. Shopify repeats a webhook for which it gets no such answer."""
    body = event.get("body", "")
    raw = base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()
    if not is_signed(raw, event["headers"].get("x-shopify-hmac-sha256", "")):
        return {"statusCode": 401}
    queue, message = message_of(event["headers"]["x-shopify-topic"], json.loads(raw))
    if message:
        sqs.send_message(QueueUrl=os.environ[queue], MessageBody=json.dumps(message))
    return {"statusCode": 200}


def is_signed(raw, signature):
    """Whether Shopify signed these bytes. JSON that was parsed and written again has another signature."""
    digest = hmac.digest(credentials()["clientSecret"].encode(), raw, hashlib.sha256)
    return hmac.compare_digest(base64.b64encode(digest), signature.encode())


def message_of(topic, order):
    """Build the message for a webhook, and name its queue. A webhook that arrives again has the same message."""
    order_id = str(order["id"])
    if topic in ACTIONS:
        return "COMMAND_QUEUE_URL", {"action": ACTIONS[topic], "orderId": order_id}
    units = Counter()
    for line in order["line_items"] if topic == "orders/create" else ():
        if line.get("sku"):
            units[id_of(line["sku"])] += line["quantity"]
    # As in imports: exports do not contain Shopify's ids of customers, and a buyer has one purchase limit before and after.
    user_id = id_of(order.get("email") or f"guest-{order_id}")
    items = [{"productId": product_id, "quantity": number} for product_id, number in units.items()]
    message = {"orderId": order_id, "userId": user_id, "items": items}
    return "ORDER_QUEUE_URL", message | {"attributes": {"name": order["name"]}} if items else None
