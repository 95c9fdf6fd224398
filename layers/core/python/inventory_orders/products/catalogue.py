"""Product changes by operators and catalogue systems, and atomic decrements, each with the pattern that makes it safe.

Every write requires that the product exists and that no other owner's lease is live, and increments `_version`. So a writer
that has read the product notices if another one has written it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import Decrement
from inventory_orders.domain.change import OtherRequest, Update
from inventory_orders.domain.location import (
    MAX_PLACES,
    in_words,
    location_of,
    product_of,
)
from inventory_orders.domain.product import (
    DETAILS,
    LIMITS,
    CatalogueEvent,
    NewProduct,
    Product,
    ProductStatus,
    check_terms,
    sortable_id,
    stock_status,
    with_limit,
)
from inventory_orders.domain.record import AdjustmentKey, AdjustmentRecord
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.memory import BoundedDict
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
from inventory_orders.engine.retrying_client import (
    CommitStats,
    RetryingClient,
    if_contended,
    read_product,
    read_rows,
    update_product,
)
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    InvalidMessageError,
    LeaseHeldError,
    Outcome,
    OutcomeError,
    OutcomeUnknownError,
    ProductNotFoundError,
    RejectedError,
    ThrottledError,
)
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import reclaim
from inventory_orders.retry import LEASE_POLL_SECONDS
from inventory_orders.store.cancellations import (
    Meaning,
    TransactionCancelledError,
    require_product,
)
from inventory_orders.store.writes import (
    Action,
    ActionKind,
    barcode_actions,
    decrement_write,
    details_write,
    place_actions,
    price_write,
    product_create_action,
    product_delete_action,
    product_update_action,
    record_action,
    word_actions,
)

_FIXED = (
    *("product_id", "created_at", "stock_count", "version", "last_updated_at"),
    *("on_hand", "locked_by", "lock_time", "lock_version", "lock_on_hand", "lent_to", "places"),
)
"""Attributes that an update function must not change."""

Edit = Callable[[Product], Product | None]
"""A pure function that returns a product's new state, or None to delete the product.

