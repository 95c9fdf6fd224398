"""From the body of a message to a change, or to the reason why it can never be one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import fastjsonschema
from fastjsonschema import JsonSchemaValueException

from inventory_orders.errors import PoisonMessageError
from inventory_orders.model import Order

MAX_DISTINCT_PRODUCTS = 99
"""What one transaction can hold beside the order: 100 actions."""

MAX_QUANTITY = 1_000_000

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


def json_schema(name: str) -> dict[str, Any]:
    """One of the message schemas, by name (`order`)."""
    schema: dict[str, Any] = json.loads((_SCHEMAS / f"{name}.json").read_text("utf-8"))
    return schema


def _validated(body: str, schema: str) -> Any:
    document = strict_json(body)
    try:
        _validator(schema)(document)
    except JsonSchemaValueException as error:
        raise _violation(error) from None
    return document


@cache
def _validator(schema: str) -> Any:
    return fastjsonschema.compile(json_schema(schema))


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
        field = ".".join(filter(None, [field, unknown[:64]]))
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
        raise PoisonMessageError("INVALID_JSON", str(error)) from None
    except json.JSONDecodeError as error:
        raise PoisonMessageError(
            "INVALID_JSON",
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
        ) from None
    except RecursionError:
        raise PoisonMessageError("INVALID_JSON", "the body is nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _NotStrictError(f'the key "{key[:64]}" stands twice in one object; keep one')
            seen.add(key)
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
