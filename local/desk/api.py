"""Forwards requests of the desk's pages to the stack's HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from client.sending import Reply
from local import tokens
from operations.aws import Aws
from operations.errors import UserError
from operations.http_api import HttpApi

OPERATOR = "operator"
_TOKENS = {OPERATOR: tokens.operator_token, "customer": tokens.customer_token}
_TOKEN = "Authorization"  # noqa: S105 - the name of a header


class Api:
    """The HTTP API of the stack that `stack` returns. The stack may be deployed again at any time."""

    def __init__(self, stack: Callable[[], Aws], *, is_embedded: bool) -> None:
        self._stack = stack
        self._is_embedded = is_embedded

    def call(
        self, caller: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """Send a request, and return the answer.

        On the embedded AWS, a request without a token gets the token of the `caller`. On an account, it is signed with the
        operator's credentials.

        Raises:
            UserError: There is no such caller or API, or the API does not answer.
        """
        aws = self._stack()
        if not self._is_embedded:
            others = {name: text for name, text in headers.items() if name != _TOKEN}
            return HttpApi.of(aws).send(method, path, others, body)
        if caller not in _TOKENS:
            raise UserError(f"{caller} is not a caller; use {' or '.join(_TOKENS)}")
        if _TOKEN not in headers:
            headers = {**headers, _TOKEN: f"Bearer {_TOKENS[caller](aws)}"}
        return HttpApi.of(aws, "CustomerApiUrl").send(method, path, headers, body, signed=False)
