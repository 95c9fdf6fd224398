"""Parses orders, and commands for orders, stock and the catalogue, from messages and direct invocations."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.adjustment import COUNT, Adjustment, Decrement, Transfer
from inventory_orders.domain.amendment import Amend
from inventory_orders.domain.barcode import all_written
from inventory_orders.domain.location import DEFAULT_LOCATION, key_in, stock_key
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import DEFAULT_TERMS, OrderCommand, Terms
from inventory_orders.domain.product import CatalogueEvent, NewProduct, sum_by_key
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    NOTES,
    NOTES_OF_ADJUSTMENT,
    SCANNED,
    OrderAction,
)
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.documents import (
    as_json,
    json_schema,
    not_one_of,
    shown_key,
    strict_json,
    validated,
    wrapped,
)

MAX_DISTINCT_PRODUCTS = 99
"""Maximum number of products in an order. A transaction has at most 100 actions, and one of them writes the order itself."""

MAX_CANDIDATES = 200
"""Maximum number of rows to choose from when an order is placed: one for each product at each location."""

MAX_QUANTITY = 1_000_000

MAX_NOTE = 128
"""Maximum number of characters of a note, such as an `actor`."""

_REQUEST_ID = re.compile("[0-9a-f-]{36}")


def parse_order_or_amend(
    body: str, group: str | None, default_hold: int | None, sender: tuple[str, str], terms: Terms
) -> Order | OrderCommand:
    """Parse a message of a queue for orders: an order, or an amend of one.

    Args:
        body: The message as sent.
        group: See `order_in`.
        default_hold: See `order_in`.
        sender: The id of the HTTP request that sent the message, and the member of staff who did, each empty if there is none.
        terms: What the stage decides about orders and amends.

    Raises:
        InvalidMessageError: It can never be carried out. The message says what to fix.
    """
    document = strict_json(body)
    if is_amend(document):
        return order_command(command_in(document, "change_orders"), terms, group)
    return order_in(
        *(document, group, default_hold, terms.locations, *sender),
        counts_users=terms.counts_users,
    )


def is_amend(document: Any) -> bool:
    """Whether a document is meant as an amend. Otherwise, a queue for orders expects an order."""
    return isinstance(document, dict) and document.get("action") == OrderAction.AMEND


def parse_order_event(
    event: object,
    default_hold: int | None = None,
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,),
    *,
    counts_users: bool = True,
) -> Order:
    """Parse the order in the event of a direct invocation, which may have `"action": "place"`.

    Raises:
        InvalidMessageError: The order can never be placed. The message says what to fix.
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
    return order_in(document, None, default_hold, default_locations, counts_users=counts_users)


def order_in(
    document: Any,
    group: str | None = None,
    default_hold: int | None = None,
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,),
    request_id: str = "",
    placed_by: str = "",
    *,
    whole: str = "the message",
    counts_users: bool = True,
) -> Order:
    """Convert a document into an order.

    Args:
        group: The `MessageGroupId` of a message from a FIFO queue; None for other queues.
        default_hold: Seconds for which an order without `holdSeconds` holds stock until it is paid; None for no limit.
        default_locations: Locations that serve an order without `locations`, in order of preference.
        request_id: The id of the HTTP request that sent the message. Anything else is ignored.
        placed_by: The member of staff who sent it; empty if a customer or program did.
        whole: The name of the document in error messages.
        counts_users: Whether an order without `buyers` counts towards the limits of its user.

    Raises:
        InvalidMessageError: The order can never be placed. The message says what to fix.
    """
    validated(document, "order", whole=whole)
    order = Order(
        document["orderId"],
        document["userId"],
        quantities_in(document),
        group,
        default_hold,
        _locations_of_lines(document),
        default_locations,
        tuple(dict.fromkeys(document["buyers"])) if "buyers" in document else None,
        counts_users,
        hold_seconds=document.get("holdSeconds"),
        attributes=document.get("attributes", {}),
        locations=tuple(document["locations"]) if "locations" in document else None,
        split=document.get("split", False),
        # It is stored with the order, so a sender must not choose its size.
        request_id=request_id if _REQUEST_ID.fullmatch(request_id) else None,
        placed_by=placed_by[:MAX_NOTE] or None,
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
            f"items: the {len(order.quantities)} products and the locations that may supply them make {len(order.product_ids)} "
            f"combinations; at most {MAX_CANDIDATES} are allowed. Name fewer locations, or split the order",
            "items",
        )
    _check_size(order.attributes)
    return order


def _locations_of_lines(document: Mapping[str, Any]) -> dict[str, str]:
    """Collect the locations that an order's lines name, by product id.

    Raises:
        InvalidMessageError: Two lines of one product name different locations.
    """
    locations: dict[str, str] = {}
    for line in document["items"]:
        product_id, named = line["productId"], line.get("locationId")
        if named is not None and locations.setdefault(product_id, named) != named:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f'items: lines of {product_id} name the locations "{locations[product_id]}" and "{named}"; name only one, '
                "or send two orders",
                "items",
            )
    return locations


