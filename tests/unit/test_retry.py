"""Backoff and redelivery delays."""

import pytest

from infra.queues import MAX_RECEIVE_COUNT
from inventory_orders.retry import RetryPolicy, redelivery_delay

LONGEST_LEASE = 900


def test_full_jitter_is_between_zero_and_a_bound_that_doubles_up_to_the_cap():
    lowest = RetryPolicy(base=0.01, cap=1.0, random=lambda: 0.0)
    highest = RetryPolicy(base=0.01, cap=1.0, random=lambda: 1.0)
    assert [lowest.backoff(n) for n in (1, 5, 50)] == [0, 0, 0]
    bounds = [highest.backoff(n) for n in (1, 2, 3, 4, 8, 1000)]
    assert bounds == pytest.approx([0.01, 0.02, 0.04, 0.08, 1.0, 1.0])


def test_jitter_differs_from_call_to_call():
    assert len({RetryPolicy().backoff(5) for _ in range(20)}) > 15


def test_redelivery_delays_grow_and_are_never_the_whole_visibility_timeout():
    shortest = [redelivery_delay(n, lambda: 0.0) for n in range(1, MAX_RECEIVE_COUNT + 1)]
    longest = [redelivery_delay(n, lambda: 0.999) for n in range(1, MAX_RECEIVE_COUNT + 1)]
    assert shortest == sorted(shortest)
    assert shortest[0] >= 1
    assert max(longest) <= 180
    assert all(low <= high for low, high in zip(shortest, longest, strict=True))


def test_all_deliveries_together_outlast_the_longest_lease_with_margin():
    least = sum(redelivery_delay(n, lambda: 0.0) for n in range(1, MAX_RECEIVE_COUNT + 1))
    assert least > LONGEST_LEASE * 1.25
