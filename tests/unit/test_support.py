"""The helpers of the tests."""

from types import SimpleNamespace

import pytest

from operations.queues import QUEUES, Depth
from tests.support import stack


@pytest.fixture
def clock(monkeypatch):
    """Make time pass only when the code sleeps: ten seconds each time, as on a very busy machine."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda _: setattr(clock, "now", clock.now + 10)
    monkeypatch.setattr(stack, "time", clock)
    return clock


def queues_at(monkeypatch, depth):
    """Set the depth of the first queue, and make the other queues empty."""
    monkeypatch.setattr(
        stack.queues, "depth", lambda _, name: depth() if name == QUEUES[0] else Depth(0, 0)
    )


def test_waiting_continues_while_messages_move(monkeypatch, clock):
    # One message is processed a minute.
    queues_at(monkeypatch, lambda: Depth(max(0, 30 - int(clock.now) // 60), 0))
    stack.wait_until_settled(None)
    assert clock.now == 30 * 60


def test_waiting_for_empty_queues_ignores_delayed_messages(monkeypatch, clock):
    queues_at(monkeypatch, lambda: Depth(0, int(clock.now) < 60, later=1))
    stack.wait_until_settled(None)
    assert clock.now == 60


def test_a_delivery_is_a_movement_too(monkeypatch, clock):
    queues_at(monkeypatch, lambda: Depth(1, 0) if int(clock.now) // 60 % 2 else Depth(0, 1))
    stack.wait_until(None, lambda: clock.now >= 600)
    assert clock.now == 600 > stack.QUIET_SECONDS


def test_waiting_gives_up_when_nothing_has_moved_for_a_while(monkeypatch, clock):
    queues_at(monkeypatch, lambda: Depth(max(3, 5 - int(clock.now) // 60), 0))
    with pytest.raises(AssertionError, match="no message moves"):
        stack.wait_until_settled(None)
    assert clock.now == 120 + stack.QUIET_SECONDS
