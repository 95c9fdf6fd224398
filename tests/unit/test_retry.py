"""Backoff and redelivery delays."""

import pytest

from infra.queues import MAX_RECEIVE_COUNT
from inventory_orders.retry import (
    EARLY_DELIVERIES,
    LONGEST_DELAY_SECONDS,
    RetryPolicy,
    redelivery_delay,
)

LONGEST_LEASE = 900
HOUR, DAY = 3600, 86_400


def test_full_jitter_is_between_zero_and_a_bound_that_doubles_up_to_the_cap():
    lowest = RetryPolicy(base=0.01, cap=1.0, random=lambda: 0.0)
    highest = RetryPolicy(base=0.01, cap=1.0, random=lambda: 1.0)
    assert [lowest.backoff(n) for n in (1, 5, 50)] == [0, 0, 0]
    bounds = [highest.backoff(n) for n in (1, 2, 3, 4, 8, 1000)]
    assert bounds == pytest.approx([0.01, 0.02, 0.04, 0.08, 1.0, 1.0])


def test_jitter_differs_from_call_to_call():
    assert len({RetryPolicy().backoff(5) for _ in range(20)}) > 15


def lasting(deliveries, random=0.0):
    """Seconds from the first delivery to the last of so many, at the least."""
    return sum(redelivery_delay(n, lambda: random) for n in range(1, deliveries))


def test_redelivery_delays_double_up_to_a_bound_of_15_minutes():
    shortest = [redelivery_delay(n, lambda: 0.0) for n in (1, 2, 3, 9, 10, 1000)]
    longest = [redelivery_delay(n, lambda: 0.999) for n in (1, 2, 3, 9, 10, 1000)]
    assert shortest == [1, 2, 4, 256, 450, 450]
    assert longest == [2, 4, 8, 512, 900, 900]
    assert LONGEST_DELAY_SECONDS == LONGEST_LEASE


def test_early_deliveries_outlast_an_outage_of_an_hour_with_several_looks_left():
    assert lasting(EARLY_DELIVERIES - 3) > HOUR


def test_all_deliveries_together_last_for_days_but_less_than_messages_are_kept():
    assert lasting(MAX_RECEIVE_COUNT) > 5 * DAY
    assert lasting(MAX_RECEIVE_COUNT, random=0.5) < 8 * DAY