def quantities_in(document: Mapping[str, Any]) -> Mapping[str, int]:
    """Add up the units in the lines of an order or a command, by product id.

    Raises:
        InvalidMessageError: The lines of one product add up to too many units.
    """
    # Checked separately, two lines of 5 would pass with 5 in stock.
    quantities = sum_by_key((line["productId"], line["quantity"]) for line in document["items"])
    for product_id, quantity in quantities.items():
        if quantity > MAX_QUANTITY:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f"items: the lines of {product_id} add up to {quantity:,} units; at most {MAX_QUANTITY:,} are allowed",
                "items",
            )
    return dict(quantities)


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
    """Parse the command in the event of a direct invocation.

    Args:
        event: The event of the invocation.
        function: The function whose commands are accepted.
        default: The action of an event without `action`.

    Raises:
        InvalidMessageError: The event is not a command of this function. The message says what to fix.
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
    """Check that a function accepts a document as a command, and return it with its times normalised.

    Raises:
        InvalidMessageError: The document is not a command of this function. The message says what to fix.
    """
    action = action_in(given, function)
    schema = json_schema("commands")[function][action]
    return validated(given, f"commands/{function}/{action}", schema)


def action_in(document: Any, function: str) -> str:
    """Read the action of a command, and check that the function knows it.

    Raises:
        InvalidMessageError: The action is missing or unknown.
    """
    action = document.get("action") if isinstance(document, dict) else None
    known = json_schema("commands")[function]
    if isinstance(action, str) and action in known:
        return action
    raise wrapped(document) or InvalidMessageError(
        "SCHEMA_VIOLATION", not_one_of("action", known, action), "action"
    )


def validated_part(
    given: dict[str, Any], function: str, action: str, names: Collection[str], whole: str
) -> dict[str, Any]:
    """Check those fields of a command that come from one part of a request, such as the body.

    Args:
        given: The fields in that part. Times are normalised in place.
        function: The function that carries out the command.
        action: The command's action.
        names: The fields of the command that belong in that part.
        whole: The name of that part in error messages.

    Raises:
        InvalidMessageError: A field is missing, unknown or wrong. The message says what to fix.
    """
    schema = json_schema("commands")[function][action]
    part = {name: value for name, value in schema.items() if name != "description"} | {
        "required": [name for name in schema["required"] if name in names],
        "properties": {n: value for n, value in schema["properties"].items() if n in names},
    }
    return validated(given, f"{whole} of {function}/{action}", part, whole)


def notes_in(document: Mapping[str, Any], names: Iterable[str] = NOTES) -> dict[str, Any]:
    """Collect the notes in a command, such as who sent it and why.

    Raises:
        InvalidMessageError: `scanned` names a product that the command does not name.
    """
    lines = document.get("items", [document.get("lease", document)])
    named = {line.get("productId") for line in lines}
    if strange := [each for each in document.get(SCANNED, ()) if each not in named]:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"{SCANNED}: {shown_key(strange[0])} is not a product of this command; remove it, or correct it to one of "
            f"{', '.join(sorted(named))}",
            SCANNED,
        )
    return {name: document[name] for name in names if name in document}


def parse_expiry(body: str, ended_by: datetime) -> OrderCommand:
    """Parse a message about a hold that has ended. Returns the command that expires the order.

    Args:
        body: The message as sent.
        ended_by: The order expires only if its hold ended by this time.

    Raises:
        InvalidMessageError: The message can never be applied. The error says what to fix.
    """
    order_id = validated(strict_json(body), "expiry")["orderId"]
    return OrderCommand(order_id, OrderAction.EXPIRE, timestamp(ended_by))


def parse_order_command(body: str, terms: Terms = DEFAULT_TERMS) -> OrderCommand:
    """Parse a message that contains a command on an order.

    Raises:
        InvalidMessageError: The command can never be carried out. The message says what to fix.
    """
    return order_command(command_in(strict_json(body), "change_orders"), terms)


def order_command(
    document: Mapping[str, Any], terms: Terms = DEFAULT_TERMS, group: str | None = None
) -> OrderCommand:
    """Convert a validated document into a command on an order.

    Args:
        document: The document.
        terms: What the stage decides about amends, and about hand-overs that are taken back.
        group: For an amend, the `MessageGroupId` of a message from a FIFO queue; None for other queues.

    Raises:
        InvalidMessageError: The lines of one product contradict each other, or an amend changes nothing.
    """
    action, restock = OrderAction(document["action"]), document.get("restock")
    fields: dict[str, Any] = {
        "order_id": document["orderId"],
        "action": action,
        "step_id": document.get("stepId"),
        "quantities": quantities_in(document) if "items" in document else {},
        # A command that spells out the default is the same command as one that leaves it out.
        "restock": None if restock is action.restocks else restock,
        "until": document.get("until", ""),
        "notes": notes_in(document),
        "if_version": document.get("ifVersion"),
        "terms": replace(terms, since="") if document.get("force") else terms,
    }
    if action is not OrderAction.AMEND:
        return OrderCommand(**fields)
    if "items" not in document and "attributes" not in document:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", "items: is missing; an amend needs items or attributes", "items"
        )
    _check_size(document.get("attributes", {}))
    return Amend(
        **fields,
        group=group,
        locations=_locations_of_lines({"items": (), **document}),
        attributes=document.get("attributes"),
    )


def parse_adjustment(body: str) -> Adjustment:
    """Parse a message that contains an adjustment of stock.

    Raises:
        InvalidMessageError: The adjustment can never be applied. The message says what to fix.
    """
    # A dead letter would lose a receipt, so one that names no location is booked at the default one.
    return _adjustment(validated(strict_json(body), "adjustment"), names_location=True)


def _adjustment(document: Mapping[str, Any], *, names_location: bool) -> Adjustment:
    return Adjustment(
        key_in(document),
        document["adjustmentId"],
        document["delta"],
        document["reason"],
        notes_in(document, NOTES_OF_ADJUSTMENT),
        names_location=names_location,
    )


def stock_command(document: Mapping[str, Any]) -> Adjustment | Transfer:
    """Convert a validated command into an adjustment, a decrement or a transfer, depending on its action.

    Raises:
        InvalidMessageError: A transfer names the same location twice.
    """
    names_location = "locationId" in document
    if document["action"] == "adjust":
        return _adjustment(document, names_location=names_location)
    quantity, notes = document["quantity"], notes_in(document, NOTES_OF_ADJUSTMENT)
    if document["action"] == "decrement":
        return Decrement(
            key_in(document),
            document["adjustmentId"],
            -quantity,
            notes=notes,
            names_location=names_location,
            uses_safety=document.get("useSafety", False),
        )
    source, target = (stock_key(document["productId"], document[side]) for side in ("from", "to"))
    if source == target:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", "to: must not be the same location as from", "to"
        )
    return Transfer(source, target, document["transferId"], quantity, notes)


def count_as_of(document: Mapping[str, Any]) -> Adjustment:
    """Convert a validated command into the correction by a count that began when its snapshot was written."""
    at, hidden, counted_before = document["snapshot"].split(" ")
    return Adjustment(
        key_in(document),
        document["adjustmentId"],
        document["counted"] - (int(hidden) ^ zlib.crc32(at.encode())),
        COUNT,
        notes_in(document, NOTES_OF_ADJUSTMENT),
        counted=document["counted"],
        stamps={"counted_at": at},
        counted_before=counted_before,
    )


def snapshot_of(at: str, on_hand: int, counted_before: str) -> str:
    """Write what `count_as_of` has to know. People who count blind do not read the units from it, but could compute them.

    Args:
        at: When the count began, as stored.
        on_hand: The units on hand at that time.
        counted_before: The product's `counted_at` at that time.
    """
    return f"{at} {on_hand ^ zlib.crc32(at.encode())} {counted_before}"


def new_product(document: Mapping[str, Any]) -> NewProduct:
    """Convert a validated command into a product to create.

    Raises:
        InvalidMessageError: A barcode has a wrong check digit, for example.
    """
    return NewProduct(key_in(document), document["openingStock"], **product_changes(document))


def product_changes(document: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the attributes of `Product` that a validated command sets.

    Raises:
        InvalidMessageError: A barcode has a wrong check digit, for example.
    """
    given = {_ATTRIBUTES[name]: document[name] for name in document if name in _ATTRIBUTES}
    return given | {name: all_written(given[name]) for name in given if name == "barcodes"}


