"""Requests to the HTTP API of the embedded AWS, signed as AWS wants them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.endpoint import REGION, opener_of
from operations.aws import Aws

SECONDS = 60.0


@dataclass(frozen=True)
class Said:
    """An answer.

    Attributes:
        status: Of HTTP.
        headers: By name in lower case.
        document: The body; None if there is none.
    """

    status: int
    headers: Mapping[str, str]
    document: Any


@dataclass(frozen=True)
class LocalApi:
    """The HTTP API of a stack.

    Attributes:
        id: Of the API.
        url: Where it is on this machine: the embedded AWS has all APIs under its own address, as well as under names
            that not every program finds.
        endpoint: Of the embedded AWS.
    """

    id: str
    url: str
    endpoint: str

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        signed: bool = True,
        keys: tuple[str, str] = ("test", "test"),
    ) -> Said:
        """Send a request.

        Args:
            method: Of HTTP.
            path: With its query.
            body: Sent as JSON; None: nothing.
            headers: One of them may be `Authorization`: then it is not signed.
            signed: Whether it is signed.
            keys: With which access key and secret.
        """
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        request = AWSRequest(method, self.url + path, {**given, **(headers or {})}, data)
        if signed and "Authorization" not in request.headers:
            SigV4Auth(Credentials(*keys), "execute-api", REGION).add_auth(request)
        sent = urllib.request.Request(
            self.url + path, data, dict(request.headers.items()), method=method
        )
        try:
            with opener_of(self.endpoint).open(sent, timeout=SECONDS) as answer:
                return _said(answer)
        except urllib.error.HTTPError as answer:
            with answer:
                return _said(answer)


def _said(answer: Any) -> Said:
    text = answer.read()
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Said(answer.status, headers, json.loads(text) if text else None)


def api_of(aws: Aws) -> LocalApi:
    """The API of a stack on the embedded AWS."""
    endpoint = str(aws.dynamodb.meta.endpoint_url)
    api = urlsplit(aws.outputs["ApiUrl"]).netloc.split(".")[0]
    return LocalApi(api, f"{endpoint}/_aws/execute-api/{api}/$default", endpoint)
