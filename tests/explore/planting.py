"""Injects bugs by replacing pieces of code, which are found even if they were moved or their names have changed."""

from __future__ import annotations

import builtins
import keyword
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
_FIXED = {*keyword.kwlist, *dir(builtins), "self"}


class Edit(NamedTuple):
    """A piece of code and its replacement.

    Pieces are compared token by token, so code that was moved or reformatted is still found. If no piece matches
    exactly, the one that differs in the fewest names is replaced, and the replacement uses its names.

    Attributes:
        old: The piece to replace, as whole tokens; a string is one token.
        new: The replacement. Lines after the first get the indentation of the old piece's first line.
        within: The package, module, class or function to search, if the piece also occurs elsewhere.
    """

    old: str
    new: str
    within: str = ""


class _Token(NamedTuple):
    """A token and its position. An attribute includes its dot, because a variable may have the same name."""

    text: str
    start: int
    end: int

    @property
    def is_name(self) -> bool:
        return self.text.removeprefix(".").isidentifier() and self.text not in _FIXED

    @property
    def shape(self) -> str:
        """The parts of the token that renaming does not change."""
        return "." * self.text.startswith(".") if self.is_name else self.text


class _Piece(NamedTuple):
    path: Path
    start: int
    end: int
    names: Mapping[str, str]

    @property
    def renamed(self) -> int:
        return sum(old != new for old, new in self.names.items())


def plant(sources: Mapping[Path, str], edit: Edit) -> tuple[Path, str]:
    """Make one edit. Returns the path of the changed file, and its new text.

    Raises:
        ValueError: The code has no such piece, or several.
    """
    pieces = [piece for path, text in sources.items() for piece in _pieces(path, text, edit)]
    fewest = min((piece.renamed for piece in pieces), default=0)
    pieces = [piece for piece in pieces if piece.renamed == fewest]
    if not pieces:
        raise ValueError(f"the code no longer has {edit.old!r}: copy the piece that replaced it")
    if len(pieces) > 1:
        places = (
            f"{path}:{sources[path].count(chr(10), 0, start) + 1}" for path, start, *_ in pieces
        )
        raise ValueError(
            f"{edit.old!r} occurs in {', '.join(places)}: lengthen it, or set `within`"
        )
    ((path, start, end, names),) = pieces
    before, after = sources[path][:start], sources[path][end:]
    line = before.rpartition("\n")[2]
    indentation = line[: len(line) - len(line.lstrip())]
    new = dedent(edit.new).strip()
    for token in reversed(_read(new)[0]):
        new = new[: token.start] + names.get(token.text, token.text) + new[token.end :]
    return path, before + new.replace("\n", f"\n{indentation}") + after


def _pieces(path: Path, text: str, edit: Edit) -> Iterator[_Piece]:
    """Yield the pieces of a file that match an edit, even if up to half of their names have changed consistently."""
    old, shape = _read(dedent(edit.old).strip())
    tokens, shapes = _read(text)
    position = shapes.find(shape)
    while position >= 0:
        first = shapes.count("\0", 0, position)
        found = tokens[first : first + len(old)]
        names = {a.text: b.text for a, b in zip(old, found, strict=True) if a.is_name}
        piece = _Piece(path, found[0].start, found[-1].end, names)
        if (
            [names.get(token.text, token.text) for token in old] == [token.text for token in found]
            and len(set(names.values())) == len(names)
            and piece.renamed <= len(names) / 2
            and (not edit.within or edit.within in _surroundings(path, tokens[:first]))
        ):
            yield piece
        position = shapes.find(shape, position + 1)


def _surroundings(path: Path, before: Sequence[_Token]) -> set[str]:
    """Names of the package, the module, and the last class and function that start before a piece."""
    named = pairwise(before)
    last = {token.text: name.text for token, name in named if token.text in {"class", "def"}}
    return {*path.parts, path.stem, *last.values()}


@cache
def _read(text: str) -> tuple[Sequence[_Token], str]:
    """Split code into tokens. Also returns these as one string without names.

    Ignores layout and trailing commas, which a formatter may add or remove.
    """
    starts = list(accumulate((len(line) for line in StringIO(text)), initial=0))
    tokens: list[_Token] = []
    with suppress(tokenize.TokenError):  # The text ends inside brackets.
        for token in tokenize.generate_tokens(StringIO(text).readline):
            if token.type in _LAYOUT:
                continue
            (row, column), (last_row, last_column) = token.start, token.end
            string, start = token.string, starts[row - 1] + column
            if tokens and tokens[-1].text == "." and token.type == tokenize.NAME:
                string, start = f".{string}", tokens.pop().start
            elif tokens and tokens[-1].text == "," and string in {")", "]", "}"}:
                tokens.pop()
            tokens.append(_Token(string, start, starts[last_row - 1] + last_column))
    shape = "\0".join(token.shape for token in tokens)
    return tokens, f"\0{shape}\0"
