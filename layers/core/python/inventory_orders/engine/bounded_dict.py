"""A dictionary of bounded size: it drops the entry that was written longest ago."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(Generic[K, V]):
    """Memory of a warm process, of bounded size.

    Args:
        most: Entries at the most.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, if there is one."""
        return self._entries.get(key)

    def set(self, key: K, value: V) -> V:
        """Write an entry, and drop the oldest one if there are too many. Returns the value."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return value
