"""Tokens for the customers' API of the embedded AWS, from an issuer that only the embedded AWS accepts.

API Gateway requests the public key from the issuer. If the issuer is a Cognito user pool, the embedded AWS requests the
key from itself. If it has no such pool, it reads the key from the bucket with the pool's name. So no server is
needed, and no account accepts these tokens.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from local import STATE
from local.endpoint import REGION
from operations.aws import Aws
from operations.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_BUCKET = "local-issuer"
_AUDIENCE, _GROUPS, _OPERATORS = "local", "cognito:groups", "operators"
SETTING = {
    "issuer": f"https://cognito-idp.{REGION}.amazonaws.com/{_BUCKET}",
    "audience": [_AUDIENCE],
    "userIdClaim": "sub",
    "operatorsClaim": {"name": _GROUPS, "value": _OPERATORS},
}
"""The setting `jwt` of the embedded AWS."""

_LOCATIONS = "custom:locations"
_GRANTS = {
    "pickers": ["orders.read", "orders.fulfil", "products.read"],
    "stock": ["products.read", "stock.read", "stock.adjust", "stock.count"],
    "support": ["orders.read", "orders.cancel", "orders.amend"],
    "owners": ["*"],
}
ROLES: dict[str, Any] = {
    "claim": _GROUPS,
    "grants": _GRANTS,
    "locationsClaim": _LOCATIONS,
}
"""The setting `roles` of the embedded AWS."""

DESK = {
    "clientId": _AUDIENCE,
    # Placeholders: only `make desk` has pages to sign in.
    **{name: f"https://issuer.invalid/{name}" for name in ("authorize", "token", "signOut")},
}
"""The setting `desk` of the embedded AWS."""

CUSTOMER = "u-7"
"""The customer whose token is made by default."""

_VALID_SECONDS = 12 * 3600


def customer_token(aws: Aws, user_id: str = CUSTOMER) -> str:
    """Sign a customer's token, valid for twelve hours on the embedded AWS."""
    return token_of(aws, {"sub": user_id})


def operator_token(aws: Aws) -> str:
    """Sign an operator's token, valid for twelve hours on the embedded AWS."""
    return token_of(aws, {"sub": "operator", _GROUPS: [_OPERATORS]})


def role_token(aws: Aws, role: str, locations: str = "*") -> str:
    """Sign the token of a role at some locations, valid for twelve hours on the embedded AWS.

    Args:
        role: A role of the setting `roles`. Its user has the same name.
        locations: Its locations, separated by spaces; `*` for all, `(default)` for the one without a name.

    Raises:
        UserError: There is no such role.
    """
    check_role(role)
    return token_of(aws, {"sub": role, _GROUPS: [role], _LOCATIONS: locations})


def check_role(role: str) -> None:
    """Check that the setting `roles` has this role.

    Raises:
        UserError: It does not.
    """
    if role not in _GRANTS:
        raise UserError(f'there is no role "{role}"; the roles are {", ".join(_GRANTS)}')


def token_of(aws: Aws, claims: Mapping[str, Any], valid_seconds: int = _VALID_SECONDS) -> str:
    """Sign a token with these claims, which the embedded AWS accepts."""
    key, now = _key(), int(time.time())
    _publish(aws, key)
    times = {"iat": now, "exp": now + valid_seconds}
    content = {"iss": SETTING["issuer"], "aud": _AUDIENCE, **claims, **times}
    return signed(content, key, _BUCKET)


def signed(content: Mapping[str, Any], key: RSAPrivateKey, key_id: str) -> str:
    """Make a token."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric import padding  # noqa: PLC0415

    header = {"alg": "RS256", "typ": "JWT", "kid": key_id}
    text = ".".join(_text(json.dumps(part).encode()) for part in (header, content))
    return f"{text}.{_text(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _publish(aws: Aws, key: RSAPrivateKey) -> None:
    """Store the public key where the embedded AWS looks for it."""
    keys = json.dumps(public_keys(key, _BUCKET)).encode()
    s3 = aws.session.client("s3")
    s3.create_bucket(Bucket=_BUCKET)
    s3.put_object(Bucket=_BUCKET, Key=".well-known/jwks.json", Body=keys)


def public_keys(key: RSAPrivateKey, key_id: str) -> dict[str, Any]:
    """Describe the public part of a key, as issuers publish it."""
    numbers = key.public_key().public_numbers()
    parts = {
        name: _text(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        for name, number in (("n", numbers.n), ("e", numbers.e))
    }
    return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": key_id, **parts}]}


def _key() -> RSAPrivateKey:
    """Return the issuer's key, created on first use. It stays the same, because the embedded AWS caches it for hours."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    path = STATE / "issuer.pem"
    if not path.is_file():
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.touch(0o600)
        draft.write_bytes(made.private_bytes(*form, serialization.NoEncryption()))
        # Another process may have created it first.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return _loaded(path.read_bytes())


@functools.cache
def _loaded(pem: bytes) -> RSAPrivateKey:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to import

    key: Any = serialization.load_pem_private_key(pem, password=None)
    found: RSAPrivateKey = key
    return found


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
