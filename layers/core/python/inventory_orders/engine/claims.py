"""Claims: short leases by which batches take turns on a contested product.

A batch that claims a product takes a lease of `CLAIM_SECONDS`, commits, and releases it in the same write. When to claim
first and which product is decided by the contention statistics (`contention.py`); what more has to be claimed follows from
what rivals hold, and from what was lost under a claim.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable, Iterable
from typing import TypeVar

from inventory_orders.clock import Deadline
from inventory_orders.domain.product import Product, Products
from inventory_orders.engine.contention import FIRST_WAIT
from inventory_orders.engine.product_cache import ProductCache
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    CorruptItemError,
    LeaseHeldError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
)
from inventory_orders.store.actions import ConditionFailedError
from inventory_orders.store.dynamodb import ClaimUse

T = TypeVar("T")

CLAIM_SECONDS = 2.0
"""How long a claim lasts when its owner dies: a hundred times what a commit takes."""

# The longer a claim has lasted, the likelier its owner is dead: nobody asks again before this part of that time is over.
_DOUBT = 0.1

# A claim that has lasted for this part of its time has a dead owner: a live one has committed or renewed it by then.
_DEAD = 0.75

_RELEASE_ATTEMPTS = 3

# A product that is throttled so often in a row is left to a later delivery: the rest of the batch waits meanwhile.
_MOST_THROTTLES = 8


class Claims:
    """The claims of one batch of changes, or of one call.

    Attributes:
        held: By product id, the Unix second at which the claim ends.

    Args:
        client: How to write.
        cache: The products as this process left them.
        deadline: When to give up.
        stats: Where the requests are counted.
        age: Seconds for which the changes have waited before, in earlier invocations.
    """

    def __init__(
        self,
        client: RetryingClient,
        cache: ProductCache,
        deadline: Deadline,
        stats: CommitStats,
        age: float = 0.0,
    ) -> None:
        self.held: dict[str, float] = {}
        self._client = client
        self._cache = cache
        self._deadline = deadline
        self._stats = stats
        self._age = age
        # Acquisitions that may not be over, those whose answer was lost included: by whom, and after what wait.
        self._owners: dict[str, str] = {}
        self._waited: dict[str, float] = {}
        self._together: set[str] = set()

    def claim_too(self, product_id: str) -> None:
        """One claim did not keep the rivals out: from now on what is held and another product are claimed together."""
        self._together |= {*self.held, product_id}

    def to_take(self, products: Products, now: float) -> set[str]:
        """Those of some products that have to be claimed before they may be written. `now` is a Unix second."""
        claimed_by_others = {
            product_id
            for product_id, product in products.items()
            if product is not None and product.lease_left(now) > 0
        }
        wanted = claimed_by_others | (self._together & products.keys())
        if (to_claim := self._client.contention.product_to_claim(products.keys())) is not None:
            wanted.add(to_claim)
        elif not wanted:
            wanted = products.keys() & self.held.keys()
        enough = now + CLAIM_SECONDS / 2
        return {product_id for product_id in wanted if self.held.get(product_id, 0.0) < enough}

    def take(self, product_id: str, *, alone: bool = False) -> Product:
        """Wait in line for a product and claim it; or extend a claim that is about to end.

        Claims are taken in the order of their ids, so that no two batches wait for each other: while this one waits
        for a product it holds none that comes later.

        Args:
            product_id: The product.
            alone: Whether nothing else waits meanwhile. Then a throttle is waited out for as long as there is time.

        Returns:
            The product as the claim left it.

        Raises:
            ConditionFailedError: It cannot be claimed; with the product as stored: it is gone, breaks the table's
                contract, or is under a longer lease.
            CorruptItemError: It breaks the table's contract.
            ThrottledError: No time was left to wait, DynamoDB throttles the product, or a clock is wrong.
            StoreError: DynamoDB failed.
        """
        stats, clock = self._stats, self._client.clock
        is_new = product_id not in self._owners
        if is_new:
            self._release_after(product_id)
        owner = self._owners.get(product_id, f"claim-{uuid.uuid4().hex}")
        began = clock.monotonic() - self._waited.get(product_id, 0.0)
        # The wait for a dead owner says nothing about the line: counting it would make the process ask too seldom.
        in_line = began
        delay = self._next_delay(product_id, 0.0) if is_new else 0.0
        # The backoff grows with all throttles of this wait: a refusal in between is no sign that they are over.
        refusals = throttles = in_a_row = 0
        seen: tuple[float | None, float] | None = None
        while self._wait(product_id, delay):
            stats.lease_wait += delay
            waited = clock.monotonic() - began
            try:
                product = self._claim(product_id, owner, clock.monotonic() - in_line)
            except ConditionFailedError as failed:
                in_a_row = 0
                now = clock.now().timestamp()
                self.over(product_id)
                rival = failed.found
                if not isinstance(rival, Product) or _is_leased(rival, now):
                    raise
                is_new = True
                self._release_after(product_id)
                self._cache.forget(product_id)
                self._client.contention.observe_conflict(product_id, rival.lock_wait)
                if seen is None or seen[0] != rival.lock_time:
                    seen = rival.lock_time, clock.monotonic()
                watched = clock.monotonic() - seen[1]
                if watched > CLAIM_SECONDS:
                    # By the clock of its owner or of this process it would last for as long as that clock is wrong.
                    raise ThrottledError("CONTENTION", "a claim outlasts its time") from failed
                lasted = max(CLAIM_SECONDS - rival.lease_left(now), watched)
                if lasted >= _DEAD * CLAIM_SECONDS:
                    in_line = clock.monotonic()
                delay = max(self._next_delay(product_id, waited), lasted * _DOUBT)
            except (ThrottledError, OutcomeUnknownError) as error:
                # Nothing may be known about the line yet; a rival's transaction takes a moment all the same.
                delay = self._next_delay(product_id, waited) or self._client.policy.backoff(1)
                if error.code != "TransactionConflictException":
                    throttles, in_a_row = throttles + 1, in_a_row + 1
                    if in_a_row == _MOST_THROTTLES and not alone:
                        raise ThrottledError(error.code, "the claim was throttled") from error
                    delay = max(delay, self._client.policy.backoff(throttles))
            else:
                if is_new:
                    self._observe(product, refusals)
                return product
            refusals += 1
            stats.claims_refused += 1
        raise ThrottledError("CONTENTION", "no time was left to wait for a claim")

    def _observe(self, product: Product, refusals: int) -> None:
        """Learn from a claim that was granted after so many refusals."""
        if refusals == 0 and self._cache.observe_read(product):
            self._client.contention.observe_calm(product.product_id)
        else:
            self._client.contention.observe_claim(
                product.product_id, self._waited[product.product_id]
            )

    def _claim(self, product_id: str, owner: str, waited: float) -> Product:
        """Ask once for a claim, or for more time of one's own."""
        now = self._client.clock.now()
        until = now.timestamp() + CLAIM_SECONDS
        self._owners[product_id], self._waited[product_id] = owner, waited
        product = self._client.store.claim(product_id, owner, now, until, waited)
        self._stats.claims += 1
        self.held[product_id] = until
        return product

    def _next_delay(self, product_id: str, waited: float) -> float:
        """Seconds until the next request. A batch that holds another claim goes first: others wait for that one."""
        age = math.inf if self.held else self._age + waited
        return self._client.contention.next_claim_delay(product_id, age)

    def _wait(self, product_id: str, delay: float) -> bool:
        """Wait for a product, and keep what is held meanwhile. Returns False at once if there is no time for it."""
        client, clock = self._client, self._client.clock
        if delay >= self._deadline.remaining():
            return False
        end = clock.monotonic() + delay
        while True:
            self._keep_all_but(product_id)
            left = max(0.0, end - clock.monotonic())
            if left <= CLAIM_SECONDS / 4:
                return client.pause(left, self._deadline)
            client.pause(CLAIM_SECONDS / 4, self._deadline)

    def _keep_all_but(self, product_id: str) -> None:
        """Extend other claims that will end soon. Where that fails they are to be taken again."""
        soon = self._client.clock.now().timestamp() + CLAIM_SECONDS / 2
        for other in [p for p, end in self.held.items() if p != product_id and end < soon]:
            try:
                self._claim(other, self._owners[other], self._waited[other])
            except (StoreError, CorruptItemError):
                self.doubt(other)

    def use(self, product_id: str, *, release: bool) -> ClaimUse | None:
        """How a write says that it is made under the claim; None if there is none."""
        if product_id not in self.held:
            return None
        return ClaimUse(self._owners[product_id], release)

    def over(self, product_id: str) -> None:
        """A write has released the claim, or it was refused."""
        self.held.pop(product_id, None)
        self._owners.pop(product_id, None)
        self._waited.pop(product_id, None)

    def doubt(self, product_id: str) -> None:
        """The product was read again, or seen as a rival left it: before another write it has to be claimed again."""
        self.held.pop(product_id, None)

    def about_to_end(self, product_ids: Iterable[str]) -> bool:
        """Whether a claim on one of the products may end before another transaction is through."""
        enough = self._client.clock.now().timestamp() + CLAIM_SECONDS / 4
        return any(self.held.get(product_id, enough) < enough for product_id in product_ids)

    def release(self) -> None:
        """Release all claims that no write has released. What cannot be released ends by itself.

        The first one is released last: the batch that waits for it would find the others still taken.
        """
        self._release_after("")

    def _release_after(self, product_id: str) -> None:
        """Release the claims on products that come later in the order."""
        for later in sorted((p for p in self._owners if p > product_id), reverse=True):
            self._release(later, self._owners[later])
            self.over(later)

    def _release(self, product_id: str, owner: str) -> None:
        if self._deadline.remaining() <= 0:
            return
        # A failure is none of the batch's: the claim is over already, or will be when its time is.
        with contextlib.suppress(StoreError):
            self._client.call(
                lambda: self._client.store.release_claim(product_id, owner),
                self._deadline,
                self._stats,
                attempts=_RELEASE_ATTEMPTS,
            )


def outwait_claims(operation: Callable[[], T], deadline: Deadline, client: RetryingClient) -> T:
    """Call again as long as a product is merely claimed, for a single write that does not wait in line itself.

    Args:
        operation: Applies nothing when it raises LeaseHeldError.
        deadline: When to give up.
        client: Knows time and chance.

    Raises:
        LeaseHeldError: The lease is no claim, or no time was left.
    """
    while True:
        try:
            return operation()
        except LeaseHeldError as held:
            delay = client.policy.random() * FIRST_WAIT
            # What has expired meanwhile was judged by the time at which the request was made.
            soon_over = held.is_claim or held.seconds_left <= 0
            if not soon_over or not client.pause(delay, deadline):
                raise


def _is_leased(product: Product, now: float) -> bool:
    """Whether a lease that is no claim locks the product. `now` is a Unix second."""
    return product.lease_left(now) > 0 and not product.is_claimed
