"""Parses JSON documents strictly, so that all parsers agree on what they contain, and checks them against schemas."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
from fastjsonschema import JsonSchemaValueException

from inventory_orders.clock import timestamp
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.envelopes import envelope_of, envelope_of_text

# No valid number has nearly as many. A limit is needed because the time to parse a number grows with the square of its length.
_MAX_DIGITS = 20
_TOO_DEEP = "the body is nested too deeply"


def shown_key(key: str) -> str:
    """Shorten a key from the sender and write it in printable ASCII, so that it can be shown in an error message."""
    return json.dumps(key[:64])[1:-1] or '""'


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number with a decimal point or an exponent, kept as written so that 2.0 is not accepted as a quantity."""

    text: str


def strict_json(body: str) -> Any:
    """Parse JSON strictly, so that all parsers agree on what it contains.

    This refuses NaN and infinities, duplicate keys, numbers of more than 20 digits, and nesting that is too deep for the parser.
    A number with a decimal point or an exponent becomes a `Decimal`, which no schema accepts.

    Raises:
        InvalidMessageError: The body is not strict JSON. The code is `INVALID_JSON`, and the message says what to fix.
    """
    reader, field = _Reader([]), ""
    try:
        document = json.loads(
            body,
            object_pairs_hook=reader.read_object,
            parse_int=reader.read_number,
            parse_float=lambda text: Decimal(text[:40]),
            parse_constant=lambda text: reader.refuse(f"{text} is not JSON; write a whole number"),
        )
        if not reader.liberties:
            return document
        problem = reader.liberties[0]
        field = _path_of(problem, document)
    except json.JSONDecodeError as error:
        problem = (reader.liberties or [_not_json(body, error)])[0]
    except RecursionError:
        problem = (reader.liberties or [_TOO_DEEP])[0]
    raise InvalidMessageError("INVALID_JSON", f"{field}: {problem}" if field else problem, field)


def _not_json(body: str, error: json.JSONDecodeError) -> str:
    if body.startswith("\ufeff"):
        return "the body begins with a byte order mark (U+FEFF); send it as UTF-8 without one"
    if not body.strip():
        return "the body is empty; send a JSON object"
    if envelope := envelope_of_text(body):
        return f"the body is {envelope}"
    found = f'"{shown_key(body[error.pos : error.pos + 20])}"'
    near = f"before {found}" if error.pos < len(body) else "at its end"
    return (
        f"the body is not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}, {near}; "
        "correct it there"
    )


