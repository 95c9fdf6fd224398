"""Waits before retries, and their limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

# The operating system's randomness: execution environments restored from one snapshot would share the
# state of a seeded generator and so wake up together, which is what jitter is there to prevent.
_random = random.SystemRandom().random


LEASE_POLL_SECONDS = 0.25
"""Seconds between two looks at a product under another's lease, which may be released early."""

LONGEST_DELAY_SECONDS = 900
"""Bound of the delay between two deliveries of a message, so also of the time to recover once an outage has ended. No
lease lasts longer. SQS would hide a message for up to 12 hours after its delivery:
docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html"""

EARLY_DELIVERIES = 14
"""Deliveries after which an early message is sent again, as a copy with a count of its own, and an early copy is given up.

SQS counts deliveries that met an outage like those that were early, so the first count may say nothing. The second one
begins with a look that found the message early: whatever came before it, the message is looked at for 46 minutes more.
Both together last 84 minutes at the least. No copy for each look: Lambda ends chains of about 16 invocations.
docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Capped exponential backoff with full jitter.

    Source: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.

    Attributes:
        max_attempts: Attempts altogether, the first included. The time that the invocation has left is the
            other bound, and under contention the one that is meant to bite.
        base: Upper bound of the first wait, in seconds: about the time a rival's transaction takes.
        cap: Upper bound of any wait, in seconds.
        random: Source of numbers in [0, 1).
    """

    max_attempts: int = 40
    base: float = 0.01
    cap: float = 1.0
    random: Callable[[], float] = _random

    def backoff(self, failures: int) -> float:
        """Seconds to wait after so many failed attempts in a row (1 or more)."""
        # 2 ** 60 is far beyond any cap and still converts to a float.
        return self.random() * min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


def redelivery_delay(receive_count: int, random: Callable[[], float] = _random) -> int:
    """Whole seconds for which a returned message stays hidden, growing with its receive count.

    It doubles: a message waits about as long again as it has waited so far, so it comes back soon after a short outage,
    and rarely in a long one. Half of it is fixed and half is jitter: the fixed half guarantees how long a number of
    deliveries lasts at the least.

    Args:
        receive_count: `ApproximateReceiveCount` of the message, 1 or more.
        random: Source of numbers in [0, 1).
    """
    longest = min(float(LONGEST_DELAY_SECONDS), 2.0 ** min(receive_count, 30))
    return max(1, round(longest / 2 + random() * longest / 2))
