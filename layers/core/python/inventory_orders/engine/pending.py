"""The changes of a batch that are still to be decided, and the outcomes of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from inventory_orders.domain.change import Change, IdempotencyMatch, Record, RecordKey, Rejection
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    CommitReport,
    outcome_of,
    rejected,
    returned,
)
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
    Verdict,
    id_reused_error,
)

_REPAIR = "it fails a condition on what was read from it; repair the item"


def split_into_turns(changes: Iterable[Change]) -> list[list[int]]:
    """Give each of several changes of one record a turn of its own, by their order, so that it finds what the one before left.

    In its group, what follows a change has its turn with it, or later.

    Returns:
        For each turn the numbers of its changes.
    """
    turns: list[list[int]] = []
    next_turn: dict[RecordKey | str, int] = {}
    for number, change in enumerate(changes):
        turn = max(next_turn.get(key, 0) for key in (change.record_key, change.group or ""))
        next_turn[change.record_key] = turn + 1
        if change.group is not None:
            next_turn[change.group] = turn
        if turn == len(turns):
            turns.append([])
        turns[turn].append(number)
    return turns


class PendingChanges:
    """Changes without an outcome, in the order of arrival. An outcome is final: the first one stands.

    Args:
        changes: In the order in which they arrived, with distinct record keys.

    Attributes:
        by_key: All changes as they came, whether they are decided or not.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        self.by_key: Mapping[RecordKey, Change] = {c.record_key: c for c in changes}
        self._pending = dict(self.by_key)
        self._outcomes: dict[RecordKey, ChangeOutcome] = {}
        self._retries: dict[RecordKey, int] = {}
        self._failure: StoreError | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Change]:
        return iter(list(self._pending.values()))

    # ------------------------------------------------------------------ what they are about

    @property
    def product_ids(self) -> list[str]:
        """The products of all pending changes."""
        ids = (product_id for change in self._pending.values() for product_id in change.product_ids)
        return list(dict.fromkeys(ids))

    @property
    def need(self) -> dict[str, int]:
        """Units of each product that pending changes take, and that may be sold from lanes.

        A product of a change that needs its row is left out: in one round a product has one source.
        """
        need: dict[str, int] = {}
        by_row: set[str] = set()
        for change in self._pending.values():
            if not change.decrements:
                by_row.update(change.product_ids)
            for product_id, units in change.decrements.items():
                need[product_id] = need.get(product_id, 0) + units
        return {product_id: units for product_id, units in need.items() if product_id not in by_row}

    def still_pending(self, changes: Iterable[Change]) -> list[Change]:
        """The changes among these that have no outcome yet."""
        return [change for change in changes if change.record_key in self._pending]

    # ------------------------------------------------------------------ deciding

    def settle(self, change: Change, outcome: ChangeOutcome) -> None:
        """Give a change its outcome, unless it has one."""
        key = change.record_key
        if self._pending.pop(key, None) is not None:
            self._outcomes[key] = outcome

    def match(self, key: RecordKey, record: Record | CorruptItemError | None) -> bool:
        """Match a change with its record. Returns whether it, or one that takes its place, has to be planned again."""
        change = self._pending.get(key)
        if change is None or record is None:
            return change is not None
        if isinstance(record, CorruptItemError):
            self.give_up([change], record.code, str(record))
            return False
        try:
            meaning = change.match(record)
        except CorruptItemError as error:
            self.give_up([change], error.code, str(error))
            return False
        if isinstance(meaning, IdempotencyMatch):
            if meaning is IdempotencyMatch.SAME_REQUEST:
                self.settle(change, ChangeOutcome(Verdict.REPLAYED))
            else:
                self.settle(change, outcome_of(id_reused_error(change.id_reused_code)))
        elif isinstance(meaning, Rejection):
            self.settle(change, rejected(meaning))
        elif meaning == change:
            # Planned from this very record, it failed: planned again it would fail again.
            self.give_up([change], "CORRUPT_RECORD", f"{record.key} contradicts itself: {_REPAIR}")
        else:
            self._pending[key] = meaning
            return True
        return False

    # ------------------------------------------------------------------ giving up

    def give_up(
        self, changes: Iterable[Change], cause: str, detail: str, retry_after: float = 0.0
    ) -> None:
        """Return changes to their sender, and those that arrived after them in their groups."""
        keys = {change.record_key for change in changes}
        stopped: set[str | None] = set()
        for change in self:
            if change.record_key in keys or (change.group in stopped and change.group is not None):
                self.settle(change, returned(cause, detail, retry_after))
                stopped.add(change.group)

    def give_up_product(self, product_id: str, cause: str, detail: str) -> None:
        """Return all changes of a product."""
        self.give_up((c for c in self if product_id in c.product_ids), cause, detail)

    def give_up_all(self, cause: str, detail: str) -> None:
        """Return all that is left."""
        self.give_up(self._pending.values(), cause, detail)

    def fail(self, error: StoreError) -> None:
        """Return all that is left; loudly, unless the error may pass."""
        if not isinstance(error, ThrottledError | OutcomeUnknownError):
            self._failure = error
        self.give_up_all(error.code, str(error))

    def count_retries(self, change: Change, retries: int) -> None:
        """Count how often a change was planned or sent again."""
        self._retries[change.record_key] = self._retries.get(change.record_key, 0) + retries

    def return_out_of_attempts(self, most: int) -> None:
        """Give up changes that were retried so often or more."""
        out = (c for key, c in self._pending.items() if self._retries.get(key, 0) >= most)
        self.give_up(out, "CONTENTION", "lost against rivals, or was throttled, in every attempt")

    # ------------------------------------------------------------------ the answer

    def report(self, stats: CommitStats) -> CommitReport:
        """The outcome of every change, once nothing is pending."""
        decided = (Verdict.APPLIED, Verdict.REJECTED)
        tried = [
            self._retries.get(key, 0)
            for key in self.by_key
            if key in self._retries or self._outcomes[key].verdict in decided
        ]
        exhausted = [
            self._outcomes[key].verdict is Verdict.RETURNED
            for key in self.by_key
            if self._retries.get(key)
        ]
        return CommitReport(
            outcomes=tuple(self._outcomes[key] for key in self.by_key),
            retries=tuple(tried),
            exhausted=tuple(exhausted),
            stats=stats,
            failure=self._failure,
        )
