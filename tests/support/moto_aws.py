"""moto, set up quickly: it stands in for AWS in the tests of one thread."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import boto3
from moto import mock_aws
from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID

from inventory_orders.invocation import runtime, stream_batch


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


def tables_as_they_are() -> Any:
    """moto's tables with all that is in them, for `put_tables`."""
    return copy.deepcopy(_dynamodb().tables)


def put_tables(tables: Any) -> None:
    """Give an empty moto these tables. To make them and to put their rows takes twenty times as long."""
    _dynamodb().tables = copy.deepcopy(tables)


def _dynamodb() -> Any:
    return get_backend("dynamodb")[DEFAULT_ACCOUNT_ID][os.environ["AWS_DEFAULT_REGION"]]
