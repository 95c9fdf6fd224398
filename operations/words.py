"""Formats words and numbers for reports."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Format a number of things: "1 order", "2,000 orders"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def lane_name(lane: int) -> str:
    """Name a lane; number 0 is the depot."""
    return f"lane {lane}" if lane else "the depot"


def location_name(location_id: str) -> str:
    """Name a location. The default one has no id, so its name is in parentheses, which ids cannot contain."""
    return location_id or "(default)"


def without_full_stop(error: Exception) -> str:
    """Format an AWS error for the middle of a message, without the full stop that some errors end with."""
    return str(error).rstrip(".")
