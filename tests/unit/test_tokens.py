"""Tokens for the embedded AWS: their claims, and the key that signs them."""

import base64
import json
import runpy
import time
from types import SimpleNamespace

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

import local
from infra.settings import Settings
from local import stack, tokens
from operations.errors import UserError


class Bucket:
    """A fake S3 for the issuer of tokens."""

    def __init__(self):
        self.objects = {}
        self.session = SimpleNamespace(client=lambda _: self)

    def create_bucket(self, Bucket):
        self.objects.setdefault(Bucket, {})

    def put_object(self, Bucket, Key, Body):
        self.objects[Bucket][Key] = Body


@pytest.fixture
def aws(monkeypatch, tmp_path):
    monkeypatch.setattr(tokens, "STATE", tmp_path)
    return Bucket()


def raw(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def checked(aws, token):
    """Return the claims of a token after checking its signature with the published key."""
    *signed, signature = token.split(".")
    header, claims = (json.loads(raw(part)) for part in signed)
    (bucket,) = aws.objects.values()
    (key,) = json.loads(bucket[".well-known/jwks.json"])["keys"]
    assert (header["alg"], header["kid"]) == (key["alg"], key["kid"])
    numbers = [int.from_bytes(raw(key[name]), "big") for name in ("e", "n")]
    public = rsa.RSAPublicNumbers(*numbers).public_key()
    public.verify(raw(signature), ".".join(signed).encode(), padding.PKCS1v15(), hashes.SHA256())
    return claims


def test_the_embedded_stack_takes_the_tokens_as_those_of_a_customer_and_an_operator(aws):
    jwt = Settings.from_context("dev", overrides=stack.SETTINGS).jwt
    name, value = jwt.operators_claim
    customer = checked(aws, tokens.customer_token(aws, "u-15"))
    operator = checked(aws, tokens.operator_token(aws))
    assert customer[jwt.user_id_claim] == "u-15"
    assert name not in customer
    assert value in operator[name]
    for claims in (customer, operator):
        assert (claims["iss"], claims["aud"]) == (jwt.issuer, jwt.audience[0])
        assert 0 < claims["exp"] - time.time() <= 12 * 3600
    # The embedded AWS reads a user pool's keys from the bucket that has the pool's name.
    assert list(aws.objects) == [jwt.issuer.rsplit("/", 1)[1]]


def test_the_token_of_a_role_says_what_the_embedded_stack_expects(aws):
    roles = Settings.from_context("dev", overrides=stack.SETTINGS).roles
    claims = checked(aws, tokens.role_token(aws, "pickers", "berlin (default)"))
    assert claims["sub"] == "pickers"
    assert [each for each in claims[roles["claim"]] if each in roles["grants"]] == ["pickers"]
    assert claims[roles["locationsClaim"]] == "berlin (default)"
    with pytest.raises(UserError, match="the roles are pickers, stock, support, owners"):
        tokens.role_token(aws, "cleaners")


def test_the_key_stays_the_same_and_is_private(aws, tmp_path):
    first = tokens.customer_token(aws)
    tokens.operator_token(aws)
    checked(aws, first)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    *_, signature = first.split(".")
    *others, _ = tokens.operator_token(aws).split(".")
    with pytest.raises(InvalidSignature):
        checked(aws, ".".join([*others, signature]))


def test_an_empty_setting_does_not_write_the_private_key_into_the_current_folder(monkeypatch):
    monkeypatch.setenv("INVENTORY_ORDERS_STATE", "")
    assert runpy.run_path(local.__file__)["STATE"] == local.ROOT / ".local"
