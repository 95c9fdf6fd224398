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


class StoppedGroups:
    """The groups of which a member was stopped. A member without a group stops itself alone."""

    def __init__(self) -> None:
        self._groups: set[str] = set()

    def stop(self, member: Grouped) -> None:
        """Stop what comes behind a member."""
        if member.group is not None:
            self._groups.add(member.group)

    def block(self, member: Grouped) -> bool:
        """Whether a member comes behind one that was stopped."""
        return member.group in self._groups


def followers(members: Iterable[T], stopped: Collection[T]) -> list[T]:
    """The members that come behind a stopped one of their group, in their order."""
    groups = StoppedGroups()
    found = []
    for member in members:
        if member in stopped:
            groups.stop(member)
        elif groups.block(member):
            found.append(member)
    return found
