"""Changes of products by operators and catalogue systems, each with the pattern that makes it safe.

Every write requires that the product exists and that no other's lease is live, and raises `_version`. So a writer that
read before notices each write in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.domain.allocation import Update
from inventory_orders.domain.change import AdjustmentKey, AdjustmentRecord, NewRecord
from inventory_orders.domain.product import (
    DETAILS,
    CatalogueEvent,
    NewProduct,
    Product,
    ProductStatus,
    stock_status,
)
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    LeaseHeldError,
    OutcomeUnknownError,
    ProductNotFoundError,
    RejectedError,
    StoreError,
    ThrottledError,
)
from inventory_orders.lanes.recall import Reclaim, reclaim
from inventory_orders.retry import LEASE_POLL_SECONDS, RetryPolicy
from inventory_orders.store.actions import (
    CONDITION_FAILED,
    Action,
    ActionKind,
    ConditionFailedError,
    TransactionCancelledError,
)
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.expressions import details_write, price_write

_FIXED = (
    *("product_id", "created_at", "stock_count", "version", "last_updated_at"),
    *("locked_by", "lock_time", "lock_version", "lent_to"),
)
"""Attributes that an update function may not change."""


@dataclass
class ProductCatalogue:
    """Ways to change a product.

    Attributes:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
        stats: What all calls took, for the metrics.
        retries: One for each optimistic call: how often it was retried.
        exhausted: One for each that was retried: whether it was given up.
    """

    store: Store
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=SystemClock)
    stats: CommitStats = field(default_factory=CommitStats)
    retries: list[int] = field(default_factory=list)
    exhausted: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client = RetryingClient(self.store, self.policy, self.clock)

    def get(self, product_id: str, deadline: Deadline) -> Product:
        """Read a product, strongly consistent.

        Args:
            product_id: The product.
            deadline: When to give up.

        Raises:
            ProductNotFoundError: There is none.
            CorruptItemError: It breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        product = self._read(product_id, deadline)
        if product is None:
            raise ProductNotFoundError(f"there is no product {product_id}")
        return product

    def update_with_retry(
        self,
        product_id: str,
        change: Callable[[Product], Product],
        deadline: Deadline,
        created_at: str | None = None,
    ) -> Update:
        """Optimistic locking: read, decide, write on condition that nothing has changed; else decide again.

        Returns the product as it was read, and as it was left, perhaps the same. The write is a transaction of one action
        with a token, so that a lost response is not taken for a rival's write. After a conflict the item that came back is
        decided upon. Where lanes may not hold the product as it is to be, the same transaction reclaims its units.

        Source: "Optimistic locking with version number",
        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/BestPractices_OptimisticLocking.html

        Args:
            product_id: The product.
            change: A pure function from the product to what it should be; it is called again after each conflict.
                It may not change keys, version, times and locks, nor the stock, of which every change is booked
                (`Adjustment`); `status` follows from the stock unless it is set to or from `DISCONTINUED`.
                Attributes of one's own go into `other`. What it raises ends the update.
            deadline: When to give up.
            created_at: The incarnation that is meant; the one that is read first if not given.

        Raises:
            ProductNotFoundError: There is no such product, or the incarnation is gone.
            LeaseHeldError: A lease outlasts the deadline.
            ContentionError: Rivals were faster until the attempts or the time ran out.
            StoreError: DynamoDB failed.
        """
        before = self.get(product_id, deadline)
        created_at = created_at or before.created_at
        retries = 0
        while True:
            if before.created_at != created_at:
                raise ProductNotFoundError(f"that incarnation of {product_id} is gone")
            before, now = self._unlocked(before, deadline), self.clock.now()
            after = _next(before, change(before), timestamp(now))
            if after is None:
                self._settle(retries)
                return Update(before, before)
            if after.lent_to and not after.may_be_lent:
                done = self._replace_with_reclaim(before, change, deadline)
                if done is None:
                    before = self.get(product_id, deadline)
                    continue
                before, after = done.before, done.after
            else:
                stats = CommitStats()
                action = self.store.product_replace_action(before, after, now)
                try:
                    self._client.write([action], deadline, stats)
                except StoreError as error:
                    retries += self._count(stats)
                    before, retries = self._after_conflict(product_id, error, retries, deadline)
                    continue
                retries += self._count(stats)
            self._settle(retries)
            return Update(before, after)

    def _count(self, stats: CommitStats) -> int:
        """Add up what one write took. Returns how often it was repeated."""
        self.stats.add(stats)
        return len(stats.backoffs)

    def _read(self, product_id: str, deadline: Deadline) -> Product | None:
        return self._client.call(lambda: self.store.get_product(product_id), deadline, self.stats)

    def _unlocked(self, product: Product, deadline: Deadline) -> Product:
        """The product when no lease of another is in the way any more.

        Raises:
            ProductNotFoundError: Meanwhile it has gone.
            LeaseHeldError: A lease outlasts the deadline.
            StoreError: DynamoDB failed.
        """
        product_id = product.product_id
        while (left := self._lease_left(product)) > 0:
            wait = min(left, LEASE_POLL_SECONDS)
            if left > deadline.remaining() or not self._client.pause(wait, deadline):
                raise LeaseHeldError(product_id, left)
            self.stats.lease_wait += wait
            product = self.get(product_id, deadline)
        return product

    def _change_with_reclaim(
        self, product: Product, change: Callable[[Update], list[Action]], deadline: Deadline
    ) -> Update | None:
        """Change a product in the transaction that reclaims its units.

        Args:
            product: As it was read.
            change: From the row's update to the actions that take its place.
            deadline: When to give up.

        Returns:
            The update; None if the units were reclaimed without it, or another's longer lease came in between.

        Raises:
            ProductNotFoundError: That incarnation is gone, and another one is in its place.
            CorruptItemError: It, or a page that holds some of it, breaks its table's contract.
            StoreError: DynamoDB failed, or no time was left.
        """
        sent: list[Update] = []

        def and_note(update: Update) -> list[Action]:
            if update.before.created_at != product.created_at:
                raise ProductNotFoundError(f"that incarnation of {product.product_id} is gone")
            sent.append(update)
            return change(update)

        done = reclaim(self._client, [product], deadline, self.stats, Reclaim(change=and_note))
        is_mine = bool(sent) and done.rows.get(product.product_id) is sent[-1].after
        return sent[-1] if is_mine else None

    def _replace_with_reclaim(
        self, product: Product, change: Callable[[Product], Product], deadline: Deadline
    ) -> Update | None:
        """Apply an update function in the transaction that reclaims the product's units."""
        after = product

        def replacing(update: Update) -> list[Action]:
            nonlocal after
            now, whole = self.clock.now(), replace(update.after, version=update.before.version)
            after = _next(whole, change(whole), timestamp(now)) or update.after
            return [self.store.product_replace_action(update.before, after, now)]

        done = self._change_with_reclaim(product, replacing, deadline)
        return Update(done.before, after) if done is not None else None

    def _lease_left(self, product: Product) -> float:
        return product.lease_left(self.clock.now().timestamp())

    def _settle(self, retries: int, *, given_up: bool = False) -> None:
        """Note how an optimistic call ended."""
        self.retries.append(retries)
        if retries:
            self.exhausted.append(given_up)

    def _after_conflict(
        self, product_id: str, error: StoreError, retries: int, deadline: Deadline
    ) -> tuple[Product, int]:
        """Wait after a lost write. Returns the product as it came back, and the retries so far."""
        try:
            product = _found_in_conflict(product_id, error)
            retries += 1
            delay = self.policy.backoff(retries)
            if retries >= self.policy.max_attempts or not self._client.pause(delay, deadline):
                raise ContentionError(  # noqa: TRY301 - the same end as the other ways to give up
                    f"{product_id} was changed by others in every attempt"
                )
        except (ContentionError, ThrottledError, OutcomeUnknownError):
            self._settle(retries, given_up=True)
            raise
        self.stats.backoffs.append(delay)
        return product, retries

    def create(self, new: NewProduct, deadline: Deadline | None = None) -> tuple[bool, Product]:
        """Create if absent: the product, and the adjustment that explains its opening stock.

        Returns:
            Whether it was created, and the product as it is now; if it existed, nothing was changed.

        Raises:
            StoreError: DynamoDB failed.
        """
        product = product_to_create(new, timestamp(self.clock.now()))
        actions = create_actions(self.store, product)
        try:
            self._client.write(actions, deadline or Deadline.after(10.0, self.clock), self.stats)
        except TransactionCancelledError as cancelled:
            found = [r.found for r in cancelled.of(ActionKind.PRODUCT) if r.found is not None]
            if not found:
                raise
            return False, _sound(found[0])
        return True, product

    def change_details(
        self, event: CatalogueEvent, deadline: Deadline | None = None
    ) -> tuple[bool, Product]:
        """Event-time guard: apply a catalogue event unless a newer one, or this one, was applied before.

        One conditional update without a read: the condition compares times, so it needs no version, and events
        converge to the newest in whatever order they come. Applied twice it is applied once.

        Returns:
            Whether it was applied, and the product as it is now. False means stale, which is no error.

        Raises:
            ProductNotFoundError: There is no such product, perhaps not yet.
            LeaseHeldError: A lease is live.
            RejectedError: `EVENT_ID_REUSED`: another event of this id and moment was applied.
            CorruptItemError: The product breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        deadline = deadline or Deadline.after(10.0, self.clock)
        moment = self.clock.now()
        write = details_write(event, moment)
        try:
            return True, self._client.update(
                lambda: self.store.update_product(event.product_id, write),
                deadline,
                self.stats,
            )
        except ConditionFailedError as failed:
            product = failed.existing(event.product_id)
            newest = (product.details_event_time or "", product.details_event_id or "")
            if newest == (event.event_time, event.event_id):
                if any(getattr(product, name) != event.details.get(name) for name in DETAILS):
                    raise RejectedError(
                        "EVENT_ID_REUSED",
                        f"another event {event.event_id} of {event.event_time} was applied to {event.product_id}; "
                        "send this one under an id of its own",
                    ) from None
                return True, product
            if newest > (event.event_time, event.event_id):
                return False, product
            raise _lease_held(product, moment.timestamp()) from None

    def change_price(
        self,
        product_id: str,
        price: int,
        least_age: timedelta,
        deadline: Deadline | None = None,
    ) -> Product:
        """Multi-attribute condition: a new price, unless discontinued or changed too recently.

        It counts as a catalogue event of this moment, so that one that was sent before cannot undo it.

        Args:
            product_id: The product.
            price: In minor units of the currency.
            least_age: How old the last change of price must be.
            deadline: When to give up; 10 seconds from now if not given.

        Raises:
            RejectedError: `DISCONTINUED_PRODUCT`, `PRICE_CHANGED_RECENTLY`, or `NEWER_EVENT_APPLIED` (by a sender
                whose clock is ahead of ours).
            ProductNotFoundError: There is no such product.
            LeaseHeldError: A lease is live.
            CorruptItemError: The product breaks the table's contract.
            StoreError: DynamoDB failed.
        """
        deadline = deadline or Deadline.after(10.0, self.clock)
        moment = self.clock.now()
        at, latest = timestamp(moment), timestamp(moment - least_age)
        write = price_write(price, moment, latest)
        try:
            return self._client.update(
                lambda: self.store.update_product(product_id, write), deadline, self.stats
            )
        except ConditionFailedError as failed:
            product = failed.existing(product_id)
            if (product.price_changed_at, product.price) == (at, price):
                # An earlier attempt of our own whose response was lost.
                return product
            rejection = _why_the_price_stays(product, at, latest, least_age)
            raise (rejection or _lease_held(product, moment.timestamp())) from None

    def discontinue(self, product_id: str, deadline: Deadline) -> Update:
        """Accept no more orders. Stock that is there may still be counted, corrected and returned.

        Raises:
            InventoryOrdersError: As `update_with_retry`.
        """
        return self.update_with_retry(
            product_id, lambda p: replace(p, status=ProductStatus.DISCONTINUED), deadline
        )

    def list_again(self, product_id: str, deadline: Deadline) -> Update:
        """Accept orders again, after `discontinue`; the same for a product that is not discontinued.

        Raises:
            InventoryOrdersError: As `update_with_retry`.
        """

        def listed(product: Product) -> Product:
            return (
                replace(product, status=ProductStatus.ACTIVE)
                if product.is_discontinued
                else product
            )

        return self.update_with_retry(product_id, listed, deadline)

    def change(self, product_id: str, changes: Mapping[str, Any], deadline: Deadline) -> Update:
        """Set name, price, threshold for low stock or backorder limit, and leave the others as they are.

        A new name or price counts as a catalogue event of this moment, so that one that was sent before cannot undo it.

        Args:
            product_id: The product.
            changes: By the name of the attribute of `Product`.
            deadline: When to give up.

        Raises:
            RejectedError: `BELOW_FLOOR`: more units are on backorder than the limit would allow; or
                `NEWER_EVENT_APPLIED`, by a sender whose clock is ahead of ours.
            InventoryOrdersError: As `update_with_retry`.
        """

        def changed(product: Product) -> Product:
            after = replace(product, **changes)
            if after.available < 0 and after.backorder_limit < product.backorder_limit:
                raise RejectedError(
                    "BELOW_FLOOR",
                    f"{-product.stock_count:,} units of {product_id} are on backorder; the limit must allow for them",
                )
            if all(getattr(after, name) == getattr(product, name) for name in DETAILS):
                return after
            at = timestamp(self.clock.now())
            if newer := _newer_event(product, at):
                raise newer
            priced = at if after.price != product.price else product.price_changed_at
            return replace(
                after, price_changed_at=priced, details_event_time=at, details_event_id=""
            )

        return self.update_with_retry(product_id, changed, deadline)

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
        product = self._read(product_id, deadline)
        retries = 0
        while product is not None and product.created_at == created_at:
            left = self._lease_left(product)
            if left > 0:
                raise LeaseHeldError(product_id, left)
            if product.lent_to:
                try:
                    done = self._change_with_reclaim(
                        product, lambda update: self._closing(update.before, update.after), deadline
                    )
                except ProductNotFoundError:
                    break
                if done is not None:
                    self._settle(retries)
                    return True
                product = self._read(product_id, deadline)
                continue
            stats = CommitStats()
            try:
                self._client.write(self._closing(product, product), deadline, stats)
            except StoreError as error:
                retries += self._count(stats)
                try:
                    product, retries = self._after_conflict(product_id, error, retries, deadline)
                except ProductNotFoundError:
                    break
                continue
            self._settle(retries + self._count(stats))
            return True
        self._settle(retries)
        return False

    def _closing(self, stored: Product, reclaimed: Product) -> list[Action]:
        """The actions that delete a product and close its books.

        Args:
            stored: As it was read.
            reclaimed: With all its units.
        """
        moment = self.clock.now()
        closing = AdjustmentRecord(
            stored.product_id,
            f"closing-{_incarnation(stored.created_at)}",
            -reclaimed.stock_count,
            "CLOSING",
            stored.created_at,
            stored.version + 1,
            timestamp(moment),
        )
        return [
            self.store.product_delete_action(stored, moment),
            self.store.record_action(NewRecord(closing)),
        ]


def _why_the_price_stays(
    product: Product, at: str, latest: str, least_age: timedelta
) -> RejectedError | None:
    """Why a price may not change; None if it may, and only a lease is in the way."""
    if product.status is ProductStatus.DISCONTINUED:
        return RejectedError(
            "DISCONTINUED_PRODUCT", f"{product.product_id} is discontinued; its price stays"
        )
    if (product.price_changed_at or "") > latest:
        return RejectedError(
            "PRICE_CHANGED_RECENTLY",
            f"the price of {product.product_id} was changed at {product.price_changed_at}; it may change again "
            f"{least_age} later",
        )
    return _newer_event(product, at)


def _newer_event(product: Product, at: str) -> RejectedError | None:
    """Why details may not change at this time: a catalogue event of a later time was applied."""
    if (product.details_event_time or "") <= at:
        return None
    return RejectedError(
        "NEWER_EVENT_APPLIED",
        f"the newest details of {product.product_id} are of {product.details_event_time}, which is ahead of now; "
        "correct their sender's clock",
    )


def product_to_create(new: NewProduct, at: str) -> Product:
    """A new product as its first write leaves it, at that time."""
    return Product(
        new.product_id,
        new.opening_stock,
        version=1,
        created_at=at,
        status=stock_status(new.opening_stock, new.backorder_limit, new.low_stock_threshold),
        backorder_limit=new.backorder_limit,
        low_stock_threshold=new.low_stock_threshold,
        name=new.name,
        price=new.price,
        price_changed_at=at if new.price is not None else None,
        last_updated_at=at,
    )


def create_actions(store: Store, product: Product) -> list[Action]:
    """The actions that create a product and open its books."""
    opening = AdjustmentRecord(
        product.product_id,
        opening_key(product).adjustment_id,
        product.stock_count,
        "OPENING",
        product.created_at,
        product.version,
        product.created_at,
    )
    return [store.product_create_action(product), store.record_action(NewRecord(opening))]


def opening_key(product: Product) -> AdjustmentKey:
    """Where the opening stock of a product's incarnation is booked."""
    return AdjustmentKey(product.product_id, f"opening-{_incarnation(product.created_at)}")


