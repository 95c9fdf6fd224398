"""Creates products on the embedded AWS: those of the demonstration, and the sample products."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.location import DEFAULT_LOCATION, location_of
from inventory_orders.domain.product import NewProduct, Product
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import Store
from local.sample_orders import stocked
from operations.aws import Aws


def create(aws: Aws, products: Sequence[NewProduct]) -> list[bool]:
    """Create missing products and their places. Return whether each of them is new."""
    shelf = ProductCatalogue(RetryingClient(Store(aws.dynamodb, aws.tables)))
    # Creating a place also writes its product's row. So it must follow the product, and must not run together with another place.
    by_location: dict[str, list[NewProduct]] = {DEFAULT_LOCATION: []}
    for product in products:
        by_location.setdefault(location_of(product.product_id), []).append(product)
    created: dict[str, bool] = {}

    def create_one(product: NewProduct) -> tuple[bool, Product]:
        return shelf.create(product, Deadline.after(10, SystemClock()))

    with ThreadPoolExecutor(4) as pool:
        for together in by_location.values():
            for product, (is_new, _) in zip(together, pool.map(create_one, together), strict=True):
                created[product.product_id] = is_new
    return [created[product.product_id] for product in products]


def fill(aws: Aws) -> None:
    """Create missing sample products."""
    create(aws, stocked())
