"""Connects the AWS clients of this process to a function instead of the network, with or without botocore."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.client import BaseClient
from botocore.httpsession import URLLib3Session

from testing.aws.values import ServiceError

Answer = Callable[[str, str, dict[str, Any]], dict[str, Any]]
"""Answers `(service, operation, request)`; may raise ServiceError or one of botocore's HTTPClientErrors."""

_SERVICES = {"DynamoDB_20120810": "dynamodb", "AmazonSQS": "sqs", "AWSEvents": "events"}
_PREFIXES = {
    "dynamodb": "com.amazonaws.dynamodb.v20120810#",
    "sqs": "com.amazonaws.sqs#",
    "events": "",
}
# The SDK still shows the error codes that SQS had before its JSON protocol.
_QUERY_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
}


class _Body:
    """A response body, as AWSResponse expects it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content


@contextmanager
def answered_by(answer: Answer) -> Iterator[None]:
    """Let a function answer every boto3 and botocore client of this process.

    Each client still does its own serialisation, retries, parsing and exceptions.

    Args:
        answer: Called with `dynamodb`, `sqs` or `events`, the operation's name, and the request in its wire format. Its return
            value is the response. A ServiceError becomes AWS's error response. Any other exception passes through
            the client like a network error, so the client may repeat the request after botocore's
            HTTPClientErrors (ReadTimeoutError, ConnectTimeoutError).
    """

    def send(session: URLLib3Session, request: AWSPreparedRequest) -> AWSResponse:
        target = request.headers["X-Amz-Target"]
        if isinstance(target, bytes):
            target = target.decode("ascii")
        prefix, operation = target.split(".", 1)
        service = _SERVICES[prefix]
        content: Any = request.body or b"{}"
        if hasattr(content, "read"):
            content = content.read()
        try:
            status, headers = 200, {}
            reply = answer(service, operation, json.loads(content))
        except ServiceError as error:
            status, headers = error.status, _error_headers(service, error)
            reply = {
                "__type": f"{_PREFIXES[service]}{error.code}",
                # Services use both spellings.
                ("Message" if "CancellationReasons" in error.extra else "message"): error.message,
                **error.extra,
            }
        body = json.dumps(reply).encode()
        headers |= {
            "content-type": "application/x-amz-json-1.0",
            "x-amzn-requestid": "SIMULATED",
            "x-amz-crc32": str(zlib.crc32(body)),
            "content-length": str(len(body)),
        }
        # mypy: the stubs ask for a class that botocore makes from any mapping.
        return AWSResponse(request.url, status, headers, _Body(body))  # type: ignore[arg-type]

    with patch.object(URLLib3Session, "send", send):
        yield


@contextmanager
def answered_directly_by(answer: Answer) -> Iterator[None]:
    """Let a function answer clients as `answered_by` does, in a quarter of the time.

    botocore's work is skipped: requests are not validated, signed or retried. Requests and responses are still copied
    through JSON, so that no client shares an object with the simulated AWS.

    Args:
        answer: As in `answered_by`.
    """

    def call(client: BaseClient, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        service = client.meta.service_model.service_name
        try:
            reply = answer(service, operation, json.loads(_request_text(parameters)))
        except ServiceError as error:
            code = error.code if service != "sqs" else _QUERY_CODES.get(error.code, error.code)
            response = {
                "Error": {"Code": code, "Message": error.message},
                "ResponseMetadata": {"HTTPStatusCode": error.status},
                **error.extra,
            }
            error_class: Any = client.exceptions.from_code(code)
            raise error_class(_from_json(response), operation) from None
        return _from_json(reply) | {"ResponseMetadata": {"HTTPStatusCode": 200}}

    with patch.object(BaseClient, "_make_api_call", call):
        yield


def _in_json(value: Any) -> Any:
    """Encode a value of the SDK as in a request: binary data in base64, sets as lists."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else list(value)


# Requests and responses have no circular references. Checking for them takes as long as the encoding.
_request_text = json.JSONEncoder(check_circular=False, default=_in_json).encode
_text = json.JSONEncoder(check_circular=False).encode


def in_wire_format(value: Any) -> Any:
    """Copy a value of the SDK into its form in a request."""
    return json.loads(_request_text(value))


def _from_json(reply: Any) -> dict[str, Any]:
    """Copy a response into the form in which the SDK returns it, so that the caller may change it."""
    text = _text(reply)
    hook = _with_bytes if '"B": "' in text else None
    decoded: dict[str, Any] = json.loads(text, object_hook=hook)
    return decoded


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    if value.keys() == {"B"}:
        return {"B": base64.b64decode(value["B"])}
    return value


def _error_headers(service: str, error: ServiceError) -> dict[str, str]:
    if service != "sqs":
        return {}
    code = _QUERY_CODES.get(error.code, error.code)
    return {"x-amzn-query-error": f"{code};{'Sender' if error.status < 500 else 'Receiver'}"}
