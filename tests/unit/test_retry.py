"""Backoff, a process's pace, and the delays before redeliveries."""

from types import SimpleNamespace

import pytest

from inventory_orders.clock import Deadline
from inventory_orders.domain.record import OrderKey
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import ThrottledError
from inventory_orders.retry import (
    EARLY_DELIVERIES,
    LONGEST_DELAY_SECONDS,
    RetryPolicy,
    redelivery_delay,
)
from inventory_orders.store.cancellations import CancellationReason, TransactionCancelledError
from inventory_orders.store.writes import Action, ActionKind
from testing.world.clock import FakeClock

LONGEST_LEASE = 900
HOUR = 3600


def test_full_jitter_is_between_zero_and_a_bound_that_doubles_up_to_the_cap():
    lowest = RetryPolicy(base=0.01, cap=1.0, random=lambda: 0.0)
    highest = RetryPolicy(base=0.01, cap=1.0, random=lambda: 1.0)
    assert [lowest.backoff(n) for n in (1, 5, 50)] == [0, 0, 0]
    bounds = [highest.backoff(n) for n in (1, 2, 3, 4, 8, 1000)]
    assert bounds == pytest.approx([0.01, 0.02, 0.04, 0.08, 1.0, 1.0])


def test_jitter_differs_from_call_to_call():
    assert len({RetryPolicy().backoff(5) for _ in range(20)}) > 15


def cancelled(*codes):
    reasons = [CancellationReason(*each) for each in zip(_ACTIONS, codes, strict=True)]
    return TransactionCancelledError(reasons)


_ACTIONS = [
    Action(ActionKind.PRODUCT, "p", "Update", {}, by_version=True),
    Action(ActionKind.RECORD, OrderKey("o"), "Put", {}),
]

TABLE = cancelled("None", "ThrottlingError")
PRODUCT = cancelled("ThrottlingError", "None")
RIVAL = cancelled("None", "TransactionConflict")
WHOLE = ThrottledError("ThrottlingException", "Rate exceeded")


class Tables:
    """A client without jitter that writes a product's row and another row, and records its waits."""

    def __init__(self, random=0.0):
        self.clock = FakeClock()
        self._errors = []
        store = SimpleNamespace(write=self._write)
        self.client = RetryingClient(store, RetryPolicy(random=lambda: random), self.clock)

    def _write(self, _actions, _token):
        if self._errors:
            raise self._errors.pop(0)

    def waits(self, *errors, seconds=1_000.0):
        """Return how long a transaction waits before each new attempt if its first attempts fail with these errors."""
        self._errors, self.clock.slept = [*errors], []
        deadline = Deadline.after(seconds, self.clock)
        self.client.write(_ACTIONS, deadline, CommitStats())
        return self.clock.slept


@pytest.mark.parametrize("error", [TABLE, WHOLE])
def test_a_throttled_transaction_is_retried_with_growing_waits(error):
    assert Tables().waits(*[error] * 4) == pytest.approx([0.05, 0.1, 0.2, 0.4], rel=0.03)
    assert Tables(0.999).waits(*[error] * 4) == pytest.approx([0.1, 0.2, 0.4, 0.8], rel=0.03)
    assert Tables().waits(*[error] * 12)[-1] == 10.0, "half of the slowest pace"


@pytest.mark.parametrize("error", [RIVAL, PRODUCT])
def test_the_pace_does_not_apply_to_contention_and_hot_products(error):
    tables = Tables()
    assert tables.waits(error) == [0.0]
    assert tables.client.pace.wait == 0.0
    assert tables.waits(*[TABLE] * 6, error)[-1] == 0.0
    policy = RetryPolicy(random=lambda: 0.999)
    assert Tables(0.999).waits(error, error) == [policy.backoff(1), policy.backoff(2)]


def test_the_pace_halves_in_30_seconds_and_falls_with_each_success():
    tables = Tables()
    tables.waits(*[TABLE] * 8)
    pace = tables.client.pace.wait
    tables.waits()
    assert tables.client.pace.wait == pytest.approx(0.98 * pace)
    tables.clock.sleep(30)
    assert tables.client.pace.wait == pytest.approx(0.49 * pace)
    tables.clock.sleep(600)
    assert tables.client.pace.wait == 0.0


def test_a_wait_that_would_reach_the_deadline_gives_the_transaction_up():
    tables = Tables()
    with pytest.raises(TransactionCancelledError):
        tables.waits(*[TABLE] * 8, seconds=2.0)
    assert sum(tables.clock.slept) < 2.0


def lasting(deliveries, random=0.0):
    """Return the shortest possible time from the first delivery to the last, in seconds."""
    return sum(redelivery_delay(n, lambda: random) for n in range(1, deliveries))


def test_redelivery_delays_double_up_to_a_bound_of_15_minutes():
    shortest = [redelivery_delay(n, lambda: 0.0) for n in (1, 2, 3, 9, 10, 1000)]
    longest = [redelivery_delay(n, lambda: 0.999) for n in (1, 2, 3, 9, 10, 1000)]
    assert shortest == [1, 2, 4, 256, 450, 450]
    assert longest == [2, 4, 8, 512, 900, 900]
    assert LONGEST_DELAY_SECONDS == LONGEST_LEASE


def test_an_early_message_waits_for_84_minutes_to_3_hours():
    def after_a_look(random):
        copied = redelivery_delay(EARLY_DELIVERIES, lambda: random)
        return copied + lasting(EARLY_DELIVERIES, random)

    assert after_a_look(0.0) > 46 * 60
    assert lasting(EARLY_DELIVERIES) + after_a_look(0.0) > 84 * 60
    assert lasting(EARLY_DELIVERIES, 0.999) + after_a_look(0.999) < 3 * HOUR
