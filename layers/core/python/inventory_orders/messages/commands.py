"""Reads commands, direct ones and messages: for orders, for stock and for the catalogue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.order_command import OrderCommand, Part
from inventory_orders.domain.product import CatalogueEvent
from inventory_orders.domain.record import NOTES, NOTES_OF_ADJUSTMENT, OrderAction
from inventory_orders.errors import PoisonMessageError
from inventory_orders.messages.documents import (
    as_json,
    json_schema,
    not_one_of,
    strict_json,
    validated,
)
from inventory_orders.messages.orders import quantities_in

MAX_AHEAD = timedelta(minutes=15)
"""How far a catalogue event may be ahead of our clock."""


def parse_command(event: object, function: str, default: str | None = None) -> dict[str, Any]:
    """Read the event of a direct invocation.

    Args:
        event: What Lambda was invoked with.
        function: Which function's commands are understood.
        default: The action that is meant when none is named.

    Raises:
        PoisonMessageError: It is not a command of this function; says what to fix.
    """
    given = as_json(event)
    document = {"action": default, **(given if isinstance(given, dict) else {})}
    try:
        return command_in(document, function)
    except PoisonMessageError as error:
        if error.field != "action":
            raise
        raise PoisonMessageError(
            "UNSUPPORTED_EVENT",
            f"{error.message}. Or the event must be a batch of SQS messages; see events/ for samples",
            "action",
        ) from None


def command_in(given: Any, function: str) -> dict[str, Any]:
    """A document as a command that a function understands.

    Raises:
        PoisonMessageError: It is not a command of this function; says what to fix.
    """
    document = given if isinstance(given, dict) else {}
    action = action_in(document, function)
    schema = json_schema("commands")[function][action]
    validated(document, f"commands/{function}/{action}", schema)
    return document


def action_in(document: Mapping[str, Any], function: str) -> str:
    """The action of a command.

    Raises:
        PoisonMessageError: It names none that the function understands.
    """
    action, known = document.get("action"), json_schema("commands")[function]
    if isinstance(action, str) and action in known:
        return action
    raise PoisonMessageError("SCHEMA_VIOLATION", not_one_of("action", known, action), "action")


def validated_part(
    given: dict[str, Any], function: str, action: str, names: Collection[str], whole: str
) -> dict[str, Any]:
    """The part of a command that one part of a request holds.

    Args:
        given: The part. Its times are replaced.
        function: The function that takes the command.
        action: Its action.
        names: The fields of the command that belong there.
        whole: The part of the request, in words.

    Raises:
        PoisonMessageError: It does not match the command; says what to fix.
    """
    schema = json_schema("commands")[function][action]
    part = {name: value for name, value in schema.items() if name != "description"}
    part["required"] = [name for name in schema["required"] if name in names]
    others = len(schema["required"]) - len(part["required"])
    part["minProperties"] = max(0, schema.get("minProperties", 0) - others)
    part["properties"] = {
        name: value for name, value in schema["properties"].items() if name in names
    }
    validated(given, f"{whole} of {function}/{action}", part, whole)
    return given


def notes_in(document: Mapping[str, Any], names: Iterable[str] = NOTES) -> dict[str, str]:
    """Who gave a command, and what for."""
    return {name: document[name] for name in names if name in document}


def parse_expiry(body: str, ended_by: datetime) -> OrderCommand:
    """Read the message that an order's hold ends.

    Args:
        body: The message as it was sent.
        ended_by: The hold ends if it ended at this moment or before.

    Raises:
        PoisonMessageError: It can never be applied; says what to fix.
    """
    order_id = validated(strict_json(body), "expiry")["orderId"]
    return OrderCommand(order_id, OrderAction.EXPIRE, timestamp(ended_by))


def parse_order_command(body: str) -> OrderCommand:
    """Read a command that takes an order through its life.

    Raises:
        PoisonMessageError: It can never be applied; says what to fix.
    """
    return order_command(command_in(strict_json(body), "change_orders"))


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


def parse_adjustment(body: str) -> Adjustment:
    """Read an adjustment.

    Raises:
        PoisonMessageError: It can never be applied; says what to fix.
    """
    return adjustment(validated(strict_json(body), "adjustment"))


def adjustment(document: Mapping[str, Any]) -> Adjustment:
    """A validated document as an adjustment, or as the decrement that its action asks for."""
    ids = document["productId"], document["adjustmentId"]
    notes = notes_in(document, NOTES_OF_ADJUSTMENT)
    if document.get("action") == "decrement":
        return Decrement.of(*ids, document["quantity"], notes)
    return Adjustment(*ids, document["delta"], document["reason"], notes)


def parse_catalogue_event(body: str, now: datetime) -> CatalogueEvent:
    """Read a catalogue event.

    Raises:
        PoisonMessageError: It can never be applied, or it claims to be from the future.
    """
    return catalogue_event(validated(strict_json(body), "catalogue_event"), now)


def catalogue_event(document: Mapping[str, Any], now: datetime) -> CatalogueEvent:
    """A validated document as an event.

    Raises:
        PoisonMessageError: Its time lies more than 15 minutes ahead: applied, it would shut out every true event until
            then.
    """
    if document["eventTime"] > timestamp(now + MAX_AHEAD):
        raise PoisonMessageError(
            "EVENT_FROM_THE_FUTURE",
            f"eventTime: {document['eventTime']} is more than 15 minutes ahead; correct the sender's clock",
            "eventTime",
        )
    return CatalogueEvent(
        document["productId"], document["eventId"], document["eventTime"], document["details"]
    )
