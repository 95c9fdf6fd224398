"""Formats words and numbers for reports."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, thing: str) -> str:
    """Format a number of things: "1 order", "2,000 orders"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def numbered(thing: str, numbers: Sequence[int]) -> str:
    """Name things by their numbers: "lines 3 and 4", "lines 1, 2, 3 and 9 more"."""
    shown = [f"{number:,}" for number in numbers[:_NUMBERS_SHOWN]]
    if more := len(numbers) - len(shown):
        shown.append(f"{more:,} more")
    *first, last = shown
    return f"{thing}s {', '.join(first)} and {last}" if first else f"{thing} {last}"


_NUMBERS_SHOWN = 5


def lane_name(lane: int) -> str:
    """Name a lane; number 0 is the depot."""
    return f"lane {lane}" if lane else "the depot"


def location_name(location_id: str) -> str:
    """Name a location. The default one has no id, so its name is in parentheses, which ids cannot contain."""
    return location_id or "(default)"


def without_full_stop(error: Exception) -> str:
    """Format an AWS error for the middle of a message, without the full stop that some errors end with."""
    return str(error).rstrip(".")
