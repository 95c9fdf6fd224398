"""A token issuer on this machine, which publishes its keys for an HTTP API and signs tokens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from cryptography.hazmat.primitives.asymmetric import rsa

from local import tokens
from operations.http_api import HttpApi


@contextmanager
def issued_by(api: HttpApi, issuer: Issuer) -> Iterator[None]:
    """Make an API accept tokens from another issuer, with the same claims."""
    gateway: Any = boto3.client("apigatewayv2")
    (authorizer,) = gateway.get_authorizers(ApiId=api.id)["Items"]
    which = {"ApiId": api.id, "AuthorizerId": authorizer["AuthorizerId"]}
    gateway.update_authorizer(
        **which, JwtConfiguration={"Issuer": issuer.url, "Audience": ["shop"]}
    )
    yield
    gateway.update_authorizer(**which, JwtConfiguration=authorizer["JwtConfiguration"])


class Issuer:
    """A loopback server that publishes a key and signs tokens with it. Use it as a context manager.

    Attributes:
        url: The server's address, which is the claim `iss` of its tokens.
    """

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        keys = json.dumps(tokens.public_keys(self._key, "k1")).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer every request with the keys, because the embedded AWS looks for them in several places."""
                self.send_response(200)
                self.end_headers()
                self.wfile.write(keys)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, **claims: Any) -> str:
        """Sign a token for the audience `shop`, valid for an hour unless the claims say otherwise."""
        now = int(time.time())
        content = {"iss": self.url, "aud": "shop", "iat": now - 1, "exp": now + 3600} | claims
        return tokens.signed(content, self._key, "k1")
