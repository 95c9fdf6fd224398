"""Requests to the HTTP API of the embedded AWS, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from client.sending import Reply
from operations.http_api import HttpApi


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
    ) -> Reply:
        """Send a request.

        Args:
            method: HTTP method.
            path: Path with query.
            body: The body, which is sent as JSON; None sends no body.
            headers: With an `Authorization` header, the request is not signed.
            signed: Whether to sign the request.
        """
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        given |= headers or {}
        signed = signed and "Authorization" not in given
        return self.send(method, path, given, data, signed=signed)
