"""Products as operators and catalogue systems change them, each way with the pattern that makes it safe.

All of them respect one another: every write requires that the product exists and that no lease of somebody else is
live, and every write raises `_version`, so that nobody who read before can write after it unawares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from inventory_orders.claims import CLAIM_SECONDS, Claims, Memory, outwait_claims
from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.errors import (
    ConditionFailedError,
    ContentionError,
    LeaseHeldError,
    OutcomeUnknownError,
    ProductNotFoundError,
    RefusedError,
    StoreError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import (
    ProductStatus,
    Put,
    Table,
    adjustment_row,
    stock_status,
)
from inventory_orders.retry import LEASE_POLL_SECONDS, RetryPolicy
from inventory_orders.store import (
    AS_READ,
    CLAIMED,
    LOCK,
    NO_LIVE_LEASE,
    ClaimUse,
    Store,
    decode,
    decode_checked,
    unix,
)
from inventory_orders.writer import CONDITION_FAILED, Effort, Writer

State = Mapping[str, Any]
"""A product's attributes by name, as plain Python values."""

DETAILS = ("name", "price")
"""The attributes that a catalogue event is a snapshot of."""

_FIXED = (
    *("productId", "createdAt", "stockCount", "_version", "lastUpdatedAt"),
    *LOCK,
)


@dataclass(frozen=True, slots=True)
class NewProduct:
    """A product to be listed.

    Attributes:
        product_id: Its id.
        opening_stock: Units on hand from the start.
        low_stock_threshold: At or below it the product counts as low in stock.
        backorder_limit: How far below zero the stock may go.
        name: For people.
        price: In minor units of the currency (cents, pence).
    """

    product_id: str
    opening_stock: int
    low_stock_threshold: int = 0
    backorder_limit: int = 0
    name: str | None = None
    price: int | None = None


@dataclass(frozen=True, slots=True)
class CatalogueEvent:
    """All details of a product as a catalogue system saw them at one moment.

    Attributes:
        product_id: The product.
        event_id: Breaks ties between events of the same moment: the greater id is the newer one.
        event_time: When, in the format of all times.
        details: A whole snapshot: a detail that is not in it is removed.
    """

    product_id: str
    event_id: str
    event_time: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Updated:
    """An optimistic update that succeeded.

    Attributes:
        before: The product as it was read.
        after: The product as it was left; the same if the function changed nothing.
        retries: How often it was decided or sent again.
    """

    before: State
    after: State
    retries: int


