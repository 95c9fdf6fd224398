"""The tea shop on the simulated AWS, as its handlers meet it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

from inventory_orders.api.access import ApiSettings
from inventory_orders.invocation import runtime
from local.sample_orders import catalogue
from testing.simulated_aws import Consumed, SimulatedAws, Table, answered_directly_by
from testing.tables import make_queues, make_tables


def new_process() -> None:
    """Let the next invocation read its settings and make its engine anew. The clients stay: they cost more than the rest."""
    runtime.process.cache_clear()
    ApiSettings.from_environment.cache_clear()


def forget_what_handlers_made() -> None:
    """Let the next invocation make its clients anew, too."""
    new_process()
    runtime.client.cache_clear()


class TeaShop:
    """Tables with the sample catalogue, empty queues, and a bus that takes every event.

    Attributes:
        aws: The tables and queues.
        environment: The handlers' environment variables.
    """

    def __init__(self) -> None:
        self.aws = SimulatedAws(time.time)
        self.open()
        with answered_directly_by(self.answer):
            self.environment = make_queues()

    def open(self) -> None:
        """Put the tables back to how they are when the shop opens."""
        self.aws.dynamodb.tables = {
            name: replace(table, items=dict(table.items), consumed=Consumed())
            for name, table in _opening().items()
        }

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request."""
        if service == "events":
            entries = [{"EventId": "taken"} for _ in request.get("Entries", ())]
            return {"FailedEntryCount": 0, "Entries": entries}
        return self.aws.answer(service, operation, request)


@cache
def _opening() -> dict[str, Table]:
    """The tables when the shop opens, as the service itself wrote them."""
    aws = SimulatedAws(time.time)
    with answered_directly_by(aws.answer):
        make_tables(catalogue())
    return aws.dynamodb.tables


@contextmanager
def tea_shop() -> Iterator[TeaShop]:
    """A shop that answers the clients of this process, with the environment of its handlers."""
    shop = TeaShop()
    with patch.dict(os.environ, shop.environment), answered_directly_by(shop.answer):
        forget_what_handlers_made()
        yield shop
    forget_what_handlers_made()
