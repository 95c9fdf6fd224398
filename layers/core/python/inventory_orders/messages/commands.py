"""Parses orders and commands, from direct invocations and messages: for orders, stock and the catalogue."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.adjustment import Adjustment, Decrement, Transfer
from inventory_orders.domain.location import DEFAULT_LOCATION, key_in, stock_key
from inventory_orders.domain.order import Order, sum_lines
from inventory_orders.domain.order_command import OrderCommand, Part
from inventory_orders.domain.product import CatalogueEvent
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    NOTES,
    NOTES_OF_ADJUSTMENT,
    OrderAction,
)
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.documents import (
    as_json,
    json_schema,
    not_one_of,
    strict_json,
    validated,
)

MAX_DISTINCT_PRODUCTS = 99
"""Maximum number of products of an order: a transaction of 100 actions writes them and the order."""

MAX_CANDIDATES = 200
"""Maximum number of rows that an order may be placed from: its products times its locations."""

MAX_QUANTITY = 1_000_000


def parse_order(
    body: str,
    group: str | None = None,
    default_hold: int | None = None,
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,),
) -> Order:
    """Parse an order.

    Args:
        body: The message as sent.
        group: Its `MessageGroupId`, if it came through a FIFO queue.
        default_hold: Seconds for which stock is held without payment, if the order does not say.
        default_locations: Where units may come from, best first, if the order does not say.

    Raises:
        InvalidMessageError: It can never be placed; says what to fix.
    """
    return order_in(strict_json(body), group, default_hold, default_locations)


def parse_order_event(
    event: object,
    default_hold: int | None = None,
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,),
) -> Order:
    """Parse the event of a direct invocation: an order, with or without `"action": "place"`.

    Raises:
        InvalidMessageError: It can never be placed; says what to fix.
    """
    document = as_json(event)
    if not isinstance(document, dict) or "orderId" not in document:
        raise InvalidMessageError(
            "UNSUPPORTED_EVENT",
            f"the event must be {json_schema('order')['description']}, or a batch of SQS messages; "
            "see events/ for samples",
        )
    if document.get("action") == "place":
        del document["action"]
    return order_in(document, None, default_hold, default_locations)


def order_in(
    document: Any,
    group: str | None,
    default_hold: int | None,
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,),
    *,
    whole: str = "the message",
) -> Order:
    """Convert a document into an order; `whole` is what its sender calls the document.

    Raises:
        InvalidMessageError: It can never be placed; says what to fix.
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
        tuple(document["locations"]) if "locations" in document else None,
        document.get("split", False),
        _locations_of_lines(document),
        default_locations,
    )
    if len(order.quantities) > MAX_DISTINCT_PRODUCTS:
        raise InvalidMessageError(
            "TOO_MANY_PRODUCTS",
            f"items: an order may have at most {MAX_DISTINCT_PRODUCTS} distinct products, but this one has "
            f"{len(order.quantities)}; split it into several orders",
            "items",
        )
    if len(order.product_ids) > MAX_CANDIDATES:
        raise InvalidMessageError(
            "TOO_MANY_PRODUCTS",
            f"items: {len(order.quantities)} products at each of the locations that they may come from make "
            f"{len(order.product_ids)} combinations; at most {MAX_CANDIDATES} are allowed. Name fewer locations, or split the order",
            "items",
        )
    if order.attributes:
        _check_size(order.attributes)
    return order


def _locations_of_lines(document: Mapping[str, Any]) -> dict[str, str]:
    """Collect the locations that lines require, by product id.

    Raises:
        InvalidMessageError: Two lines of a product name different locations.
    """
    locations: dict[str, str] = {}
    for line in document["items"]:
        product_id, named = line["productId"], line.get("locationId")
        if named is not None and locations.setdefault(product_id, named) != named:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f'items: lines of {product_id} name the locations "{locations[product_id]}" and "{named}"; name one, or send '
                "two orders",
                "items",
            )
    return locations


def quantities_in(document: Mapping[str, Any]) -> Mapping[str, int]:
    """Add up the units of a message's lines, by product id.

    Raises:
        InvalidMessageError: A sum exceeds the limit.
    """
    quantities = sum_lines((line["productId"], line["quantity"]) for line in document["items"])
    for product_id, quantity in quantities.items():
        if quantity > MAX_QUANTITY:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f"items: the lines of {product_id} add up to {quantity:,} units; at most {MAX_QUANTITY:,} are allowed",
                "items",
            )
    return quantities


def _check_size(attributes: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(attributes, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            "attributes: a string contains half of a surrogate pair, which is not a character; correct it",
            "attributes",
        ) from None
    if size > MAX_ATTRIBUTES_SIZE:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"attributes: may have at most {MAX_ATTRIBUTES_SIZE:,} bytes as JSON, but has {size:,}; store larger "
            "values in a system of your own",
            "attributes",
        )


def parse_command(event: object, function: str, default: str | None = None) -> dict[str, Any]:
    """Parse the event of a direct invocation.

    Args:
        event: The event of the invocation.
        function: The function whose commands are accepted.
        default: The action of an event that names none.

    Raises:
        InvalidMessageError: It is not a command of this function; says what to fix.
    """
    given = as_json(event)
    document = {"action": default, **(given if isinstance(given, dict) else {})}
    try:
        return command_in(document, function)
    except InvalidMessageError as error:
        if error.field != "action":
            raise
        raise InvalidMessageError(
            "UNSUPPORTED_EVENT",
            f"{error.message}. Or the event must be a batch of SQS messages; see events/ for samples",
            "action",
        ) from None


