"""Outcomes of changes, and the report on a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from inventory_orders.errors import (
    PoisonMessageError,
    StoreError,
    Verdict,
    VerdictError,
    id_reused_error,
)
from inventory_orders.store.actions import TransactionCancelledError


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of one change.

    Attributes:
        verdict: Where it ended.
        rejection: Why the engine rejected it.
        record: The record that answered it before.
        applied: The change that was written in the end: another one may have taken its place.
        after: The products that it changed, as its transaction left them.
        at: When it was written, as its record says; empty if it was not.
        cause: Why it was rejected, returned or found to be poison, as a stable code; of a replay, why it changed nothing.
        detail: The same in words.
        field_path: Of poison: the offending field; empty if there is none.
        retry_after: Seconds before a retry makes sense, where that is known; else 0.
        is_written_rejection: Whether a rejection was written just now, for this change and not for its duplicate.
    """

    verdict: Verdict
    rejection: Rejection | None = None
    record: Record | None = None
    applied: Change | None = None
    after: Mapping[str, Stock] = field(default_factory=dict)
    at: str = ""
    cause: str = ""
    detail: str = ""
    field_path: str = ""
    retry_after: float = 0.0
    is_written_rejection: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the same change may yet end otherwise: it is returned, or what it is about is not there yet."""
        return self.verdict is Verdict.RETURNED or self.cause == RejectionReason.UNKNOWN_ORDER.value


class UnsuccessfulError(VerdictError):
    """A command was not carried out.

    Attributes:
        outcome: Its outcome.
        facts: What its answer tells besides.
    """

    def __init__(self, outcome: ChangeOutcome, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(outcome.detail)
        self.verdict = outcome.verdict
        self.outcome = outcome
        self.facts = facts or {}


def returned(cause: str, detail: str = "", retry_after: float = 0.0) -> ChangeOutcome:
    """The outcome of a change that may yet succeed."""
    return ChangeOutcome(Verdict.RETURNED, cause=cause, detail=detail, retry_after=retry_after)


def rejected(
    rejection: Rejection, record: Record | None = None, *, is_written: bool = False
) -> ChangeOutcome:
    """The outcome of a change that the business rejects: just now, or in an existing record."""
    return ChangeOutcome(
        Verdict.REJECTED,
        rejection,
        record,
        cause=rejection.reason.value,
        detail=rejection.words,
        is_written_rejection=is_written,
    )


def answered_before(change: Change, record: Record | None, *, same: bool) -> ChangeOutcome:
    """The outcome of a change whose record exists: of the same request, or of another one under its id."""
    if same:
        return ChangeOutcome(Verdict.REPLAYED, record=record)
    return replace(outcome_of(id_reused_error(change.id_reused_code)), record=record)


def outcome_of(error: VerdictError) -> ChangeOutcome:
    """The outcome of what met an error."""
    if isinstance(error, UnsuccessfulError):
        return error.outcome
    outcome = ChangeOutcome(
        error.verdict, cause=error.code, detail=str(error), retry_after=error.retry_after
    )
    if isinstance(error, PoisonMessageError):
        return replace(outcome, detail=error.message, field_path=error.field)
    if isinstance(error, TransactionCancelledError):
        return replace(outcome, cause="CONTENTION")
    return outcome


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The answer to a batch of changes.

    Attributes:
        outcomes: One for each change, in the order in which they were handed in.
        retries: One for each distinct change that was tried: how often its transaction was repeated.
        exhausted: One for each change that was retried: whether it was given up.
        stats: What it took.
        failure: The error for which every request fails until an operator repairs it; None if there was none.
    """

    outcomes: tuple[ChangeOutcome, ...]
    retries: tuple[int, ...]
    exhausted: tuple[bool, ...]
    stats: CommitStats
    failure: StoreError | None


def split_into_turns(changes: Sequence[Change]) -> list[list[int]]:
    """Give each of several different changes of one record a turn of its own.

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
    """Merge the reports of several turns; outcomes by the numbers of their changes."""
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
    """Changes of a batch with one record key: the first counts, and the others follow from it.

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
        if outcome.verdict is Verdict.RETURNED:
            return outcome
        is_poison = outcome.verdict is Verdict.POISON
        if is_poison and outcome.record is not None:
            # Readable: the first one was compared with it.
            same = change.match(outcome.record) is IdempotencyMatch.SAME_REQUEST
        else:
            same = first.is_same_request(change)
        is_rejected = outcome.verdict is Verdict.REJECTED and not first.stores_rejection
        if (is_poison or is_rejected) and outcome.record is None:
            # The id is still free: another body gets a delivery of its own, without this neighbour.
            once = replace(outcome, is_written_rejection=False)
            return once if same else returned("BEHIND_A_DUPLICATE")
        return answered_before(change, outcome.record, same=same)
