"""The way of a record in docs/architecture.md: brings its line numbers up to date, as `make format` does."""

from __future__ import annotations

import ast
import re

from local import ROOT

PAGE = ROOT / "docs" / "architecture.md"
_PACKAGE = ROOT / "layers" / "core" / "python" / "inventory_orders"
_BLOCK = re.compile(r"(## The way of one SQS record\n.*?```\n)(.*?)(```)", re.DOTALL)
_CALL = re.compile(r"(?P<indent> *)(?P<file>[\w/.]+):\d+ +(?P<name>[\w.]+)(?P<note>.*)")


def updated(page: str) -> str:
    """The page with the line at which each call's function begins.

    Raises:
        ValueError: A call on the page is not in the code.
    """
    return _BLOCK.sub(
        lambda block: block[1] + "".join(map(_line, block[2].splitlines())) + block[3], page
    )


def _line(text: str) -> str:
    call = _CALL.fullmatch(text)
    if call is None:
        raise ValueError(f"{PAGE.name}: {text!r} is no call: FILE:LINE NAME")
    where = f"{call['indent']}{call['file']}:{_begins_at(call['file'], call['name'])}"
    return (
        f"{where:<44} {call['name']:<28}{call['note'].strip() and ' ' + call['note'].strip()}".rstrip()
        + "\n"
    )


def _begins_at(file: str, name: str) -> int:
    path = (ROOT if file.startswith("functions/") else _PACKAGE) / file
    scope: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body
    line = 0
    for part in name.split("."):
        found = next((node for node in scope if getattr(node, "name", "") == part), None)
        if not isinstance(found, ast.ClassDef | ast.FunctionDef):
            raise ValueError(f"{PAGE.name}: {file} has no {name}")  # noqa: TRY004 - of the page
        scope, line = found.body, found.lineno
    return line


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
