"""The sample products: what a fresh stack on this machine has to sell, so that every example and sample event works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import Store
from local.sample_orders import catalogue
from operations.aws import Aws


def fill(aws: Aws) -> int:
    """List the sample products that are not listed. The others stay as they are. Returns how many were new."""
    products = ProductCatalogue(Store(aws.dynamodb, aws.tables))
    with ThreadPoolExecutor(4) as pool:
        return sum(new for new, _ in pool.map(products.create, catalogue()))
