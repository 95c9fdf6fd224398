"""The words by which a search finds products."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import NamedTuple


class WordKey(NamedTuple):
    """The key of the row that lists a product under a word."""

    word: str
    product_id: str


def words_of(text: str) -> list[str]:
    """Split a text into words, without case and accents: `Crème-Brûlée 2x 1` has `creme`, `brulee` and `2x`.

    A word has 2 to 64 letters and digits. Letters that Unicode does not decompose stay: `ø` is not `o`.
    """
    plain = unicodedata.normalize("NFKD", text)
    letters = "".join(each for each in plain if not unicodedata.category(each).startswith("M"))
    return re.findall(r"[^\W_]{2,64}", letters.casefold())


def words_to_find(text: str) -> list[str]:
    """Split what a person searches for into words, the longest first, without those that begin another one."""
    words = sorted({*words_of(text)}, key=lambda word: (-len(word), word))
    return [word for n, word in enumerate(words) if not any(w.startswith(word) for w in words[:n])]


def first_match(words: Collection[str], word: str, wanted: Collection[str]) -> str | None:
    """The first of a product's words that begins with `word`; None unless each wanted word, of which it is one, begins one."""
    is_found = all(any(each.startswith(one) for each in words) for one in wanted)
    return min(each for each in words if each.startswith(word)) if is_found else None
