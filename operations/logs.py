"""Reads the functions' log groups, each event once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .aws import Aws

# An event may become readable shortly after a later event.
_OVERLAP_MILLISECONDS = 2000

# The embedded AWS truncates a response at this size without notice.
_MAX_EVENTS = 10_000

_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log.

    Attributes:
        stream: The log stream. All lines of an invocation are in the same one.
        timestamp: Unix milliseconds.
        message: The line.
    """

    stream: str
    timestamp: int
    message: str


class Tail:
    """Reads the new events of a log group.

    Each call reads the newest two seconds again and skips the events of earlier calls. The embedded AWS gives events no
    ids, so an event is identified by stream, time and position among the events of that time.
    """

    def __init__(self, log_group: str, since: int) -> None:
        """Start at a time (Unix milliseconds)."""
        self._group = log_group
        self._newest = since + _OVERLAP_MILLISECONDS
        self._seen: set[_Key] = set()

    def read(self, aws: Aws) -> Iterator[Event]:
        """Read the events that are new since the last call, sorted by time."""
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
            if read < _MAX_EVENTS or not new:
                return
