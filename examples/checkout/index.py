"""Sends an order to the service."""

import json
import os

import boto3

sqs = boto3.client("sqs")


def handler(event, _context):
    """Send the order that the event holds."""
    sqs.send_message(QueueUrl=os.environ["ORDER_QUEUE_URL"], MessageBody=json.dumps(event))
