"""JSON without the liberties that let two readers of one body see two things."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from inventory_orders.errors import PoisonMessageError

# Far more than any valid number; a longer one would cost time that grows with the square of its length.
_MAX_DIGITS = 20


def shown_key(key: str) -> str:
    """A key of the sender's, made safe to show: short, and of printable ASCII."""
    return json.dumps(key[:64])[1:-1] or '""'


class _NotStrictError(ValueError):
    """Python's parser would take it, but it is not what the contract calls JSON."""


def strict_json(body: str) -> Any:
    """Parse JSON without the liberties that let two readers of one body see two things.

    Not accepted are floats (2.0 is not a quantity), NaN and the infinities, duplicate keys, numbers of more than 20
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
        inner = ((f"{path}.{shown_key(key)}".removeprefix("."), held) for key, held in value.pairs)
    elif isinstance(value, list):
        inner = ((f"{path}[{index}]", held) for index, held in enumerate(value))
    for place, held in inner:
        found = _first_liberty(held, place)
        if found is not None:
            return found
    if isinstance(value, _Pairs) and value.twice is not None:
        return f"{path}.{shown_key(value.twice)}".removeprefix("."), _stands_twice(value.twice)
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
    return _NotStrictError(f'the key "{shown_key(key)}" stands twice in one object; keep one')


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
