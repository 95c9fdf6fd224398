"""The tables of the service: their keys, and the parts of their indexes."""

from __future__ import annotations

from enum import StrEnum


class Table(StrEnum):
    """The tables of the service."""

    PRODUCTS = "Products"
    ORDERS = "Orders"
    STOCK_ADJUSTMENTS = "StockAdjustments"
    ALLOTMENTS = "Allotments"


KEYS = {
    Table.PRODUCTS: ("productId",),
    Table.ORDERS: ("orderId",),
    Table.STOCK_ADJUSTMENTS: ("productId", "adjustmentId"),
    Table.ALLOTMENTS: ("page",),
}
"""Names of the key attributes of each table, the partition key first."""

EXPIRY_SHARDS = 32
"""Parts of the index of holds: holds that end together are written to as many partitions."""

FULFIL_SHARDS = 16
"""Parts of the index of orders to ship."""


def shard_name(number: int) -> str:
    """The name of a part of an index."""
    return f"{number:02d}"
