"""The deployed tables on the embedded AWS, and the same tables on Dynoxide."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import emulator, stack
from local.emulator import Emulator
from operations.aws import Aws
from testing.world.tables import create_table
from tests.support.deployed_shop import DeployedShop
from tests.support.stack import deployed


@pytest.fixture(scope="session")
def embedded_aws() -> Iterator[tuple[Aws, Emulator]]:
    """Deploy the stack to an embedded AWS that does not enforce IAM, as `make up` does."""
    with deployed(enforce_iam=False) as (aws, running):
        yield aws, running


@pytest.fixture(scope="session")
def aws(embedded_aws: tuple[Aws, Emulator]) -> Aws:
    return embedded_aws[0]


@pytest.fixture(scope="session")
def shop(aws: Aws) -> DeployedShop:
    return DeployedShop(aws)


@pytest.fixture
def shop_on_dynoxide(shop: DeployedShop, dynoxide: Any, monkeypatch: Any) -> Any:
    """Provide the same shop with empty tables on Dynoxide. Its queues stay on the embedded AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynoxide.endpoint)
    moved = DeployedShop(Aws.of_stack(stack.STACK_NAME))
    for table, name in moved.tables.items():
        create_table(moved.aws.dynamodb, table, name)
    yield moved
    for name in moved.tables.values():
        moved.aws.dynamodb.delete_table(TableName=name)


@pytest.fixture
def data(monkeypatch: Any, tmp_path: Path) -> Iterator[Path]:
    """Start an embedded AWS for this test only. Returns its data directory."""
    for name, place in {
        "_FOLDER": tmp_path,
        "_TEMPORARY": tmp_path / "tmp",
        "_STATE_FILE": tmp_path / "state.json",
        "_DATA": tmp_path / "data",
        "_KEPT": tmp_path / "kept.json",
        "_LAST_PORT": tmp_path / "port",
        "_LOG": tmp_path / "log",
    }.items():
        monkeypatch.setattr(emulator, name, place)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    yield tmp_path / "data"
    emulator.stop()
