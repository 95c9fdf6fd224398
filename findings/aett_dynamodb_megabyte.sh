#!/usr/bin/env bash
# aett-dynamodb returns the first megabyte of a product's events as if there were no others.
#
# The package keeps streams of events in DynamoDB, one for each order or product of a tenant. One expects get() to return all events of
# one stream, as its range of revisions is open by default. DynamoDB answers with at most 1 MB and the key to go on from, which get() does not
# use.
# It matters because stock that is the sum of events is wrong as soon as they fill a megabyte, some thousand events, and no test
# is that long. Call get() again from the last revision until it returns nothing new.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# All are named, so that pip need not search for versions that fit together, which takes minutes. AWS's runtime in C is not needed here.
packages=(
  aett-dynamodb==2.1.0 aett-eventstore==2.1.0 aett-domain==2.1.0 moto==5.2.5 boto3==1.35.99 botocore==1.35.99 s3transfer==0.10.4
  annotated-types==0.8.0 certifi==2026.10.19.post1 cffi==2.1.1 charset-normalizer==3.5.3 cryptography==50.0.2 idna==3.20 jmespath==1.1.0
  MarkupSafe==3.0.4 multipledispatch==1.0.0 pydantic==2.14.4 pydantic_core==2.50.5 python-dateutil==2.9.0.post0 PyYAML==6.0.4
  requests==2.34.2 responses==0.26.3 six==1.17.0 typing_extensions==4.16.0 typing-inspection==0.4.5 urllib3==2.8.0
  Werkzeug==3.1.9 xmltodict==1.0.4
)
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${packages[@]}" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import contextlib
import io
import os
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import version

os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}

from aett.dynamodb import CommitStore, PersistenceManagement
from aett.eventstore import Commit, DomainEvent, EventMessage, Topic, TopicMap
from moto import mock_aws


@Topic("moved")
class Moved(DomainEvent):
    quantity: int
    note: str


def commit(store, shop, stream, number, note=""):
    now = datetime.now(UTC)
    event = EventMessage(body=Moved(source=stream, timestamp=now, version=number, quantity=1, note=note))
    names = {"tenant_id": shop, "stream_id": stream, "stream_revision": number, "commit_sequence": number, "commit_id": uuid.uuid4()}
    with contextlib.redirect_stdout(io.StringIO()):  # The package prints DynamoDB's answer.
        store.commit(Commit(**names, commit_stamp=now, headers={}, events=[event], checkpoint_token=0))


@mock_aws
def run():
    topics = TopicMap()
    topics.register(Moved)
    PersistenceManagement(profile_name=None).initialize()
    store = CommitStore(topics, profile_name=None)
    for number in range(1, 41):
        commit(store, "shop", "tea", number, "x" * 50_000)
    stock = sum(message.body.quantity for each in store.get("shop", "tea") for message in each.events)
    print("Expected: 40 units of tea after 40 events of one unit each, 2 MB together")
    print(f"Seen:     {stock} units of tea")
    return stock


names = ("aett-dynamodb", "boto3", "moto")
print(f"Versions: {', '.join(f'{name} {version(name)}' for name in names)}, Python {sys.version.split()[0]}")
stock = run()
print("Why it matters: stock is too low once a product has a long history.")
sys.exit(not 0 < stock < 40)
PYTHON
AWS_DEFAULT_REGION=eu-central-1 "$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
