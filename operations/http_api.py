"""The stack's HTTP API: its address, and signed requests to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies

from .aws import Aws, is_loopback
from .errors import UserError

# API Gateway times out earlier.
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response.

    Attributes:
        status: HTTP status.
        headers: Headers, by name in lower case.
        body: The body, unchanged.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        """The parsed body, or the text if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


@dataclass(frozen=True)
class HttpApi:
    """The HTTP API of a stack.

    Attributes:
        id: Id of the API.
        url: Its address.
        session: Credentials and region.
    """

    id: str
    url: str
    session: boto3.Session

    @classmethod
    def of(cls, aws: Aws, output: str = "ApiUrl") -> Self:
        """Find the API of a stack. With the output `CustomerApiUrl`, find the customers' API, which accepts tokens."""
        if output not in aws.outputs:
            raise UserError(
                "the stack has no HTTP API: set `api` to true in cdk.json and deploy it"
            )
        url = aws.outputs[output]
        api = urlsplit(url).netloc.split(".")[0]
        endpoint = str(aws.dynamodb.meta.endpoint_url)
        if is_loopback(endpoint):
            # Use the emulator's own address: not every program resolves names like ID.execute-api.localhost.
            url = f"{endpoint}/_aws/execute-api/{api}/$default"
        return cls(api, url, aws.session)

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        signed: bool = True,
    ) -> Reply:
        """Send a request.

        Raises:
            UserError: There are no credentials, or the API does not answer.
        """
        request = AWSRequest(method, self.url + path, headers, body)
        if signed:
            credentials = self.session.get_credentials()
            if credentials is None:
                raise UserError("there are no AWS credentials to sign requests with")
            keys = credentials.get_frozen_credentials()
            SigV4Auth(keys, "execute-api", self.session.region_name).add_auth(request)
        proxies = {} if is_loopback(self.url) else get_environ_proxies(self.url)
        trusted: Any = os.environ.get("AWS_CA_BUNDLE") or True
        http = URLLib3Session(verify=trusted, proxies=proxies, timeout=_TIMEOUT_SECONDS)
        try:
            answer = http.send(request.prepare())
        except BotoCoreError as error:
            raise UserError(f"the HTTP API does not answer: {error}") from error
        finally:
            http.close()
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(answer.status_code, named, answer.content)