It must not change keys, version, times and locks, nor the stock, because every stock change is booked (`Adjustment`). The
status results from the stock unless it is set to or from `DISCONTINUED`. Custom attributes go into `other`, with names
made of letters, digits and underscores.
"""


@dataclass
class ProductCatalogue:
    """Changes products. Each method raises `StoreError` if DynamoDB does not answer in time.

    Attributes:
        stats: The cost of all calls, for the metrics.
        actor: Who gives the commands; None if that is not known.
    """

    client: RetryingClient
    stats: CommitStats = field(default_factory=CommitStats)
    actor: str | None = None

    def of(self, actor: str | None) -> ProductCatalogue:
        """Return the same catalogue for commands of another actor, with the same stats."""
        return replace(self, actor=actor)

    def get(self, product_id: str, deadline: Deadline) -> Product:
        """Read a product with strong consistency.

        Raises:
            ProductNotFoundError: It does not exist.
            CorruptItemError: It breaks the table's contract.
        """
        return read_product(self.client, product_id, deadline, self.stats)

    def update_with_retry(
        self,
        product_id: str,
        change: Edit,
        deadline: Deadline,
        created_at: str = "",
        *,
        waits: bool = True,
    ) -> Update[Product]:
        """Optimistic locking: read, decide, and write on condition that nothing has changed; otherwise decide again.

        Returns the product as read and as left; both are the same if nothing had to change, or if it was deleted. The write
        is a transaction with a token, so that a lost response is not mistaken for a concurrent write. After a conflict, this
        decides from the item that came back. If lanes must not hold the product in its new state, the same transaction
        reclaims its units.

        Source: "Optimistic locking with version number",
        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/BestPractices_OptimisticLocking.html

        Args:
            change: Called again after each conflict. An error that it raises aborts the update.
            created_at: The generation to change; by default, the one that is read first.
            waits: Whether to wait until a lease is over.

        Raises:
            ProductNotFoundError: The product does not exist, or this generation was delisted.
            LeaseHeldError: A lease outlasts the deadline.
            ContentionError: Concurrent writers won until attempts or time ran out.
        """
        before = self.get(product_id, deadline)
        created_at = created_at or before.created_at

        def attempt() -> Update[Product]:
            nonlocal before
            before = self._unlocked(before, created_at, deadline, waits=waits)
            wanted = change(before)
            if wanted == before:
                return Update(before, before)
            if before.lent_to and (wanted is None or not _next(before, wanted).may_be_lent):
                done = self._write_with_reclaim(before, change, deadline)
                if done is None:
                    before = self.get(product_id, deadline)
                    done = attempt()
                return done
            done, actions = self._actions(before, before, wanted)
            try:
                self.client.write(actions, deadline, self.stats)
            except TransactionCancelledError as cancelled:
                before = _found_in_conflict(product_id, cancelled)
                raise ContentionError(
                    f"concurrent writers changed {in_words(product_id)} on every attempt"
                ) from None
            return done

        return self._repeat(attempt, deadline)

    def _repeat(
        self, attempt: Callable[[], Update[Product]], deadline: Deadline
    ) -> Update[Product]:
        """Repeat an attempt while concurrent writers win, and count the repetitions for the metrics."""
        earlier, is_given_up = len(self.stats.measured["RetryBackoffTime"]), False
        try:
            return self.client.call(attempt, deadline, self.stats, repeat_after=if_contended)
        except (ContentionError, ThrottledError, OutcomeUnknownError):
            is_given_up = True
            raise
        finally:
            retries = len(self.stats.measured["RetryBackoffTime"]) - earlier
            self.stats.measured["Retries"].append(retries)
            if retries:
                self.stats.measured["RetriesExhausted"].append(is_given_up)

    def _actions(
        self, stored: Product, whole: Product, wanted: Product | None
    ) -> tuple[Update[Product], list[Action]]:
        """The update of a product's row, and the actions that write it: a change, or a deletion with a closing adjustment.

        Args:
            stored: The product as read.
            whole: The product as read, with the units that its row reclaims from lanes.
            wanted: The product's new state; None to delete it.
        """
        moment = self.client.clock.now()
        if wanted is not None:
            after = replace(_next(whole, wanted), last_updated_at=timestamp(moment))
            after = self._by_actor(after, timestamp(moment))
            return Update(stored, after), [
                product_update_action(stored, after, moment),
                *word_actions(stored.product_id, stored.words, after.words),
                *barcode_actions(after, stored.barcodes),
            ]
        closing = AdjustmentRecord(
            stored.product_id,
            f"closing-{_generation(stored.created_at)}",
            -whole.stock_count,
            "CLOSING",
            stored.created_at,
            stored.version + 1,
            timestamp(moment),
            on_hand_delta=-stored.on_hand,
            notes=_actor_note(self.actor),
        )
        return Update(stored, stored), [
            product_delete_action(stored, moment),
            record_action(closing.key, closing),
            *place_actions(stored.product_id, is_new=False),
            *word_actions(stored.product_id, stored.words, frozenset()),
            *barcode_actions(replace(stored, barcodes=frozenset()), stored.barcodes),
        ]

    def _by_actor(self, product: Product, at: str) -> Product:
        """Note in a product who changed it, if that is known."""
        return replace(product, changed_by=self.actor, changed_at=at) if self.actor else product

    def _unlocked(
        self, product: Product, created_at: str, deadline: Deadline, *, waits: bool
    ) -> Product:
        """Wait until no other owner has a lease on a product, and return the latest state of the product.

        Raises:
            ProductNotFoundError: That generation was delisted.
            LeaseHeldError: A lease outlasts the deadline, or is live and the caller does not wait.
        """
        while True:
            if product.created_at != created_at:
                raise ProductNotFoundError(
                    f"that generation of {in_words(product.product_id)} no longer exists"
                )
            left = product.lease_left(self.client.clock.now().timestamp())
            if left <= 0:
                return product
            wait = min(left, LEASE_POLL_SECONDS)
            is_in_time = waits and left <= deadline.remaining()
            if not (is_in_time and self.client.pause(wait, deadline)):
                raise LeaseHeldError(in_words(product.product_id), left)
            self.stats.lease_wait += wait
            product = self.get(product.product_id, deadline)

    def _write_with_reclaim(
        self, product: Product, change: Edit, deadline: Deadline
    ) -> Update[Product] | None:
        """Change or delete a product in the transaction that reclaims its units.

        Returns:
            The update; None if the units were reclaimed without the change, or another owner has taken a longer lease.

        Raises:
            ProductNotFoundError: The product was delisted and created again.
            CorruptItemError: The row, or a page that holds units of the product, breaks its table's contract.
        """
        sent: list[tuple[Product, Update[Product]]] = []

        def write(update: Update[Product]) -> list[Action]:
            if update.before.created_at != product.created_at:
                raise ProductNotFoundError(
                    f"that generation of {in_words(product.product_id)} no longer exists"
                )
            whole = replace(update.after, version=update.before.version)
            written, actions = self._actions(update.before, whole, change(whole))
            sent.append((update.after, written))
            return actions

        done = reclaim(Depot(self.client), [product], deadline, self.stats, change=write)
        left = done.rows.get(product.product_id)
        return next((update for after, update in sent if after is left), None)

    def create(self, new: NewProduct, deadline: Deadline) -> tuple[bool, Product]:
        """Create if absent: create a product, or its stock at a location, and record the opening stock.

        At a location, its purchase limit is that of the product's other locations, unless it names its own.

        Returns:
            Whether it was created, and the current product. If it already existed, nothing was changed.

        Raises:
            ProductNotFoundError: The new row is for a location, but the product does not exist.
            RejectedError: `TOO_MANY_PLACES` or `BARCODE_TAKEN`.
            InvalidMessageError: See `with_limit`.
            ContentionError: The limit of the other locations has just changed.
            CorruptItemError: The row breaks the table's contract, or DynamoDB does not accept the product's own row.
        """
        rows, at = rows_elsewhere(self.client, [new], deadline), timestamp(self.client.clock.now())
        product = self._by_actor(product_to_create(with_limit(new, rows), at), at)
        try:
            self.client.write(create_actions(product, rows), deadline, self.stats)
        except TransactionCancelledError as cancelled:
            found = [r.found for r in cancelled.of(ActionKind.PRODUCT) if r.found is not None]
            if found:
                return False, require_product(found[0], product.product_id)
            check_room(product.product_id, cancelled)
            raise
        return True, product

    def change_details(self, event: CatalogueEvent, deadline: Deadline) -> tuple[bool, Product]:
        """Event-time guard: apply a catalogue event unless this one or a newer one was already applied.

        This is one conditional update without a read. Its condition compares times, so it needs no version, and the newest
        event wins in whatever order events arrive. Repeating an event has no effect. If the name changes, the update fails,
        and becomes a transaction with the product's words.

        Returns:
            Whether it was applied, and the current product. False means stale, which is not an error.

        Raises:
            ProductNotFoundError: The product does not exist, or does not exist yet.
            LeaseHeldError: A lease is live.
            RejectedError: `EVENT_ID_REUSED`: another event with this id and time was applied.
            CorruptItemError: The product breaks the table's contract.
        """
        moment = self.client.clock.now()
        write = details_write(event, moment)
        # The row shows the write even if its response was lost.
        _, product = update_product(
            self.client, event.product_id, lambda: write, deadline, self.stats
        )
        given = (event.event_time, sortable_id(event.event_id))
        details = {name: event.details.get(name) for name in DETAILS}
        if _newest_event(product) < given and product.name != details["name"]:

            def renamed(before: Product) -> Product:
                if _newest_event(before) >= given:
                    return before
                return replace(
                    before,
                    name=details["name"],
                    price=details["price"],
                    price_changed_at=None if details["price"] is None else event.event_time,
                    details_event_time=event.event_time,
                    details_event_id=given[1],
                )

            product = self.update_with_retry(
                event.product_id, renamed, deadline, product.created_at, waits=False
            ).after
        # This event, whether it was written now or earlier.
        newest = _newest_event(product)
        if newest < given:
            raise LeaseHeldError(
                in_words(product.product_id), product.lease_left(moment.timestamp())
            )
        if newest > given:
            return False, product
        if any(getattr(product, name) != details[name] for name in DETAILS):
            raise event_id_reused_error(product, event.event_id, details)
        return True, product

    def change_price(
        self,
        product_id: str,
        price: int,
        least_age: timedelta,
        deadline: Deadline,
    ) -> Product:
        """Multi-attribute condition: set the price, unless the product is discontinued or its price changed too recently.

        The new price counts as a catalogue event with the current time, so that an earlier event cannot undo it.

        Args:
            price: In minor units of the currency.
            least_age: Minimum age of the last price change.
            deadline: When to give up.

        Raises:
            RejectedError: `DISCONTINUED_PRODUCT`, `PRICE_CHANGED_RECENTLY`, or `NEWER_EVENT_APPLIED` (from a sender whose
                clock is ahead of ours).
            ProductNotFoundError: The product does not exist.
            LeaseHeldError: A lease is live.
            CorruptItemError: The product breaks the table's contract.
        """
        moment = self.client.clock.now()
        at, latest = timestamp(moment), timestamp(moment - least_age)
        write = price_write(price, moment, latest)
        _, product = update_product(self.client, product_id, lambda: write, deadline, self.stats)
        if (product.price_changed_at, product.price) == (at, price):
            return product
        if product.is_discontinued:
            raise RejectedError(
                f"{in_words(product_id)} is discontinued; its price was not changed",
                "DISCONTINUED_PRODUCT",
            )
        _check_no_newer_event(product, at)
        if (product.price_changed_at or "") > latest:
            raise RejectedError(
                f"the price of {in_words(product_id)} was changed at {product.price_changed_at}; it can be changed "
                f"again {least_age} after that",
                "PRICE_CHANGED_RECENTLY",
            )
        raise LeaseHeldError(in_words(product_id), product.lease_left(moment.timestamp()))

    def discontinue(
        self, product_id: str, deadline: Deadline, *, everywhere: bool = True
    ) -> Sequence[Update[Product]]:
        """Stop accepting orders. Existing stock may still be counted, corrected and returned.

        Args:
            everywhere: Whether to include all locations, if the row is the product's own.

        Returns:
            The updates of the row and of the other locations' rows. After an error, repeat the call: it continues where the
            previous one stopped.

        Raises:
            InventoryOrdersError: See `update_with_retry`.
        """
        return self._update_places(
            product_id,
            lambda p: replace(p, status=ProductStatus.DISCONTINUED),
            deadline,
            everywhere=everywhere,
        )

    def list_again(
        self, product_id: str, deadline: Deadline, *, everywhere: bool = True
    ) -> Sequence[Update[Product]]:
        """Accept orders again after `discontinue`. A product that is not discontinued stays unchanged.

        Args:
            everywhere: See `discontinue`.

        Returns:
            See `discontinue`.

        Raises:
            InventoryOrdersError: See `update_with_retry`.
        """
        return self._update_places(
            product_id,
            lambda p: replace(p, status=ProductStatus.ACTIVE) if p.is_discontinued else p,
            deadline,
            everywhere=everywhere,
        )

    def _update_places(
        self, product_id: str, change: Edit, deadline: Deadline, *, everywhere: bool
    ) -> Sequence[Update[Product]]:
        """Update a product's row, and then its rows at other locations. Skips locations that have just been delisted."""
        updates = [self.update_with_retry(product_id, change, deadline)]
        # A location may have been added since the row was read.
        for key in self.get(product_id, deadline).place_keys if everywhere else ():
            with suppress(ProductNotFoundError):
                updates.append(self.update_with_retry(key, change, deadline))
        return updates

    def change(
        self,
        product_id: str,
        changes: Mapping[str, Any],
        deadline: Deadline,
        *,
        everywhere: bool = True,
        if_barcodes: frozenset[str] | None = None,
    ) -> Sequence[Update[Product]]:
        """Set some of the attributes of a product that people may change. The others stay unchanged.

        A new name or price counts as a catalogue event with the current time, so that an earlier event cannot undo it.

        Args:
            changes: New values by attribute name of `Product`.
            everywhere: Whether `LIMITS` are also set at all other locations, if the row is the product's own.
            if_barcodes: The barcodes that the new ones replace; None for any.

        Returns:
            See `discontinue`.

        Raises:
            InvalidMessageError: See `check_terms`.
            RejectedError: `BELOW_FLOOR`, if more units are on backorder than the new limit allows; `BARCODE_TAKEN`;
                `BARCODES_CHANGED`, if it has others than `if_barcodes`; or `NEWER_EVENT_APPLIED`, from a sender whose clock is ahead of ours.
            InventoryOrdersError: See `update_with_retry`.
        """
        _check_details(product_id, changes)
        limits = {name: changes[name] for name in LIMITS if name in changes}

        def changed(product: Product) -> Product:
            is_own = product.product_id == product_id
            after = replace(product, **(changes if is_own else limits))
            check_terms(after, names_group=is_own and "limit_group" in changes)
            if after.barcodes != product.barcodes and if_barcodes not in (None, product.barcodes):
                raise RejectedError(
                    f"barcodes: {in_words(product_id)} has other ones by now ({', '.join(sorted(product.barcodes)) or 'none'}); "
                    "correct yours, and repeat the change",
                    "BARCODES_CHANGED",
                )
            if after.removable < 0 and after.backorder_limit < product.backorder_limit:
                raise RejectedError(
                    f"{-product.stock_count:,} units of {in_words(product_id)} are on backorder; set a backorder limit of at "
                    "least that many",
                    "BELOW_FLOOR",
                )
            if all(getattr(after, name) == getattr(product, name) for name in DETAILS):
                return after
            at = timestamp(self.client.clock.now())
            _check_no_newer_event(product, at)
            return replace(
                after,
                price_changed_at=at if after.price != product.price else product.price_changed_at,
                details_event_time=at,
                details_event_id="",
            )

        return self._update_places(
            product_id, changed, deadline, everywhere=everywhere and bool(limits)
        )

    def delist(self, product_id: str, created_at: str, deadline: Deadline) -> bool:
        """Conditional delete: delete one generation of a product, and record the removal of its stock.

        Args:
            created_at: The generation to delete.

        Returns:
            True if this call or an earlier attempt deleted the generation. False for a stale delete: the generation
            was already gone or replaced by another one. That is a success too, because the generation does not exist.

        Raises:
            RejectedError: `HAS_PLACES`.
            LeaseHeldError: A lease is live.
            ContentionError: Concurrent writers won until attempts or time ran out.
        """
        try:
            self.update_with_retry(product_id, _delisted, deadline, created_at, waits=False)
        except ProductNotFoundError:
            return False
        return True


