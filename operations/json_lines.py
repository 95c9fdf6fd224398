"""Files of JSON lines: one object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from operations.errors import UserError

_KEYS_SHOWN = 3


def check_json_lines(path: Path, lines: Iterable[str], what: str, example: str) -> None:
    """Check that a file is not a JSON list, or objects that span several lines.

    Args:
        path: The file.
        lines: Its lines. Only the first one is read if it is an object.
        what: What the file should be, in words.
        example: A line of such a file.

    Raises:
        UserError: It is; says what it holds, and how to make lines of it.
    """
    rest = iter(lines)
    first = next((line for line in rest if line.strip()), "")
    if _begins_with_an_object(first):
        return
    text = (first + "".join(rest)).removeprefix("\ufeff").strip()
    try:
        document, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return
    is_line = "\n" not in text[:end] and end < len(text)
    if is_line or not isinstance(document, dict | list):
        return
    lines_are = f"{what} has one object on each line, such as {example}"
    if isinstance(document, list):
        raise UserError(
            f"{path} is a JSON list of {len(document):,}; {lines_are}. Make it with: jq -c '.[]' {path.name}"
        )
    names = [json.dumps(name) for name in document]
    holds = ", ".join(names[:_KEYS_SHOWN]) + (", ..." if len(names) > _KEYS_SHOWN else "")
    fits = json.loads(example).keys() & document.keys()
    make = f"Make it with: jq -c . {path.name}" if fits else "Name another file"
    raise UserError(
        f"{path} has a JSON object over several lines ({holds or 'empty'}); {lines_are}. {make}"
    )


def _begins_with_an_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line.removeprefix("\ufeff")), dict)
    except (ValueError, RecursionError):
        return False
