"""Fixtures: a store on the simulated AWS and on Dynoxide, and the tea shop."""

import boto3
import pytest
from botocore.config import Config

from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import Table
from local.invoke import create_table
from simulated_aws import ManualClock, SimulatedAws, answered_by
from tests.support.tea_shop import tea_shop

TABLES = {table: table.value for table in Table}


@pytest.fixture(autouse=True)
def on_their_own(away_from_the_embedded_aws):
    """All tests here do without the embedded AWS."""


@pytest.fixture
def simulated_store():
    """A store on empty tables of the simulated AWS."""
    with answered_by(SimulatedAws(ManualClock().now).answer):
        client = checked_client()
        create_tables(client)
        yield Store(client, TABLES)


@pytest.fixture(scope="session")
def dynoxide_client(dynoxide):
    return boto3.client("dynamodb", endpoint_url=dynoxide.endpoint)


@pytest.fixture
def dynoxide_store(dynoxide, dynoxide_client, monkeypatch):
    """A store on empty tables of Dynoxide. It remembers the tokens of transactions from one test to the next."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", dynoxide.endpoint)
    create_tables(dynoxide_client)
    yield Store(checked_client(), TABLES)
    # Not by the store's client: a test may have made that one lose responses.
    for name in TABLES.values():
        dynoxide_client.delete_table(TableName=name)


@pytest.fixture(params=["simulated", "dynoxide"])
def each_store(request):
    """A store on empty tables, of one implementation after the other: each is strict in its own places."""
    return request.getfixturevalue(f"{request.param}_store")


def checked_client():
    return boto3.client("dynamodb", config=CLIENT_CONFIG.merge(Config(parameter_validation=True)))


def create_tables(client):
    for table, name in TABLES.items():
        create_table(client, table, name)


@pytest.fixture
def shop_environment():
    """The environment of the tea shop's handlers."""
    with tea_shop() as shop:
        yield shop.environment