def _delisted(product: Product) -> None:
    """Return None, the state of a deleted product.

    Raises:
        RejectedError: `HAS_PLACES`: the product is still listed at other locations.
    """
    if product.places:
        raise RejectedError(
            f"{in_words(product.product_id)} is also listed at {', '.join(sorted(product.places))}; delist it there first",
            "HAS_PLACES",
        )


def event_id_reused_error(
    product: Product, event_id: str, details: Mapping[str, Any]
) -> RejectedError:
    """Build the error for an event whose id and time belong to the product's newest event, which set other details."""
    stored = {name: getattr(product, name) for name in details}
    differences = ", ".join(OtherRequest.between(stored, details).differences)
    return RejectedError(
        f"eventId: the event {event_id} of {product.details_event_time} has set other details of "
        f"{in_words(product.product_id)}: {differences}. If the details sent now are right, send them with a later eventTime",
        "EVENT_ID_REUSED",
    )


def check_room(key: str, cancelled: TransactionCancelledError) -> None:
    """Raise an error if a transaction was cancelled because the product's own row cannot list another location, or of a barcode.

    Raises:
        ProductNotFoundError: The product does not exist.
        ContentionError: Its purchase limit has changed.
        RejectedError: `TOO_MANY_PLACES` or `BARCODE_TAKEN`.
        CorruptItemError: DynamoDB does not accept the product's own row.
    """
    if Meaning.CONDITION_FAILED in cancelled.meanings_of(ActionKind.PLACES):
        (reason,) = cancelled.of(ActionKind.PLACES)
        product = require_product(reason.found, product_of(key))
        if len(product.places) < MAX_PLACES:
            raise ContentionError(
                f"the purchase limit of {in_words(product.product_id)} has just changed"
            )
        raise RejectedError(
            f"{in_words(product.product_id)} is already listed at the maximum of {MAX_PLACES} locations (not counting the "
            "default); delist it at one of them first",
            "TOO_MANY_PLACES",
        )
    cancelled.check_other_rows()


