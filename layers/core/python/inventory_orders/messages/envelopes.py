"""Names the envelopes in which other services wrap messages, once a message is refused."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

_ENVELOPES: tuple[tuple[frozenset[str], str], ...] = (
    # docs.aws.amazon.com/sns/latest/dg/sns-large-payload-raw-message-delivery.html
    (
        frozenset({"Type", "TopicArn", "Message"}),
        "an SNS notification; turn on raw message delivery for the subscription",
    ),
    # docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html
    (
        frozenset({"detail-type", "source", "detail"}),
        "an EventBridge event; set the target's InputPath to $.detail, or to where the message is",
    ),
    # docs.celeryq.dev/en/latest/internals/protocol.html, wrapped by kombu (kombu/transport/virtual/base.py)
    (
        frozenset({"body", "content-type", "content-encoding", "headers", "properties"}),
        "a Celery task message; send the JSON itself with the API of SQS, not as a task",
    ),
    # docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
    (
        frozenset({"Records"}),
        "a list of records, as S3 or Lambda write it; send each message on its own, and only its JSON",
    ),
    # docs.aws.amazon.com/cdk/api/v2/docs/aws-cdk-lib.aws_lambda_destinations-readme.html
    (
        frozenset({"requestContext", "requestPayload"}),
        "a record from a Lambda destination; send only the message, from its responsePayload or requestPayload",
    ),
    # docs.aws.amazon.com/step-functions/latest/dg/connect-to-resource.html
    (
        frozenset({"Input", "TaskToken"}),
        "a Step Functions task with a token, which the service would not return; send only the input as MessageBody",
    ),
    # github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md#required-attributes
    (
        frozenset({"specversion", "source", "type"}),
        "a CloudEvents envelope; send only its data",
    ),
)
"""The fields that identify each envelope, and what it is and how to send the message without it."""


def envelope_of(document: Any) -> str:
    """Say what a document is, if it is an envelope around a message, and how to send the message itself; otherwise empty."""
    if isinstance(document, str):
        is_wrapped = isinstance(_loaded(document), dict)
        return "a JSON string that contains JSON; encode it only once" if is_wrapped else ""
    if not isinstance(document, dict):
        return ""
    return next((what for fields, what in _ENVELOPES if fields <= document.keys()), "")


def envelope_of_text(body: str) -> str:
    """Do the same for a body that is not JSON, because it is encoded as base64. Celery does that by default."""
    with suppress(ValueError):
        inner = _loaded(base64.b64decode(body, validate=True))
        if isinstance(inner, dict):
            return envelope_of(inner) or "JSON encoded as base64; send the JSON itself"
    return ""


def _loaded(text: str | bytes) -> Any:
    """Parse JSON; None if it is not JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None
