"""Splits sequences into portions for single requests, and finds members that must not overtake a stopped one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Grouped(Protocol):
    """A message or change that may belong to a group, whose members must not overtake each other."""

    @property
    def group(self) -> str | None:
        """The group; None if the member may be processed in any order."""


G = TypeVar("G", bound=Grouped)


def followers(members: Iterable[G], is_stopped: Callable[[G], bool]) -> list[G]:
    """Find the members that come after a stopped member of their group, and so must not overtake it."""
    groups: set[str] = set()
    found = []
    for member in members:
        if is_stopped(member) and member.group is not None:
            groups.add(member.group)
        elif member.group in groups:
            found.append(member)
    return found


def in_portions(
    items: Iterable[T], most: int, size_of: Callable[[T], int], most_in_all: int
) -> list[list[T]]:
    """Split items into portions of at most `most` items and a total size of `most_in_all`. A larger item gets its own portion."""
    portions: list[list[T]] = []
    size = 0
    for item in items:
        size += size_of(item)
        if not portions or len(portions[-1]) == most or size > most_in_all:
            portions.append([])
            size = size_of(item)
        portions[-1].append(item)
    return portions