def _newest_event(product: Product) -> tuple[str, str]:
    """The time and the sortable id of the newest catalogue event that was applied."""
    return product.details_event_time or "", product.details_event_id or ""


def _check_details(key: str, names: Iterable[str]) -> None:
    """Raise an error if a row at a location would get a name, a price or barcodes, which all locations share.

    Raises:
        InvalidMessageError: The row would get one of them.
    """
    name = next((name for name in (*DETAILS, "barcodes") if name in names), None)
    if name is not None and location_of(key):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"{name}: a product has the same {name} everywhere; leave it out, or leave out locationId",
            name,
        )


def _check_no_newer_event(product: Product, at: str) -> None:
    """Raise an error if a catalogue event with a later time was already applied."""
    if (product.details_event_time or "") > at:
        raise RejectedError(
            f"the newest details of {in_words(product.product_id)} are from {product.details_event_time}, according to their sender's "
            "clock; repeat this change after that time, and correct that clock if it is ahead",
            "NEWER_EVENT_APPLIED",
        )


def rows_elsewhere(
    client: RetryingClient, new: Iterable[NewProduct], deadline: Deadline
) -> list[Product]:
    """Read all rows of the products whose stock at another location is new. Leaves out unreadable ones."""
    keys = [product_of(each.product_id) for each in new if location_of(each.product_id)]
    return [*filter(None, read_rows(client, keys, deadline).products.values())] if keys else []


