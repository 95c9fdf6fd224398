"""A lease: a pessimistic lock with an expiry, for work on a product that takes a while.

The lock is in the product's own row, so that acquiring it returns the product, and one request commits the result and
releases it. It is fenced: every write raises `_version`, and the lock's `lockVersion` is the version after its owner's last
write. The owner may only write while the two are equal, because then no other writer has written. An owner that was paused
past its expiry cannot write, even if its clock is wrong.

Acquiring and renewing are also conditioned on the version as read: a delayed attempt of a repeated request finds another
version, however late it arrives, and cannot lock a product after its count has ended.

A refusal is final: the lease is ended before its owner learns that it is over. A commit that is still in flight then finds
another version.

Once the lease is taken, the row reclaims the product's units from lanes, and the units on hand are stored in the lock. The
count is compared with them, so it includes the units of open orders. Hand-overs do not wait for a count. Parcels that
leave during the count still count as in place.

Sources: Gray and Cheriton, "Leases", SOSP 1989; Kleppmann, "How to do distributed locking", 2016, on fencing.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import COUNT
from inventory_orders.domain.location import in_words, key_in, public_key
from inventory_orders.domain.outbound import OUTBOUND_KEYS
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.record import NO_NOTES, AdjustmentRecord
from inventory_orders.domain.rejection import Rejection
from inventory_orders.engine.retrying_client import (
    CommitStats,
    RetryingClient,
    check_time,
    if_contended,
    read_product,
    update_product,
)
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    InventoryOrdersError,
    LeaseHeldError,
    LeaseLostError,
    OutcomeError,
    ProductNotFoundError,
    RejectedError,
)
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import reclaim
from inventory_orders.store.cancellations import TransactionCancelledError, require_product
from inventory_orders.store.writes import (
    Action,
    ActionKind,
    Write,
    count_write,
    end_lease,
    keep_lease,
    record_action,
    take_lease,
    unix,
)

# How often `commit` tries to read how many units have left. Constant hand-overs can prevent this read.
_TRIES = 8


@dataclass
class Lease:
    """An acquired lease. If DynamoDB does not answer in time, its methods raise `StoreError`.

    Attributes:
        product: The product as this lease's last write left it, as far as its owner knows.
        owner: Unique for each acquisition.
        granted: Seconds for which it was acquired or last renewed.
        stats: The cost of the requests, for the metrics.
        handed_over: Units that left between the beginning of the count and `commit`; None if unknown.
    """

    client: RetryingClient
    product: Product
    owner: str
    granted: float = 0.0
    stats: CommitStats = field(default_factory=CommitStats)
    handed_over: int | None = None

    @classmethod
    def acquire(
        cls,
        client: RetryingClient,
        product_id: str,
        seconds: float,
        deadline: Deadline,
        *,
        holder: str = "count",
        outlive_deadline: bool = False,
        names_location: bool = True,
    ) -> Lease:
        """Lock a product if there is no lease or the last one has expired.

        If lanes may hold units of it, the row reclaims them before this returns.

        Args:
            seconds: How long, at most 900.
            deadline: When the invocation has to end. By default, the lease ends by then as well.
            holder: Name of the owner, for people. A unique suffix is added.
            outlive_deadline: Whether the lease may last longer, because a caller outside this invocation will hold it.
            names_location: Whether the sender has named the location. If not, the product must have no other location.

        Raises:
            RejectedError: `LOCATION_REQUIRED`.
            LeaseHeldError: Another owner has a lease.
            LeaseLostError: The lease expired before the row had reclaimed all units.
            ContentionError: Concurrent writers won every attempt.
            ProductNotFoundError: The product does not exist.
            CorruptItemError: The row, or a page that holds units of the product, breaks its table's contract.
        """
        owner = f"{holder}-{uuid.uuid4().hex}"
        seconds = _limited(seconds, deadline, outlive_deadline=outlive_deadline)
        stats = CommitStats()
        product = read_product(client, product_id, deadline, stats)
        if not names_location and (unnamed := Rejection.of_unnamed_location(product)):
            raise RejectedError(unnamed.words, unnamed.reason)
        lease = cls(client, product, owner, seconds, stats)

        def lock() -> Write:
            moment = client.clock.now()
            return take_lease(lease.product, owner, moment, _seconds_after(moment, seconds))

        def attempt() -> None:
            _, lease.product = update_product(client, product_id, lock, deadline, stats)
            # The lock is also ours if the response to an earlier attempt was lost.
            if lease.product.locked_by != owner:
                if (left := lease.product.lease_left(client.clock.now().timestamp())) > 0:
                    raise LeaseHeldError(in_words(product_id), left)
                raise ContentionError(
                    f"concurrent writers changed {in_words(product_id)} on every attempt"
                )

        client.call(attempt, deadline, stats, repeat_after=if_contended)
        lease._begin(deadline)
        return lease

    def _begin(self, deadline: Deadline) -> None:
        """Reclaim the units in lanes, and store the units on hand. If this fails, the lease is released."""
        left = min(self.seconds_left(), deadline.remaining())
        in_time = Deadline.after(left, self.client.clock)
        try:
            if self.product.lent_to:
                self._reclaim(in_time)
            _, on_hand = read_on_hand(self.client, self.product_id, in_time, self.stats)
            self._keep(0.0, in_time, "acquire it again", on_hand)
        except InventoryOrdersError:
            # If the lease cannot be released, it expires by itself.
            with suppress(InventoryOrdersError):
                self.release(Deadline.after(3.0, self.client.clock))
            raise

    def _reclaim(self, deadline: Deadline) -> None:
        """Reclaim the units in lanes, as the owner of the lease."""
        recalled = reclaim(
            Depot(self.client), [self.product], deadline, self.stats, owner=self.owner
        )
        product = recalled.rows.get(self.product_id)
        if product is None or not product.is_fenced_by(self.owner) or product.lent_to:
            raise self._lost("acquire it again")
        self.product = product

    @classmethod
    def resume(cls, client: RetryingClient, token: Mapping[str, Any], deadline: Deadline) -> Lease:
        """Resume a lease that was acquired in another invocation.

        The next write shows whether the lease is still valid and the product still exists.

        Args:
            token: The lease as its owner knows it, from `token`.

        Raises:
            CorruptItemError: The product breaks the table's contract.
        """
        stats, owner = CommitStats(), token["owner"]
        product = Product(
            key_in(token),
            0,
            0,
            token["version"],
            token["createdAt"],
            ProductStatus.ACTIVE,
            lock_time=float(token["expiresAt"]),
        )
        with suppress(ProductNotFoundError):
            found = read_product(client, product.product_id, deadline, stats)
            # A later renewal by the same owner, whose answer was lost, is as valid as the one that the owner knows.
            if found.is_fenced_by(owner):
                product = found
        return cls(client, product, owner, stats=stats)

    @property
    def token(self) -> dict[str, Any]:
        """The lease as `resume` accepts it. The generation distinguishes the product from a later one with the same id."""
        return {
            **public_key(self.product_id),
            "createdAt": self.product.created_at,
            "owner": self.owner,
            "version": self.product.version,
            "expiresAt": f"{self.expires_at:.6f}",
        }

    @property
    def product_id(self) -> str:
        """The key of the product's row."""
        return self.product.product_id

    @property
    def expires_at(self) -> Decimal:
        """Unix time in seconds when the lease ends."""
        return Decimal(f"{self.product.lock_time or 0.0:.6f}")

    def seconds_left(self) -> float:
        """How long the lease still lasts; negative once it has expired."""
        return float(self.expires_at - unix(self.client.clock.now()))

    def renew(self, seconds: float, deadline: Deadline, *, outlive_deadline: bool = False) -> None:
        """Extend the lease until `seconds` from now, unless it already lasts longer. Safe to repeat.

        Args:
            seconds: How long, at most 900.
            deadline: When the invocation has to end. By default, the lease does not last longer.
            outlive_deadline: Whether it may last longer, because a caller outside this invocation holds it.

        Raises:
            LeaseLostError: It has expired, or another owner has a lease or has written since. A commit that is still in
                flight will not take effect.
            ProductNotFoundError: The product is gone.
        """
        self._keep(
            _limited(seconds, deadline, outlive_deadline=outlive_deadline),
            deadline,
            "acquire it again. If a commit got no answer, repeat that first to find out whether the count was booked",
        )
        renewed_at = datetime.fromisoformat(self.product.last_updated_at)
        self.granted = float(self.expires_at - unix(renewed_at))

    def _keep(
        self, seconds: float, deadline: Deadline, advice: str, on_hand: int | None = None
    ) -> None:
        """Extend the lease, or store the units on hand in it. If the lease is over, raise an error with this advice."""

        def attempt() -> Write:
            moment = self.client.clock.now()
            until = max(self.expires_at, _seconds_after(moment, seconds))
            return keep_lease(self.owner, self.product.version, moment, until, on_hand)

        _, product = update_product(self.client, self.product_id, attempt, deadline, self.stats)
        # An earlier attempt whose response was lost, or another renewal of ours, left a later version under our lock.
        if not product.is_fenced_by(self.owner) or product.version == self.product.version:
            self.release(deadline)
            raise self._lost(advice)
        self.product = product

    def commit(
        self,
        counted: int,
        adjustment_id: str,
        deadline: Deadline,
        notes: Mapping[str, str] = NO_NOTES,
    ) -> AdjustmentRecord:
        """Record a count with its adjustment and release the lease, in one verified transaction.

        Args:
            counted: Units in place when the count began, including those of open orders.
            adjustment_id: The idempotency key of the count, unique within the product.
            notes: Who counted, and why.

        Returns:
            The adjustment, recorded by this call or by an earlier one whose response was lost.

        Raises:
            LeaseLostError: The lease has expired, or another writer has written since. The count is void, and no earlier
                attempt will take effect.
            ProductNotFoundError: The product is gone, and no earlier attempt will take effect.
            RejectedError: `ADJUSTMENT_ID_REUSED`: the id belongs to another adjustment; or `BELOW_FLOOR`: open orders hold
                more than was counted. A live lease stays live.
            ContentionError: Concurrent transactions got in the way until time ran out.
        """
        before, moment = self.product, self.client.clock.now()
        after = self._after(counted)
        if before.lock_on_hand is not None:
            # The count is correct without this number.
            with suppress(OutcomeError):
                _, there = read_on_hand(self.client, self.product_id, deadline, self.stats, _TRIES)
                self.handed_over = before.lock_on_hand - there
        count = AdjustmentRecord(
            self.product_id,
            adjustment_id,
            after.stock_count - before.stock_count,
            COUNT,
            before.created_at,
            after.version,
            timestamp(moment),
            notes,
            counted=counted,
        )
        write = count_write(before, after, self.owner, moment)
        actions = [
            Action(ActionKind.PRODUCT, self.product_id, write, by_version=True),
            record_action(count.key, count),
        ]
        # Retries stop when the lease ends, because they are checked against `moment`. If it is already over, none can succeed.
        left = self.seconds_left()
        is_short = 0 < left < deadline.remaining()
        in_time = Deadline.after(left, self.client.clock) if is_short else deadline
        try:
            self.client.write(actions, in_time, self.stats)
        except TransactionCancelledError as cancelled:
            return self._settle_commit(cancelled, count, deadline)
        if before.status is ProductStatus.ACTIVE and after.status is not before.status:
            self.stats.low_stock.append(after)
        return count

    def _after(self, counted: int) -> Product:
        """The product with its stock corrected by the count.

        Raises:
            RejectedError: `BELOW_FLOOR`: open orders hold more units than were counted.
        """
        before = self.product
        delta = counted - (before.lock_on_hand or 0)
        after = before.with_stock(before.stock_count + delta, before.version + 1)
        if delta < 0 and after.removable < 0:
            raise RejectedError(
                f"open orders hold {-after.removable:,} more units of {in_words(self.product_id)} than that count allows; count again. If "
                "units are missing, release the lease, cancel those units in their orders (restock false), and start a new count",
                "BELOW_FLOOR",
            )
        return after

    def _settle_commit(
        self, error: TransactionCancelledError, count: AdjustmentRecord, deadline: Deadline
    ) -> AdjustmentRecord:
        """Classify a cancelled commit: already done, an id in use, concurrent writers, or a lease that is over."""
        # An earlier commit of ours, whose token DynamoDB may have forgotten, is recognised by its record.
        if (stored := self._find(count, deadline)) is not None:
            return stored
        if error.may_be_repeated:
            raise ContentionError(
                f"concurrent writers changed {in_words(self.product_id)} on every attempt"
            )
        lost: OutcomeError = self._lost(
            "the count was not booked; acquire it again, and count again"
        )
        # An earlier attempt may still be in flight. It must not find our lock in the row.
        try:
            self.release(deadline)
        except ProductNotFoundError as gone:
            lost = gone
        if (stored := self._find(count, deadline)) is not None:
            return stored
        raise lost

    def _find(self, count: AdjustmentRecord, deadline: Deadline) -> AdjustmentRecord | None:
        """Find the adjustment that an earlier attempt to commit this count recorded.

        Raises:
            RejectedError: `ADJUSTMENT_ID_REUSED`: the id belongs to another adjustment.
            CorruptItemError: The record with that id is unreadable.
        """
        client, key = self.client, count.key
        # Without the product in the same read, a transaction could be partly visible: see `Batch.reject_unwritten`.
        found = client.call(lambda: client.store.read_together([key.product_id, key]), deadline)
        stored = found.records.get(key)
        if isinstance(stored, CorruptItemError):
            raise stored
        if not isinstance(stored, AdjustmentRecord):
            return None
        if (
            (stored.reason, stored.counted, stored.product_created_at)
            == (COUNT, count.counted, count.product_created_at)
            # A count under an earlier lease is a different one.
            and (stored.product_version or 0) > self.product.version
        ):
            return stored
        raise RejectedError(
            f"{key.adjustment_id} belongs to another adjustment of {in_words(key.product_id)} ({stored.reason} of {stored.delta}, "
            f"at {stored.applied_at[:19]}); if that is not this count, commit under a new id while the lease lasts",
            "ADJUSTMENT_ID_REUSED",
        )

    def release(self, deadline: Deadline) -> bool:
        """End the lease without changing the stock. Safe to repeat. DynamoDB then refuses late requests for this lease.

        Returns:
            Whether this call ended it; False if it was already over, perhaps because an earlier response was lost.

        Raises:
            ProductNotFoundError: The product is gone.
        """
        is_written, _ = update_product(
            self.client,
            self.product_id,
            lambda: end_lease(self.owner, self.client.clock.now()),
            deadline,
            self.stats,
        )
        return is_written

    def _lost(self, advice: str) -> LeaseLostError:
        return LeaseLostError(
            f"the lease of {self.owner} on {in_words(self.product_id)} is over; {advice}"
        )


