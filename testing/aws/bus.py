"""EventBridge in memory: a bus that records the events that it accepts, and refuses events on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from botocore.exceptions import ClientError

MEGABYTE = 1_000_000
"""Limit on the total size of the entries of a PutEvents call:
docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html"""

CALL_SECONDS = 0.02

Refusal = tuple[str, str] | None


class _Clock(Protocol):
    seconds: float


class EventBus:
    """An event bus.

    Args:
        clock: The time, which each call advances. By default, calls take no time.
        judge: Called with each entry's id and type. Returns the code and message of a refusal, or None to accept it,
            or raises an error.

    Attributes:
        calls: The entries of each call.
        taken: The accepted events, including probes.
    """

    def __init__(
        self,
        clock: _Clock | None = None,
        judge: Callable[[str, str], Refusal] = lambda *_: None,
    ) -> None:
        self.clock = clock
        self.judge = judge
        self.calls: list[list[Any]] = []
        self.taken: list[dict[str, Any]] = []

    def put_events(self, *, Entries: Sequence[Any]) -> Any:
        """Answer as a client of EventBridge does."""
        self.calls.append(list(Entries))
        sent = [entry[name] for entry in Entries for name in ("Source", "DetailType", "Detail")]
        if sum(len(text.encode()) for text in sent) >= MEGABYTE:
            raise refused_call("ValidationException")
        if self.clock is not None:
            self.clock.seconds += CALL_SECONDS
        answers = [self._put(entry) for entry in Entries]
        failed = sum("ErrorCode" in answer for answer in answers)
        return {"FailedEntryCount": failed, "Entries": answers}

    def _put(self, entry: Mapping[str, Any]) -> dict[str, str]:
        detail = json.loads(entry["Detail"])
        refusal = self.judge(detail["metadata"]["eventId"], entry["DetailType"])
        if refusal is not None:
            return {"ErrorCode": refusal[0], "ErrorMessage": refusal[1]}
        self.taken.append({"detail-type": entry["DetailType"], "detail": detail})
        return {"EventId": f"e-{len(self.taken)}"}

    @property
    def outcomes(self) -> list[str]:
        """Ids of the accepted events, including duplicates but without probes."""
        return [e["detail"]["metadata"]["eventId"] for e in self.taken if e["detail"]["data"]]


def refused_call(code: str, status: int = 400) -> ClientError:
    """The error for a call that is refused as a whole."""
    answer = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PutEvents")  # type: ignore[arg-type]
