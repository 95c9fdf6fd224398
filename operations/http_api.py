"""The stack's HTTP API: its address, and requests to it, signed or with a token."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import boto3

from client import sending
from client.sending import ApiError, Http, Reply

from .aws import Aws, is_loopback
from .errors import UserError


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
        credentials = self.session.get_credentials()
        if signed and credentials is None:
            raise UserError("there are no AWS credentials to sign requests with")
        region = self.session.region_name
        sign = sending.signed(credentials, region) if signed else None
        with closing(Http(self.url)) as http:
            try:
                return sending.send_once(http, sign, method, self.url + path, headers, body)
            except ApiError as error:
                raise UserError(error.message) from error