_ATTRIBUTES = {
    "name": "name",
    "price": "price",
    "lowStockThreshold": "low_stock_threshold",
    "backorderLimit": "backorder_limit",
    "safetyStock": "safety_stock",
    "purchaseLimit": "purchase_limit",
    "limitGroup": "limit_group",
    "barcodes": "barcodes",
}


def parse_catalogue_event(body: str, now: datetime) -> CatalogueEvent:
    """Parse a message that contains a catalogue event.

    Raises:
        InvalidMessageError: The event can never be applied, or its time is in the future.
    """
    return catalogue_event(validated(strict_json(body), "catalogue_event"), now)


def catalogue_event(document: Mapping[str, Any], now: datetime) -> CatalogueEvent:
    """Convert a validated document into a catalogue event.

    Raises:
        InvalidMessageError: The event's time is more than 15 minutes in the future. Once applied, such an event would make
            all others stale until then.
    """
    if document["eventTime"] > timestamp(now + timedelta(minutes=15)):
        ahead = datetime.fromisoformat(document["eventTime"]) - now
        raise InvalidMessageError(
            "EVENT_FROM_THE_FUTURE",
            f"eventTime: {document['eventTime']} is {timedelta(seconds=ahead // timedelta(seconds=1))} in the future, and the "
            "service does not schedule changes; send the event when it takes effect. If it takes effect now, correct the "
            "sender's clock",
            "eventTime",
        )
    return CatalogueEvent(
        document["productId"], document["eventId"], document["eventTime"], document["details"]
    )
