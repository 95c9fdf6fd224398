"""Contention statistics: which products are contested, which one to claim, and how long to wait between two requests.

A batch is optimistic where nobody else writes. A transaction of 100 actions that loses costs some 200 write units; a
claim that is refused costs one. So where rivals were met, a batch claims a product before it writes. One lost attempt
is enough where there is just one product. Among many products it takes more, and all rivals have to agree on the one
to claim (`ContentionStats.product_to_claim`).

Waits in line are kept fair. With equal chances at each release, a few always wait several times the average. Here the
rate at which a process asks grows with the time that it has waited, so that waits follow Rayleigh's distribution: the
slowest of a hundred waits 2.4 times the average, not 4.6 times. How fast the rate must grow follows from the average
wait, which all learn from the same source: every claim says how long its owner waited (`lockWait`), and every process
that is refused reads it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from inventory_orders.clock import Clock
from inventory_orders.engine.demand import Demand
from inventory_orders.engine.recent import Recent

FIRST_WAIT = 0.02
"""Average wait in seconds that is assumed at the first conflict: about one commit of a rival."""

# How long a product counts as contested after the last conflict on it.
_CONTESTED_SECONDS = 5.0

# Requests for one commit, of all that wait together. Fewer leave the product idle between two owners, more are refused.
_REQUESTS_PER_COMMIT = 3.0

# Age cap, in mean waits: keeps messages that were delayed for another reason from starving the others.
_AGE_CAP = 4.0

# The least average wait that is believed, in seconds, and the weight of each new observation, above the average and
# below it: a line grows at once and shrinks slowly.
_LEAST_WAIT = 0.005
_WEIGHT_ABOVE = 0.2
_WEIGHT_BELOW = 0.1

# Mean age of those that wait, as a part of the average wait: E[w^2] / (2 E[w]^2) of Rayleigh's distribution.
_MEAN_AGE = 2 / math.pi

# Conflicts after which a product is claimed, however many others are written with it.
_CERTAIN = 4


@dataclass(slots=True)
class _Contention:
    """What is known of one product.

    Attributes:
        contested_at: When a rival was last met, on the clock's monotonic scale.
        conflicts: Rivals met since it is contested.
        claimed: Whether somebody, this process too, has claimed it since it is contested.
        wait: Average wait for a claim, in seconds; None if it is not contested.
    """

    contested_at: float = -math.inf
    conflicts: int = 0
    claimed: bool = False
    wait: float | None = None

    def learn(self, wait: float) -> None:
        """Somebody has waited for the claim for so many seconds."""
        average = FIRST_WAIT if self.wait is None else self.wait
        weight = _WEIGHT_ABOVE if wait > average else _WEIGHT_BELOW
        self.wait = average + weight * (wait - average)


class ContentionStats:
    """What a warm process has seen of its rivals. Guesses: every write is conditioned, so they may be wrong.

    Args:
        clock: Source of time.
        random: Source of numbers in [0, 1).

    Attributes:
        demand: How many of the changes of rows want each product.
    """

    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self.demand = Demand(clock)
        self._clock = clock
        self._random = random
        self._products: Recent[str, _Contention] = Recent()

    def observe_conflict(self, product_id: str, wait: float | None = None) -> None:
        """A transaction lost on the product, or a claim was refused.

        Args:
            product_id: The product.
            wait: How long the rival had waited for its claim, in seconds; None if it holds none.
        """
        known = self._of(product_id)
        if known.wait is None or not self.is_contested(product_id):
            known.wait, known.conflicts, known.claimed = FIRST_WAIT, 0, False
        known.conflicts += 1
        known.contested_at = self._clock.monotonic()
        if wait is not None:
            # Where others claim, claiming is all that works.
            known.conflicts = max(known.conflicts, _CERTAIN)
            known.claimed = True
            known.learn(wait)

    def observe_claim(self, product_id: str, waited: float) -> None:
        """This process has the claim, after so many seconds in line."""
        known = self._of(product_id)
        known.contested_at = self._clock.monotonic()
        known.claimed = True
        known.learn(waited)

    def observe_calm(self, product_id: str) -> None:
        """Nobody came by between two claims of this process: the product is contested no more."""
        known = self._of(product_id)
        known.contested_at, known.wait = -math.inf, None

    def is_contested(self, product_id: str) -> bool:
        """Whether rivals were met on the product in the last seconds."""
        known = self._products.get(product_id)
        return (
            known is not None and self._clock.monotonic() - known.contested_at <= _CONTESTED_SECONDS
        )

    def average_wait(self, product_id: str) -> float:
        """Seconds for which those before have waited for a claim on the product; 0 if it is not contested."""
        known = self._products.get(product_id)
        return known.wait or 0.0 if known is not None and self.is_contested(product_id) else 0.0

    def product_to_claim(self, product_ids: Collection[str]) -> str | None:
        """The product to claim before these are written; None as long as nothing calls for a claim.

        A claim on one of many products keeps out only those rivals that claim the same one. So it takes more than
        one conflict where there are many, and all have to agree: on one that somebody claims already, the first by
        id, because claims are taken in that order; else, of the contested ones, on what most changes want, which is
        much the same wherever they arrive.
        """
        contested = {p: self._of(p) for p in product_ids if self.is_contested(p)}
        conflicts = sum(known.conflicts for known in contested.values())
        if not contested or conflicts < min(_CERTAIN, len(product_ids)):
            return None
        claimed = [product_id for product_id, known in contested.items() if known.claimed]
        return min(claimed) if claimed else self.most_wanted(contested)

    def most_wanted(self, product_ids: Iterable[str]) -> str:
        """The product that most changes want, as far as this process has seen."""
        return max(product_ids, key=lambda p: (self.demand.rate(p), p))

    def next_claim_delay(
        self, product_id: str, age: float, requests: float = _REQUESTS_PER_COMMIT
    ) -> float:
        """Seconds until the next request for a claim on the product.

        A Poisson process whose rate is c times the time waited. n in line, which wait W on average, then ask
        n * c * _MEAN_AGE * W times a second, while n / W commits are made. So c = requests / (_MEAN_AGE * W^2).

        Args:
            product_id: The product.
            age: Seconds since the claim was first wanted, waits that came to nothing included.
            requests: For one commit, of all that wait together.
        """
        known = self._products.get(product_id)
        if known is None or known.wait is None:
            return 0.0
        wait = max(known.wait, _LEAST_WAIT)
        age = min(age, _AGE_CAP * wait)
        exponential = -math.log(1.0 - self._random())
        step = 2 * _MEAN_AGE * wait**2 * exponential / requests
        return math.sqrt(age**2 + step) - age

    def _of(self, product_id: str) -> _Contention:
        return self._products.set(product_id, self._products.get(product_id) or _Contention())
