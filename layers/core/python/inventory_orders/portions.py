"""Splits what does not fit into one request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_portions(
    items: Iterable[T], most: int, size_of: Callable[[T], int], most_bytes: int
) -> list[list[T]]:
    """Items in portions of so many at the most, and of so many bytes unless a single one has more."""
    portions: list[list[T]] = []
    size = 0
    for item in items:
        size += size_of(item)
        if not portions or len(portions[-1]) == most or size > most_bytes:
            portions.append([])
            size = size_of(item)
        portions[-1].append(item)
    return portions
