"""Reads cdk.json, with errors that say where it is wrong and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .settings import SettingsError

_ADVICE = (
    (re.compile(r",\s*[}\]]"), "there is a comma before the closing bracket; remove it"),
    (re.compile(r"//|/\*|#"), "JSON has no comments; remove this one"),
    (re.compile(r"['“”]"), 'text needs straight double quotes, as in "stage"'),
    (re.compile(r"\Z"), "the file ends before its last bracket is closed; add what is missing"),
)
"""What to do about the characters at which JSON becomes invalid."""
_MEANING = {
    "Expecting ',' delimiter": "a comma is missing before this character",
    "Expecting ':' delimiter": "a colon is missing before this character",
    "Expecting value": "this is not a value; text needs double quotes, other words are true, false and null",
    "Extra data": "the file continues after its last bracket; remove the rest",
    "Invalid control character at": "text cannot continue on the next line, or contain a tab",
}
"""What to do about an error of Python's parser."""
_NAME_OR_BRACE = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}]')


def read_cdk_json(path: Path) -> dict[str, Any]:
    """Read cdk.json.

    Raises:
        SettingsError: It is missing or is not valid JSON. The message says where, and what to do.
    """
    try:
        # The CDK accepts a byte order mark too.
        text = path.read_text("utf-8-sig")
        config = json.loads(text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{path} is not UTF-8 (byte {error.start + 1}); save it as UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise _error(path, text, *_cause(text, error)) from None
    for at, name in _repeated(text):
        raise _error(path, text, at, f"the object already has {name}; keep only one of them")
    if not isinstance(config, dict):
        raise _error(path, text, 0, "the file must hold an object: { ... }")
    return config


def _cause(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Find the position of the characters to change, and what to do about them."""
    before = text[: error.pos].rstrip()
    # Python reports a superfluous comma at the bracket after it, or, from 3.13 on, at the comma.
    starts = (len(before) - 1, error.pos) if before.endswith(",") else (error.pos,)
    for at in starts:
        for pattern, advice in _ADVICE:
            if pattern.match(text, at):
                return at, advice
    return error.pos, _MEANING.get(error.msg, error.msg)


def _repeated(text: str) -> Iterator[tuple[int, str]]:
    """Find each name that an object of a valid JSON text already has, with its position."""
    objects: list[set[str]] = []
    for found in _NAME_OR_BRACE.finditer(text):
        if found[0] == "{":
            objects.append(set())
        elif found[0] == "}":
            objects.pop()
        elif found[2]:
            name = json.loads(found[1])
            if name in objects[-1]:
                yield found.start(), found[1]
            objects[-1].add(name)


def _error(path: Path, text: str, at: int, problem: str) -> SettingsError:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return SettingsError(f"{path.name}, line {line}, column {column}: {problem}")
