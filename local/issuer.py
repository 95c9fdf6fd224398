"""The pages of an issuer that lets anyone sign in as any role: for the desk of the embedded AWS, on this machine only.

It is as strict as an issuer should be (RFC 6749, 7636 and 9700), so that the desk's sign-in can be tested against it: exact
addresses to come back to, PKCE with S256 only, and codes that work once, for a minute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from local import tokens

PATH = "/issuer/"
"""The folder of the issuer's pages. Below it, `as/pickers` leads to the desk, with this role chosen for the next sign-in."""

_AS = "as/"
_CODE_SECONDS = 60
_TOKEN_SECONDS = 3600
_HTML = {
    "Content-Type": "text/html; charset=utf-8",
    # With no-referrer, a browser would not say where a form comes from.
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
}
_FORM = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Sign in</title>
    <link rel="stylesheet" href="{style}">
  </head>
  <body>
    <main>
      <h1>Sign in</h1>
      <p class="hint">Only the embedded AWS on this machine accepts these tokens.</p>
      <form class="card" method="post">
        <label><span>Role</span><select name="role">{roles}</select></label>
        <label><span>Locations</span><input name="locations" value="*" aria-describedby="locations"></label>
        <p class="hint" id="locations">Separated by spaces: * for all, (default) for the one without a name.</p>
        <button class="primary">Sign in</button>
      </form>
    </main>
  </body>
</html>
"""


class Answer(NamedTuple):
    """An answer of the issuer."""

    status: HTTPStatus
    headers: Mapping[str, str]
    content: bytes = b""


@dataclass(frozen=True)
class _Session:
    """A user who has signed in. The user's name is the role."""

    role: str
    locations: str
    nonce: str


@dataclass(frozen=True)
class _Code:
    session: _Session
    redirect: str
    challenge: str
    ends_at: float


class _RefusedError(Exception):
    """A request that the issuer refuses; the message is for developers of the page that sent it."""


@dataclass
class Issuer:
    """The issuer of one desk.

    Attributes:
        sign: Makes a token from its claims and its lifetime in seconds.
        style: The address of a style sheet.
        role: The role that is chosen at first.
        token_seconds: How long a token is valid.
        taken_away: Roles that its users have lost. Tokens made from now on do not have them.
    """

    sign: Callable[[Mapping[str, Any], int], str]
    style: str
    role: str = next(iter(tokens.ROLES["grants"]))
    token_seconds: int = _TOKEN_SECONDS
    taken_away: set[str] = field(default_factory=set)
    _codes: dict[str, _Code] = field(default_factory=dict)
    _sessions: dict[str, _Session] = field(default_factory=dict)

    def answer(self, method: str, name: str, query: str, body: bytes, desk: str) -> Answer:
        """Answer a request for one of the issuer's pages.

        Args:
            method: Its method.
            name: The part of its path after `PATH`.
            query: Its query.
            body: Its body.
            desk: The address of the desk's page, the only one to which people are sent back.
        """
        asked, sent = (dict(parse_qsl(text)) for text in (query, body.decode(errors="replace")))
        try:
            match method, name:
                case "GET", "authorize":
                    self._check(asked, desk)
                    return Answer(HTTPStatus.OK, _HTML, self._form().encode())
                case "POST", "authorize":
                    self._check(asked, desk)
                    return self._sent_back(asked, sent)
                case "POST", "token":
                    return _json(HTTPStatus.OK, self._tokens(sent))
                case "GET", str() if name.startswith(_AS):
                    self.role = name.removeprefix(_AS)
                    return Answer(HTTPStatus.FOUND, {"Location": desk})
                case "GET", "sign-out":
                    _require(asked.get("logout_uri") == desk, "logout_uri is not the desk's")
                    return Answer(HTTPStatus.FOUND, {"Location": desk})
        except _RefusedError as error:
            said = {"error": "invalid_grant", "error_description": str(error)}
            return _json(HTTPStatus.BAD_REQUEST, said)
        return _json(HTTPStatus.NOT_FOUND, {"error": "not_found"})

    @staticmethod
    def _check(asked: Mapping[str, str], desk: str) -> None:
        """Refuse a request to sign in, without sending anyone anywhere, unless it comes from the desk and uses PKCE."""
        _require(asked.get("client_id") == tokens.DESK["clientId"], "client_id is unknown")
        _require(asked.get("redirect_uri") == desk, "redirect_uri is not the desk's")
        _require(asked.get("response_type") == "code", "response_type must be code")
        _require(asked.get("code_challenge_method") == "S256", "code_challenge_method must be S256")
        _require(len(asked.get("code_challenge", "")) == 43, "code_challenge must be a digest")

    def _form(self) -> str:
        roles = (
            f"<option{' selected' if role == self.role else ''}>{escape(role)}</option>"
            for role in tokens.ROLES["grants"]
        )
        return _FORM.format(style=escape(self.style), roles="".join(roles))

    def _sent_back(self, asked: Mapping[str, str], sent: Mapping[str, str]) -> Answer:
        _require(sent.get("role") in tokens.ROLES["grants"], "role is unknown")
        session = _Session(sent["role"], sent.get("locations", ""), asked.get("nonce", ""))
        code, redirect = secrets.token_urlsafe(), asked["redirect_uri"]
        ends_at = time.monotonic() + _CODE_SECONDS
        self._codes[code] = _Code(session, redirect, asked["code_challenge"], ends_at)
        back = urlencode({"code": code, "state": asked.get("state", "")})
        return Answer(HTTPStatus.FOUND, {"Location": f"{redirect}?{back}"})

    def _tokens(self, sent: Mapping[str, str]) -> Mapping[str, Any]:
        _require(sent.get("client_id") == tokens.DESK["clientId"], "client_id is unknown")
        if sent.get("grant_type") == "refresh_token":
            # It works once: its answer has the next one.
            session = self._sessions.pop(sent.get("refresh_token", ""), None)
            _require(session is not None, "refresh_token is unknown or was used before")
        else:
            session = self._redeemed(sent)
        assert session is not None  # noqa: S101 - for mypy
        following = secrets.token_urlsafe()
        self._sessions[following] = session
        return {
            "id_token": self.sign(self._claims(session), self.token_seconds),
            "refresh_token": following,
            "token_type": "Bearer",
            "expires_in": self.token_seconds,
        }

    def _redeemed(self, sent: Mapping[str, str]) -> _Session:
        """Exchange a code. Even a failed attempt uses it up."""
        code = self._codes.pop(sent.get("code", ""), None)
        if code is None or code.ends_at < time.monotonic():
            raise _RefusedError("code is unknown, was used before, or has expired")
        _require(sent.get("redirect_uri") == code.redirect, "redirect_uri is another one")
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        _require(challenge == code.challenge, "code_verifier does not match")
        return code.session

    def _claims(self, session: _Session) -> Mapping[str, Any]:
        role, roles = session.role, {*tokens.ROLES["grants"]} - self.taken_away
        return {
            "sub": role,
            "nonce": session.nonce,
            tokens.ROLES["locationsClaim"]: session.locations,
            # Like Cognito, which leaves the claim out if its user is in no group.
            **({tokens.ROLES["claim"]: [role]} if role in roles else {}),
        }


def _require(is_right: bool, why: str) -> None:
    if not is_right:
        raise _RefusedError(why)


def _json(status: HTTPStatus, document: object) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(document).encode())
