#!/usr/bin/env bash
# aiodynamo and dynamodb-streams-processor give several pallets the same number.
#
# The number on a pallet's label, the SSCC, has 18 digits, and DynamoDB's numbers have up to 38. If a program has stored it as a number, one
# expects each reader to return what is stored, or to refuse it. boto3 returns a Decimal, and AWS's unmarshall() for JavaScript a
# BigInt. aiodynamo reads each number as a float, which is exact to 15 digits, and dynamodb-streams-processor returns a JavaScript number,
# which is the same. Six or seven pallets in a row become one number, which may well be the valid number of one more. Quantities and
# GTINs are short enough to stay right. A row that aiodynamo has read and written back stores the wrong number.
# It matters because a pallet that arrives is booked as another one, with its products and lots. Give aiodynamo's Client
# numeric_type=Decimal, and store an SSCC as a string, which also keeps its leading zeros.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    aiodynamo==26.4 httpx==0.28.1 boto3==1.44.8 "moto[dynamodb,server]==5.2.5" 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts dynamodb-streams-processor@1.0.2 @aws-sdk/util-dynamodb@3.996.9 \
    @aws-sdk/client-dynamodb@3.1162.0

cat > check.py <<'PYTHON'
import asyncio
import json
import logging
import os
import subprocess
import sys
from decimal import Decimal
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3
import httpx
from aiodynamo.client import Client
from aiodynamo.credentials import Credentials
from aiodynamo.http.httpx import HTTPX
from moto.server import ThreadedMotoServer
from yarl import URL

JAVASCRIPT = """
const processor = require('dynamodb-streams-processor');
const { unmarshall } = require('@aws-sdk/util-dynamodb');
const images = JSON.parse(process.argv[1]).map((N) => ({ sscc: { N } }));
const records = processor(images.map((NewImage) => ({ eventName: 'INSERT', dynamodb: { NewImage } })));
console.log(JSON.stringify({
  version: require('dynamodb-streams-processor/package.json').version,
  records: records.map((record) => BigInt(record.dynamodb.NewImage.sscc).toString()),
  aws: images.map((image) => unmarshall(image).sscc.toString()),
}));
"""
PALLETS = ["340123450000000017", "340123450000000024", "340123450000000031", "340123450000000048"]


async def read(url, **settings):
    async with httpx.AsyncClient() as session:
        table = Client(HTTPX(session), Credentials.auto(), "us-east-1", URL(url), **settings).table("pallets")
        return [str(int((await table.get_item({"id": pallet}))["sscc"])) for pallet in PALLETS]


logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://{}:{}".format(*server.get_host_and_port())
table = boto3.resource("dynamodb", endpoint_url=url).create_table(
    TableName="pallets",
    BillingMode="PAY_PER_REQUEST",
    AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
)
for pallet in PALLETS:
    table.put_item(Item={"id": pallet, "sscc": int(pallet)})
boto = [str(table.get_item(Key={"id": pallet})["Item"]["sscc"]) for pallet in PALLETS]
floats = asyncio.run(read(url))
decimals = asyncio.run(read(url, numeric_type=Decimal))
server.stop()
output = subprocess.run(["node", "--no-warnings", "-e", JAVASCRIPT, json.dumps(PALLETS)], capture_output=True, check=True).stdout
node = json.loads(output)

print(f"Versions: aiodynamo {version('aiodynamo')}, dynamodb-streams-processor {node['version']}, boto3 {version('boto3')}")
print("Expected:", *PALLETS)
print("Seen:    ", *floats, "(aiodynamo)")
print("Seen:    ", *node["records"], "(dynamodb-streams-processor)")
print("Seen:    ", *boto, "(boto3)")
print("Seen:    ", *node["aws"], "(@aws-sdk/util-dynamodb)")
print("Seen:    ", *decimals, "(aiodynamo with numeric_type=Decimal)")
wrong = ["340123450000000000"] * 3 + ["340123450000000064"]
sys.exit(not (floats == node["records"] == wrong and boto == node["aws"] == decimals == PALLETS))
PYTHON
"$folder/venv/bin/python" check.py
