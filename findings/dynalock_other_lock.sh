#!/usr/bin/env bash
# dynalock: a program that took too long releases the lock of the program after it.
#
# A lock in DynamoDB expires, so that a program that crashes does not hold up the others. A slow program may therefore finish while the
# next one holds the lock. One expects the release to notice, as in dynamo-dlm: each holder writes its own id, and deletes the row only if
# that id is still there. dynalock's row has no such id, and the release deletes it without a condition. A third program gets the lock
# while the second one works. Nothing is raised and nothing is logged.
# It matters because two programs then count or reserve the same stock at once, and each slow one lets in another: with enough slow runs,
# the lock stops nothing. Choose a ttl far above the longest run, or a condition on the stock itself instead of a lock.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    dynalock==0.3.0 dynamo-dlm==2.1.0 boto3==1.44.8 "moto[dynamodb]==5.2.5" 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import logging
import os
import sys
import time
from importlib.metadata import version

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="eu-central-1")
import boto3
from dynalock import DynaLock
from dynalock.exceptions import LockAlreadyAcquiredError
from dynamo_dlm import DynamoDbLock, LockNotAcquiredError
from moto import mock_aws

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("dynalock", "dynamo-dlm", "moto")))
logging.disable(logging.WARNING)  # dynamo-dlm logs that the lock was taken
SECONDS = (1, 600, 600)


def table(name, **keys):
    boto3.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"))],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()],
        BillingMode="PAY_PER_REQUEST",
    )


def third_program_gets_in(first, second, third, refusal):
    first.acquire()
    time.sleep(2.1)
    second.acquire()
    first.release()
    try:
        third.acquire()
    except refusal:
        return False
    return True


class Lock:
    """The lock of dynalock, with the two methods that its context manager calls."""

    def __init__(self, ttl):
        self.context = DynaLock(lock_id="stock:CUP", region_name="eu-central-1", table_name="locks", ttl=ttl).lock()

    def acquire(self):
        self.context.__enter__()

    def release(self):
        self.context.__exit__(None, None, None)


seen = {}
with mock_aws():
    table("locks", LockId="S")
    table("dlm", resource_id="S", concurrency_id="N")
    seen["dynalock"] = third_program_gets_in(*(Lock(seconds) for seconds in SECONDS), LockAlreadyAcquiredError)
    others = [DynamoDbLock("stock:CUP", duration=seconds, table_name="dlm", wait_forever=False) for seconds in SECONDS]
    seen["dynamo-dlm"] = third_program_gets_in(*others, LockNotAcquiredError)
print("Expected: the third program waits for the second one, whose lock has not expired")
for name, entered in seen.items():
    print(f"Seen:     {name}: the third program {'has the lock, too' if entered else 'does not get the lock'}")
print("Why it matters: two programs change the stock of one product at once.")
sys.exit(seen != {"dynalock": True, "dynamo-dlm": False})
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
