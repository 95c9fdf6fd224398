#!/usr/bin/env bash
# dyntastic sorts half a second past nine before nine o'clock, and a query from nine o'clock on leaves it out.
#
# DynamoDB sorts the rows of an order by their sort key, which may be a time, as in the class Event of dyntastic's own documentation. One expects
# events in the order in which they happened, and a query for those "since 9:00" to find each later one, as bloop does: its
# column DateTime stores UTC with six decimals always. dyntastic stores the text that Pydantic has for JSON. It leaves out decimals that
# are 0, and a point comes before the Z in 09:00:00Z. It also keeps the offset of the time, so 10:30+01:00, which is 9:30, comes last.
# It matters because jobs that read what is new from the last time they saw miss an event now and then, and an order looks paid before
# it was placed. Use a number of milliseconds, or a text of fixed length in UTC, for the sort key.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    dyntastic==0.18.0 pydantic==2.14.4 bloop==3.1.0 boto3==1.44.8 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import os
import sys
from datetime import datetime, timedelta, timezone
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import bloop
from dyntastic import A, Dyntastic
from moto import mock_aws

GERMANY = timezone(timedelta(hours=1))
NINE = datetime(2026, 11, 29, 9, tzinfo=timezone.utc)
EVENTS = {
    "placed": NINE,
    "paid": NINE + timedelta(seconds=0.5),
    "packed": NINE + timedelta(seconds=1),
    "shipped": (NINE + timedelta(minutes=30)).astimezone(GERMANY),
    "delivered": NINE + timedelta(minutes=45),
}


class Event(Dyntastic):
    __table_name__ = "events"
    __hash_key__ = "order"
    __range_key__ = "at"
    order: str
    at: datetime
    what: str


class Happened(bloop.BaseModel):
    order = bloop.Column(bloop.String, hash_key=True)
    at = bloop.Column(bloop.DateTime, range_key=True)
    what = bloop.Column(bloop.String)


names = ("dyntastic", "pydantic", "bloop", "boto3", "moto")
print("Versions:", ", ".join(f"{name} {version(name)}" for name in names))
with mock_aws():
    Event.create_table()
    engine = bloop.Engine()
    engine.bind(Happened)
    for what, at in EVENTS.items():
        Event(order="1001", at=at, what=what).save()
        engine.save(Happened(order="1001", at=at, what=what))
    every = [event.what for event in Event.query("1001")]
    since = [event.what for event in Event.query("1001", range_key_condition=A.at >= NINE)]
    after = (Happened.order == "1001") & (Happened.at >= NINE)
    other = [happened.what for happened in engine.query(Happened, key=after)]
print("Expected:", *EVENTS)
print("Seen:    ", *every)
print("Expected:", *EVENTS, "since nine o'clock")
print("Seen:    ", *since, "since nine o'clock")
print("Seen:    ", *other, "since nine o'clock (bloop)")
print("Why it matters: a job that asks for new events never sees the payment.")
known = ["paid", "placed", "packed", "delivered", "shipped"]
sys.exit(not (every == known and since == known[1:] and other == list(EVENTS)))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