@dataclass
class Products:
    """Ways to change a product.

    Attributes:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
        effort: What all calls took, for the metrics.
        retries: One for each optimistic call: how often it was retried.
        exhausted: One for each that was retried: whether it was given up.
    """

    store: Store
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=SystemClock)
    effort: Effort = field(default_factory=Effort)
    retries: list[int] = field(default_factory=list)
    exhausted: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._writer = Writer(self.store, self.policy, self.clock)
        self._memory = Memory(self.clock, self.policy.random)

    def get(self, product_id: str, deadline: Deadline) -> State:
        """Read a product, strongly consistent.

        Args:
            product_id: The product.
            deadline: When to give up.

        Raises:
            ProductNotFoundError: There is none.
            CorruptItemError: It breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        state = self._read(product_id, deadline)
        if state is None:
            raise ProductNotFoundError(f"there is no product {product_id}")
        return state

    def update_with_retry(
        self,
        product_id: str,
        change: Callable[[State], State],
        deadline: Deadline,
        created_at: str | None = None,
    ) -> Updated:
        """Optimistic locking: read, decide, write on condition that nothing has changed; else decide again.

        The write is a transaction of one action with a token, so that a lost response is not taken for a rival's
        write. After a conflict the item that came back is decided upon, without another read. A loss of one action
        is cheap, so it is claimed only where others claim: they would never leave it alone for a read and a write.

        Source: "Optimistic locking with version number",
        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/BestPractices_OptimisticLocking.html

        Args:
            product_id: The product.
            change: A pure function from the product's state to the one that it should have; it is called again
                after each conflict. Keys, version, times and locks are not its business, nor is the stock, of
                which every change is booked (`Adjustment`); `status` follows from the stock unless it is set to
                or from `DISCONTINUED`. What it raises ends the update.
            deadline: When to give up.
            created_at: The incarnation that is meant; the one that is read first if not given.

        Raises:
            ProductNotFoundError: There is no such product, or the incarnation is gone.
            LeaseHeldError: A lease outlasts the deadline.
            ContentionError: Rivals were faster until the attempts or the time ran out.
            StoreError: DynamoDB failed.
        """
        before = self.get(product_id, deadline)
        created_at = created_at or before["createdAt"]
        retries = 0
        with self._claims(deadline) as claims:
            while True:
                if before["createdAt"] != created_at:
                    raise ProductNotFoundError(f"that incarnation of {product_id} is gone")
                before = self._unlocked(before, claims, deadline)
                now = self.clock.now()
                after = _next_state(before, change(dict(before)), timestamp(now))
                if after is None:
                    self._settle(retries)
                    return Updated(before, before, retries)
                claim = claims.use(product_id, release=True)
                error, repeated = self._writer.write(
                    [self._replace(before, after, now, claim)], 1, deadline, self.effort
                )
                retries += repeated
                if error is None:
                    claims.over(product_id)
                    self._settle(retries)
                    return Updated(before, after, retries)
                before, retries = self._after_conflict(product_id, error, retries, deadline)
                claims.doubt(product_id)

    def _read(self, product_id: str, deadline: Deadline) -> State | None:
        return self._writer.read(lambda: self.store.get_product(product_id), deadline)

    @contextmanager
    def _claims(self, deadline: Deadline) -> Iterator[Claims]:
        claims = Claims(self._writer, self._memory, deadline, self.effort)
        try:
            yield claims
        finally:
            claims.release()

    def _unlocked(self, state: State, claims: Claims, deadline: Deadline) -> State:
        """The product when no lease of another is in the way any more: it is waited for, or claimed among claims.

        Raises:
            ProductNotFoundError: Meanwhile it has gone.
            LeaseHeldError: A lease outlasts the deadline.
            StoreError: DynamoDB failed.
        """
        product_id = state["productId"]
        while (left := self._lease_left(state)) > 0:
            if left <= CLAIM_SECONDS:
                try:
                    state = decode(claims.take(product_id))
                except ConditionFailedError as failed:
                    state = _existing(product_id, failed)
                    continue
                return {name: value for name, value in state.items() if name not in LOCK}
            wait = min(left, LEASE_POLL_SECONDS)
            if left > deadline.remaining() or not self._writer.pause(wait, deadline):
                raise LeaseHeldError(product_id, left)
            self.effort.lease_wait += wait
            state = self.get(product_id, deadline)
        return state

    def _lease_left(self, state: State) -> float:
        return float(state.get("lockTime", 0) - unix(self.clock.now()))

    def _settle(self, retries: int, *, given_up: bool = False) -> None:
        """Note how an optimistic call ended."""
        self.retries.append(retries)
        if retries:
            self.exhausted.append(given_up)

    def _after_conflict(
        self, product_id: str, error: StoreError, retries: int, deadline: Deadline
    ) -> tuple[State, int]:
        """Wait after a lost write. Returns the product as it came back, and the retries so far."""
        try:
            state = _item_of_conflict(product_id, error)
            retries += 1
            delay = self.policy.backoff(retries)
            if retries >= self.policy.max_attempts or not self._writer.pause(delay, deadline):
                raise ContentionError(  # noqa: TRY301 - the same end as the other ways to give up
                    f"{product_id} was changed by others in every attempt"
                )
        except (ContentionError, ThrottledError, OutcomeUnknownError):
            self._settle(retries, given_up=True)
            raise
        self.effort.backoffs.append(delay)
        return state, retries

    def create(self, product: NewProduct, deadline: Deadline | None = None) -> tuple[bool, State]:
        """Create if absent: the product, and the adjustment that explains its opening stock.

        Returns:
            Whether it was created, and the product as it is now; if it existed, nothing was changed.

        Raises:
            StoreError: DynamoDB failed.
        """
        at = timestamp(self.clock.now())
        row: dict[str, Any] = {
            "productId": product.product_id,
            "stockCount": product.opening_stock,
            "backorderLimit": product.backorder_limit,
            "lowStockThreshold": product.low_stock_threshold,
            "_version": 1,
            "status": stock_status(
                product.opening_stock, product.backorder_limit, product.low_stock_threshold
            ),
            "createdAt": at,
            "lastUpdatedAt": at,
        }
        if product.name is not None:
            row["name"] = product.name
        if product.price is not None:
            row |= {"price": product.price, "priceChangedAt": at}
        opening = adjustment_row(
            product.product_id,
            f"opening-{_incarnation(at)}",
            product.opening_stock,
            "OPENING",
            at,
            1,
            at,
        )
        actions = [
            self.store.record_action(Put(Table.PRODUCTS, row)),
            self.store.record_action(Put(Table.STOCK_ADJUSTMENTS, opening)),
        ]
        deadline = deadline or Deadline.after(10.0, self.clock)
        error, _ = self._writer.write(actions, 0, deadline, self.effort)
        if error is None:
            return True, row
        if isinstance(error, TransactionCancelledError) and error.reasons:
            existing = error.reasons[0]
            if existing.code == CONDITION_FAILED and existing.item is not None:
                return False, decode_checked(existing.item)
        raise error

    def change_details(
        self, event: CatalogueEvent, deadline: Deadline | None = None
    ) -> tuple[bool, State]:
        """Event-time guard: apply a catalogue event unless a newer one, or this one, was applied before.

        One conditional update without a read: the condition compares times, so it needs no version, and events
        converge to the newest in whatever order they come. Applied twice it is applied once.

        Returns:
            Whether it was applied, and the product as it is now. False means stale, which is no error.

        Raises:
            ProductNotFoundError: There is no such product, perhaps not yet.
            LeaseHeldError: A lease is live.
            RefusedError: `EVENT_ID_REUSED`: another event of this id and moment was applied.
            CorruptItemError: The product breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        deadline = deadline or Deadline.after(10.0, self.clock)
        return outwait_claims(lambda: self._change_details(event, deadline), deadline, self._writer)

    def _change_details(self, event: CatalogueEvent, deadline: Deadline) -> tuple[bool, State]:
        moment = self.clock.now()
        now = unix(moment)
        values: dict[str, Any] = {
            "time": event.event_time,
            "id": event.event_id,
            "at": timestamp(moment),
            "one": 1,
        }
        settings = ["#detailsEventTime = :time", "#detailsEventId = :id"]
        settings += ["#lastUpdatedAt = :at", "#_version = #_version + :one"]
        removals = []
        for name in DETAILS:
            if name in event.details:
                settings.append(f"#{name} = :{name}")
                values[name] = event.details[name]
            else:
                removals.append(f"#{name}")
        if "price" in event.details:
            # Not `when it differs from the stored one`: that would depend on the order of arrival.
            settings.append("#priceChangedAt = :time")
        else:
            removals.append("#priceChangedAt")
        update = "SET " + ", ".join(settings)
        if removals:
            update += " REMOVE " + ", ".join(removals)
        condition = (
            "(attribute_not_exists(#detailsEventTime) OR #detailsEventTime < :time OR "
            f"(#detailsEventTime = :time AND #detailsEventId < :id)) AND {NO_LIVE_LEASE}"
        )
        values["now"] = now
        try:
            return True, self._writer.update(
                lambda: self.store.update_product(event.product_id, update, condition, values),
                deadline,
                self.effort,
            )
        except ConditionFailedError as failed:
            state = _existing(event.product_id, failed)
            newest = (str(state.get("detailsEventTime", "")), str(state.get("detailsEventId", "")))
            if newest == (event.event_time, event.event_id):
                if any(state.get(name) != event.details.get(name) for name in DETAILS):
                    raise RefusedError(
                        "EVENT_ID_REUSED",
                        f"another event {event.event_id} of {event.event_time} was applied to {event.product_id}; "
                        "send this one under an id of its own",
                    ) from None
                return True, state
            if newest > (event.event_time, event.event_id):
                return False, state
            raise _lease_held(event.product_id, state, now) from None

    def change_price(
        self,
        product_id: str,
        price: int,
        least_age: timedelta,
        deadline: Deadline | None = None,
    ) -> State:
        """Multi-attribute condition: a new price, unless discontinued or changed too recently.

        It counts as a catalogue event of this moment, so that one that was sent before cannot undo it.

        Args:
            product_id: The product.
            price: In minor units of the currency.
            least_age: How old the last change of price must be.
            deadline: When to give up; 10 seconds from now if not given.

        Raises:
            RefusedError: `DISCONTINUED_PRODUCT`, `PRICE_CHANGED_RECENTLY`, or `NEWER_EVENT_APPLIED` (by a sender
                whose clock is ahead of ours).
            ProductNotFoundError: There is no such product.
            LeaseHeldError: A lease is live.
            CorruptItemError: The product breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        deadline = deadline or Deadline.after(10.0, self.clock)
        return outwait_claims(
            lambda: self._change_price(product_id, price, least_age, deadline),
            deadline,
            self._writer,
        )

    def _change_price(
        self, product_id: str, price: int, least_age: timedelta, deadline: Deadline
    ) -> State:
        moment = self.clock.now()
        at, now = timestamp(moment), unix(moment)
        latest = timestamp(moment - least_age)
        update = (
            "SET #price = :price, #priceChangedAt = :at, #lastUpdatedAt = :at, "
            "#detailsEventTime = :at, #detailsEventId = :id, #_version = #_version + :one"
        )
        condition = (
            "#status <> :discontinued AND "
            "(attribute_not_exists(#priceChangedAt) OR #priceChangedAt <= :latest) AND "
            "(attribute_not_exists(#detailsEventTime) OR #detailsEventTime <= :at) AND "
            f"{NO_LIVE_LEASE}"
        )
        values = {
            "price": price,
            "at": at,
            "id": "price-change",
            "one": 1,
            "discontinued": ProductStatus.DISCONTINUED,
            "latest": latest,
            "now": now,
        }
        try:
            return self._writer.update(
                lambda: self.store.update_product(product_id, update, condition, values),
                deadline,
                self.effort,
            )
        except ConditionFailedError as failed:
            state = _existing(product_id, failed)
            if state.get("priceChangedAt") == at and state.get("price") == price:
                # An earlier attempt of our own whose response was lost.
                return state
            if state["status"] == ProductStatus.DISCONTINUED:
                raise RefusedError(
                    "DISCONTINUED_PRODUCT", f"{product_id} is discontinued; its price stays"
                ) from None
            if state.get("priceChangedAt", "") > latest:
                raise RefusedError(
                    "PRICE_CHANGED_RECENTLY",
                    f"the price of {product_id} was changed at {state['priceChangedAt']}; it may change again "
                    f"{least_age} later",
                ) from None
            if str(state.get("detailsEventTime", "")) > at:
                raise RefusedError(
                    "NEWER_EVENT_APPLIED",
                    f"the newest details of {product_id} are of {state['detailsEventTime']}, which is ahead of now; "
                    "correct their sender's clock",
                ) from None
            raise _lease_held(product_id, state, now) from None

    def discontinue(self, product_id: str, deadline: Deadline) -> Updated:
        """Accept no more orders. Stock that is there may still be counted, corrected and returned.

        Raises:
            InventoryOrdersError: As `update_with_retry`.
        """
        return self.update_with_retry(
            product_id, lambda state: {**state, "status": ProductStatus.DISCONTINUED}, deadline
        )

    def delist(self, product_id: str, created_at: str, deadline: Deadline) -> bool:
        """Conditional delete of one incarnation, with the closing adjustment of its stock.

        Args:
            product_id: The product.
            created_at: The incarnation that is to go.
            deadline: When to give up.

        Returns:
            True if it is gone by this call (or by an earlier attempt of it); False for a stale delete: that
            incarnation was gone already or replaced by another one. That is a success too: what should not be
            there is not.

        Raises:
            LeaseHeldError: A lease is live.
            ContentionError: Rivals were faster until the attempts or the time ran out.
            StoreError: DynamoDB failed.
        """
        with self._claims(deadline) as claims:
            return self._delist(product_id, created_at, deadline, claims)

    def _delist(self, product_id: str, created_at: str, deadline: Deadline, claims: Claims) -> bool:
        state = self._read(product_id, deadline)
        retries = 0
        while state is not None and state["createdAt"] == created_at:
            left = self._lease_left(state)
            if left > CLAIM_SECONDS:
                raise LeaseHeldError(product_id, left)
            try:
                state = self._unlocked(state, claims, deadline)
            except ProductNotFoundError:
                break
            if state["createdAt"] != created_at:
                break
            moment = self.clock.now()
            claim = claims.use(product_id, release=True)
            closing = adjustment_row(
                product_id,
                f"closing-{_incarnation(created_at)}",
                -state["stockCount"],
                "CLOSING",
                created_at,
                state["_version"] + 1,
                timestamp(moment),
            )
            actions = [
                self.store.product_delete_action(product_id, *_as_read(state, moment, claim)),
                self.store.record_action(Put(Table.STOCK_ADJUSTMENTS, closing)),
            ]
            error, repeated = self._writer.write(actions, 1, deadline, self.effort)
            retries += repeated
            if error is None:
                claims.over(product_id)
                self._settle(retries)
                return True
            claims.doubt(product_id)
            try:
                state, retries = self._after_conflict(product_id, error, retries, deadline)
            except ProductNotFoundError:
                break
        self._settle(retries)
        return False

    def _replace(
        self, before: State, after: State, moment: datetime, claim: ClaimUse | None
    ) -> Any:
        """The action that takes a product from one state to another."""
        changed = {name: after[name] for name in after if after[name] != before.get(name)}
        removed = [name for name in before if name not in after]
        if claim is not None:
            removed += LOCK
        update = "SET " + ", ".join(f"#{name} = :new_{name}" for name in changed)
        if removed:
            update += " REMOVE " + ", ".join(f"#{name}" for name in removed)
        condition, values = _as_read(before, moment, claim)
        return self.store.product_action(
            before["productId"],
            update,
            condition,
            {f"new_{name}": value for name, value in changed.items()} | values,
        )


def _as_read(state: State, moment: datetime, claim: ClaimUse | None) -> tuple[str, dict[str, Any]]:
    """Condition that nobody has written since, nor holds a lease; and its values."""
    values = {"version": state["_version"], "createdAt": state["createdAt"]}
    if claim is None:
        return f"{AS_READ} AND {NO_LIVE_LEASE}", values | {"now": unix(moment)}
    return f"{AS_READ} AND {CLAIMED}", values | {"owner": claim.owner}


def _next_state(before: State, wanted: State, at: str) -> State | None:
    """The state to write, or None if there is nothing to write."""
    for name in _FIXED:
        if wanted.get(name) != before.get(name):
            raise ValueError(f"{name} of a product is not for an update function to change")
    if wanted == before:
        return None
    after = dict(wanted)
    after["status"] = stock_status(
        after["stockCount"],
        after.get("backorderLimit", 0),
        after.get("lowStockThreshold", 0),
        ProductStatus(after["status"]),
    )
    after["_version"] = before["_version"] + 1
    after["lastUpdatedAt"] = at
    return after


def _item_of_conflict(product_id: str, error: StoreError) -> State:
    """The product as it came back with a lost write."""
    if isinstance(error, ThrottledError | OutcomeUnknownError):
        raise error
    if not isinstance(error, TransactionCancelledError) or not error.reasons:
        raise error
    reason = error.reasons[0]
    if reason.code != CONDITION_FAILED:
        raise ContentionError(f"{product_id} is fought over: {reason.code} in every attempt")
    if reason.item is None:
        raise ProductNotFoundError(f"there is no product {product_id} any more")
    return decode_checked(reason.item)


def _existing(product_id: str, failed: ConditionFailedError) -> State:
    if failed.item is None:
        raise ProductNotFoundError(f"there is no product {product_id}")
    return decode_checked(failed.item)


def _lease_held(product_id: str, state: State, now: Decimal) -> LeaseHeldError:
    return LeaseHeldError(product_id, max(0.0, float(state.get("lockTime", now) - now)))


def _incarnation(created_at: str) -> str:
    """A time as part of an id, in which `+` may not stand."""
    return created_at.removesuffix("+00:00")
