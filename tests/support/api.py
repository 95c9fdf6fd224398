"""Requests to the HTTP API of the embedded AWS, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import boto3

from operations.aws import Aws
from operations.http_api import HttpApi


@dataclass(frozen=True)
class Said:
    """An answer of the HTTP API.

    Attributes:
        status: HTTP status.
        headers: Headers, by lower-case name.
        document: The parsed body; None if there is none.
    """

    status: int
    headers: Mapping[str, str]
    document: Any


class JsonApi(HttpApi):
    """The HTTP API of a stack, as tests call it."""

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        signed: bool = True,
        keys: tuple[str, str] | None = None,
    ) -> Said:
        """Send a request.

        Args:
            method: HTTP method.
            path: Path with query.
            body: The body, which is sent as JSON; None sends no body.
            headers: With an `Authorization` header, the request is not signed.
            signed: Whether to sign the request.
            keys: Access key and secret; by default from the environment.
        """
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        given |= headers or {}
        signed = signed and "Authorization" not in given
        sender = self if keys is None else replace(self, session=boto3.Session(*keys))
        reply = sender.send(method, path, given, data, signed=signed)
        return Said(reply.status, reply.headers, json.loads(reply.body) if reply.body else None)


def api_of(aws: Aws) -> JsonApi:
    """Find the API of a stack on the embedded AWS."""
    return JsonApi.of(aws)
