"""What became of changes: the answer of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from inventory_orders.domain.change import (
    Change,
    IdempotencyMatch,
    Record,
    RecordKey,
    Rejection,
    RejectionReason,
)
from inventory_orders.domain.product import Stock
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import StoreError


class ChangeStatus(Enum):
    """Where a change ended."""

    APPLIED = auto()
    REJECTED = auto()
    """The business says no."""
    REPLAYED = auto()
    """It was answered before: its record is there."""
    ID_REUSED = auto()
    """Its record is there, but of another request: this one changes nothing, ever."""
    INVALID = auto()
    """DynamoDB will never accept it."""
    RETURNED = auto()
    """It may yet succeed."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What became of one change.

    Attributes:
        status: Where it ended.
        rejection: Why it was rejected.
        record: The record that answered it before.
        applied: The change that was written in the end: another one may have taken its place.
        after: The products that it changed, as its transaction left them.
        at: When it was written, as its record says; empty if it was not.
        cause: Why it was returned or found invalid, as a stable code; of a replay, why it changed nothing.
        detail: The same in words.
        retry_after: Seconds before a retry makes sense, where that is known; else 0.
        is_written_rejection: Whether a rejection was written just now, for this change and not for its duplicate.
    """

    status: ChangeStatus
    rejection: Rejection | None = None
    record: Record | None = None
    applied: Change | None = None
    after: Mapping[str, Stock] = field(default_factory=dict)
    at: str = ""
    cause: str = ""
    detail: str = ""
    retry_after: float = 0.0
    is_written_rejection: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the same change may yet end otherwise: it is returned, or what it is about is not there yet."""
        unknown = self.rejection is not None and (
            self.rejection.reason is RejectionReason.UNKNOWN_ORDER
        )
        return self.status is ChangeStatus.RETURNED or unknown


def returned(cause: str, detail: str = "", retry_after: float = 0.0) -> ChangeOutcome:
    """The outcome of a change that may yet succeed."""
    return ChangeOutcome(ChangeStatus.RETURNED, cause=cause, detail=detail, retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The answer to a batch of changes.

    Attributes:
        outcomes: One for each change, in the order in which they were handed in.
        retries: One for each distinct change that was tried: how often its transaction was repeated.
        exhausted: One for each change that was retried: whether it was given up.
        stats: What it took.
        failure: The error for which every request fails until somebody repairs something; None if there was none.
    """

    outcomes: tuple[ChangeOutcome, ...]
    retries: tuple[int, ...]
    exhausted: tuple[bool, ...]
    stats: CommitStats
    failure: StoreError | None


def split_into_turns(changes: Sequence[Change]) -> list[list[int]]:
    """Of several changes with one record key that ask for different things, each gets a turn of its own.

    Returns:
        For each turn the numbers of its changes. There is one turn, unless `shares_record` says otherwise.
    """
    turns: list[list[int]] = [[]]
    asked: dict[RecordKey, list[Change]] = {}
    for number, change in enumerate(changes):
        turn = 0
        if change.shares_record:
            before = asked.setdefault(change.record_key, [])
            same = (n for n, other in enumerate(before) if change.is_same_request(other))
            turn = next(same, len(before))
            if turn == len(before):
                before.append(change)
        if turn == len(turns):
            turns.append([])
        turns[turn].append(number)
    return turns


def merge_reports(
    outcomes: Mapping[int, ChangeOutcome], reports: Sequence[CommitReport]
) -> CommitReport:
    """The answer to all changes of several turns, from their outcomes by number."""
    stats = CommitStats()
    for report in reports:
        stats.add(report.stats)
    return CommitReport(
        outcomes=tuple(outcomes[number] for number in sorted(outcomes)),
        retries=tuple(count for report in reports for count in report.retries),
        exhausted=tuple(given_up for report in reports for given_up in report.exhausted),
        stats=stats,
        failure=next((r.failure for r in reports if r.failure is not None), None),
    )


class Duplicates:
    """Of several changes of a batch with one record key the first counts; the others follow from it.

    A duplicate in another group would have to wait for the first one's group, and all behind it in its own group with
    it. They are deferred to their next delivery, by which time the first one is durable.

    Args:
        changes: In the order in which they arrived.

    Attributes:
        first_by_key: The changes that count.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes
        self._deferred: set[int] = set()
        self.first_by_key: dict[RecordKey, Change] = {}
        stopped: set[str] = set()
        for index, change in enumerate(changes):
            first = self.first_by_key.get(change.record_key, change)
            if change.group is not None and (
                change.group in stopped or first.group != change.group
            ):
                stopped.add(change.group)
                self._deferred.add(index)
            else:
                self.first_by_key.setdefault(change.record_key, change)

    def outcomes_of_all(
        self, outcomes: Mapping[RecordKey, ChangeOutcome]
    ) -> tuple[ChangeOutcome, ...]:
        """An outcome for every change, from those of the first ones."""
        answered: set[RecordKey] = set()
        answers = []
        for index, change in enumerate(self._changes):
            key = change.record_key
            if index in self._deferred:
                answers.append(returned("BEHIND_A_DUPLICATE"))
                continue
            outcome = outcomes[key]
            answers.append(self._answer(change, outcome) if key in answered else outcome)
            answered.add(key)
        return tuple(answers)

    def _answer(self, change: Change, outcome: ChangeOutcome) -> ChangeOutcome:
        """The outcome of a duplicate, from that of the first one."""
        first = self.first_by_key[change.record_key]
        if outcome.status is ChangeStatus.RETURNED:
            return outcome
        if outcome.status is ChangeStatus.ID_REUSED and outcome.record is not None:
            # Readable: the first one was compared with it.
            same = change.match(outcome.record) is IdempotencyMatch.SAME_REQUEST
        else:
            same = first.is_same_request(change)
        rejected = outcome.status is ChangeStatus.REJECTED and outcome.record is None
        leaves_no_record = rejected and not first.stores_rejection
        if outcome.status is ChangeStatus.INVALID or leaves_no_record:
            # The id is still free: another body gets a delivery of its own, without this neighbour.
            once = replace(outcome, is_written_rejection=False)
            return once if same else returned("BEHIND_A_DUPLICATE")
        status = ChangeStatus.REPLAYED if same else ChangeStatus.ID_REUSED
        return ChangeOutcome(status, record=outcome.record)
