"""The only code that talks to EventBridge: puts events on the bus, and says which of them it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

# The publisher decides about repetitions, so the client makes none.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"total_max_attempts": 1, "mode": "standard"},
    tcp_keepalive=True,
)

MAX_ENTRIES = 10
"""docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html"""

MAX_BYTES = 1_000_000
"""All entries of a call are smaller together: docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html. That
page says 1 MB; in decimal, an event with the bus's own fields also fits into a consumer's queue, which takes 1 MiB."""

_NOT_RETRYABLE = {
    # Codes that AWS calls so: docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html
    "AccessDeniedException",
    "InvalidAccountIdException",
    "InvalidArgument",
    "MalformedDetail",
    "NotAuthorizedForDetailTypeException",
    "NotAuthorizedForSourceException",
    "RedactionFailure",
    # Codes for a call as a whole.
    *("ValidationException", "ValidationError", "InvalidParameterValue", "413"),
}


class EventBridge(Protocol):
    """As much of a client of EventBridge as the bus needs."""

    def put_events(self, *, Entries: Sequence[Any]) -> Any:  # noqa: N803 - as boto3 has it
        """Put at most ten events on their buses."""


@dataclass(frozen=True, slots=True)
class BusEntry:
    """An entry of PutEvents.

    Attributes:
        source: The publishing service.
        detail_type: What has happened.
        detail: JSON.
    """

    source: str
    detail_type: str
    detail: str

    @property
    def size(self) -> int:
        """Bytes, as EventBridge counts them.

        docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevents.html
        """
        return sum(len(text.encode()) for text in (self.source, self.detail_type, self.detail))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the bus did not take an entry, or perhaps did not: the answer may have been lost.

    Attributes:
        code: EventBridge's, or the name of the client's exception.
        message: In words.
        is_shared: Whether the whole call was refused, and had other entries, of which one may be to blame.
    """

    code: str
    message: str
    is_shared: bool = False

    @property
    def is_retryable(self) -> bool:
        """Whether the bus may take the same entry later. An unknown code says nothing against it."""
        return self.code not in _NOT_RETRYABLE


class Bus:
    """One event bus.

    Args:
        client: `CLIENT_CONFIG` is meant for it.
        name: The bus.
    """

    def __init__(self, client: EventBridge, name: str) -> None:
        self._client = client
        self._name = name

    def put(self, entries: Sequence[BusEntry]) -> list[Refusal | None]:
        """Send one call. Returns for each entry None if the bus has taken it, else why not."""
        request = [
            {
                "EventBusName": self._name,
                "Source": entry.source,
                "DetailType": entry.detail_type,
                "Detail": entry.detail,
            }
            for entry in entries
        ]
        try:
            answers = self._client.put_events(Entries=request)["Entries"]
        except (ClientError, BotoCoreError) as error:
            code = (
                error.response["Error"]["Code"]
                if isinstance(error, ClientError)
                else type(error).__name__
            )
            return [Refusal(code, str(error), is_shared=len(entries) > 1)] * len(entries)
        # A refusal is one of the answers; the call as a whole has succeeded.
        return [
            None
            if "ErrorCode" not in answer
            else Refusal(answer["ErrorCode"], answer.get("ErrorMessage", ""))
            for answer in answers
        ]
