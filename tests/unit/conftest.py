"""Fixtures: a shop in memory, and a store on the simulated AWS and on Dynoxide."""

import os
from functools import cache
from unittest.mock import patch

import boto3
import pytest
import typer.testing
from botocore.config import Config
from hypothesis import HealthCheck, settings

from inventory_orders.invocation import runtime
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from local.sample_orders import catalogue
from testing.aws import SimulatedAws, answered_by
from testing.fixtures import running_shop  # noqa: F401
from testing.schedules.in_turn.shop import open_shop
from testing.world.clock import ManualClock
from testing.world.tables import NAMES, create_table

# On a busy machine, Hypothesis would fail slow tests.
settings.register_profile(
    "unit", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")


@pytest.fixture(scope="session", autouse=True)
def one_command_line():
    """Cache the command line.

    Otherwise, typer would rebuild it for each call, which takes up most of a test's time.
    """
    with patch("typer.testing._get_command", cache(typer.testing._get_command)):
        yield


@pytest.fixture(scope="session", autouse=True)
def one_client_of_a_kind():
    """Reuse clients that have equal settings: making one takes longer than most tests, and clients keep no data."""
    make = boto3.Session.client

    @cache
    def made(session, _settings, *service, **options):
        return make(session, *service, **options)

    def client(session, *service, **options):
        # A client takes address, region and credentials from the environment, so moto and Dynoxide get separate
        # clients.
        settings = frozenset(item for item in os.environ.items() if item[0].startswith("AWS_"))
        return made(session, settings, *service, **options)

    with patch.object(boto3.Session, "client", client):
        yield


@pytest.fixture(scope="module", autouse=True)
def on_their_own(away_from_the_embedded_aws):
    """Run all tests in this folder without the embedded AWS, and let none of them leave a shop's clients behind."""
    client = runtime.client
    yield
    assert runtime.client is client


@pytest.fixture(scope="session")
def simulated_client():
    return checked_client()


@pytest.fixture(scope="session")
def dynoxide_client(dynoxide):
    return checked_client(endpoint_url=dynoxide.endpoint)


@pytest.fixture
def simulated_store(simulated_client):
    """Yield a store with empty tables on the simulated AWS."""
    with answered_by(SimulatedAws(ManualClock().now).answer):
        create_tables(simulated_client)
        yield Store(simulated_client, NAMES)
    lose_no_responses(simulated_client)


@pytest.fixture
def dynoxide_store(dynoxide, dynoxide_client, monkeypatch):
    """Yield a store with empty tables on Dynoxide. Dynoxide remembers transaction tokens from one test to the next."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", dynoxide.endpoint)
    create_tables(dynoxide_client)
    yield Store(dynoxide_client, NAMES)
    lose_no_responses(dynoxide_client)
    for name in NAMES.values():
        dynoxide_client.delete_table(TableName=name)


@pytest.fixture(params=["simulated", "dynoxide"])
def each_store(request):
    """Yield a store with empty tables on the simulated AWS, then on Dynoxide, because they check different rules."""
    return request.getfixturevalue(f"{request.param}_store")


def checked_client(**options):
    """Make one client for all tests of a process, because making one takes longer than most tests."""
    config = CLIENT_CONFIG.merge(Config(parameter_validation=True))
    return boto3.client("dynamodb", config=config, **options)


def lose_no_responses(client):
    """Undo a test's change to the client that made it lose responses."""
    vars(client._endpoint).pop("_do_get_response", None)


def create_tables(client):
    for table, name in NAMES.items():
        create_table(client, table, name)


@pytest.fixture
def shop():
    with open_shop() as shop:
        yield shop


@pytest.fixture
def tea_shop():
    """Make a shop with the sample catalogue."""
    with open_shop(catalogue()) as shop:
        yield shop
