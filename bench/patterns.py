"""What the patterns cost that docs/patterns.md compares, on the embedded AWS."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor

import boto3

from bench.embedded import Engine
from inventory_orders.domain.product import NewProduct
from inventory_orders.products.catalogue import Products
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import Table
from local import pattern_costs
from local.pattern_costs import Cost


def measure(engine: Engine) -> dict[str, Cost]:
    """Measure each pattern once.

    Args:
        engine: A running embedded AWS.

    Returns:
        The cost by what was compared: `decrement optimistic`, `hot product with claims`, ...
    """
    environment, tables = engine.new_tables()
    # The clients are made from the environment, which has to point at the engine in that process alone.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _use, (environment,)) as pool:
        return pool.submit(_measure, tables).result()


def _use(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


def _measure(tables: Mapping[Table, str]) -> dict[str, Cost]:
    products = Products(Store(boto3.client("dynamodb", config=CLIENT_CONFIG), tables))
    found = {}
    for mode in pattern_costs.DECREMENT_MODES:
        products.create(NewProduct(mode, pattern_costs.PLENTY))
        found[f"decrement {mode}"] = pattern_costs.decrements(tables, mode, mode)
    for name, claims in (("retries only", False), ("with claims", True)):
        product_id = name.replace(" ", "-")
        products.create(NewProduct(product_id, pattern_costs.ORDERS))
        cost = pattern_costs.hot_product(tables, product_id, claims=claims)
        found[f"hot product {name}"] = cost
    return found
