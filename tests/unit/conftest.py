"""Fixtures with moto, which checks expressions strictly, for tests in one thread."""

import os

import boto3
import pytest
from botocore.config import Config

from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import Table
from local.invoke import create_table, moto_stack
from tests.support.moto_aws import moto_aws, put_rows, rows_of


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch):
    """moto answers for AWS's own addresses only, so an endpoint of the embedded AWS must not be set."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@pytest.fixture
def moto_store():
    """A store on empty tables."""
    with moto_aws():
        checked = CLIENT_CONFIG.merge(Config(parameter_validation=True))
        client = boto3.client("dynamodb", config=checked)
        for table in Table:
            create_table(client, table, table.value)
        yield Store(client, {table: table.value for table in Table})


@pytest.fixture(scope="session")
def stocked_rows():
    """What the tables hold when the tea shop opens, as the service itself wrote it."""
    with moto_aws():
        moto_stack()
        return rows_of(boto3.client("dynamodb"), [table.value for table in Table])


@pytest.fixture
def moto_environment(monkeypatch, stocked_rows):
    """Tables with the tea shop's catalogue, queues, and the handlers' environment."""
    with moto_aws():
        for name, value in moto_stack(products=()).items():
            monkeypatch.setenv(name, value)
        # For each product that the service creates, moto copies all tables: putting the same rows takes a tenth.
        put_rows(boto3.client("dynamodb"), stocked_rows)
        yield os.environ