def read_on_hand(
    client: RetryingClient,
    key: str,
    deadline: Deadline,
    stats: CommitStats,
    attempts: int | None = None,
) -> tuple[Product, int]:
    """Read a product's row and its units on hand at one moment. During a lease, only outbound pages change them.

    Args:
        key: The key of the row.
        attempts: Maximum number of attempts; None for as many as there is time for.

    Raises:
        StoreError: DynamoDB failed, or writers kept changing the row or the outbound pages.
        ProductNotFoundError: There is no such row.
        CorruptItemError: The row, or a page that lists units of it, is unreadable.
    """
    request = partial(client.store.read_together, [key, *OUTBOUND_KEYS])
    found = client.call(request, deadline, stats, attempts=attempts)
    row = require_product(found.unreadable.get(key) or found.products.get(key), key)
    return row, row.on_hand - found.outbound_units(row)


def _seconds_after(moment: datetime, seconds: float) -> Decimal:
    return unix(moment) + Decimal(f"{seconds:.6f}")


def _limited(seconds: float, deadline: Deadline, *, outlive_deadline: bool) -> float:
    """Limit the length of a lease to the time that the invocation has left, unless it may outlive the invocation."""
    if outlive_deadline:
        return seconds
    check_time(deadline)
    return min(seconds, deadline.remaining())
