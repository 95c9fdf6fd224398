"""Sends requests to the HTTP API: signs them, repeats them if that may help, and raises problems as exceptions."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, NoCredentialsError, NoRegionError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import LocationValueError

# API Gateway itself ends a request after 30 seconds.
_TIMEOUT_SECONDS = 35
# Every request may be repeated: its ids make sure that it takes effect once. 0 means that no answer arrived.
_REPEATED = (0, 429, 500, 503)
_LONGEST_PAUSE = 20.0


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


class ApiError(Exception):
    """The API refused a request, or did not answer.

    Attributes:
        status: HTTP status; 0 if no answer arrived.
        code: The problem's code, as in docs/generated/codes.md; empty if API Gateway itself refused the request,
            `NO_ANSWER` if no answer arrived, and `WRONG_ADDRESS` if the address is wrong.
        message: What to do.
        problem: All fields of the answer, such as `field`, `shortages` or `earlierStep`.
        attempts: How often the request was sent.
    """

    attempts = 1

    def __init__(self, status: int, code: str, message: str, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {code}: {message}" if status else message)
        self.status, self.code, self.message, self.problem = status, code, message, problem

    @classmethod
    def of(cls, reply: Reply) -> ApiError:
        """The error in a reply."""
        problem = reply.said if isinstance(reply.said, dict) else {"message": reply.said}
        message = problem.get("detail") or problem.get("message") or ""
        return cls(reply.status, problem.get("code", ""), message, problem)


Authorize = Callable[[AWSRequest], None]
"""Authenticates a request each time it is sent."""

Send = Callable[[str, str, Mapping[str, str], bytes | None], Reply]
"""Sends a request: method, URL, headers and body. Raises ApiError if no answer arrives."""


def signed(credentials: Credentials | None = None, region: str | None = None) -> Authorize:
    """Sign requests with AWS Signature Version 4.

    Args:
        credentials: By default, those of the environment, which are looked up for each request.
        region: The API's region; by default, that of the environment.
    """
    session = botocore.session.get_session()

    def sign(request: AWSRequest) -> None:
        found = credentials or session.get_credentials()
        if found is None:
            raise NoCredentialsError
        where = region or session.get_config_variable("region")
        if where is None:
            raise NoRegionError
        SigV4Auth(found.get_frozen_credentials(), "execute-api", where).add_auth(request)

    return sign


def bearer(token: str | Callable[[], str]) -> Authorize:
    """Send a token with each request.

    Args:
        token: The token, or a function that returns a valid one, and is called for each request.
    """

    def add(request: AWSRequest) -> None:
        request.headers["Authorization"] = f"Bearer {token() if callable(token) else token}"

    return add


class Http:
    """Sends requests over the network, and keeps connections open.

    Args:
        url: An address of the API.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        is_here = urlsplit(url).hostname in ("127.0.0.1", "localhost")
        proxies = {} if is_here else get_environ_proxies(url)
        trusted: Any = os.environ.get("AWS_CA_BUNDLE") or True
        self._session = URLLib3Session(verify=trusted, proxies=proxies, timeout=_TIMEOUT_SECONDS)

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        outer = sys.exception()
        try:
            answer = self._session.send(AWSRequest(method, url, headers, body).prepare())
        except BotoCoreError as error:
            raise _no_answer(self._url, error, outer) from error
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(answer.status_code, named, answer.content)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


def _no_answer(url: str, error: BaseException, outer: BaseException | None) -> ApiError:
    """Say why no answer arrived, and what to check. Errors that the caller was handling before are left out."""
    while (cause := error.__cause__ or error.__context__) not in (None, outer):
        error = cause
    code, why = "NO_ANSWER", getattr(error, "strerror", None) or error
    if isinstance(error, LocationValueError | UnicodeError):
        code = "WRONG_ADDRESS"
    # Other failures of the name server are temporary.
    elif isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN:
        code, why = "WRONG_ADDRESS", "the name does not resolve"
    return ApiError(0, code, f"no answer from {url}: {why}; is this the API's address?", {})


def send_once(
    send: Send,
    authorize: Authorize | None,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
) -> Reply:
    """Send a request, after `authorize` if it needs that."""
    request = AWSRequest(method, url, dict(headers), body)
    if authorize is not None:
        authorize(request)
    return send(method, url, dict(request.headers.items()), body)


def repeat(attempt: Callable[[], Reply], attempts: int) -> Reply:
    """Send a request until its answer is final, with pauses of `Retry-After` and a random time.

    Raises:
        ApiError: The API refused the request, the address is wrong, or the last attempt failed too.
    """
    number = 0
    while True:
        number += 1
        pause = random.uniform(0, min(_LONGEST_PAUSE, 2.0**number))
        try:
            reply = attempt()
            if reply.status < 400:
                return reply
            pause += seconds_to_wait(reply)
            raise ApiError.of(reply)
        except ApiError as error:
            error.attempts = number
            may_help = error.status in _REPEATED and error.code != "WRONG_ADDRESS"
            if number >= attempts or not may_help:
                raise
        time.sleep(pause)


def seconds_to_wait(reply: Reply) -> float:
    """The seconds of `Retry-After`, which may be a time; 0 without it."""
    after = reply.headers.get("retry-after") or "0"
    if after.isdecimal():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    except ValueError:
        return 0.0
