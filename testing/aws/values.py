"""Values: DynamoDB's wire format (`{"N": "3"}`) and sizes, and the error responses of both services."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from decimal import Context, Decimal, DecimalException, Inexact
from typing import Any

Value = dict[str, Any]
"""One value: its type and its content."""

Item = dict[str, Value]
"""Attributes by name."""

_EXACT = Context(prec=38, traps=[Inexact], Emax=125, Emin=-130)
_DEEPEST = 32


class ServiceError(Exception):
    """An error response of AWS.

    Attributes:
        code: The code that the SDK shows, such as `ConditionalCheckFailedException`.
        message: The text of the error.
        status: HTTP status.
        extra: Further members of the error: `CancellationReasons`, `Item`.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        status: int = 400,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.extra = dict(extra or {})


def invalid(message: str) -> ServiceError:
    """Build a ValidationException."""
    return ServiceError("ValidationException", message)


def number(value: Value) -> Decimal:
    """Read a stored number exactly."""
    return Decimal(value["N"])


def text_of(value: Decimal) -> str:
    """Format a number as DynamoDB stores it: no exponent, no trailing zeros, at most 38 digits.

    Raises:
        ServiceError: ValidationException: the number cannot be stored.
    """
    if not value.is_finite():
        raise invalid("The parameter cannot be converted to a numeric value")
    if value == 0:
        return "0"
    try:
        exact = _EXACT.normalize(value)
    except DecimalException:
        raise invalid(
            "Attempting to store more than 38 significant digits, or a number out of range, in a Number"
        ) from None
    return f"{exact:f}"


def checked(value: Any, depth: int = 0) -> Value:
    """Check a value of a request, and normalise its numbers and sets.

    Raises:
        ServiceError: ValidationException or SerializationException.
    """
    if not isinstance(value, dict) or len(value) != 1:
        raise invalid(
            "Supplied AttributeValue is empty or has more than one type, must contain exactly one of the supported "
            "datatypes"
        )
    if depth > _DEEPEST:
        raise invalid("Nesting Levels have exceeded supported limits")
    kind, content = next(iter(value.items()))
    if kind in {"S", "B"}:
        return _checked_text(kind, content, value)
    if kind == "N":
        return _checked_number(content, value)
    if kind == "BOOL" and isinstance(content, bool):
        return value
    if kind == "NULL" and content is True:
        return value
    if kind == "L" and isinstance(content, list):
        return {"L": [checked(element, depth + 1) for element in content]}
    if kind == "M" and isinstance(content, dict):
        return {"M": {name: checked(inner, depth + 1) for name, inner in content.items()}}
    if kind in {"SS", "NS", "BS"} and isinstance(content, list):
        return _checked_set(kind, content)
    if kind in {"BOOL", "NULL", "L", "M", "SS", "NS", "BS"}:
        raise ServiceError("SerializationException", f"{kind} cannot hold {content!r:.50}")
    raise invalid(f"{kind} is not a data type")


def _checked_text(kind: str, content: Any, value: Value) -> Value:
    if not isinstance(content, str):
        raise ServiceError("SerializationException", f"{kind} cannot hold {content!r:.50}")
    if kind == "B":
        try:
            base64.b64decode(content, validate=True)
        except binascii.Error:
            raise ServiceError("SerializationException", "a binary value is not base64") from None
    return value


def _checked_number(content: Any, value: Value) -> Value:
    if not isinstance(content, str):
        raise ServiceError("SerializationException", f"N cannot hold {content!r:.50}")
    if content.isdecimal() and content.isascii() and len(content) < 38 and content[0] != "0":
        return value
    try:
        return {"N": text_of(Decimal(content))}
    except DecimalException:
        raise invalid(
            f"The parameter cannot be converted to a numeric value: {content[:50]}"
        ) from None


def _checked_set(kind: str, content: list[Any]) -> Value:
    elements = [checked({kind[0]: element})[kind[0]] for element in content]
    if not elements:
        raise invalid(f"One or more parameter values were invalid: An {kind} set may not be empty")
    if len(set(elements)) != len(elements):
        raise invalid(
            f"One or more parameter values were invalid: Input collection {content} contains duplicates."
        )
    return {kind: sorted(elements)}


def size_of(value: Value) -> int:
    """Compute the size of a value in bytes.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    kind, content = next(iter(value.items()))
    if kind == "S":
        return len(content) if content.isascii() else len(content.encode("utf-8", "surrogatepass"))
    if kind == "N":
        digits = len(content.lstrip("-").replace(".", "").strip("0"))
        return (digits + 1) // 2 + 1 + int(content.startswith("-"))
    if kind == "B":
        return len(base64.b64decode(content))
    if kind == "L":
        return 3 + sum(1 + size_of(element) for element in content)
    if kind == "M":
        return 3 + sum(1 for _ in content) + size_of_item(content)
    if kind in {"SS", "NS", "BS"}:
        return sum(size_of({kind[0]: element}) for element in content)
    return 1


def size_of_item(item: Mapping[str, Value]) -> int:
    """Compute the size of an item in bytes: its names and its values."""
    size = 0
    for name, value in item.items():
        size += len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
        size += size_of(value)
    return size
