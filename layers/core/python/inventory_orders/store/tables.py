"""The one list of tables, with their keys, indexes and streams.

The stack uses this list as well, so the module imports nothing else from the package.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Table(StrEnum):
    """The tables of the service."""

    PRODUCTS = "Products"
    ORDERS = "Orders"
    STOCK_ADJUSTMENTS = "StockAdjustments"
    ALLOTMENTS = "Allotments"
    MOVEMENTS = "Movements"
    """Absent without the setting `movements`."""
    WORDS = "Words"
    BARCODES = "Barcodes"
    PURCHASES = "Purchases"


KEYS = {
    Table.PRODUCTS: ("productId",),
    Table.ORDERS: ("orderId",),
    Table.STOCK_ADJUSTMENTS: ("productId", "adjustmentId"),
    Table.ALLOTMENTS: ("page",),
    Table.MOVEMENTS: ("stockMonth", "movementId"),
    Table.WORDS: ("prefix", "word"),
    Table.BARCODES: ("code",),
    Table.PURCHASES: ("buyer",),
}
"""Names of the key attributes of each table, the partition key first. All of them are strings."""


class Index(NamedTuple):
    """A global secondary index.

    Attributes:
        name: Its name.
        keys: Its partition key and sort key, both strings.
        attributes: The attributes that it projects besides the keys of the index and the table.
    """

    name: str
    keys: tuple[str, str]
    attributes: tuple[str, ...] = ()


BY_LEVEL = Index("byLevel", ("status", "productId"))
BY_COUNT = Index("byCount", ("countPlace", "countedAt"), ("createdAt",))
BY_USER = Index("byUser", ("userId", "createdAt"), ("status", "statusAt", "suppliedFrom"))
BY_EXPIRY = Index("byExpiry", ("expiryShard", "expiresAt"))
BY_STATUS = Index(
    "byStatus", ("statusShard", "statusAt"), ("userId", "status", "expiresAt", "suppliedFrom")
)
BY_LATE_PAYMENT = Index("byLatePayment", ("latePaymentShard", "latePaymentAt"))

BY_TIME = Index(
    "byTime",
    ("productId", "appliedAt"),
    (
        *("delta", "onHandDelta", "reason", "counted", "countedAt", "rejected", "transferWith"),
        *("actor", "reference", "sentTo", "comment", "productCreatedAt", "productVersion"),
    ),
)
BY_STOCKTAKE = Index(
    "byStocktake",
    ("stocktake", "appliedAt"),
    ("delta", "counted", "countedAt", "actor", "reference"),
)
BY_TRANSFER = Index(
    "byTransfer", ("transferShard", "appliedAt"), ("delta", "reason", "reference", "sentTo")
)
BY_REFERENCE = Index("byReference", ("firstReference", "movementId"))

INDEXES = {
    Table.PRODUCTS: (BY_LEVEL, BY_COUNT),
    Table.ORDERS: (BY_USER, BY_EXPIRY, BY_STATUS, BY_LATE_PAYMENT),
    Table.STOCK_ADJUSTMENTS: (BY_TIME, BY_STOCKTAKE, BY_TRANSFER),
    Table.MOVEMENTS: (BY_REFERENCE,),
}

STREAMED = (Table.ORDERS, Table.PRODUCTS)
"""Tables whose changes are published: each has a stream with the row before and after."""

STREAM_BATCH = 100
"""Maximum number of changes that a stream delivers to a function at once."""

EXPIRY_SHARDS = 32
"""Parts of `BY_EXPIRY`, so that holds that end at the same time are written to several partitions."""

LATE_PAYMENT_SHARDS = 4
"""Parts of `BY_LATE_PAYMENT`. Late payments are rare."""

TRANSFER_SHARDS = 4
"""Parts of `BY_TRANSFER`. All steps of a product's transfers are in one of them."""

STATUS_SHARDS = {"PENDING": 64, "REJECTED": 64}
"""Parts of `BY_STATUS` for the statuses in which orders begin."""

OTHER_STATUS_SHARDS = 16
"""Parts of `BY_STATUS` for each other status."""

SHARDS = tuple(f"{number:02d}" for number in range(64))
"""The names of the parts of an index."""


def status_shards(status: str) -> list[str]:
    """The keys of a status in `BY_STATUS`, such as `CONFIRMED#07`."""
    shards = SHARDS[: STATUS_SHARDS.get(status, OTHER_STATUS_SHARDS)]
    return [f"{status}#{shard}" for shard in shards]
