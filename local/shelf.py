"""The products of a stack on this machine: those of the demonstration, and the samples of a fresh stack."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import Store
from local.sample_orders import catalogue
from operations.aws import Aws


def create(aws: Aws, products: Sequence[NewProduct]) -> list[bool]:
    """Create the products that do not exist. Returns for each whether it is new."""
    shelf = ProductCatalogue(RetryingClient(Store(aws.dynamodb, aws.tables)))
    with ThreadPoolExecutor(4) as pool:
        return [new for new, _ in pool.map(shelf.create, products)]


def fill(aws: Aws) -> None:
    """Create the sample products that do not exist."""
    create(aws, catalogue())
