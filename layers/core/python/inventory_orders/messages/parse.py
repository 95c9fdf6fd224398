"""Reads orders, catalogue events and direct commands by their schemas, or says why a body can never be one."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import fastjsonschema
from fastjsonschema import JsonSchemaValueException

from inventory_orders.clock import timestamp
from inventory_orders.domain.order import Order, added_up
from inventory_orders.domain.order_record import MAX_ATTRIBUTES_SIZE
from inventory_orders.domain.product import CatalogueEvent
from inventory_orders.domain.record import NOTES
from inventory_orders.errors import PoisonMessageError
from inventory_orders.messages.schema import json_schema
from inventory_orders.messages.strict_json import Decimal, shown_key, strict_json

MAX_DISTINCT_PRODUCTS = 99
"""Products that one transaction of 100 actions can hold beside the order."""

MAX_QUANTITY = 1_000_000

_WHOLE_NUMBER = re.compile("-?[0-9]{1,20}")

MAX_AHEAD = timedelta(minutes=15)
"""How far a catalogue event may be ahead of our clock."""


def parse_order(body: str, group: str | None = None, default_hold: int | None = None) -> Order:
    """Read an order.

    Args:
        body: The message as it was sent.
        group: Its `MessageGroupId`, if it came through a FIFO queue.
        default_hold: Seconds for which the stock of an order that says nothing is held without payment.

    Raises:
        PoisonMessageError: It is no order and never will be.
    """
    return order_in(strict_json(body), group, default_hold)


def parse_order_event(event: object, default_hold: int | None = None) -> Order:
    """Read the event of a direct invocation: an order, with or without `"action": "place"`.

    Raises:
        PoisonMessageError: It is no order; says what to fix.
    """
    document = _as_json(event)
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
        PoisonMessageError: It is no order and never will be.
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
    _check_size(order.attributes)
    return order


def quantities_in(document: Mapping[str, Any]) -> Mapping[str, int]:
    """Units by product id that the lines of a message add up to.

    Raises:
        PoisonMessageError: They are more than a message may hold.
    """
    quantities = added_up((line["productId"], line["quantity"]) for line in document["items"])
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
        size = len(json.dumps(attributes, ensure_ascii=False).encode()) if attributes else 0
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


def notes_in(document: Mapping[str, Any], names: Iterable[str] = NOTES) -> dict[str, str]:
    """Who gave a command, and what for."""
    return {name: document[name] for name in names if name in document}


def parse_catalogue_event(body: str, now: datetime) -> CatalogueEvent:
    """Read a catalogue event.

    Raises:
        PoisonMessageError: It is none and never will be, or it claims to be from the future.
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


def parse_command(event: object, function: str, default: str | None = None) -> dict[str, Any]:
    """Read the event of a direct invocation.

    Args:
        event: What Lambda was invoked with.
        function: Which function's commands are understood.
        default: The action that is meant when none is named.

    Raises:
        PoisonMessageError: It is no such command; says what to fix.
    """
    return command_in(_as_json(event), function, default)


def _as_json(event: object) -> Any:
    """An event as it would be read from a message."""
    try:
        return strict_json(json.dumps(event))
    except (RecursionError, ValueError):
        raise PoisonMessageError(
            "INVALID_JSON", "the event is nested too deeply, or a number in it is absurdly long"
        ) from None


def command_in(
    given: Any, function: str, default: str | None = None, *, of_message: bool = False
) -> dict[str, Any]:
    """A document as a command.

    Args:
        given: The document.
        function: Which function's commands are understood.
        default: The action that is meant when none is named.
        of_message: Whether it came as a message: then it cannot have been meant for a batch of them.

    Raises:
        PoisonMessageError: It is no such command; says what to fix.
    """
    document = {"action": default, **(given if isinstance(given, dict) else {})}
    try:
        action = action_in(document, function)
    except PoisonMessageError as error:
        if of_message:
            raise
        raise PoisonMessageError(
            "UNSUPPORTED_EVENT",
            f"{error.message}. Or the event must be a batch of SQS messages; see events/ for samples",
            error.field,
        ) from None
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
        PoisonMessageError: It is no such part; says what to fix.
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


