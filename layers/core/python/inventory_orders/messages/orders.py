"""Reads orders, or says why a body can never be one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from inventory_orders.domain.order import Order, sum_lines
from inventory_orders.domain.record import MAX_ATTRIBUTES_SIZE
from inventory_orders.errors import PoisonMessageError
from inventory_orders.messages.documents import as_json, json_schema, strict_json, validated

MAX_DISTINCT_PRODUCTS = 99
"""Products for which one transaction of 100 actions has room besides the order."""

MAX_QUANTITY = 1_000_000


def parse_order(body: str, group: str | None = None, default_hold: int | None = None) -> Order:
    """Read an order.

    Args:
        body: The message as it was sent.
        group: Its `MessageGroupId`, if it came through a FIFO queue.
        default_hold: Seconds for which the stock of an order that says nothing is held without payment.

    Raises:
        PoisonMessageError: It can never be placed; says what to fix.
    """
    return order_in(strict_json(body), group, default_hold)


def parse_order_event(event: object, default_hold: int | None = None) -> Order:
    """Read the event of a direct invocation: an order, with or without `"action": "place"`.

    Raises:
        PoisonMessageError: It can never be placed; says what to fix.
    """
    document = as_json(event)
    if not isinstance(document, dict) or "orderId" not in document:
        raise PoisonMessageError(
            "UNSUPPORTED_EVENT",
            f"the event must be {json_schema('order')['description']}, or a batch of SQS messages; "
            "see events/ for samples",
        )
    if document.get("action") == "place":
        del document["action"]
    return order_in(document, None, default_hold)


def order_in(
    document: Any, group: str | None, default_hold: int | None, whole: str = "the message"
) -> Order:
    """A document as an order; `whole` is what its sender calls it.

    Raises:
        PoisonMessageError: It can never be placed; says what to fix.
    """
    validated(document, "order", whole=whole)
    order = Order(
        document["orderId"],
        document["userId"],
        quantities_in(document),
        group,
        document.get("holdSeconds"),
        default_hold,
        document.get("attributes", {}),
    )
    if len(order.quantities) > MAX_DISTINCT_PRODUCTS:
        raise PoisonMessageError(
            "TOO_MANY_PRODUCTS",
            f"items: an order may hold at most {MAX_DISTINCT_PRODUCTS} distinct products, this one has "
            f"{len(order.quantities)}; split it into several orders",
            "items",
        )
    if order.attributes:
        _check_size(order.attributes)
    return order


def quantities_in(document: Mapping[str, Any]) -> Mapping[str, int]:
    """Units by product id that the lines of a message add up to.

    Raises:
        PoisonMessageError: They are more than a message may hold.
    """
    quantities = sum_lines((line["productId"], line["quantity"]) for line in document["items"])
    for product_id, quantity in quantities.items():
        if quantity > MAX_QUANTITY:
            raise PoisonMessageError(
                "SCHEMA_VIOLATION",
                f"items: the lines of {product_id} add up to {quantity:,} units; at most {MAX_QUANTITY:,} are allowed",
                "items",
            )
    return quantities


def _check_size(attributes: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(attributes, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise PoisonMessageError(
            "SCHEMA_VIOLATION",
            "attributes: a text has half of a surrogate pair, which is no character; correct it",
            "attributes",
        ) from None
    if size > MAX_ATTRIBUTES_SIZE:
        raise PoisonMessageError(
            "SCHEMA_VIOLATION",
            f"attributes: may have at most {MAX_ATTRIBUTES_SIZE:,} bytes as JSON, but has {size:,}; keep what is "
            "longer in a place of your own",
            "attributes",
        )
