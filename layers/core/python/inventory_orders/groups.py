"""Groups take effect in the order of their arrival: nothing of a group overtakes what was stopped of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar


class Grouped(Protocol):
    """A message or a change that may belong to a group."""

    @property
    def group(self) -> str | None:
        """The group; None if order is free."""


T = TypeVar("T", bound=Grouped)


def followers(members: Iterable[T], stopped: Collection[T]) -> list[T]:
    """The members that come behind a stopped one of their group, in their order."""
    groups: set[str] = set()
    found = []
    for member in members:
        if member in stopped and member.group is not None:
            groups.add(member.group)
        elif member.group in groups:
            found.append(member)
    return found
