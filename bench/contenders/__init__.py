"""The contenders: each module is one Lambda handler for SQS events, as its authors would accept it as fair.

A module has `lambda_handler(event, context)`, which returns `{"batchItemFailures": [...]}`, and

- `TITLE`: its name in tables and plots;
- `BATCH`: messages for one invocation at the most;
- `TABLES`, if it needs more than the service's tables: partition keys by the environment variable that names the table.

All of them find an order's id, user and lines in the message body, and end with a row in the Orders table: `PENDING`
with the stock taken, or `REJECTED`. Rows and conditions are of each one's own kind, the stock is in the same place. So
one audit fits all.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from botocore.config import Config

_FOLDER = Path(__file__).parent

NAMES = (
    *("textbook", "powertools_batch", "pynamodb_transaction", "atomic"),
    *("ours_10", "ours_99"),
)

# The DynamoDB team's advice for latency-sensitive clients: short timeouts, few retries, and a kept connection.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=5,
    tcp_keepalive=True,
    retries={"total_max_attempts": 3, "mode": "standard"},
)


class ContentionError(Exception):
    """All attempts lost against rivals: the message has to come back."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What a module says of itself.

    Attributes:
        name: Of the module.
        title: In tables and plots.
        batch: Messages for one invocation at the most.
        tables: Partition keys of the tables that it needs besides, by environment variable.
    """

    name: str
    title: str
    batch: int
    tables: Mapping[str, str]


def describe(name: str) -> Contender:
    """A contender's constants, read without importing it: that would make its clients.

    Raises:
        ValueError: There is no such contender.
    """
    if name not in NAMES:
        raise ValueError(f"there is no contender {name}; there are: {', '.join(NAMES)}")
    constants = {
        target.id: ast.literal_eval(statement.value)
        for statement in ast.parse((_FOLDER / f"{name}.py").read_text("utf-8")).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in ("TITLE", "BATCH", "TABLES")
    }
    return Contender(name, constants["TITLE"], constants["BATCH"], constants.get("TABLES", {}))


def load(name: str) -> ModuleType:
    """Import a contender afresh, with clients of its own, under the environment as it is now."""
    path = _FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{__name__}.{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def one_by_one(
    event: Mapping[str, Any], place: Callable[[dict[str, Any]], None]
) -> dict[str, list[dict[str, str]]]:
    """Place the orders of a batch one after the other; those that lost for good come back."""
    failures = []
    for record in event["Records"]:
        try:
            place(json.loads(record["body"]))
        except ContentionError:
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def quantities(order: Mapping[str, Any]) -> dict[str, int]:
    """Units by product: lines for the same product added up, because a transaction may name an item only once."""
    wanted: dict[str, int] = {}
    for line in order["items"]:
        wanted[line["productId"]] = wanted.get(line["productId"], 0) + line["quantity"]
    return wanted


def full_jitter(failures: int) -> float:
    """Seconds to wait after so many failed attempts: base 10 ms, cap 1 s, as the service's own policy has them.

    Source: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
    """
    return random.uniform(0, min(1.0, 0.01 * 2.0 ** (failures - 1)))


def timestamp() -> str:
    """Now, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
