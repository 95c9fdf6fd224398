"""How long to wait before a retry, and how often to try."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

# The operating system's randomness: execution environments restored from one snapshot would share the state of a
# seeded generator and retry at the same times, which jitter is there to prevent.
_random = random.SystemRandom().random


LEASE_POLL_SECONDS = 0.25
"""Seconds between two reads of a product that another owner has leased, because the lease may be released early."""

LONGEST_DELAY_SECONDS = 900
"""Maximum delay between two deliveries of a message, and so of the time to recover once an outage has ended. No
lease lasts longer. SQS could hide a message for up to 12 hours after its delivery:
docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html"""

MAX_SENDING_DELAY_SECONDS = 900
"""SQS delivers a message at most this long after it was sent with a delay:
docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-timers.html"""

EARLY_DELIVERIES = 14
"""Deliveries after which an early message is sent again, as a copy with its own count, and an early copy is given up.

SQS counts deliveries during an outage like early ones, so the first count may be meaningless. The second count starts
with a delivery that found the message early: whatever happened before, the message is retried for 46 more minutes. Both
together last at least 84 minutes. Not every delivery sends a copy: Lambda stops chains of about 16 invocations.
docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Capped exponential backoff with full jitter.

    Source: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.

    Attributes:
        max_attempts: Attempts in total, including the first. Under contention, the remaining time of the invocation should be
            the limit that applies first.
        base: Maximum first wait, in seconds: about the time that a concurrent writer's transaction takes.
        cap: Maximum wait, in seconds.
        random: Source of numbers in [0, 1).
    """

    max_attempts: int = 40
    base: float = 0.01
    cap: float = 1.0
    random: Callable[[], float] = _random

    def backoff(self, failures: int) -> float:
        """Choose how long to wait after one or more failed attempts in a row, in seconds."""
        # 2 ** 60 is far beyond any cap and still converts to a float.
        return self.random() * min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


def redelivery_delay(receive_count: int, random: Callable[[], float] = _random) -> int:
    """Choose for how many whole seconds a returned message stays hidden.

    The delay doubles with each delivery, so a message is retried soon after a short outage, and rarely during a long one. Half
    of the delay is fixed and the other half is jitter. The fixed half guarantees a minimum time for a number of deliveries.

    Args:
        receive_count: `ApproximateReceiveCount` of the message, 1 or more.
        random: Source of numbers in [0, 1).
    """
    longest = min(float(LONGEST_DELAY_SECONDS), 2.0 ** min(receive_count, 30))
    return max(1, round(longest / 2 + random() * longest / 2))
