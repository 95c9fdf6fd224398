"""The stack's HTTP API on the embedded AWS: where it is, and requests to it, signed as AWS wants them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.endpoint import REGION, opener_of
from operations.aws import Aws
from operations.errors import UserError

# API Gateway gives up earlier.
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Attributes:
        status: Of HTTP.
        headers: By name in lower case.
        body: As it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        """The document; text, where the body is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


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

    @classmethod
    def of(cls, aws: Aws) -> Self:
        """The API of a stack.

        Raises:
            UserError: It has none.
        """
        if "ApiUrl" not in aws.outputs:
            raise UserError("the stack has no HTTP API: set api to true in cdk.json, then make up")
        endpoint = str(aws.dynamodb.meta.endpoint_url)
        api = urlsplit(aws.outputs["ApiUrl"]).netloc.split(".")[0]
        return cls(api, f"{endpoint}/_aws/execute-api/{api}/$default", endpoint)

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        keys: tuple[str, str] | None = ("test", "test"),
    ) -> Reply:
        """Send a request.

        Args:
            method: Of HTTP.
            path: With its query.
            headers: Beside the signature.
            body: None: nothing.
            keys: Access key and secret to sign with; None: it is not signed.

        Raises:
            UserError: Nothing answers.
        """
        request = AWSRequest(method, self.url + path, headers, body)
        if keys is not None:
            SigV4Auth(Credentials(*keys), "execute-api", REGION).add_auth(request)
        sent = urllib.request.Request(  # noqa: S310 - to the embedded AWS
            self.url + path, body, dict(request.headers.items()), method=method
        )
        try:
            with opener_of(self.endpoint).open(sent, timeout=_TIMEOUT_SECONDS) as answer:
                return _reply(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return _reply(refusal)
        except OSError as error:
            raise UserError(f"the embedded AWS does not answer: {error}") from error


def _reply(answer: Any) -> Reply:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Reply(answer.status, headers, answer.read())