def _next(before: Product, wanted: Product, at: str) -> Product | None:
    """The product to write; None if nothing has changed."""
    for name in _FIXED:
        if getattr(wanted, name) != getattr(before, name):
            raise ValueError(f"{name} of a product is not for an update function to change")
    if wanted == before:
        return None
    return replace(wanted.with_stock(wanted.stock_count, before.version + 1), last_updated_at=at)


def _found_in_conflict(product_id: str, error: StoreError) -> Product:
    """The product as it came back with a lost write."""
    if not isinstance(error, TransactionCancelledError):
        raise error
    reason = next(iter(error.of(ActionKind.PRODUCT)), None)
    if reason is None:
        raise error
    if reason.code != CONDITION_FAILED:
        raise ContentionError(f"{product_id} is fought over: {reason.code} in every attempt")
    if reason.found is None:
        raise ProductNotFoundError(f"there is no product {product_id} any more")
    return _sound(reason.found)


def _sound(found: object) -> Product:
    """The returned item, as a product.

    Raises:
        CorruptItemError: It breaks the table's contract.
    """
    if isinstance(found, CorruptItemError):
        raise found
    if not isinstance(found, Product):
        raise TypeError(f"{found!r} is no product")
    return found


def _lease_held(product: Product, now: float) -> LeaseHeldError:
    return LeaseHeldError(product.product_id, product.lease_left(now))


def _incarnation(created_at: str) -> str:
    """A time as part of an id, in which `+` may not stand."""
    return created_at.removesuffix("+00:00")
