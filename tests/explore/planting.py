"""Injects bugs by replacing pieces of code, wherever they are and however they are laid out."""

from __future__ import annotations

import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from io import StringIO
from itertools import accumulate, pairwise
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

_LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


class Edit(NamedTuple):
    """A piece of code and its replacement.

    Pieces are compared token by token, so code that was moved or reformatted is still found.

    Attributes:
        old: The piece to replace, as whole tokens; a string is one token.
        new: The replacement. Lines after the first get the indentation of the old piece's first line.
        within: The package, module, class or function to search, if the piece also occurs elsewhere.
    """

    old: str
    new: str
    within: str = ""


class _Token(NamedTuple):
    text: str
    start: int
    end: int


def plant(sources: Mapping[Path, str], edit: Edit) -> tuple[Path, str]:
    """Make one edit. Returns the path of the changed file, and its new text.

    Raises:
        ValueError: The code has no such piece, or several.
    """
    pieces = [
        (path, *piece) for path, text in sources.items() for piece in _pieces(path, text, edit)
    ]
    if not pieces:
        raise ValueError(f"the code no longer has {edit.old!r}: copy the piece that replaced it")
    if len(pieces) > 1:
        places = (
            f"{path}:{sources[path].count(chr(10), 0, start) + 1}" for path, start, _ in pieces
        )
        raise ValueError(
            f"{edit.old!r} occurs in {', '.join(places)}: lengthen it, or set `within`"
        )
    ((path, start, end),) = pieces
    before, after = sources[path][:start], sources[path][end:]
    line = before.rpartition("\n")[2]
    indentation = line[: len(line) - len(line.lstrip())]
    new = dedent(edit.new).strip().replace("\n", f"\n{indentation}")
    return path, before + new + after


def _pieces(path: Path, text: str, edit: Edit) -> Iterator[tuple[int, int]]:
    """Yield where the pieces of a file that match an edit start and end."""
    old, wanted = _read(dedent(edit.old).strip())
    tokens, joined = _read(text)
    position = joined.find(wanted)
    while position >= 0:
        first = joined.count("\0", 0, position)
        if not edit.within or edit.within in _surroundings(path, tokens[:first]):
            yield tokens[first].start, tokens[first + len(old) - 1].end
        position = joined.find(wanted, position + 1)


def _surroundings(path: Path, before: Sequence[_Token]) -> set[str]:
    """Names of the package, the module, and the last class and function that start before a piece."""
    named = pairwise(before)
    last = {token.text: name.text for token, name in named if token.text in {"class", "def"}}
    return {*path.parts, path.stem, *last.values()}


@cache
def _read(text: str) -> tuple[Sequence[_Token], str]:
    """Split code into tokens. Also returns these as one string.

    Ignores layout and trailing commas, which a formatter may add or remove.
    """
    starts = list(accumulate((len(line) for line in StringIO(text)), initial=0))
    tokens: list[_Token] = []
    with suppress(tokenize.TokenError):  # The text ends inside brackets.
        for token in tokenize.generate_tokens(StringIO(text).readline):
            if token.type in _LAYOUT:
                continue
            (row, column), (last_row, last_column) = token.start, token.end
            if tokens and tokens[-1].text == "," and token.string in {")", "]", "}"}:
                tokens.pop()
            tokens.append(
                _Token(token.string, starts[row - 1] + column, starts[last_row - 1] + last_column)
            )
    joined = "\0".join(token.text for token in tokens)
    return tokens, f"\0{joined}\0"