def product_to_create(new: NewProduct, at: str) -> Product:
    """The first version of a product's row, at the default or another location."""
    given = [name for name in DETAILS if getattr(new, name) is not None]
    _check_details(new.product_id, [*given, *(["barcodes"] if new.barcodes else [])])
    return Product(
        new.product_id,
        new.opening_stock,
        new.opening_stock,
        version=1,
        created_at=at,
        status=stock_status(
            new.opening_stock - new.safety_stock, new.backorder_limit, new.low_stock_threshold
        ),
        backorder_limit=new.backorder_limit,
        low_stock_threshold=new.low_stock_threshold,
        safety_stock=new.safety_stock,
        purchase_limit=new.purchase_limit or 0,
        limit_group=new.limit_group,
        name=new.name,
        price=new.price,
        price_changed_at=at if new.price is not None else None,
        counted_at=at,
        barcodes=new.barcodes,
        last_updated_at=at,
    )


def create_actions(product: Product, rows: Iterable[Product] = ()) -> list[Action]:
    """The actions that create a product's row, at the default or another location, record its opening stock, and list its words and barcodes.

    Args:
        product: The row.
        rows: The product's own row as read, if the new one is for another location, perhaps among other rows.
    """
    own = next((row for row in rows if row.product_id == product_of(product.product_id)), None)
    opening = AdjustmentRecord(
        product.product_id,
        opening_key(product).adjustment_id,
        product.stock_count,
        "OPENING",
        product.created_at,
        product.version,
        product.created_at,
        notes=_actor_note(product.changed_by),
    )
    return [
        product_create_action(product),
        record_action(opening.key, opening),
        *place_actions(product.product_id, own, is_new=True),
        *word_actions(product.product_id, frozenset(), product.words),
        *barcode_actions(product, frozenset()),
    ]


