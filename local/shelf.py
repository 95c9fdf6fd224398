"""The sample products of a fresh stack on this machine, for examples and sample events."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import Store
from local.sample_orders import catalogue
from operations.aws import Aws


def fill(aws: Aws) -> int:
    """Create the sample products that do not exist. Returns their number."""
    products = ProductCatalogue(RetryingClient(Store(aws.dynamodb, aws.tables)))
    with ThreadPoolExecutor(4) as pool:
        return sum(new for new, _ in pool.map(products.create, catalogue()))
