"""A lease: a pessimistic lock that expires by itself, for work on a product that takes a while.

The lock is in the product's own row, so that acquiring it and reading the product is one request, and committing the
result and releasing it is one request too. It is fenced: acquiring and renewing raise `_version`, and the commit is
conditioned on owner, expiry and version, so an owner that was paused past its expiry cannot write.

Sources: Gray and Cheriton, "Leases", SOSP 1989; Kleppmann, "How to do distributed locking", 2016, on fencing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any

from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.errors import (
    ConditionFailedError,
    InventoryOrdersError,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    ProductNotFoundError,
    StoreError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import (
    ProductStatus,
    Put,
    Table,
    adjustment_key,
    adjustment_row,
    product_key,
    stock_status,
)
from inventory_orders.products import State
from inventory_orders.retry import RetryPolicy
from inventory_orders.store import NO_LIVE_LEASE, Store, decode, unix
from inventory_orders.writer import Effort, Writer

LONGEST_LEASE_SECONDS = 900.0
"""What returned messages are sure to outlast."""

_MINE = "#lockedBy = :owner AND #_version = :version"


@dataclass
class Lease:
    """A lease that was acquired. Usable as a context manager, which releases it unless it was committed.

    Attributes:
        store: Where the product is.
        product_id: The product.
        owner: Unique for each acquisition.
        version: The product's version as this lease's last write left it: the fencing token.
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
        if not 0 < seconds <= LONGEST_LEASE_SECONDS:
            raise ValueError(f"a lease lasts more than 0 and at most {LONGEST_LEASE_SECONDS:.0f} s")
        if not outlive_deadline:
            seconds = min(seconds, deadline.remaining())
            if seconds <= 0:
                raise ThrottledError("OUT_OF_TIME", "no time was left for a lease")
        moment = clock.now()
        lease = cls(
            store,
            product_id,
            f"{holder}-{uuid.uuid4().hex}",
            0,
            unix(moment) + Decimal(f"{seconds:.6f}"),
            {},
            clock,
            policy,
        )
        lease._take(
            "SET #lockedBy = :owner, #lockTime = :until, #lastUpdatedAt = :at, "
            "#_version = #_version + :one",
            NO_LIVE_LEASE,
            {"owner": lease.owner, "until": lease.expires_at, "now": unix(moment)},
            deadline,
        )
        return lease

    @classmethod
    def resume(
        cls,
        store: Store,
        product_id: str,
        owner: str,
        version: int,
        expires_at: Decimal,
        clock: Clock | None = None,
    ) -> Lease:
        """Take up a lease that was acquired in another invocation.

        Whether it is still good is for the next write to find out.

        Raises:
            ProductNotFoundError: There is no such product any more.
            StoreError: DynamoDB failed.
        """
        state = store.get(product_key(product_id))
        if state is None:
            raise ProductNotFoundError(f"there is no product {product_id}")
        return cls(
            store, product_id, owner, version, expires_at, state, clock=clock or SystemClock()
        )

    @property
    def stock_count(self) -> int:
        """Units on hand; nobody else can change them while the lease is live."""
        count: int = self.state["stockCount"]
        return count

    def seconds_left(self) -> float:
        """How long the lease still lasts; negative once it has expired."""
        return float(self.expires_at - unix(self.clock.now()))

    def renew(self, seconds: float, deadline: Deadline) -> None:
        """Let the lease end so many seconds from now instead.

        Raises:
            LeaseLostError: It has expired, or somebody else holds one.
            StoreError: DynamoDB failed.
        """
        if not 0 < seconds <= LONGEST_LEASE_SECONDS:
            raise ValueError(f"a lease lasts more than 0 and at most {LONGEST_LEASE_SECONDS:.0f} s")
        moment = self.clock.now()
        until = unix(moment) + Decimal(f"{seconds:.6f}")
        self._take(
            "SET #lockTime = :until, #lastUpdatedAt = :at, #_version = #_version + :one",
            f"{_MINE} AND #lockTime > :now",
            {
                "owner": self.owner,
                "version": self.version,
                "until": until,
                "now": unix(moment),
            },
            deadline,
        )

    def commit(self, counted: int, adjustment_id: str, deadline: Deadline) -> State:
        """Write the counted stock with its adjustment and release the lease, in one verified transaction.

        Args:
            counted: Units that were counted.
            adjustment_id: Makes the count exactly-once, within the product.
            deadline: When to give up.

        Returns:
            The adjustment's row: by this call, or by an earlier one whose response was lost.

        Raises:
            LeaseLostError: The lease has expired, or the product was changed since: the count means nothing now.
            StoreError: DynamoDB failed.
        """
        moment = self.clock.now()
        at, created_at = timestamp(moment), self.state["createdAt"]
        status = stock_status(
            counted,
            self.state.get("backorderLimit", 0),
            self.state.get("lowStockThreshold", 0),
            ProductStatus(self.state["status"]),
        )
        delta = counted - self.stock_count
        row = adjustment_row(
            self.product_id, adjustment_id, delta, "COUNT", created_at, self.version + 1, at
        )
        actions = [
            self.store.product_action(
                self.product_id,
                "SET #stockCount = :counted, #status = :status, #_version = :next, "
                "#lastUpdatedAt = :at REMOVE #lockedBy, #lockTime",
                f"{_MINE} AND #lockTime > :now AND #createdAt = :createdAt",
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
        writer = Writer(self.store, self.policy, self.clock)
        error, _ = writer.write(actions, 1, deadline, self.effort)
        if error is None:
            self._over = True
            return row
        if not isinstance(error, TransactionCancelledError):
            raise error
        # An own commit, whose token may be forgotten by now, is recognised by its row.
        stored = self.store.get(adjustment_key(self.product_id, adjustment_id))
        if stored is not None and self._is_own_commit(stored, delta):
            self._over = True
            return stored
        raise LeaseLostError(
            f"the lease of {self.owner} on {self.product_id} is over; nothing was written, count again"
        )

    def _is_own_commit(self, row: State, delta: int) -> bool:
        """Nobody else can have made the version that follows the one that this lease holds."""
        if (row.get("productVersion"), row["reason"]) != (self.version + 1, "COUNT"):
            return False
        # A resumed lease may have read the product only after its commit; then the delta tells nothing.
        return bool(row["delta"] == delta or self.state["_version"] != self.version)

    def release(self, deadline: Deadline) -> bool:
        """End the lease without a change.

        Returns:
            Whether it was still ours; False if it had passed on to somebody else, which is fine too.

        Raises:
            StoreError: DynamoDB failed.
        """
        try:
            self._take(
                "SET #lastUpdatedAt = :at, #_version = #_version + :one REMOVE #lockedBy, #lockTime",
                _MINE,
                {"owner": self.owner, "version": self.version},
                deadline,
            )
        except LeaseLostError:
            return False
        finally:
            self._over = True
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

    def _take(
        self, update: str, condition: str, values: dict[str, Any], deadline: Deadline
    ) -> None:
        """Acquire, renew or release; a lost response of an own write is recognised from what comes back."""
        writer = Writer(self.store, self.policy, self.clock)
        acquiring = self.version == 0
        failures = 0
        while True:
            try:
                state = self.store.update_product(
                    self.product_id,
                    update,
                    condition,
                    values | {"one": 1, "at": timestamp(self.clock.now())},
                )
            except ConditionFailedError as failed:
                found = self._recognise(failed, values, acquiring=acquiring)
                self._adopt(found)
                return
            except (ThrottledError, OutcomeUnknownError) as error:
                failures += 1
                self._wait(writer, failures, error, deadline)
            else:
                self._adopt(state)
                return

    def _wait(self, writer: Writer, failures: int, error: StoreError, deadline: Deadline) -> None:
        delay = self.policy.backoff(failures)
        if failures >= self.policy.max_attempts or not writer.pause(delay, deadline):
            raise error
        self.effort.backoffs.append(delay)

    def _adopt(self, state: State) -> None:
        self.state = state
        self.version = state["_version"]
        self.expires_at = Decimal(state.get("lockTime", self.expires_at))

    def _recognise(
        self, failed: ConditionFailedError, values: dict[str, Any], *, acquiring: bool
    ) -> State:
        """The item that came back, if it shows that an own earlier attempt was applied."""
        if failed.item is None:
            raise ProductNotFoundError(f"there is no product {self.product_id}")
        state = decode(failed.item)
        mine = state.get("lockedBy") == self.owner
        if acquiring:
            if mine:
                return state
            left = float(state.get("lockTime", 0) - unix(self.clock.now()))
            raise LeaseHeldError(self.product_id, max(0.0, left))
        next_version = state["_version"] == self.version + 1
        renewed = mine and state.get("lockTime") == values.get("until")
        released = "until" not in values and "lockedBy" not in state
        if next_version and (renewed or released):
            return state
        raise LeaseLostError(f"the lease of {self.owner} on {self.product_id} is over")
