"""Assigns the lines of orders to locations, so that each location supplies exactly the units that it should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# The search gives up after so many dead ends. Lines of real orders are small, and meet none.
_MOST_DEAD_ENDS = 20_000


def assigned(units: Sequence[int], rooms: Sequence[int]) -> list[int] | None:
    """Assign lines to locations. A line's units all come from one location.

    Args:
        units: The units of each line, the largest first. They add up to as many as the locations supply.
        rooms: The units that each location supplies.

    Returns:
        The number of the location for each line; None if there is no such assignment, or none was found in a reasonable time.
    """
    left, chosen = list(rooms), list[int]()
    dead = set[tuple[int, tuple[int, ...]]]()
    choices = [_choices(units[0], left)] if units else []
    while choices and len(chosen) < len(units) and len(dead) < _MOST_DEAD_ENDS:
        line = len(chosen)
        place = next(choices[-1], None)
        if place is None:
            dead.add((line, tuple(sorted(left))))
            choices.pop()
            if chosen:
                left[chosen[-1]] += units[len(chosen) - 1]
                chosen.pop()
            continue
        left[place] -= units[line]
        if (line + 1, tuple(sorted(left))) in dead:
            left[place] += units[line]
            continue
        chosen.append(place)
        if len(chosen) < len(units):
            choices.append(_choices(units[len(chosen)], left))
    return chosen if len(chosen) == len(units) else None


def _choices(units: int, left: Sequence[int]) -> Iterator[int]:
    """Yield the locations that have room for a line, those with the most room first, and only one of several with equal room."""
    by_room = {room: place for place, room in enumerate(left) if room >= units}
    return iter([by_room[room] for room in sorted(by_room, reverse=True)])