def checked_id(name: str, value: str, kind: str = "") -> str:
    """An id that came alone: `productId`, `orderId` or `userId`, or one of this kind under another name.

    Raises:
        PoisonMessageError: It can be none.
    """
    types = json_schema("types")
    validated({name: value}, name, {"properties": {name: types.get(kind or name, types["id"])}})
    return value


_validators: dict[str, Any] = {}


def validated(
    document: Any, name: str, schema: dict[str, Any] | None = None, whole: str = "the message"
) -> Any:
    """A document that follows a schema, with its times in the form in which they are stored.

    Args:
        document: The document. Its times are replaced.
        name: Of the schema: of a file, or any other name for `schema`.
        schema: A part of a file.
        whole: What its sender calls the document.

    Raises:
        PoisonMessageError: It does not follow the schema; says what to fix.
    """
    schema = schema or json_schema(name)
    if name not in _validators:
        _validators[name] = fastjsonschema.compile(schema)
    try:
        _validators[name](document)
    except JsonSchemaValueException as error:
        raise _violation(error, whole) from None
    for field, part in schema["properties"].items():
        if field in document and part.get("format") == "date-time":
            document[field] = _as_stored(field, document[field])
    return document


def _as_stored(field: str, time: str) -> str:
    """A time that came in, as all times are stored, so that they can be compared as text. Nanoseconds are cut off.

    Raises:
        PoisonMessageError: Its day is not in the calendar, or in no year that can be stored.
    """
    try:
        return timestamp(datetime.fromisoformat(time.upper()))
    except (ValueError, OverflowError):
        raise PoisonMessageError(
            "SCHEMA_VIOLATION", f"{field}: there is no such time as {time}", field
        ) from None


def _violation(error: JsonSchemaValueException, whole: str) -> PoisonMessageError:
    """Say what to fix: the field, what it must be according to the schema, and what it is."""
    field = (error.name or "").removeprefix("data").removeprefix(".")
    where, fields = field or whole, error.definition.get("properties", {})
    wanted = error.definition.get("description") or f"an object with {' or '.join(fields)}"
    if error.rule == "required":
        missing = [name for name in error.definition["required"] if name not in error.value]
        field = ".".join(filter(None, [field, missing[0]]))
        what = f"{field}: is missing; {where} must be {wanted}"
        if "description" not in error.definition:
            what = f"{field}: is missing in {where}; it must be {fields[missing[0]]['description']}"
    elif error.rule == "dependencies":
        field, other = next(
            (needed, name)
            for name, (needed,) in error.definition["dependencies"].items()
            if name in error.value and needed not in error.value
        )
        what = f"{field}: is missing in {where}; {other} needs it"
    elif error.rule == "additionalProperties":
        unknown = next(name for name in error.value if name not in fields)
        field = ".".join(filter(None, [field, shown_key(unknown)]))
        what = f"{field}: unknown field of {where}; remove it"
        if fields:
            what += f", or correct it to one of {', '.join(fields)}"
    else:
        what = f"{where}: must be {wanted}, but is {_shown(error.value)}{_remedy(error)}"
    return PoisonMessageError("SCHEMA_VIOLATION", what, field)


def not_one_of(field: str, allowed: Iterable[str], given: Any) -> str:
    """Say that a field has none of its values; `given` is None where it is missing."""
    wanted = f"must be one of {', '.join(allowed)}"
    if given is None:
        return f"{field}: is missing; it {wanted}"
    return f"{field}: {wanted}, but is {_shown(given)}"


def _shown(value: Any) -> str:
    """A value of the sender's, short enough to show."""
    if isinstance(value, dict | list):
        article, kind = ("an", "object") if isinstance(value, dict) else ("a", "list")
        return f"{article} {kind} of {len(value)}" if value else f"an empty {kind}"
    text = value.text if isinstance(value, Decimal) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _remedy(error: JsonSchemaValueException) -> str:
    """What to do about a number that should be in quotes, or should not."""
    value, kind = error.value, error.definition.get("type", "")
    if "string" in kind and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return f'; put it in quotes: "{_shown(value)}"'
    if kind == "integer" and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return f"; remove the quotes: {int(value)}"
    return ""
