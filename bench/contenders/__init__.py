"""The contenders: each module is one Lambda handler for SQS events, written as its authors recommend.

A module has `lambda_handler(event, context)`, which returns `{"batchItemFailures": [...]}`, and

- `TITLE`: its name in tables;
- `BATCH`: the maximum number of messages for one invocation;
- `LANES = True` if it sells from lanes, one for each worker;
- `TABLES` if it needs more tables: the partition key of each, by the environment variable with the table's name.

All contenders read an order's id, user and lines from the message body, and write a row to the Orders table: `PENDING`
if the stock was taken, else `REJECTED`. Other attributes and conditions differ, but all store the stock in the same
attribute, so that the same audit can check them.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from botocore.config import Config

from operations.errors import UserError
from testing.world import handlers

_FOLDER = Path(__file__).parent

NAMES = (
    *("textbook", "powertools_batch", "pynamodb_transaction", "atomic"),
    *("ours_99", "ours_lanes"),
)

OURS = "ours_lanes"
"""The service's own order handler, as deployed."""

# The DynamoDB team's advice for latency-sensitive clients: short timeouts, few retries, connections kept alive.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=5,
    tcp_keepalive=True,
    retries={"total_max_attempts": 3, "mode": "standard"},
)


class ContentionError(Exception):
    """All attempts failed because of concurrent writers, so the message must be returned to the queue."""


@dataclass(frozen=True, slots=True)
class Contender:
    """The constants of a contender.

    Attributes:
        name: Name of the module.
        title: Name in tables.
        batch: Maximum number of messages for one invocation.
        has_lanes: Whether it sells from lanes.
        tables: Partition key of each additional table, by the environment variable with the table's name.
    """

    name: str
    title: str
    batch: int
    has_lanes: bool
    tables: Mapping[str, str]


def describe(name: str) -> Contender:
    """Read a contender's constants without importing it, because the import creates clients.

    Raises:
        UserError: There is no such contender.
    """
    if name not in NAMES:
        raise UserError(f"there is no contender {name}; the contenders are {', '.join(NAMES)}")
    constants = {
        target.id: ast.literal_eval(statement.value)
        for statement in ast.parse((_FOLDER / f"{name}.py").read_text("utf-8")).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in ("TITLE", "BATCH", "LANES", "TABLES")
    }
    return Contender(
        name,
        constants["TITLE"],
        constants["BATCH"],
        constants.get("LANES", False),
        constants.get("TABLES", {}),
    )


def load(name: str) -> ModuleType:
    """Import a new copy of a contender, whose clients use the current environment."""
    return handlers.load(f"{__name__}.{name}", _FOLDER / f"{name}.py")


def one_by_one(
    event: Mapping[str, Any], place: Callable[[dict[str, Any]], None]
) -> dict[str, list[dict[str, str]]]:
    """Place the orders of a batch one after the other. Returns the messages whose orders ran out of attempts."""
    failures = []
    for record in event["Records"]:
        try:
            place(json.loads(record["body"]))
        except ContentionError:
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def quantities(order: Mapping[str, Any]) -> dict[str, int]:
    """Add up units by product, because a transaction may contain an item only once."""
    wanted: dict[str, int] = {}
    for line in order["items"]:
        wanted[line["productId"]] = wanted.get(line["productId"], 0) + line["quantity"]
    return wanted


def full_jitter(failures: int) -> float:
    """Choose a random wait of at most 1 s after this many failed attempts, as the service's own policy does.

    Source: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
    """
    return random.uniform(0, min(1.0, 0.01 * 2.0 ** (failures - 1)))


def timestamp() -> str:
    """The current time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
