"""Waits before retries, and their limits."""

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
        max_attempts: Attempts in total, including the first. The invocation's remaining time is the other limit, and
            under contention the one that is meant to apply.
        base: Maximum first wait, in seconds: about the time that a concurrent writer's transaction takes.
        cap: Maximum wait, in seconds.
        random: Source of numbers in [0, 1).
    """

    max_attempts: int = 40
    base: float = 0.01
    cap: float = 1.0
    random: Callable[[], float] = _random

    def backoff(self, failures: int) -> float:
        """Seconds to wait after `failures` failed attempts in a row (1 or more)."""
        # 2 ** 60 is far beyond any cap and still converts to a float.
        return self.random() * min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


def redelivery_delay(receive_count: int, random: Callable[[], float] = _random) -> int:
    """Whole seconds for which a returned message stays hidden; they grow with its receive count.

    The delay doubles: a message waits about as long again as it has waited so far, so it is retried soon after a short outage
    and rarely during a long one. Half of the delay is fixed and half is jitter: the fixed half guarantees how long a number
    of deliveries lasts at least.

    Args:
        receive_count: `ApproximateReceiveCount` of the message, 1 or more.
        random: Source of numbers in [0, 1).
    """
    longest = min(float(LONGEST_DELAY_SECONDS), 2.0 ** min(receive_count, 30))
    return max(1, round(longest / 2 + random() * longest / 2))
