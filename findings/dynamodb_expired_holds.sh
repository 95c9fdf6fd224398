#!/usr/bin/env bash
# dynamorator returns what has expired, for as long as DynamoDB takes to delete it, which may be days.
#
# The package stores JSON with a time to live. DynamoDB deletes expired items "typically within a few days"; until then reads return them, and
# the reader must compare the time itself (DynamoDB Developer Guide, "Using time to live"). One expects "JSON storage with automatic TTL
# support" to do that, as aiocache-dynamodb does, whose get() returns nothing once the time is over. get() and batch_get() of
# dynamorator do not look at the time that put() has stored.
# It matters because a price or a reservation that was good for 15 minutes is honoured the next day. Store the end in the data, too, and
# compare it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    dynamorator==0.1.7 boto3==1.43.117 aiocache-dynamodb==1.1.2 "moto[dynamodb,server]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import asyncio
import contextlib
import io
import logging
import os
import sys
import time
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = os.environ["AWS_ENDPOINT_URL"] = "http://{}:{}".format(*server.get_host_and_port())
import boto3
from aiocache_dynamodb import DynamoDBCache
from dynamorator import DynamoDBStore

SECONDS = 1
boto3.client("dynamodb").create_table(
    TableName="cache",
    BillingMode="PAY_PER_REQUEST",
    AttributeDefinitions=[{"AttributeName": "cache_key", "AttributeType": "S"}],
    KeySchema=[{"AttributeName": "cache_key", "KeyType": "HASH"}],
)
with contextlib.redirect_stdout(io.StringIO()):
    store = DynamoDBStore("holds", silent=True)
store.put("cart-1", {"units": 2}, ttl_days=SECONDS / 86400)


async def cached(*, later):
    async with DynamoDBCache(table_name="cache", endpoint_url=url) as cache:
        if not later:
            await cache.set("cart-1", "2 units", ttl=SECONDS)
        return await cache.get("cart-1")


before = [store.get("cart-1"), store.batch_get(["cart-1"]), asyncio.run(cached(later=False))]
time.sleep(SECONDS + 2)
after = [store.get("cart-1"), store.batch_get(["cart-1"]), asyncio.run(cached(later=True))]
server.stop()
names = ["dynamorator, get()", "dynamorator, batch_get()", "aiocache-dynamodb, get()"]
print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("dynamorator", "aiocache-dynamodb", "boto3", "moto")))
print(f"Stored:   2 units for {SECONDS} second")
print("Expected: nothing after 3 seconds")
for name, first, last in zip(names, before, after, strict=True):
    print(f"Seen:     {name}: {first} at once, {last} after 3 seconds")
print("Why it matters: a hold or a price that has ended is still honoured.")
known = [{"units": 2}, {"cart-1": {"units": 2}}, None]
sys.exit(not (after == known and all(before)))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
