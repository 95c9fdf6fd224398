"""From the body of a message to a change, or to the reason why it can never be one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import fastjsonschema
from fastjsonschema import JsonSchemaValueException

from inventory_orders.clock import timestamp
from inventory_orders.errors import PoisonMessageError
from inventory_orders.model import Adjustment, Cancellation, Order
from inventory_orders.products import CatalogueEvent

MAX_DISTINCT_PRODUCTS = 99
"""What one transaction can hold beside the order: 100 actions."""

MAX_QUANTITY = 1_000_000

MOST_AHEAD = timedelta(minutes=15)
"""How far a catalogue event may be ahead of our clock."""

# Far more than any valid number; a longer one would cost time that grows with the square of its length.
_MAX_DIGITS = 20
_SCHEMAS = Path(__file__).parent / "schemas"


def parse_order(body: str, group: str | None = None) -> Order:
    """Read an order.

    Args:
        body: The message as it was sent.
        group: Its `MessageGroupId`, if it came through a FIFO queue.

    Raises:
        PoisonMessageError: It is no order and never will be.
    """
    document = _validated(body, "order")
    order = Order.of(
        document["orderId"],
        document["userId"],
        ((line["productId"], line["quantity"]) for line in document["items"]),
        group,
    )
    if len(order.quantities) > MAX_DISTINCT_PRODUCTS:
        raise PoisonMessageError(
            "TOO_MANY_PRODUCTS",
            f"items: an order may hold at most {MAX_DISTINCT_PRODUCTS} distinct products, this one has "
            f"{len(order.quantities)}; split it into several orders",
            "items",
        )
    for product_id, quantity in order.quantities.items():
        if quantity > MAX_QUANTITY:
            raise PoisonMessageError(
                "SCHEMA_VIOLATION",
                f"items: the lines of {product_id} add up to {quantity:,} units; at most {MAX_QUANTITY:,} "
                "may be ordered at once",
                "items",
            )
    return order


def parse_adjustment(body: str, group: str | None = None) -> Adjustment:  # noqa: ARG001
    """Read an adjustment.

    Raises:
        PoisonMessageError: It is none and never will be.
    """
    document = _validated(body, "adjustment")
    return Adjustment(
        document["productId"], document["adjustmentId"], document["delta"], document["reason"]
    )


def parse_cancellation(body: str, group: str | None = None) -> Cancellation:  # noqa: ARG001
    """Read a cancellation.

    Raises:
        PoisonMessageError: It is none and never will be.
    """
    return Cancellation(_validated(body, "cancellation")["orderId"])


def parse_catalogue_event(body: str, now: datetime) -> CatalogueEvent:
    """Read a catalogue event.

    Raises:
        PoisonMessageError: It is none and never will be, or it claims to be from the future.
    """
    return catalogue_event(_validated(body, "catalogue_event"), now)


def catalogue_event(document: Mapping[str, Any], now: datetime) -> CatalogueEvent:
    """A validated document as an event, if its time makes sense.

    Raises:
        PoisonMessageError: Its time does not exist, or lies more than 15 minutes ahead: applied, it would shut
            out every true event until then.
    """
    try:
        moment = datetime.fromisoformat(document["eventTime"])
        # Newer Pythons take 24:00 for the next day's 00:00, but as text it sorts before it.
        exists = timestamp(moment) == document["eventTime"]
    except ValueError:
        exists = False
    if not exists:
        raise PoisonMessageError(
            "SCHEMA_VIOLATION",
            f"eventTime: there is no such time as {document['eventTime']}",
            "eventTime",
        )
    if moment > now + MOST_AHEAD:
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
    commands = json_schema("commands")[function]
    try:
        document = strict_json(json.dumps(event))
    except (RecursionError, ValueError):
        raise PoisonMessageError(
            "INVALID_JSON", "the event is nested too deeply, or a number in it is absurdly long"
        ) from None
    if not isinstance(document, dict):
        document = {}
    if default is not None:
        document = {"action": default, **document}
    action = document.get("action")
    if not isinstance(action, str) or action not in commands:
        raise PoisonMessageError(
            "UNSUPPORTED_EVENT",
            f"action: must be one of {', '.join(commands)}, or the event a batch of SQS messages; "
            "see events/ for samples",
            "action",
        )
    _validate(document, f"commands/{function}/{action}", commands[action])
    return document


@cache
def json_schema(name: str) -> dict[str, Any]:
    """A file of schemas, by name: one of the messages (`order`), or all `commands` by function and action."""
    schema: dict[str, Any] = json.loads((_SCHEMAS / f"{name}.json").read_text("utf-8"))
    return schema


def _validated(body: str, name: str) -> Any:
    document = strict_json(body)
    _validate(document, name, None)
    return document


_validators: dict[str, Any] = {}


def _validate(document: Any, name: str, schema: dict[str, Any] | None) -> None:
    if name not in _validators:
        _validators[name] = fastjsonschema.compile(schema or json_schema(name))
    try:
        _validators[name](document)
    except JsonSchemaValueException as error:
        raise _violation(error) from None


def _violation(error: JsonSchemaValueException) -> PoisonMessageError:
    """Say what to fix: the field, what it must be according to the schema, and what it is."""
    field = (error.name or "").removeprefix("data").removeprefix(".")
    where = field or "the message"
    wanted = error.definition.get("description", error.message)
    if error.rule == "required":
        missing = [name for name in error.definition["required"] if name not in error.value]
        field = ".".join(filter(None, [field, missing[0]]))
        what = f"{field}: is missing; {where} must be {wanted}"
    elif error.rule == "additionalProperties":
        known = error.definition["properties"]
        unknown = next(name for name in error.value if name not in known)
        field = ".".join(filter(None, [field, _shown_key(unknown)]))
        what = f"{field}: is no field of {where}; remove it, or correct it to one of {', '.join(known)}"
    else:
        what = f"{where}: must be {wanted}, but is {_shown(error.value)}"
    return PoisonMessageError("SCHEMA_VIOLATION", what, field)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "a list"
        return f"{kind} of {len(value)}" if value else f"{kind} that is empty"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _shown_key(key: str) -> str:
    """The sender's choice of a name, where it cannot do harm: short, and of printable ASCII."""
    return json.dumps(key[:64])[1:-1] or '""'


