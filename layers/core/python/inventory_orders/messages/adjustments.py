"""Reads adjustments, in a module of its own so that placing an order does not load them."""

from __future__ import annotations

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.record import NOTES_OF_ADJUSTMENT
from inventory_orders.messages.parse import notes_in, validated
from inventory_orders.messages.strict_json import strict_json


def parse_adjustment(body: str) -> Adjustment:
    """Read an adjustment.

    Raises:
        PoisonMessageError: It is none and never will be.
    """
    document = validated(strict_json(body), "adjustment")
    return Adjustment(
        document["productId"],
        document["adjustmentId"],
        document["delta"],
        document["reason"],
        notes_in(document, NOTES_OF_ADJUSTMENT),
    )