def _actor_note(actor: str | None) -> dict[str, str]:
    return {} if actor is None else {"actor": actor}


def opening_key(product: Product) -> AdjustmentKey:
    """The key of the adjustment that records the opening stock of a product's generation."""
    return AdjustmentKey(product.product_id, f"opening-{_generation(product.created_at)}")


def _next(before: Product, wanted: Product) -> Product:
    """The product as it will be written, with its next version and the status that results from its stock."""
    for name in _FIXED:
        if getattr(wanted, name) != getattr(before, name):
            raise ValueError(f"an update function must not change a product's {name}")
    return wanted.with_stock(wanted.stock_count, before.version + 1)


def _found_in_conflict(product_id: str, error: TransactionCancelledError) -> Product:
    """The product as stored, which DynamoDB returned when it cancelled a write."""
    error.check_other_rows()
    (reason,) = error.of(ActionKind.PRODUCT)
    if reason.meaning is Meaning.INVALID:
        raise CorruptItemError(
            f"DynamoDB does not accept the row of product {in_words(product_id)} ({reason.message}); repair the item",
            "CORRUPT_PRODUCT",
        )
    if reason.meaning is not Meaning.CONDITION_FAILED:
        # The client has already repeated the write as often as makes sense.
        met = ", ".join(sorted({each.code for each in error.reasons} - {"None"}))
        raise ThrottledError(
            "CONTENTION",
            f"too many concurrent writers of {in_words(product_id)}: {met} on every attempt",
            error.limits,
        )
    return require_product(reason.found, product_id)


