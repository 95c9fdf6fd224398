"""A dictionary of bounded size that forgets what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(Generic[K, V]):
    """What a warm process remembers.

    Args:
        most: Entries at the most.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, if there is one. Looking at it is not using it."""
        return self._entries.get(key)

    def set(self, key: K, value: V) -> V:
        """Use an entry: write it, and forget the oldest if there are too many. Returns the value."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return value
