"""The costs of the patterns that docs/patterns.md compares, on the embedded AWS."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

import boto3
from rich.console import Console

from bench import embedded, report
from bench.cells import Found, Result, Study, Value
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import Table
from local import pattern_costs
from local.pattern_costs import DECREMENT_MODES, RIVALS, Cost

# No stack has the first: it shows what lanes are for.
_LANES = {"hot product retries only": 0, "hot product with lanes": RIVALS}


def cells(size: str) -> Iterator[dict[str, Value]]:
    """A cell for each pattern."""
    patterns = [*(f"decrement {mode}" for mode in DECREMENT_MODES), *_LANES]
    for pattern in patterns[1:2] if size == "tiny" else patterns:
        yield {"engine": "embedded", "pattern": pattern}


def measure(engine: str, pattern: str) -> Result:
    """Measure a pattern once."""
    del engine
    environment, tables = embedded.engine().new_tables()
    # The clients are made from the environment, which has to point at the engine in that process alone.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _use, (environment,)) as pool:
        return asdict(pool.submit(_measure, tables, pattern).result())


def _use(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


def _measure(tables: Mapping[Table, str], pattern: str) -> Cost:
    products = ProductCatalogue(
        RetryingClient(Store(boto3.client("dynamodb", config=CLIENT_CONFIG), tables))
    )
    if pattern in _LANES:
        products.create(NewProduct("hot", pattern_costs.ORDERS))
        return pattern_costs.hot_product(tables, "hot", lanes=_LANES[pattern])
    products.create(NewProduct("plain", pattern_costs.PLENTY))
    return pattern_costs.decrements(tables, "plain", pattern.removeprefix("decrement "))


def show(found: Found, screen: Console) -> bool:
    """Print the costs of each pattern."""
    table = report.table(f"Patterns among {RIVALS} rivals: embedded AWS, threads", "pattern")
    for heading in ("requests", "writes", "conflicts", "lost/batch", "done"):
        table.add_column(heading, justify="right")
    for parameters, result in found:
        cost = Cost(**result)
        table.add_row(
            parameters["pattern"],
            f"{cost.requests:.2f}",
            f"{cost.write_units:.1f}",
            f"{cost.conflicts:.2f}",
            f"{cost.lost_transactions:.2f}",
            f"{cost.done:,} of {cost.wanted:,}",
        )
    screen.print(table, "")
    return True


STUDY = Study("costs of the patterns that docs/patterns.md compares", cells, measure, show)
