"""The log groups of the functions, read event by event, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from operations.aws import Aws

# An event may become readable a little after a later one has.
_OVERLAP_MILLISECONDS = 2000

# The embedded AWS cuts an answer off here without saying so.
_MOST_EVENTS = 10_000

_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log.

    Attributes:
        stream: The log stream; the lines of an invocation stand together in it.
        timestamp: Unix milliseconds.
        message: The line.
    """

    stream: str
    timestamp: int
    message: str


class Tail:
    """Reads what a log group has gained since the last time.

    The newest two seconds are read again each time, and what was seen before is left out. An event has no id on the
    embedded AWS; its stream, its time and its place among the lines of that moment tell it from the others.
    """

    def __init__(self, log_group: str, since: int) -> None:
        """Begin at a moment (Unix milliseconds)."""
        self._group = log_group
        self._newest = since + _OVERLAP_MILLISECONDS
        self._seen: set[_Key] = set()

    def read(self, aws: Aws) -> Iterator[Event]:
        """The events that are new, in the order of their time."""
        while True:
            start = self._newest - _OVERLAP_MILLISECONDS
            self._seen = {key for key in self._seen if key[1] >= start}
            places: Counter[tuple[str, int]] = Counter()
            read = new = 0
            for page in aws.logs.get_paginator("filter_log_events").paginate(
                logGroupName=self._group, startTime=start
            ):
                read += len(page["events"])
                for event in page["events"]:
                    stream, timestamp = event["logStreamName"], event["timestamp"]
                    key = (stream, timestamp, places[stream, timestamp])
                    places[stream, timestamp] += 1
                    if key not in self._seen:
                        self._seen.add(key)
                        self._newest = max(self._newest, timestamp)
                        new += 1
                        yield Event(stream, timestamp, event["message"])
            if read < _MOST_EVENTS or not new:
                return
