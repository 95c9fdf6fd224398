"""What a warm process remembers of products: how it left them, who fights for them, and how long to wait in line.

A batch is optimistic where nobody fights. A transaction of 100 actions that loses costs some 200 write units; a claim
that is refused costs one. So where rivals were met a batch claims the product: it takes a lease of `CLAIM_SECONDS`,
commits, and releases it in the same write. One loss is enough where there is just one product; among many it takes
more, and all rivals have to agree on the one to claim (`Memory.guard`).

Waiting in line is the art of it. With equal chances at each release a few always wait several times the average. Here
the rate at which somebody asks grows with the time that he has waited, so that waits spread as Rayleigh's
distribution does: the slowest of a hundred waits 2.4 times the average, not 4.6 times. How fast it must grow follows
from the average wait, which all learn from the same source: every claim says how long its owner waited
(`lockWait`), and whoever is refused reads it there.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from inventory_orders.clock import Clock, Deadline
from inventory_orders.errors import (
    ConditionFailedError,
    CorruptItemError,
    Item,
    LeaseHeldError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
)
from inventory_orders.model import Product
from inventory_orders.store import ClaimUse, decode_product
from inventory_orders.writer import Effort, Writer

T = TypeVar("T")

CLAIM_SECONDS = 2.0
"""How long a claim lasts when its owner dies: a hundred times what a commit takes. A lease that ends sooner than
this is waited for in the same way, whoever holds it."""

# How long a fight, or being alone with a product, is believed to go on without another sign of it.
_BELIEVED_SECONDS = 5.0

# Requests for one commit, of all who wait together. Fewer leave the product idle between two owners, more are refused.
_REQUESTS_PER_COMMIT = 3.0

# The age from which on nobody asks more often, in average waits: hardly anybody gets that old in a line, and who comes
# with messages that had to wait for something else does not crowd out the others.
_OLD = 4.0

# The average wait, in seconds: what is assumed at the first loss (about one commit of a rival), the least that is
# believed, and the weight of each new observation, above the average and below: a line grows at once and shrinks slowly.
_FIRST_WAIT = 0.02
_LEAST_WAIT = 0.005
_WEIGHT_ABOVE = 0.2
_WEIGHT_BELOW = 0.1

# Mean age of those who wait, as a part of the average wait: E[w^2] / (2 E[w]^2) of Rayleigh's distribution.
_MEAN_AGE = 2 / math.pi

# Losses after which there is a fight, whatever else is written with the products.
_CERTAIN = 4

# The longer a claim has lasted, the likelier is its owner dead: nobody asks again before this part of that time is over.
_DOUBT = 0.1

# A claim that has lasted for this part of its time has a dead owner: who is alive has committed or renewed it by then.
_DEAD = 0.75

# What is left of a product's popularity after another batch.
_POPULAR_FOR = 0.9

_RELEASE_ATTEMPTS = 3
_PRODUCTS = 10_000
_WARY_BATCHES = 20


@dataclass(slots=True)
class _Trace:
    """What is remembered of one product. Moments are on the clock's monotonic scale.

    Attributes:
        product: As this process left it; None if that is not known.
        at: When that was.
        alone: Whether nobody else seemed to write it.
        fought_at: When a rival was last met.
        fights: Rivals met in this fight.
        claimed: Whether somebody, this process too, has claimed it in this fight.
        demand: How many changes wanted it, as of `batch`.
        batch: Number of the last batch that wanted it.
        wait: Average wait for a claim, in seconds; None without a fight.
    """

    product: Product | None = None
    at: float = 0.0
    alone: bool = False
    fought_at: float = -math.inf
    fights: int = 0
    claimed: bool = False
    demand: float = 0.0
    batch: int = 0
    wait: float | None = None

    def popularity(self, batch: int) -> float:
        """How many changes wanted the product in this batch and, less and less, in those before."""
        return self.demand * _POPULAR_FOR ** (batch - self.batch)

    def learn(self, wait: float) -> None:
        """Somebody has waited so long for the claim."""
        average = _FIRST_WAIT if self.wait is None else self.wait
        weight = _WEIGHT_ABOVE if wait > average else _WEIGHT_BELOW
        self.wait = average + weight * (wait - average)


class Memory:
    """Guesses from what happened a moment ago; every write is conditioned on what they say, so they may be wrong.

    Args:
        clock: Source of time.
        random: Source of numbers in [0, 1).
    """

    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self._wary = 0
        self._batches = 0

    # ------------------------------------------------------------------ alone with a product

    def recall(self, product_id: str) -> Product | None:
        """The product as this process left it, if nobody else seems to write it: good for a plan, not for a refusal."""
        trace = self._traces.get(product_id)
        if (
            trace is None
            or not trace.alone
            or self._clock.monotonic() - trace.at > _BELIEVED_SECONDS
            or self.fought_over(product_id)
        ):
            return None
        return trace.product

    def found(self, product: Product) -> None:
        """A fresh read says whether somebody else wrote since this process did."""
        trace = self._traces.get(product.product_id)
        if trace is not None:
            trace.alone = _same_write(trace.product, product.created_at, product.version)

    def left(self, product: Product) -> None:
        """This process has just written the product."""
        trace = self._trace(product.product_id)
        trace.product, trace.at = product, self._clock.monotonic()

    def forget(self, product_id: str) -> None:
        """It is not known how this process left the product."""
        trace = self._traces.get(product_id)
        if trace is not None:
            trace.product, trace.alone = None, False

    # ------------------------------------------------------------------ fights

    def fought_over(self, product_id: str) -> bool:
        """Whether rivals were met on the product in the last seconds."""
        trace = self._traces.get(product_id)
        return trace is not None and self._clock.monotonic() - trace.fought_at <= _BELIEVED_SECONDS

    def guard(self, product_ids: Collection[str]) -> str | None:
        """The product to claim before these are written; None as long as nothing calls for a claim.

        A claim on one of many products keeps out only those rivals who claim the same one. So it takes more than one
        loss where there are many, and all have to agree: on one that somebody claims already, the first by id, because
        claims are taken in that order; else, of those that were lost on, on what most changes want, which is much the
        same wherever they arrive.
        """
        fought = [product_id for product_id in product_ids if self.fought_over(product_id)]
        losses = sum(self._traces[product_id].fights for product_id in fought)
        if not fought or losses < min(_CERTAIN, len(product_ids)):
            return None
        claimed = [product_id for product_id in fought if self._traces[product_id].claimed]
        return min(claimed) if claimed else self.most_wanted(fought)

    def most_wanted(self, product_ids: Iterable[str]) -> str:
        """The product that most changes want, as far as this process has seen."""
        return max(product_ids, key=lambda p: (self._trace(p).popularity(self._batches), p))

    def met_rival(self, product_id: str, wait: float | None = None) -> None:
        """A transaction lost on the product, or a claim was refused.

        Args:
            product_id: The product.
            wait: How long the rival had waited for its claim, in seconds, if it says so.
        """
        trace = self._trace(product_id)
        if trace.wait is None or not self.fought_over(product_id):
            trace.wait, trace.fights, trace.claimed = _FIRST_WAIT, 0, False
        trace.fights += 1
        trace.product, trace.alone = None, False
        trace.fought_at = self._clock.monotonic()
        if wait is not None:
            # Where others claim, nothing else is left.
            trace.fights = max(trace.fights, _CERTAIN)
            trace.claimed = True
            trace.learn(wait)

    def claimed(
        self, product_id: str, created_at: str, version: int, waited: float, refusals: int
    ) -> None:
        """This process has the claim.

        Args:
            product_id: The product.
            created_at: Its incarnation.
            version: As the claim found it.
            waited: Seconds for which this process was in line.
            refusals: How often it was refused.
        """
        trace = self._trace(product_id)
        if refusals == 0 and _same_write(trace.product, created_at, version):
            # Nobody came by since this process wrote last: the fight is over.
            trace.alone, trace.fought_at, trace.wait = True, -math.inf, None
            return
        trace.fought_at = self._clock.monotonic()
        trace.claimed = True
        trace.learn(waited)

    def patience(self, product_id: str, age: float) -> float:
        """Seconds until the next request for a claim on the product.

        A Poisson process whose rate is c times the time waited. n in line, who wait W on average, then ask
        n * c * _MEAN_AGE * W times a second, while n / W commits are made. So c = requests / (_MEAN_AGE * W^2).

        Args:
            product_id: The product.
            age: Seconds since the claim was first wanted, waits that came to nothing included.
        """
        trace = self._traces.get(product_id)
        if trace is None or trace.wait is None:
            return 0.0
        wait = max(trace.wait, _LEAST_WAIT)
        age = min(age, _OLD * wait)
        exponential = -math.log(1.0 - self._random())
        step = 2 * _MEAN_AGE * wait**2 * exponential / _REQUESTS_PER_COMMIT
        return math.sqrt(age**2 + step) - age

    # ------------------------------------------------------------------ replays

    @property
    def wary(self) -> bool:
        """Whether a record was met lately that was there already: then reading records first is worth it."""
        return self._wary > 0

    def met_record(self) -> None:
        """A record was there already."""
        self._wary = _WARY_BATCHES

    def next_batch(self, product_ids: Iterable[str]) -> None:
        """Another batch begins.

        Args:
            product_ids: The products that its changes want, as often as they are wanted.
        """
        self._wary = max(0, self._wary - 1)
        self._batches += 1
        for product_id, changes in Counter(product_ids).items():
            trace = self._trace(product_id)
            trace.demand = trace.popularity(self._batches) + changes
            trace.batch = self._batches

    def _trace(self, product_id: str) -> _Trace:
        trace = self._traces.setdefault(product_id, _Trace())
        self._traces.move_to_end(product_id)
        if len(self._traces) > _PRODUCTS:
            self._traces.popitem(last=False)
        return trace


class Claims:
    """The claims of one batch of changes, or of one call.

    Attributes:
        held: By product id, the Unix second at which the claim ends.

    Args:
        writer: How to write.
        memory: What this process knows of its rivals.
        deadline: When to give up.
        effort: Where the requests are counted.
        age: Seconds for which the changes have waited before, in earlier invocations.
    """

    def __init__(
        self, writer: Writer, memory: Memory, deadline: Deadline, effort: Effort, age: float = 0.0
    ) -> None:
        self.held: dict[str, float] = {}
        self._writer = writer
        self._memory = memory
        self._deadline = deadline
        self._effort = effort
        self._age = age
        # Acquisitions that may not be over, those whose answer was lost included: by whom, and after what wait.
        self._owners: dict[str, str] = {}
        self._waited: dict[str, float] = {}

    def take(self, product_id: str) -> Item:
        """Wait in line for a product and claim it; or go on with a claim that is about to end.

        Claims are taken in the order of their ids, so that no two batches wait for each other: while this one waits
        for a product it holds none that comes later.

        Returns:
            The product as the claim left it.

        Raises:
            ConditionFailedError: It cannot be claimed; with the item as stored: it is gone, breaks the table's
                contract, or is under a longer lease.
            ThrottledError: No time was left to wait.
            StoreError: DynamoDB failed.
        """
        memory, effort, clock = self._memory, self._effort, self._writer.clock
        anew = product_id not in self._owners
        if anew:
            self._release_after(product_id)
        owner = self._owners.get(product_id, f"claim-{uuid.uuid4().hex}")
        began = clock.monotonic() - self._waited.get(product_id, 0.0)
        # The wait for a dead owner says nothing about the line: who counted it would long ask too seldom.
        in_line = began
        delay = memory.patience(product_id, self._priority(0.0)) if anew else 0.0
        refusals = throttles = 0
        while self._wait(product_id, delay):
            effort.lease_wait += delay
            waited = clock.monotonic() - began
            try:
                item = self._claim(product_id, owner, clock.monotonic() - in_line)
            except ConditionFailedError as failed:
                now = clock.now().timestamp()
                self.over(product_id)
                if not _is_claimed(failed, now):
                    raise
                anew = True
                self._release_after(product_id)
                rival = decode_product(failed.item or {})
                memory.met_rival(product_id, rival.lock_wait)
                lasted = CLAIM_SECONDS - rival.lease_left(now)
                if lasted >= _DEAD * CLAIM_SECONDS:
                    in_line = clock.monotonic()
                delay = max(memory.patience(product_id, self._priority(waited)), lasted * _DOUBT)
            except (ThrottledError, OutcomeUnknownError) as error:
                delay = memory.patience(product_id, self._priority(waited))
                if error.code != "TransactionConflictException":
                    throttles += 1
                    delay = max(delay, self._writer.policy.backoff(throttles))
            else:
                if anew:
                    created_at, version = item["createdAt"]["S"], int(item["_version"]["N"])
                    memory.claimed(
                        product_id, created_at, version, self._waited[product_id], refusals
                    )
                return item
            refusals += 1
            effort.claims_refused += 1
        raise ThrottledError("CONTENTION", "no time was left to wait for a claim")

    def _claim(self, product_id: str, owner: str, waited: float) -> Item:
        """Ask once for a claim, or for more time of one's own."""
        now = self._writer.clock.now()
        until = now.timestamp() + CLAIM_SECONDS
        self._owners[product_id], self._waited[product_id] = owner, waited
        item = self._writer.store.claim(product_id, owner, now, until, waited)
        self._effort.claims += 1
        self.held[product_id] = until
        return item

    def _priority(self, waited: float) -> float:
        """The age that counts in line. Who holds another claim goes first: for that one others wait."""
        return math.inf if self.held else self._age + waited

    def _wait(self, product_id: str, delay: float) -> bool:
        """Wait for a product, and keep what is held meanwhile. Returns False at once if there is no time for it."""
        writer, clock = self._writer, self._writer.clock
        if delay >= self._deadline.remaining():
            return False
        end = clock.monotonic() + delay
        while True:
            self._keep_all_but(product_id)
            left = max(0.0, end - clock.monotonic())
            if left <= CLAIM_SECONDS / 4:
                return writer.pause(left, self._deadline)
            writer.pause(CLAIM_SECONDS / 4, self._deadline)

    def _keep_all_but(self, product_id: str) -> None:
        """Go on with other claims that will end soon. Where that fails they are to be taken again."""
        soon = self._writer.clock.now().timestamp() + CLAIM_SECONDS / 2
        for other in [p for p, end in self.held.items() if p != product_id and end < soon]:
            try:
                self._claim(other, self._owners[other], self._waited[other])
            except StoreError:
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
        """The product was seen as another left it, or read anew: whoever wants to write it has to claim it again."""
        self.held.pop(product_id, None)

    def about_to_end(self, product_ids: Iterable[str]) -> bool:
        """Whether a claim on one of the products may end before another transaction is through."""
        enough = self._writer.clock.now().timestamp() + CLAIM_SECONDS / 4
        return any(self.held.get(product_id, enough) < enough for product_id in product_ids)

    def release(self) -> None:
        """Release all claims that no write has released. What cannot be released ends by itself.

        The first one is released last: whoever waits for it would find the others still taken.
        """
        self._release_after("")

    def _release_after(self, product_id: str) -> None:
        """Release the claims on products that come later in the order."""
        for later in sorted((p for p in self._owners if p > product_id), reverse=True):
            self._release(later, self._owners[later])
            self.over(later)

    def _release(self, product_id: str, owner: str) -> None:
        for failures in range(1, _RELEASE_ATTEMPTS + 1):
            if self._deadline.remaining() <= 0:
                return
            try:
                self._writer.store.release_claim(product_id, owner)
                return
            except (ThrottledError, OutcomeUnknownError):
                if not self._writer.pause(self._writer.policy.backoff(failures), self._deadline):
                    return
            except StoreError:
                # It is over already, or nothing can be written at all.
                return


def outwait_claims(operation: Callable[[], T], deadline: Deadline, writer: Writer) -> T:
    """Call again as long as a product is merely claimed, for a single write that does not wait in line itself.

    Args:
        operation: Applies nothing when it raises LeaseHeldError.
        deadline: When to give up.
        writer: Knows time and chance.

    Raises:
        LeaseHeldError: The lease is longer than a claim, or no time was left.
    """
    while True:
        try:
            return operation()
        except LeaseHeldError as held:
            delay = writer.policy.random() * _FIRST_WAIT
            if held.seconds_left > CLAIM_SECONDS or not writer.pause(delay, deadline):
                raise


def _is_claimed(failed: ConditionFailedError, now: float) -> bool:
    """Whether there is a product, and no lease on it that is longer than a claim."""
    if failed.item is None:
        return False
    try:
        return decode_product(failed.item).lease_left(now) <= CLAIM_SECONDS
    except CorruptItemError:
        return False


def _same_write(left: Product | None, created_at: str, version: int) -> bool:
    return left is not None and (left.created_at, left.version) == (created_at, version)
