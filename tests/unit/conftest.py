"""Fixtures with moto, which checks expressions strictly, for tests in one thread."""

import os

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import Table
from local.invoke import create_table, moto_stack


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch):
    """moto answers for AWS's own addresses only, so an endpoint of the embedded AWS must not be set."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@pytest.fixture
def moto_store():
    """A store with empty tables."""
    with mock_aws():
        checked = CLIENT_CONFIG.merge(Config(parameter_validation=True))
        client = boto3.client("dynamodb", config=checked)
        for table in Table:
            create_table(client, table, table.value)
        yield Store(client, {table: table.value for table in Table})


@pytest.fixture
def moto_environment(monkeypatch):
    """Tables with the sample catalogue, queues, and the handlers' environment."""
    with mock_aws():
        for name, value in moto_stack().items():
            monkeypatch.setenv(name, value)
        yield os.environ
