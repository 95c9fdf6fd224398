"""moto, set up quickly: it stands in for AWS in the tests of one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import boto3
from moto import mock_aws

from inventory_orders.invocation import runtime, stream_batch

# As many as DynamoDB takes in one request.
_MOST_PUTS = 25


@cache
def _session() -> boto3.Session:
    return boto3.Session()


@contextmanager
def moto_aws() -> Iterator[None]:
    """An empty AWS.

    moto takes the SDK's session away, and a new one reads the descriptions of all services again: a tenth of a second
    for each test. So all tests of a process share one.
    """
    with patch.dict(os.environ), mock_aws():
        # It answers for AWS's own addresses only; the tests' embedded AWS may run meanwhile.
        os.environ.pop("AWS_ENDPOINT_URL", None)
        boto3.DEFAULT_SESSION = _session()
        yield


def forget_what_handlers_made() -> None:
    """Let the next invocation in this process make its clients and its engine anew, as a new worker does."""
    for made_once in (
        runtime._store,
        runtime._committer,
        runtime._impatient_committer,
        runtime._atomic_decrement,
        runtime._sqs_client,
        runtime.sent_holds,
        stream_batch._clients,
    ):
        made_once.cache_clear()


def rows_of(dynamodb: Any, tables: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """All rows of small tables, by table."""
    return {table: dynamodb.scan(TableName=table)["Items"] for table in tables}


def put_rows(dynamodb: Any, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write rows into tables."""
    for table, items in rows.items():
        for start in range(0, len(items), _MOST_PUTS):
            puts = [{"PutRequest": {"Item": item}} for item in items[start : start + _MOST_PUTS]]
            answer = dynamodb.batch_write_item(RequestItems={table: puts})
            assert not answer["UnprocessedItems"]
