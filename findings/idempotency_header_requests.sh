#!/usr/bin/env bash
# asgi-idempotency-header answers a cancellation with "placed" if it has the key of the order, and does not cancel.
#
# A client sends an Idempotency-Key with an order, so that it may safely send the order again. Stripe, after which the middleware is
# modelled, compares the request with the first one of this key, and refuses another request; the draft of the header asks for status 422.
# One expects that here. The middleware compares the key only, not even the method and the path: an order of something else, and a
# cancellation, get the stored answer to the first order, with its status 201, and their handlers do not run. It stores errors as well, so
# the retries of an order that was answered with 503 get 503 for a day, although the handler never placed anything.
# It matters because a client that makes its key from the order's number, rather than at random, cannot change or cancel an order, and
# reads that all went well. Put the method, the path and a hash of the body into the key, in a middleware before this one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    asgi-idempotency-header==0.2.0 fastapi==0.165.0 httpx==0.28.1 redis==8.1.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import asyncio
import sys
from importlib.metadata import version

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import MemoryBackend

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("asgi-idempotency-header", "fastapi", "httpx")))
failures = [503]
api = FastAPI()


@api.post("/orders")
async def place(request: Request):
    if failures:
        return JSONResponse({"detail": "Try again"}, failures.pop())
    return JSONResponse({"placed": (await request.json())["product"]}, 201)


@api.post("/orders/1/cancel")
async def cancel():
    return {"cancelled": True}


REQUESTS = [
    ("k1", "/orders", "CUP"), ("k1", "/orders", "CUP"),
    ("k2", "/orders", "CUP"), ("k2", "/orders", "TEA"), ("k2", "/orders/1/cancel", ""),
]


async def answers():
    app = IdempotencyHeaderMiddleware(api, backend=MemoryBackend())
    seen = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop.example") as client:
        for key, path, product in REQUESTS:
            response = await client.post(path, json={"product": product}, headers={"Idempotency-Key": key})
            seen.append((response.status_code, response.text))
    return seen


seen = asyncio.run(answers())
print("Expected: an order of TEA with the key of an order of CUP, and then a cancellation: 422, or both are carried out")
print(f"Seen:     {seen[3][0]} {seen[3][1]}, and {seen[4][0]} {seen[4][1]}")
print("Expected: the retry of an order after 503: 201, placed")
print(f"Seen:     {seen[1][0]} {seen[1][1]}")
print("Why it matters: an order that the customer has cancelled is delivered.")
sys.exit([status for status, _ in seen] != [503, 503, 201, 201, 201] or len({text for _, text in seen[2:]}) != 1)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
