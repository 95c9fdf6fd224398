"""A Lambda function of a shop that sends orders to the service."""

import json
import os

import boto3

sqs = boto3.client("sqs")


def handler(event, _context):
    """Send the event, which is an order, to the order queue."""
    sqs.send_message(QueueUrl=os.environ["ORDER_QUEUE_URL"], MessageBody=json.dumps(event))
