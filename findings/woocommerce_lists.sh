#!/usr/bin/env bash
# WooCommerce's Python client sends a list so that the shop sees only its last item.
#
# WooCommerce's API takes lists, such as `include` with the ids of products, and the client passes `params` on. One expects
# include[]=1&include[]=2 or include=1,2, which the API both accepts. The client sends include=1&include=2, over HTTP with another
# include=[1, 2] before it. PHP, which the shop is written in, keeps the last of equal names without brackets.
# It matters because a program that asks for the stock of 100 products by id gets that of one, with status 200, and may take the others
# for deleted. Pass "1,2", or the name include[] itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check woocommerce==3.0.0 requests==2.32.5 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version
from urllib.parse import parse_qsl, urlsplit

import requests
from requests.adapters import HTTPAdapter
from woocommerce import API

print("Versions: woocommerce", version("woocommerce"), "requests", version("requests"))


def keep(self, request, **_):
    """Answer without a network, and keep what would have been sent."""
    sent.append([(name, value) for name, value in parse_qsl(urlsplit(request.url).query) if "include" in name])
    answer = requests.Response()
    answer.status_code, answer._content, answer.request = 200, b"[]", request
    return answer


HTTPAdapter.send = keep
seen = {}
for scheme in ("https", "http"):
    shop = API(url=f"{scheme}://shop.example", consumer_key="ck", consumer_secret="cs", version="wc/v3")
    for name, ids in (("include", [1, 2]), ("include[]", [1, 2]), ("include", "1,2")):
        sent = []
        shop.get("products", params={name: ids})
        seen[scheme, name, str(ids)] = sent[0]
print("Expected: include[]=1 and include[]=2, or include=1,2")
for (scheme, name, ids), pairs in seen.items():
    # PHP's rule, as its manual describes it for variables from outside.
    php = {key: value for key, value in pairs if not key.endswith("]")} or [value for _, value in pairs]
    print(f"Seen:     {name}: {ids} over {scheme} is {pairs}; for PHP, {php}")
print("Why it matters: the shop returns one product of two, and no error.")
last = [("include", "1"), ("include", "2")]
known = {
    ("https", "include", "[1, 2]"): last,
    ("https", "include[]", "[1, 2]"): [("include[]", "1"), ("include[]", "2")],
    ("https", "include", "1,2"): [("include", "1,2")],
    ("http", "include", "[1, 2]"): [("include", "[1, 2]"), *last],
}
sys.exit(any(seen[case] != pairs for case, pairs in known.items()))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
