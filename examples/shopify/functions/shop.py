"""What both functions share: the app's credentials, the Admin API, and product ids made from SKUs."""

import json
import os
import re
import time
from functools import lru_cache
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode
from urllib.request import Request, urlopen

import boto3

API = "/admin/api/2026-10/graphql.json"
TOKEN = {"value": "", "until": 0.0}
secrets = boto3.client("secretsmanager")


def credentials():
    """Return the app's client id and client secret, which also signs its webhooks. A new secret counts within a minute."""
    return _credentials(time.time() // 60)


@lru_cache(1)
def _credentials(_minute):
    return json.loads(secrets.get_secret_value(SecretId=os.environ["SECRET_ID"])["SecretString"])


def id_of(text):
    """Write a SKU or an email address as an id, as imports do: unchanged if HTTP accepts it, otherwise encoded (docs/limits.md)."""
    is_id = re.fullmatch(r"[!\"$&-+.0->@-}-]+", text)
    return text if is_id else quote(text, safe="").replace("~", "~7E").replace("%", "~")


def skus_of(product_id):
    """List the SKUs that a product id can come from."""
    return {product_id, unquote(product_id.replace("~", "%"))}


def ask(query, **variables):
    """Send a GraphQL request, once. Before another attempt, the caller has to read the stock again."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    kind = {"Content-Type": "application/json", "X-Shopify-Access-Token": _token()}
    try:
        answer = _answer(API, body, kind)
    except HTTPError:
        TOKEN["until"] = 0.0
        raise
    if "errors" in answer:
        raise RuntimeError(answer["errors"])
    return answer["data"]


def _token():
    """Return an access token. It lasts a day, so it is requested again in good time."""
    if time.time() > TOKEN["until"]:
        app = credentials()
        fields = {"client_id": app["clientId"], "client_secret": app["clientSecret"]}
        body = urlencode(fields | {"grant_type": "client_credentials"}).encode()
        answer = _answer("/admin/oauth/access_token", body, {})
        TOKEN["value"] = answer["access_token"]
        TOKEN["until"] = time.time() + answer["expires_in"] - 600
    return TOKEN["value"]


def _answer(path, body, headers):
    with urlopen(Request(os.environ["SHOP_URL"] + path, body, headers), timeout=10) as answer:  # noqa: S310
        return json.load(answer)
