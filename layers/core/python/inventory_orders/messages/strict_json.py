"""JSON without the liberties that let two readers of one body see two things."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from inventory_orders.errors import PoisonMessageError

# Far more than any valid number; a longer one would cost time that grows with the square of its length.
_MAX_DIGITS = 20


def shown_key(key: str) -> str:
    """A key of the sender's, made safe to show: short, and of printable ASCII."""
    return json.dumps(key[:64])[1:-1] or '""'


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number with a point or an exponent, as it is written: 2.0 is not a quantity."""

    text: str


def strict_json(body: str) -> Any:
    """Parse JSON without the liberties that let two readers of one body see two things.

    Not accepted are NaN and the infinities, duplicate keys, numbers of more than 20 digits, and nesting so deep that the
    parser gives up. A number with a point or an exponent becomes a `Decimal`, which no schema accepts.

    Raises:
        PoisonMessageError: With code `INVALID_JSON` and what to fix.
    """
    reader = _Reader()
    field, problem = "", ""
    try:
        document = reader.decode(body)
        if not reader.liberties:
            return document
        field = _path_to(reader.liberties[0], document) or ""
    except json.JSONDecodeError as error:
        problem = _not_json(body, error)
    except RecursionError:
        problem = "the body is nested too deeply"
    if reader.liberties:
        problem = reader.liberties[0]
    raise PoisonMessageError("INVALID_JSON", f"{field}: {problem}" if field else problem, field)


def _not_json(body: str, error: json.JSONDecodeError) -> str:
    if body.startswith("\ufeff"):
        return "the body begins with a byte order mark (U+FEFF); send it as UTF-8 without one"
    if not body.strip():
        return "the body is empty; send a JSON object"
    found = f'"{shown_key(body[error.pos : error.pos + 20])}"'
    near = f"before {found}" if error.pos < len(body) else "at its end"
    return (
        f"the body is not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}, {near}; "
        "correct it there"
    )


class _Liberty(str):
    """What is wrong with a part of a body that Python's parser takes; stands in its place."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object with a key that stands twice."""


class _Reader(json.JSONDecoder):
    """Python's parser, which notes liberties in the order in which they end.

    Attributes:
        liberties: Those of the body that was read.
    """

    def __init__(self) -> None:
        super().__init__(
            object_pairs_hook=self._object,
            parse_int=self._whole_number,
            parse_float=lambda text: Decimal(text[:40]),
            parse_constant=self._constant,
        )
        self.liberties: list[_Liberty] = []

    def _noted(self, what: str) -> _Liberty:
        self.liberties.append(_Liberty(what))
        return self.liberties[-1]

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Pairs:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        what = f'the key "{shown_key(twice)}" is there twice in one object; keep one'
        return _Pairs([*pairs, (twice, self._noted(what))])

    def _whole_number(self, text: str) -> int | _Liberty:
        if len(text) > _MAX_DIGITS:
            return self._noted(
                f"a number has {len(text)} digits; at most {_MAX_DIGITS} are read. Put an id in quotes"
            )
        return int(text)

    def _constant(self, text: str) -> _Liberty:
        return self._noted(f"{text} is not JSON; write a whole number")


def _path_to(liberty: _Liberty, value: object, path: str = "") -> str | None:
    """The path of a liberty within what was read; None if it is elsewhere."""
    if value is liberty:
        return path
    if isinstance(value, dict):
        value = _Pairs(value.items())
    if isinstance(value, _Pairs):
        inner = [(f"{path}.{shown_key(key)}".removeprefix("."), held) for key, held in value]
    elif isinstance(value, list):
        inner = [(f"{path}[{index}]", held) for index, held in enumerate(value)]
    else:
        inner = []
    found = (_path_to(liberty, held, place) for place, held in inner)
    return next((place for place in found if place is not None), None)
