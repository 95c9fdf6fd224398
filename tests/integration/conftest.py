"""The deployed tables on the embedded AWS."""

from typing import Any

import pytest

from tests.support.shop import Shop


@pytest.fixture(scope="session")
def shop(embedded_aws: Any) -> Shop:
    return Shop(embedded_aws[0])