def _generation(created_at: str) -> str:
    """Shorten a creation time for use in an id, which must not contain `+`."""
    return created_at.removesuffix("+00:00")


@dataclass
class AtomicDecrement:
    """Decrements while enough units are left for the status to stay the same; otherwise the engine decides.

    `stockCount - :q` needs no version, so it never loses to a concurrent writer. It cannot know the row's new version,
    change the status, or distinguish successive generations of a product. So it is conditioned on the generation and the
    thresholds that this process last saw, and on the stock staying above both thresholds, and above 0 while lanes hold some of
    the product. The engine reclaims units from lanes.
    A product that this process has not seen yet is read once. If the condition fails, the engine reads it and decides.
    It is safe to retry because it has a token and creates its adjustment row in the same transaction. Without a version as a
    fence, a receipt could let a late attempt succeed, so a rejection by the engine is stored in place of the adjustment.

    Attributes:
        engine: The engine, for the optimistic path.
        seen: The products that this process has seen, by id.
    """

    engine: Engine
    seen: BoundedDict[str, Product] = field(default_factory=BoundedDict, init=False)

    def apply(self, change: Decrement, deadline: Deadline) -> CommitReport:
        """Take units away, exactly once.

        Returns:
            The report. If its outcome is `APPLIED` and has no change, the engine was not needed.
        """
        stats = CommitStats()
        client = self.engine.client
        # After any error, the engine tries as well, and classifies the error.
        try:
            product = self.seen.get(change.product_id) or self._remember(
                read_product(client, change.product_id, deadline, stats)
            )
            # The write has no version condition, so too little stock is not a conflict.
            client.write(_decrement_actions(change, product, client.clock.now()), deadline, stats)
            stats.measured["Retries"].append(len(stats.measured["RetryBackoffTime"]))
            return CommitReport((ChangeOutcome(Outcome.APPLIED),), stats, None)
        except OutcomeError as error:
            if isinstance(error, TransactionCancelledError):
                found = next((r.found for r in error.of(ActionKind.PRODUCT)), None)
                if isinstance(found, Product):
                    self._remember(found)
        report = self.engine.apply([change], deadline)
        report.stats.add(stats)
        return report

    def _remember(self, product: Product) -> Product:
        """Keep a product for the condition of the next decrement, without its custom attributes, which may be large."""
        self.seen[product.product_id] = replace(product, other={})
        return product


def _decrement_actions(change: Decrement, product: Product, moment: datetime) -> list[Action]:
    record = AdjustmentRecord(
        *(change.product_id, change.adjustment_id, change.delta, change.reason),
        *(product.created_at, None, timestamp(moment)),
        notes=change.notes,
    )
    write = decrement_write(
        product, -change.delta, moment, has_one_location=not change.names_location
    )
    return [
        Action(ActionKind.PRODUCT, change.product_id, write),
        record_action(change.record_key, record),
    ]
