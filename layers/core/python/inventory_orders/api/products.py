"""Products as a shop shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inventory_orders.api.problems import ProblemError, malformed
from inventory_orders.api.requests import HttpAnswer, Request, checked_id, read_deadline
from inventory_orders.api.settings import ApiSettings
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.reader import read
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import CorruptItemError, ThrottledError
from inventory_orders.invocation.telemetry import logger
from inventory_orders.store.dynamodb import BATCH_GET_LIMIT, Snapshot

Shown = dict[str, Any]


def get_product(
    request: Request,
    product_id: str,
    client: RetryingClient,
    settings: ApiSettings,
) -> HttpAnswer:
    """One product.

    Raises:
        InventoryOrdersError: Why it cannot be shown.
    """
    request.parameters(())
    checked_id("productId", product_id)
    found = _read([product_id], client)
    if product_id in found.unreadable:
        raise CorruptItemError(found.unreadable[product_id], "CORRUPT_PRODUCT")
    product = found.products[product_id]
    if product is None:
        raise ProblemError(404, "UNKNOWN_PRODUCT", f"there is no product {product_id}")
    # The version alone would not do: it restarts at 1 when a product is deleted and made again.
    etag = f'"{product.version}-{product.created_at}"'
    return HttpAnswer.of_state(request, shown_product(product, settings), etag)


def get_products(request: Request, client: RetryingClient, settings: ApiSettings) -> HttpAnswer:
    """Several products, which of them there are not, and which cannot be read: the others are shown all the same.

    Raises:
        InventoryOrdersError: Why they cannot be shown.
    """
    given = request.parameters(("ids",)).get("ids")
    if not given:
        raise malformed("ids: is missing; name products, such as ids=tea-earl-grey,milk", "ids")
    ids = given.split(",")
    if len(ids) > BATCH_GET_LIMIT:
        raise malformed(
            f"ids: may name at most {BATCH_GET_LIMIT} products, but names {len(ids)}", "ids"
        )
    for product_id in ids:
        checked_id("productId", product_id)
    ids = list(dict.fromkeys(ids))
    found = _read(ids, client)
    if found.unreadable:
        logger.error("products cannot be read", extra={"products": found.unreadable})
    products = {product_id: found.products.get(product_id) for product_id in ids}
    answer = {
        "products": [shown_product(product, settings) for product in products.values() if product],
        "unknown": [
            product_id
            for product_id, product in products.items()
            if product is None and product_id not in found.unreadable
        ],
        "unreadable": [product_id for product_id in ids if product_id in found.unreadable],
    }
    return HttpAnswer(200, answer)


def _read(ids: Sequence[str], client: RetryingClient) -> Snapshot:
    snapshot = read(client, ids, read_deadline(client.clock), CommitStats())
    if snapshot.unprocessed:
        raise ThrottledError("UNPROCESSED_KEYS", "no read answered for a product")
    return snapshot


def shown_product(product: Product, settings: ApiSettings) -> Shown:
    """A product as everybody may see it."""
    shown: Shown = {
        "productId": product.product_id,
        "availability": availability(product),
        "name": product.name,
        "price": product.price,
    }
    if settings.shows_numbers:
        # Units in lanes are left out: they would cost a read of each lane, for a number that is old when it arrives.
        # Lanes hold units of plentiful products only.
        name = "unitsAtLeast" if product.lent_to else "units"
        shown[name] = max(0, product.stock_count)
    return {name: value for name, value in shown.items() if value is not None}


def availability(product: Product) -> str:
    """The availability that customers see. Units in lanes do not matter: while there are any, the product is `ACTIVE`."""
    if product.status is ProductStatus.DISCONTINUED:
        return "DISCONTINUED"
    if product.available <= 0:
        return "OUT"
    if product.stock_count <= 0:
        return "BACKORDER"
    return "LOW" if product.status is ProductStatus.LOW_STOCK else "IN_STOCK"
