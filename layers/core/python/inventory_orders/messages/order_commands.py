"""Reads commands on orders and ends of holds, in a module of its own so that placing an order does not load them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.order_command import OrderCommand, Part
from inventory_orders.domain.order_record import OrderAction
from inventory_orders.messages.parse import command_in, notes_in, quantities_in, validated
from inventory_orders.messages.strict_json import strict_json


def parse_expiry(body: str, ended_by: datetime) -> OrderCommand:
    """Read the message that an order's hold ends.

    Args:
        body: The message as it was sent.
        ended_by: The hold ends if it ended at this moment or before.

    Raises:
        PoisonMessageError: It is none and never will be.
    """
    order_id = validated(strict_json(body), "expiry")["orderId"]
    return OrderCommand(order_id, OrderAction.EXPIRE, timestamp(ended_by))


def parse_order_command(body: str) -> OrderCommand:
    """Read a command that takes an order through its life.

    Raises:
        PoisonMessageError: It is none and never will be.
    """
    return order_command(command_in(strict_json(body), "change_orders", of_message=True))


def order_command(document: Mapping[str, Any]) -> OrderCommand:
    """A validated document as a command.

    Raises:
        PoisonMessageError: Its lines add up to more than a message may hold.
    """
    part = (
        Part(document["stepId"], quantities_in(document), document.get("restock"))
        if "items" in document
        else None
    )
    return OrderCommand(
        document["orderId"],
        OrderAction(document["action"]),
        part=part,
        until=document.get("until", ""),
        notes=notes_in(document),
    )
