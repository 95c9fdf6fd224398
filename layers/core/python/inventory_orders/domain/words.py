"""The words by which a search finds products."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import NamedTuple

LEAST = 2
"""The number of characters by which words are looked up."""

_LONGEST = 64  # A key must stay below 1 KB.


class WordKey(NamedTuple):
    """The key of the row that lists a product under a word."""

    word: str
    product_id: str

    @property
    def prefix(self) -> str:
        """The partition that the row is in: the first two characters of the word."""
        return self.word[:LEAST]


def words_of(text: str) -> list[str]:
    """Split a text into words of letters and digits, without case and accents: `Crème-Brûlée 2x` has `creme`, `brulee`, `2x`.

    Letters that Unicode does not decompose stay: `ø` is not `o`.
    """
    plain = unicodedata.normalize("NFKD", text)
    letters = "".join(each for each in plain if not unicodedata.category(each).startswith("M"))
    return [word[:_LONGEST] for word in re.findall(r"[^\W_]+", letters.casefold())]


def words_to_find(text: str) -> list[str]:
    """Split what a person searches for into words, the longest first. Empty unless that has at least two characters.

    A word that begins another one is left out, because it asks for nothing more.
    """
    words = sorted({*words_of(text)}, key=lambda word: (-len(word), word))
    words = [word for n, word in enumerate(words) if not any(w.startswith(word) for w in words[:n])]
    return words if words and len(words[0]) >= LEAST else []


def first_match(words: Collection[str], word: str, wanted: Collection[str]) -> str | None:
    """The first of a product's words that begins with `word`; None unless each wanted word, of which it is one, begins one."""
    if not all(any(each.startswith(one) for each in words) for one in wanted):
        return None
    return min(each for each in words if each.startswith(word))
