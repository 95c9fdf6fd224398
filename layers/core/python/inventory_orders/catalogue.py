"""Products as operators see them: created with an opening stock that the books can explain."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from inventory_orders.clock import Clock, SystemClock, timestamp
from inventory_orders.errors import TransactionCancelledError
from inventory_orders.model import stock_status
from inventory_orders.store import Store


@dataclass(frozen=True, slots=True)
class NewProduct:
    """A product to be listed.

    Attributes:
        product_id: Its id.
        opening_stock: Units on hand from the start.
        low_stock_threshold: At or below it the product counts as low in stock.
        backorder_limit: How far below zero the stock may go.
        name: For people.
        price: In minor units of the currency (cents, pence).
    """

    product_id: str
    opening_stock: int
    low_stock_threshold: int = 0
    backorder_limit: int = 0
    name: str | None = None
    price: int | None = None


def create_product(store: Store, product: NewProduct, clock: Clock | None = None) -> bool:
    """Create a product if there is none of this id, and book its opening stock in the same transaction.

    Returns:
        Whether it was created; False if it exists, and then nothing was changed.

    Raises:
        StoreError: DynamoDB failed.
    """
    moment = (clock or SystemClock()).now()
    at = timestamp(moment)
    row: dict[str, object] = {
        "productId": product.product_id,
        "stockCount": product.opening_stock,
        "backorderLimit": product.backorder_limit,
        "lowStockThreshold": product.low_stock_threshold,
        "_version": 1,
        "status": stock_status(
            product.opening_stock, product.backorder_limit, product.low_stock_threshold
        ),
        "createdAt": at,
        "lastUpdatedAt": at,
    }
    if product.name is not None:
        row["name"] = product.name
    if product.price is not None:
        row |= {"price": product.price, "priceChangedAt": at}
    opening = {
        "productId": product.product_id,
        # One for each incarnation; `+` may not stand in an id.
        "adjustmentId": f"opening-{at.removesuffix('+00:00')}",
        "delta": product.opening_stock,
        "reason": "OPENING",
        "productCreatedAt": at,
        "productVersion": 1,
        "appliedAt": at,
    }
    try:
        store.write(store.product_creation_request(row, opening), uuid.uuid4().hex)
    except TransactionCancelledError as cancelled:
        if cancelled.reasons[0].code != "ConditionalCheckFailed":
            raise
        return False
    return True
