"""How many units of each product there are, in rows and lanes together, for people and other programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.lanes.observe import StockLevel, read_level
from inventory_orders.retry import RetryPolicy
from operations.aws import Aws
from operations.lanes import Places, read_all

# How long to look for a moment at which no rival writes the product, in seconds.
_PATIENCE = 10.0

# What needs attention comes first.
_URGENCY = ("OUT_OF_STOCK", "LOW_STOCK", "ACTIVE", "DISCONTINUED")


@dataclass(frozen=True, slots=True)
class ListedProduct:
    """A product in a list of stock, as it was at about one moment. Units.

    Attributes:
        product_id: The product.
        status: As in its row.
        on_hand: In its row and in lanes.
        in_lanes: In lanes.
        low_stock_threshold: At or below it the product counts as low in stock.
        backorder_limit: How far below zero the stock may go.
        name: For people; empty if it has none.
    """

    product_id: str
    status: str
    on_hand: int
    in_lanes: int
    low_stock_threshold: int
    backorder_limit: int
    name: str

    def as_json(self) -> dict[str, Any]:
        """The same, with the names of the data model."""
        words = {name: value for name, value in asdict(self).items() if value != ""}
        return {_camel(name): value for name, value in words.items()}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def list_stock(aws: Aws) -> list[ListedProduct]:
    """Read all products, what is out of stock or low first. Units that move meanwhile may be missing or counted twice."""
    return sorted(_listed(read_all(aws)), key=_urgency)


def _listed(places: Places) -> Iterable[ListedProduct]:
    for product_id, row in places.rows.items():
        on_hand = places.on_hand(product_id)
        yield ListedProduct(
            product_id,
            row["status"],
            on_hand,
            on_hand - row["stockCount"],
            row.get("lowStockThreshold", 0),
            row.get("backorderLimit", 0),
            row.get("name", ""),
        )


def _urgency(listed: ListedProduct) -> tuple[int, str]:
    known = listed.status in _URGENCY
    return _URGENCY.index(listed.status) if known else len(_URGENCY), listed.product_id


def read_stock(aws: Aws, product_id: str) -> StockLevel | None:
    """Read how many units of a product there are, at one moment; an estimate if rivals never pause.

    Returns:
        The level; None if there is no such product.

    Raises:
        InventoryOrdersError: It cannot be read.
    """
    clock = SystemClock()
    client = RetryingClient(aws.store(), RetryPolicy(), clock)
    return read_level(client, product_id, Deadline.after(_PATIENCE, clock), CommitStats())