class _NotStrictError(ValueError):
    """Python's parser would take it, but it is not what the contract calls JSON."""


def strict_json(body: str) -> Any:
    """Parse JSON without the liberties that let two readers of one body see two things.

    Refused are floats (2.0 is not a quantity), NaN and the infinities, duplicate keys, numbers of more than 20
    digits, and nesting so deep that the parser gives up.

    Raises:
        PoisonMessageError: With code `INVALID_JSON` and what to fix.
    """
    try:
        return _DECODER.decode(body)
    except _NotStrictError as error:
        field, reason = _located(body, error)
        what = f"{field}: {reason}" if field else str(reason)
        raise PoisonMessageError("INVALID_JSON", what, field) from None
    except json.JSONDecodeError as error:
        raise PoisonMessageError(
            "INVALID_JSON",
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
        ) from None
    except RecursionError:
        raise PoisonMessageError("INVALID_JSON", "the body is nested too deeply") from None


def _located(body: str, error: _NotStrictError) -> tuple[str, _NotStrictError]:
    """The field of the first liberty in a body, and what is wrong there.

    The parser's hooks do not know where they are, so this reads the body once more, and takes note instead of
    giving up. Where that cannot be done (what follows is no JSON at all) the field stays empty.
    """
    try:
        return _first_liberty(_LENIENT_DECODER.decode(body), "") or ("", error)
    except (json.JSONDecodeError, RecursionError):
        return "", error


def _first_liberty(value: Any, path: str) -> tuple[str, _NotStrictError] | None:
    """Walk through what `_LENIENT_DECODER` read, in the order of the text."""
    if isinstance(value, _NotStrictError):
        return path, value
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, _Pairs):
        inner = ((f"{path}.{_shown_key(key)}".removeprefix("."), held) for key, held in value.pairs)
    elif isinstance(value, list):
        inner = ((f"{path}[{index}]", held) for index, held in enumerate(value))
    for place, held in inner:
        found = _first_liberty(held, place)
        if found is not None:
            return found
    if isinstance(value, _Pairs) and value.twice is not None:
        return f"{path}.{_shown_key(value.twice)}".removeprefix("."), _stands_twice(value.twice)
    return None


class _Pairs:
    """An object as it stands in the text, keys that stand twice included."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs
        self.twice = _twice(pairs)


def _twice(pairs: list[tuple[str, Any]]) -> str | None:
    """The first key that stands twice in an object."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def _stands_twice(key: str) -> _NotStrictError:
    return _NotStrictError(f'the key "{_shown_key(key)}" stands twice in one object; keep one')


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = _twice(pairs)
        if twice is not None:
            raise _stands_twice(twice)
    return result


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _NotStrictError(f"a number has {len(text)} digits; at most {_MAX_DIGITS} are read")
    return int(text)


def _no_float(text: str) -> NoReturn:
    raise _NotStrictError(f"{text[:40]} is not a whole number; write it without point and exponent")


def _no_constant(text: str) -> NoReturn:
    raise _NotStrictError(f"{text} is not JSON; write a whole number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_int=_whole_number,
    parse_float=_no_float,
    parse_constant=_no_constant,
)


def _noted(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A hook that gives back its objection instead of raising it."""

    def read_or_note(text: str) -> Any:
        try:
            return read(text)
        except _NotStrictError as error:
            return error

    return read_or_note


_LENIENT_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_int=_noted(_whole_number),
    parse_float=_noted(_no_float),
    parse_constant=_noted(_no_constant),
)
