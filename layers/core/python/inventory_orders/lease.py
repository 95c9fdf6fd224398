"""A lease: a pessimistic lock that expires by itself, for work on a product that takes a while.

The lock is in the product's own row, so that acquiring it and reading the product is one request, and committing the
result and releasing it is one request too. It is fenced: every write raises `_version`, and the lock remembers as
`lockVersion` the version that its owner's last write made. As long as the two are equal nobody else has written, and
only then may the owner: one that was paused past its expiry cannot, even if its clock is wrong.

Sources: Gray and Cheriton, "Leases", SOSP 1989; Kleppmann, "How to do distributed locking", 2016, on fencing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any

from inventory_orders.claims import outwait_claims
from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.errors import (
    ConditionFailedError,
    ContentionError,
    InventoryOrdersError,
    LeaseHeldError,
    LeaseLostError,
    ProductNotFoundError,
    RefusedError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import (
    Product,
    ProductStatus,
    Put,
    Table,
    adjustment_key,
    adjustment_row,
    stock_status,
)
from inventory_orders.products import State
from inventory_orders.retry import RetryPolicy
from inventory_orders.store import NO_LIVE_LEASE, UNLOCK, Store, decode_checked, unix
from inventory_orders.writer import TRANSIENT, Effort, Writer

LONGEST_LEASE_SECONDS = 900.0
"""What returned messages are sure to outlast. Renewed over and over, a lease may last longer, and they may not."""

_MINE = "#lockedBy = :owner AND #_version = #lockVersion"
_LOCK = (
    "SET #lockedBy = :owner, #lockTime = :until, #lockVersion = #_version + :one, "
    "#lastUpdatedAt = :at, #_version = #_version + :one REMOVE #lockWait"
)


@dataclass
class Lease:
    """A lease that was acquired. Usable as a context manager, which releases it unless it was committed.

    Attributes:
        store: Where the product is.
        product_id: The product.
        owner: Unique for each acquisition.
        version: The product's version as this lease's last write left it.
        expires_at: Unix second at which it ends.
        state: The product as it was when the lease was acquired or renewed.
    """

    store: Store
    product_id: str
    owner: str
    version: int
    expires_at: Decimal
    state: State
    clock: Clock = field(default_factory=SystemClock)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    effort: Effort = field(default_factory=Effort)
    _over: bool = False

    @classmethod
    def acquire(
        cls,
        store: Store,
        product_id: str,
        seconds: float,
        *,
        deadline: Deadline,
        holder: str = "count",
        outlive_deadline: bool = False,
        clock: Clock | None = None,
        policy: RetryPolicy | None = None,
    ) -> Lease:
        """Lock a product and read it, in one update, if there is no lease or the last one has expired.

        Args:
            store: Where the product is.
            product_id: The product.
            seconds: How long, at most 900.
            deadline: When the invocation has to end. The lease never lasts longer, so that it is not frozen with
                the invocation, unless the caller says so.
            holder: Who, for people who look at the row; a unique part is added.
            outlive_deadline: The lease is handed to somebody outside this invocation.
            clock: Source of time.
            policy: How to wait between attempts after a throttle or a lost response.

        Raises:
            LeaseHeldError: Somebody else holds one.
            ProductNotFoundError: There is no such product.
            StoreError: DynamoDB failed.
        """
        clock, policy = clock or SystemClock(), policy or RetryPolicy()
        return outwait_claims(
            lambda: cls._acquire(
                store, product_id, seconds, deadline, holder, outlive_deadline, clock, policy
            ),
            deadline,
            Writer(store, policy, clock),
        )

    @classmethod
    def _acquire(
        cls,
        store: Store,
        product_id: str,
        seconds: float,
        deadline: Deadline,
        holder: str,
        outlive_deadline: bool,
        clock: Clock,
        policy: RetryPolicy,
    ) -> Lease:
        seconds = _checked(seconds, deadline, outlive_deadline=outlive_deadline)
        lease = cls(
            store, product_id, f"{holder}-{uuid.uuid4().hex}", 0, Decimal(0), {}, clock, policy
        )

        def attempt() -> dict[str, Any]:
            now = unix(clock.now())
            return store.update_product(
                product_id,
                _LOCK,
                NO_LIVE_LEASE,
                lease._values(now=now, until=now + Decimal(f"{seconds:.6f}")),
            )

        try:
            lease._adopt(lease._writer().update(attempt, deadline, lease.effort))
        except ConditionFailedError as failed:
            state = lease._found(failed)
            if state.get("lockedBy") != lease.owner:
                left = float(state.get("lockTime", 0) - unix(clock.now()))
                raise LeaseHeldError(product_id, max(0.0, left)) from None
            # An earlier attempt of our own, whose response was lost.
            lease._adopt(state)
        return lease

    @classmethod
    def resume(
        cls,
        store: Store,
        product_id: str,
        owner: str,
        version: int,
        expires_at: Decimal,
        *,
        deadline: Deadline,
        clock: Clock | None = None,
    ) -> Lease:
        """Take up a lease that was acquired in another invocation.

        Whether it is still good is for the next write to find out.

        Args:
            store: Where the product is.
            product_id: The product.
            owner: As the lease says.
            version: The product's version, as far as the owner knows.
            expires_at: Unix second at which the lease ends, as far as the owner knows.
            deadline: When to give up.
            clock: Source of time.

        Raises:
            ProductNotFoundError: There is no such product any more.
            CorruptItemError: The product breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        lease = cls(store, product_id, owner, version, expires_at, {}, clock=clock or SystemClock())
        state = lease._writer().read(lambda: store.get_product(product_id), deadline)
        if state is None:
            raise ProductNotFoundError(f"there is no product {product_id}")
        lease.state = state
        if state.get("lockedBy") == owner and state.get("lockVersion") == state["_version"]:
            # A later renewal of its own, whose answer was lost, is as good as the one that the owner knows.
            lease._adopt(state)
        return lease

    @property
    def stock_count(self) -> int:
        """Units on hand; nobody else can change them while the lease is live."""
        count: int = self.state["stockCount"]
        return count

    def seconds_left(self) -> float:
        """How long the lease still lasts; negative once it has expired."""
        return float(self.expires_at - unix(self.clock.now()))

    def renew(self, seconds: float, deadline: Deadline, *, outlive_deadline: bool = False) -> None:
        """Let the lease end so many seconds from now instead. Safe to repeat.

        Args:
            seconds: How long, at most 900.
            deadline: When the invocation has to end; the lease never lasts longer, unless the caller says so.
            outlive_deadline: The lease is held by somebody outside this invocation.

        Raises:
            LeaseLostError: It has expired, somebody else holds one, or somebody wrote since.
            StoreError: DynamoDB failed.
        """
        seconds = _checked(seconds, deadline, outlive_deadline=outlive_deadline)

        def attempt() -> dict[str, Any]:
            now = unix(self.clock.now())
            return self.store.update_product(
                self.product_id,
                _LOCK,
                f"{_MINE} AND #lockTime > :now",
                self._values(now=now, until=now + Decimal(f"{seconds:.6f}")),
            )

        try:
            self._adopt(self._writer().update(attempt, deadline, self.effort))
        except ConditionFailedError as failed:
            self._found(failed)
            raise self._lost() from None

    def commit(self, counted: int, adjustment_id: str, deadline: Deadline) -> State:
        """Write the counted stock with its adjustment and release the lease, in one verified transaction.

        Args:
            counted: Units that were counted.
            adjustment_id: Makes the count exactly-once, within the product.
            deadline: When to give up.

        Returns:
            The adjustment's row: by this call, or by an earlier one whose response was lost.

        Raises:
            LeaseLostError: The lease has expired, or somebody wrote since: the count means nothing now.
            RefusedError: `ADJUSTMENT_ID_REUSED`: the id belongs to another adjustment; the lease is still held.
            ContentionError: Transactions of others were in the way until the time ran out.
            StoreError: DynamoDB failed.
        """
        moment = self.clock.now()
        at, created_at = timestamp(moment), self.state["createdAt"]
        before = ProductStatus(self.state["status"])
        status = stock_status(
            counted,
            self.state.get("backorderLimit", 0),
            self.state.get("lowStockThreshold", 0),
            before,
        )
        row = adjustment_row(
            self.product_id,
            adjustment_id,
            counted - self.stock_count,
            "COUNT",
            created_at,
            self.version + 1,
            at,
        ) | {"counted": counted}
        actions = [
            self.store.product_action(
                self.product_id,
                "SET #stockCount = :counted, #status = :status, #_version = :next, "
                f"#lastUpdatedAt = :at {UNLOCK}",
                f"{_MINE} AND #_version = :version AND #lockTime > :now AND #createdAt = :createdAt",
                {
                    "counted": counted,
                    "status": status,
                    "next": self.version + 1,
                    "at": at,
                    "owner": self.owner,
                    "version": self.version,
                    "now": unix(moment),
                    "createdAt": created_at,
                },
            ),
            self.store.record_action(Put(Table.STOCK_ADJUSTMENTS, row)),
        ]
        # An attempt after the expiry would be judged by a time that is long past.
        left = min(deadline.remaining(), max(self.seconds_left(), 0.001))
        error, _ = self._writer().write(actions, 1, Deadline.after(left, self.clock), self.effort)
        if error is None:
            self._over = True
            if before is ProductStatus.ACTIVE and status is not before:
                self.effort.low_stock.append(
                    Product(self.product_id, counted, self.version + 1, created_at, status)
                )
            return row
        if not isinstance(error, TransactionCancelledError):
            raise error
        return self._settle_commit(error, counted, adjustment_id, deadline)

    def _settle_commit(
        self,
        error: TransactionCancelledError,
        counted: int,
        adjustment_id: str,
        deadline: Deadline,
    ) -> State:
        """What a cancelled commit means: done before, an id in use, rivals, or a lease that is over."""
        # An own commit, whose token may be forgotten by now, is recognised by its row.
        key = adjustment_key(self.product_id, adjustment_id)
        stored = self._writer().read(lambda: self.store.get(key), deadline)
        if stored is not None:
            if (
                (stored["reason"], stored.get("counted")) == ("COUNT", counted)
                and stored["productCreatedAt"] == self.state["createdAt"]
                and stored["productVersion"] > self.version
            ):
                self._over = True
                return stored
            raise RefusedError(
                "ADJUSTMENT_ID_REUSED",
                f"{adjustment_id} belongs to another adjustment of {self.product_id}; commit under an id of its own",
            )
        if {reason.code for reason in error.reasons} <= TRANSIENT:
            raise ContentionError(f"{self.product_id} is fought over in every attempt")
        raise self._lost()

    def release(self, deadline: Deadline) -> bool:
        """End the lease without a change. Safe to repeat.

        Returns:
            Whether it was still ours; False if it was over already, which is fine too.

        Raises:
            StoreError: DynamoDB failed.
        """
        self._over = True

        def attempt() -> dict[str, Any]:
            return self.store.update_product(
                self.product_id,
                f"SET #lastUpdatedAt = :at, #_version = #_version + :one {UNLOCK}",
                _MINE,
                self._values(),
            )

        try:
            self._adopt(self._writer().update(attempt, deadline, self.effort))
        except ConditionFailedError as failed:
            state = self._found(failed)
            # An earlier attempt of our own, whose response was lost, left the next version and no lock.
            return "lockedBy" not in state and bool(state["_version"] == self.version + 1)
        return True

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._over:
            try:
                self.release(Deadline.after(3.0, self.clock))
            except InventoryOrdersError:
                # It expires by itself; what went wrong inside must not be hidden by this.
                if error is None:
                    raise

    def _writer(self) -> Writer:
        return Writer(self.store, self.policy, self.clock)

    def _values(self, **more: Any) -> dict[str, Any]:
        return {"owner": self.owner, "one": 1, "at": timestamp(self.clock.now()), **more}

    def _adopt(self, state: State) -> None:
        self.state = state
        self.version = state["_version"]
        self.expires_at = Decimal(state.get("lockTime", self.expires_at))

    def _found(self, failed: ConditionFailedError) -> State:
        """The product as it came back."""
        if failed.item is None:
            raise ProductNotFoundError(f"there is no product {self.product_id}")
        return decode_checked(failed.item)

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"the lease of {self.owner} on {self.product_id} is over; nothing was written, acquire it again"
        )


def _checked(seconds: float, deadline: Deadline, *, outlive_deadline: bool) -> float:
    """How long a lease may last."""
    if not 0 < seconds <= LONGEST_LEASE_SECONDS:
        raise ValueError(f"a lease lasts more than 0 and at most {LONGEST_LEASE_SECONDS:.0f} s")
    if outlive_deadline:
        return seconds
    seconds = min(seconds, deadline.remaining())
    if seconds <= 0:
        raise ThrottledError("OUT_OF_TIME", "no time was left for a lease")
    return seconds