def command_in(given: Any, function: str) -> dict[str, Any]:
    """Check that a document is a command that a function accepts, and return it.

    Raises:
        InvalidMessageError: It is not a command of this function; says what to fix.
    """
    document = given if isinstance(given, dict) else {}
    action = action_in(document, function)
    schema = json_schema("commands")[function][action]
    return validated(document, f"commands/{function}/{action}", schema)


def action_in(document: Mapping[str, Any], function: str) -> str:
    """Read the action of a command.

    Raises:
        InvalidMessageError: It does not name an action of the function.
    """
    action, known = document.get("action"), json_schema("commands")[function]
    if isinstance(action, str) and action in known:
        return action
    raise InvalidMessageError("SCHEMA_VIOLATION", not_one_of("action", known, action), "action")


def validated_part(
    given: dict[str, Any], function: str, action: str, names: Collection[str], whole: str
) -> dict[str, Any]:
    """Check the part of a command that one part of a request contains.

    Args:
        given: The part. Its times are normalised in place.
        function: The function that takes the command.
        action: Its action.
        names: The fields of the command that belong there.
        whole: What the sender calls that part of the request.

    Raises:
        InvalidMessageError: It does not match the command; says what to fix.
    """
    schema = json_schema("commands")[function][action]
    part = {name: value for name, value in schema.items() if name != "description"} | {
        "required": [name for name in schema["required"] if name in names],
        "properties": {n: value for n, value in schema["properties"].items() if n in names},
    }
    return validated(given, f"{whole} of {function}/{action}", part, whole)


def notes_in(document: Mapping[str, Any], names: Iterable[str] = NOTES) -> dict[str, str]:
    """Who gave a command, and why."""
    return {name: document[name] for name in names if name in document}


def parse_expiry(body: str, ended_by: datetime) -> OrderCommand:
    """Parse the message that an order's hold ends.

    Args:
        body: The message as sent.
        ended_by: The order expires if its hold ended at this time or before.

    Raises:
        InvalidMessageError: It can never be applied; says what to fix.
    """
    order_id = validated(strict_json(body), "expiry")["orderId"]
    return OrderCommand(order_id, OrderAction.EXPIRE, timestamp(ended_by))


def parse_order_command(body: str) -> OrderCommand:
    """Parse a command on an order.

    Raises:
        InvalidMessageError: It can never be applied; says what to fix.
    """
    return order_command(command_in(strict_json(body), "change_orders"))


def order_command(document: Mapping[str, Any]) -> OrderCommand:
    """Convert a validated document into a command on an order.

    Raises:
        InvalidMessageError: The units of its lines add up to more than the limit.
    """
    action, restock = OrderAction(document["action"]), document.get("restock")
    # An explicit default does not make a different command.
    restock = None if restock is action.restocks else restock
    part = (
        Part(document["stepId"], quantities_in(document), restock) if "items" in document else None
    )
    return OrderCommand(
        document["orderId"],
        action,
        part=part,
        until=document.get("until", ""),
        notes=notes_in(document),
    )


def parse_adjustment(body: str) -> Adjustment:
    """Parse an adjustment.

    Raises:
        InvalidMessageError: It can never be applied; says what to fix.
    """
    return adjustment(validated(strict_json(body), "adjustment"))


def stock_command(document: Mapping[str, Any]) -> Adjustment | Transfer:
    """Convert a validated document into an adjustment, or into the decrement or transfer that its action asks for.

    Raises:
        InvalidMessageError: It is a transfer from a location to itself.
    """
    if document.get("action") != "transfer":
        return adjustment(document)
    source, target = (stock_key(document["productId"], document[side]) for side in ("from", "to"))
    if source == target:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", "to: must not be the same location as from", "to"
        )
    notes = notes_in(document, NOTES_OF_ADJUSTMENT)
    return Transfer(source, target, document["transferId"], document["quantity"], notes)


def adjustment(document: Mapping[str, Any]) -> Adjustment:
    """Convert a validated document into an adjustment, or into the decrement that its action asks for."""
    ids = key_in(document), document["adjustmentId"]
    notes = notes_in(document, NOTES_OF_ADJUSTMENT)
    if document.get("action") == "decrement":
        return Decrement.of(*ids, document["quantity"], notes)
    return Adjustment(*ids, document["delta"], document["reason"], notes)


def parse_catalogue_event(body: str, now: datetime) -> CatalogueEvent:
    """Parse a catalogue event.

    Raises:
        InvalidMessageError: It can never be applied, or its time is in the future.
    """
    return catalogue_event(validated(strict_json(body), "catalogue_event"), now)


def catalogue_event(document: Mapping[str, Any], now: datetime) -> CatalogueEvent:
    """Convert a validated document into a catalogue event.

    Raises:
        InvalidMessageError: Its time is more than 15 minutes in the future. If applied, it would block all real events
            until that time.
    """
    if document["eventTime"] > timestamp(now + timedelta(minutes=15)):
        raise InvalidMessageError(
            "EVENT_FROM_THE_FUTURE",
            f"eventTime: {document['eventTime']} is more than 15 minutes in the future; correct the sender's clock",
            "eventTime",
        )
    return CatalogueEvent(
        document["productId"], document["eventId"], document["eventTime"], document["details"]
    )
