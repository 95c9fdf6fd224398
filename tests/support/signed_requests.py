"""Schemathesis' hooks: each request is signed as AWS wants it, with whole numbers as the API wants them."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from requests import PreparedRequest
from requests.auth import AuthBase


class Signature(AuthBase):
    """AWS Signature Version 4, with the keys of the environment."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        body: Any = request.body
        signed = AWSRequest(request.method, request.url, data=body)
        keys = (os.environ[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
        SigV4Auth(Credentials(*keys), "execute-api", os.environ["AWS_REGION"]).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Write whole numbers without a point: a schema cannot tell 2.0 from 2, and the API takes 2 only."""
    return _whole(body)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value


schemathesis.auth.set_from_requests(Signature())  # type: ignore[attr-defined]  # set on the function