def as_json(event: object) -> Any:
    """Parse a Lambda event as strictly as the body of a message."""
    try:
        return strict_json(json.dumps(event))
    except (RecursionError, ValueError):
        raise InvalidMessageError(
            "INVALID_JSON", "the event is nested too deeply, or contains a number that is too long"
        ) from None


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of an object with a duplicate key."""


@dataclass(slots=True)
class _Reader:
    """Converts parts of a JSON document for Python's parser. It replaces all that we refuse with a description of the problem.

    Attributes:
        liberties: The descriptions, which also replace the refused values in the parsed document.
    """

    liberties: list[str]

    def refuse(self, what: str) -> str:
        self.liberties.append(what)
        return what

    def read_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Pairs:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        what = f'the key "{shown_key(twice)}" appears twice in one object; keep one'
        return _Pairs([*pairs, (twice, self.refuse(what))])

    def read_number(self, text: str) -> int | str:
        if len(text) > _MAX_DIGITS:
            return self.refuse(
                f"a number has {len(text)} digits; at most {_MAX_DIGITS} are allowed. Put ids in quotes"
            )
        return int(text)


def _path_of(part: object, document: object) -> str:
    """Find a part of a parsed document, and write its path; empty for the document itself.

    Each value is visited once and one path is written, so the time is linear in the size of the document, however deep it is.
    """
    keys: list[str | int] = []
    found, open_parts = document, [_entries(document)]
    while found is not part:
        for key, found in open_parts[-1]:
            if found is part or isinstance(found, dict | list):
                keys.append(key)
                open_parts.append(_entries(found))
                break
        else:
            open_parts.pop()
            keys.pop()
    steps = (f"[{key}]" if isinstance(key, int) else f".{shown_key(key)}" for key in keys)
    return "".join(steps).removeprefix(".")


def _entries(value: Any) -> Iterator[tuple[str | int, Any]]:
    """The values in an object or a list, each with its key or index."""
    if isinstance(value, _Pairs):
        return iter(value)
    return iter(value.items() if isinstance(value, dict) else enumerate(value))


# ---------------------------------------------------------------------- schemas


@cache
def json_schema(name: str) -> dict[str, Any]:
    """Load a file of schemas: a message such as `order`, all `commands` by function and action, or the `types` that they use."""

    def resolved(part: dict[str, Any]) -> Any:
        # A field may describe a type in other words.
        of = part.pop("$ref", "").rpartition("/")[2]
        return json_schema("types")[of] | part if of else part

    text = (Path(__file__).parent / "schemas" / f"{name}.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text, object_hook=resolved)
    return schema


_validators: dict[str, Any] = {}


def validated(
    document: dict[str, Any],
    name: str,
    schema: dict[str, Any] | None = None,
    whole: str = "the message",
) -> dict[str, Any]:
    """Check a document against a schema, and convert its times to the format in which they are stored.

    Args:
        document: The document, which is changed in place.
        name: The name of the schema's file, or a unique name for `schema`.
        schema: The schema, if it is only a part of a file.
        whole: The name of the document in error messages.

    Returns:
        The same document.

    Raises:
        InvalidMessageError: The document does not match the schema. The message says what to fix.
    """
    schema = schema or json_schema(name)
    if name not in _validators:
        _validators[name] = fastjsonschema.compile(schema)
    try:
        _validators[name](document)
    except JsonSchemaValueException as error:
        raise wrapped(document, whole) or _violation(error, whole) from None
    except RecursionError:
        # The check for duplicates in a list walks through its items before their types are checked.
        raise InvalidMessageError("INVALID_JSON", _TOO_DEEP) from None
    for field, part in schema["properties"].items():
        if field in document and part.get("format") == "date-time":
            document[field] = _as_stored(field, document[field])
    return document


def _as_stored(field: str, time: str) -> str:
    """Convert a time to the stored format, so that times sort as strings. Digits below a microsecond are cut off.

    Raises:
        InvalidMessageError: The day does not exist, or the year cannot be stored.
    """
    try:
        return timestamp(datetime.fromisoformat(time.upper()))
    except (ValueError, OverflowError):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", f"{field}: there is no such time as {_shown(time)}", field
        ) from None


def checked_id(name: str, value: str, kind: str = "") -> str:
    """Check an id, such as a `productId` or an `orderId`, and return it. Pass its `kind` if its field has another name.

    A `time` is returned in the format in which it is stored.

    Raises:
        InvalidMessageError: The id is not valid.
    """
    types = json_schema("types")
    schema = {"properties": {name: types.get(kind or name, types["id"])}}
    return str(validated({name: value}, name, schema)[name])


def wrapped(document: Any, whole: str = "the message") -> InvalidMessageError | None:
    """Build the error for a refused document that is an envelope around a message; None if it is not."""
    envelope = envelope_of(document)
    return InvalidMessageError("SCHEMA_VIOLATION", f"{whole} is {envelope}") if envelope else None


def _violation(error: JsonSchemaValueException, whole: str) -> InvalidMessageError:
    """Say what to fix: which field, what the schema requires there, and what the sender wrote."""
    path = json.dumps((error.name or "").removeprefix("data").removeprefix("."))[1:-1]
    where = path or whole
    if error.rule not in _RULES_ON_FIELDS:
        fields = error.definition.get("properties", {})
        wanted = error.definition.get("description") or f"an object with {' or '.join(fields)}"
        what = f"{where}: must be {wanted}, but is {_shown(error.value)}{_remedy(error)}"
        return InvalidMessageError("SCHEMA_VIOLATION", what, path)
    name, what = _RULES_ON_FIELDS[error.rule](error, where)
    path = f"{path}.{name}" if path else name
    return InvalidMessageError("SCHEMA_VIOLATION", f"{path}: {what}", path)


def _missing(error: JsonSchemaValueException, where: str) -> tuple[str, str]:
    name = next(name for name in error.definition["required"] if name not in error.value)
    if "description" in error.definition:
        return name, f"is missing; {where} must be {error.definition['description']}"
    wanted = error.definition["properties"][name]["description"]
    return name, f"is missing in {where}; it must be {wanted}"


def _needed_by_another(error: JsonSchemaValueException, where: str) -> tuple[str, str]:
    needed, other = next(
        (needed, name)
        for name, (needed,) in error.definition["dependencies"].items()
        if name in error.value and needed not in error.value
    )
    return needed, f"is missing in {where}; {other} needs it"


def _unknown(error: JsonSchemaValueException, where: str) -> tuple[str, str]:
    fields = error.definition.get("properties", {})
    unknown = next(name for name in error.value if name not in fields)
    correction = f", or correct it to one of {', '.join(fields)}" if fields else ""
    if unknown in (reasons := error.definition.get("refused", {})):
        correction = f": {reasons[unknown]}"
    return shown_key(unknown), f"unknown field of {where}; remove it{correction}"


_RULES_ON_FIELDS = {
    "required": _missing,
    "dependencies": _needed_by_another,
    "additionalProperties": _unknown,
}
"""The schema rules about the fields of an object, each with the function that names the wrong field and the problem."""


def not_one_of(field: str, allowed: Iterable[str], given: Any) -> str:
    """Say that a field does not have one of its allowed values. If the field is missing, pass None."""
    wanted = f"must be one of {', '.join(allowed)}"
    problem = f"is missing; it {wanted}" if given is None else f"{wanted}, but is {_shown(given)}"
    return f"{field}: {problem}"


def _shown(value: Any) -> str:
    """Shorten a value from the sender, so that it can be shown in an error message."""
    if isinstance(value, dict | list):
        article, kind = ("an", "object") if isinstance(value, dict) else ("a", "list")
        return f"{article} {kind} of {len(value)}" if value else f"an empty {kind}"
    text = value.text if isinstance(value, Decimal) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _remedy(error: JsonSchemaValueException) -> str:
    """Suggest putting a number in quotes, or removing the quotes around it."""
    value, kind = error.value, error.definition.get("type", "")
    if "string" in kind and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return f'; put it in quotes: "{_shown(value)}"'
    if kind == "integer" and isinstance(value, str) and re.fullmatch("-?[0-9]{1,20}", value):
        return f"; remove the quotes: {int(value)}"
    return ""
