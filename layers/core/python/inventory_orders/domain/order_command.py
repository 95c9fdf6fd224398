"""Commands on orders, and the changes that they make to orders in each status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias

from inventory_orders.domain.change import (
    Change,
    IdempotencyMatch,
    MatchResult,
    OtherRequest,
    StoredOrderChange,
    Update,
)
from inventory_orders.domain.location import DEFAULT_LOCATION, product_of
from inventory_orders.domain.outbound import Generation, OutboundPage
from inventory_orders.domain.product import PageStock, Stock, StockById
from inventory_orders.domain.purchases import Refunds
from inventory_orders.domain.record import (
    MAX_NAMED_STEPS,
    SIZE_OF_UNITS,
    ConfirmationRejection,
    LineUnits,
    OrderAction,
    OrderKey,
    OrderRecord,
    OrderStatus,
    Step,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.errors import CorruptItemError

REASONS_OF_ENDS: Mapping[str, RejectionReason] = {
    OrderStatus.REJECTED: RejectionReason.ORDER_REJECTED,
    OrderStatus.CANCELLED: RejectionReason.ORDER_CANCELLED,
    OrderStatus.EXPIRED: RejectionReason.ORDER_EXPIRED,
}
"""Why an order in a final status without stock rejects commands."""

_ANSWERS: Mapping[tuple[OrderAction, str], RejectionReason | IdempotencyMatch] = {
    **{
        (action, status): reason
        for action in (
            *(OrderAction.FULFIL, OrderAction.EXTEND, OrderAction.RETURN, OrderAction.UNFULFIL),
        )
        for status, reason in REASONS_OF_ENDS.items()
    },
    (OrderAction.FULFIL, OrderStatus.PENDING): RejectionReason.NOT_CONFIRMED,
    (OrderAction.EXTEND, OrderStatus.CONFIRMED): RejectionReason.NOT_HELD,
    (OrderAction.EXTEND, OrderStatus.FULFILLED): RejectionReason.NOT_HELD,
    (OrderAction.CANCEL, OrderStatus.REJECTED): RejectionReason.ORDER_REJECTED,
    (OrderAction.CANCEL, OrderStatus.CANCELLED): IdempotencyMatch.SAME_REQUEST,
    (OrderAction.CANCEL, OrderStatus.EXPIRED): IdempotencyMatch.SAME_REQUEST,
    (OrderAction.EXPIRE, OrderStatus.CONFIRMED): RejectionReason.NOT_HELD,
    (OrderAction.EXPIRE, OrderStatus.FULFILLED): RejectionReason.NOT_HELD,
    (OrderAction.EXPIRE, OrderStatus.REJECTED): RejectionReason.NOT_HELD,
    (OrderAction.EXPIRE, OrderStatus.CANCELLED): RejectionReason.NOT_HELD,
    (OrderAction.EXPIRE, OrderStatus.EXPIRED): IdempotencyMatch.SAME_REQUEST,
}
"""The answers that only depend on the command and the order's status."""

_STEPS_BEHIND: Mapping[RejectionReason, Collection[str]] = {
    RejectionReason.ORDER_CANCELLED: (OrderAction.CANCEL,),
    RejectionReason.ORDER_EXPIRED: (OrderAction.EXPIRE,),
    RejectionReason.ORDER_FULFILLED: (OrderAction.FULFIL,),
    RejectionReason.NOT_HELD: (OrderAction.CONFIRM,),
    RejectionReason.NOT_OPEN: (OrderAction.FULFIL, OrderAction.CANCEL),
    RejectionReason.NOT_DELIVERED: (OrderAction.RETURN, OrderAction.UNFULFIL),
    RejectionReason.ALREADY_PAID: (OrderAction.CONFIRM,),
    RejectionReason.STEP_ID_NEEDED: (OrderAction.UNFULFIL,),
}
"""The actions of earlier steps because of which commands are rejected."""

MAX_HOLD = timedelta(days=7)
"""Maximum time between an order and the end of its hold."""

_LAST_DAY = datetime.max.replace(tzinfo=UTC) - MAX_HOLD

MAX_ROW_SIZE = 400 * 1024
"""Bytes: docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

# Bytes that a step adds to other attributes of the row, such as `fulfilledAt`.
_ROOM_OF_STATUS = 300

# Bytes kept free in the row for a confirmation, an extension and a last step, each with its notes, and for a pseudonym. The
# units that the last step may name come on top.
_ROOM_OF_STEPS = 8_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What the stage decides about amends and hand-overs, and the way by which a command came.

    Attributes:
        locations: Where new lines of an order without `locations` may come from, best first.
        counts_users: Whether the user is the buyer of an order that names none.
        amends_paid: Whether orders that are paid may be amended.
        keeps_rejections: Whether an amend that does not suit the state of its order is rejected for good, because the message
            may arrive again.
        since: The time since which units must have been handed over so that this can be taken back; empty for any.
    """

    locations: tuple[str, ...] = (DEFAULT_LOCATION,)
    counts_users: bool = True
    amends_paid: bool = False
    keeps_rejections: bool = False
    since: str = ""


DEFAULT_TERMS = Terms()

_Answer: TypeAlias = "MatchResult | RejectionReason"
"""What becomes of a command on an order that can take it. A reason stands for a rejection with the order as its subject."""


@dataclass(frozen=True, slots=True)
class OrderCommand(Change):
    """A command on an order that has not been read yet. If the order does not exist, a full cancellation leaves a tombstone.

    Attributes:
        order_id: The order.
        action: What to do with the order.
        ended_by: For an expiry, the time by which the hold must have ended. It is ignored when two expiries are compared.
        step_id: The sender's idempotency key, unique within the order. None for a command that needs none.
        quantities: The units that it names, by product id; empty for a command about the whole order.
        restock: For a return, whether the units can be sold again. For a cancellation, False if the units are lost, otherwise
            None.
        until: For an extension, the new end of the hold.
        if_version: For a confirmation or an amend, the version of the order to which it applies; None for any.
        notes: Who gave the command, and why. They are ignored when two commands are compared.
        terms: What the stage decides. Ignored when two commands are compared.
    """

    order_id: str
    action: OrderAction
    ended_by: str = field(default="", compare=False)
    step_id: str | None = None
    quantities: Mapping[str, int] = field(default_factory=dict, hash=False)
    restock: bool | None = None
    until: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False)
    if_version: int | None = None
    terms: Terms = field(default=DEFAULT_TERMS, compare=False)

    id_reused_code: ClassVar = "STEP_ID_REUSED"

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        if self.action is OrderAction.CANCEL and not self.quantities:
            return None
        reason = (
            RejectionReason.NOT_HELD
            if self.action is OrderAction.EXPIRE
            else RejectionReason.UNKNOWN_ORDER
        )
        return Rejection(reason, self.order_id)

    def record(
        self,
        rejection: Rejection | None,  # noqa: ARG002
        after: Mapping[str, Stock],  # noqa: ARG002
        at: str,
    ) -> OrderRecord:
        return OrderRecord(
            self.order_id,
            None,
            (),
            OrderStatus.CANCELLED,
            version=1,
            created_at=at,
            last_updated_at=at,
            status_at=at,
            steps=(self.step(at),),
        )

    def step(self, at: str, moved: Mapping[str, int] | None = None) -> Step:
        """Build the step that records the command in its order. `moved` are the units that it moves, by product id."""
        return Step(
            *(self.action, at, self.step_id, moved),
            restock=self.restock,
            notes=self.notes,
            if_version=self.if_version if self.action is OrderAction.CONFIRM else None,
        )

    def earlier_step(self, order: OrderRecord, rejection: Rejection | None) -> Step | None:
        """Find the step that did what the command asks or, if it was rejected, that prevents it; None if no step did."""
        actions: Collection[str] = (self.action, OrderAction.EXPIRE)
        named = set[str]()
        if rejection is not None:
            actions = _STEPS_BEHIND.get(rejection.reason, ())
            named = {rejection.subject} & self.quantities.keys()
        steps = [
            step
            for step in order.steps
            if step.action in actions and named <= (step.quantities or dict.fromkeys(named)).keys()
        ]
        own = [step for step in steps if step.step_id == self.step_id]
        return next(reversed(own or steps), None)

    @property
    def restocks(self) -> bool | None:
        """Whether the command puts units back into stock; None if it moves none."""
        return self.action.restocks if self.restock is None else self.restock

    def match(self, record: OrderRecord) -> MatchResult:
        try:
            status = OrderStatus(record.status)
        except ValueError:
            return Rejection(RejectionReason.UNKNOWN_ORDER_STATUS, str(record.status))
        # When an order ends, all of its units go back on sale, even units that turn out to be lost later.
        ended = REASONS_OF_ENDS.get(status) if self.restock is False else None
        answer = (
            self._match_step(record)
            or ended
            or _ANSWERS.get((self.action, status))
            or self._carry_out(record)
        )
        return Rejection(answer, record.order_id) if isinstance(answer, RejectionReason) else answer

    def _match_step(self, order: OrderRecord) -> IdempotencyMatch | OtherRequest | Rejection | None:
        """Compare the command with the step, or the rejected amend, that has its id, if there is one."""
        for number, step in enumerate(order.steps if self.step_id is not None else (), 1):
            if step.step_id == self.step_id:
                stored = _content_of(self._as_sent(step, order, number))
                other = OtherRequest.between(stored, _content_of(self.step("", self.quantities)))
                return other if other.differences else IdempotencyMatch.SAME_REQUEST
        told = order.rejected_amends if self.action is OrderAction.AMEND else ()
        return next((each.rejection for each in told if each.step_id == self.step_id), None)

    def _as_sent(self, step: Step, order: OrderRecord, number: int) -> Step:
        """Restore what a step asked for. An amend says how many units of some products are open after the first `number` steps."""
        if step.action == OrderAction.UNFULFIL and not self.quantities:
            # Its sender may have named no items, too.
            return replace(step, quantities=None)
        if step.action != OrderAction.AMEND:
            return step
        units, named = order.units(number), {*(step.quantities or ()), *step.more, *self.quantities}
        return replace(step, quantities={p: units.get(p, LineUnits(0)).open for p in sorted(named)})

    # ------------------------------------------------------------------ transitions

    def _carry_out(self, order: OrderRecord) -> _Answer:
        if self.quantities and self.action in (OrderAction.FULFIL, OrderAction.CANCEL):
            return self._move_open(order)
        return _CARRIED_OUT[self.action](self, order)

    def _confirm(self, order: OrderRecord) -> _Answer:
        if (told := order.confirmation_rejected) is not None:
            final = _reason_of(order, told)
            if final is not RejectionReason.VERSION_CHANGED or told.if_version == self.if_version:
                # The sender was told to refund the payment, so the answer stays the same.
                return final
        is_paid = order.status in (OrderStatus.CONFIRMED, OrderStatus.FULFILLED) or (
            order.status != OrderStatus.REJECTED and order.confirmed_at is not None
        )
        late = None if is_paid else REASONS_OF_ENDS.get(order.status)
        if reason := late or self._other_version(order, is_paid=is_paid):
            # A late payment, or one of another total: the row records it.
            return self._rejected(order, Rejection(reason, order.order_id))
        return (
            IdempotencyMatch.SAME_REQUEST
            if is_paid
            else self._transition(OrderStatus.CONFIRMED, order)
        )

    def _other_version(self, order: OrderRecord, *, is_paid: bool) -> RejectionReason | None:
        """`VERSION_CHANGED` if the order has changed since the version that was paid or, if it is paid, another one was confirmed."""
        confirmed = [s.if_version for s in order.steps if s.action == OrderAction.CONFIRM] or [None]
        is_confirmed = None in (self.if_version, *confirmed) or self.if_version in confirmed
        is_right = is_confirmed if is_paid else order.is_as_in(self.if_version)
        return None if is_right else RejectionReason.VERSION_CHANGED

    def _extend(self, order: OrderRecord) -> _Answer:
        if order.expires_at is None:
            return RejectionReason.NOT_HELD
        created = datetime.fromisoformat(_stored_time(order, "createdAt", order.created_at))
        latest = min(created, _LAST_DAY) + MAX_HOLD
        end = min(self.until, latest.isoformat(timespec="microseconds"))
        if end <= _stored_time(order, "expiresAt", order.expires_at):
            return IdempotencyMatch.SAME_REQUEST
        return self._transition(order.status, order, extended_to=end)

    def _expire(self, order: OrderRecord) -> _Answer:
        if order.expires_at is None:
            return RejectionReason.NOT_HELD
        if _stored_time(order, "expiresAt", order.expires_at) > self.ended_by:
            return RejectionReason.HOLD_NOT_ENDED
        return self._transition(OrderStatus.EXPIRED, order, _open_units(order))

    def _fulfil(self, order: OrderRecord) -> _Answer:
        """Fulfil all that is left."""
        has_id = self.step_id is not None
        if order.status == OrderStatus.FULFILLED:
            return RejectionReason.ORDER_FULFILLED if has_id else IdempotencyMatch.SAME_REQUEST
        if not has_id and any(step.action == OrderAction.UNFULFIL for step in order.steps):
            return RejectionReason.STEP_ID_NEEDED
        return self._transition(OrderStatus.FULFILLED, order)

    def _unfulfil(self, order: OrderRecord) -> MatchResult:
        delivered = {p: line.delivered for p, line in units_of(order).items() if line.delivered}
        moved = self.quantities or delivered or {order.order_id: 1}
        for product_id, quantity in moved.items():
            if quantity > delivered.get(product_id, 0):
                return Rejection(RejectionReason.NOT_DELIVERED, product_id)
            if _handed_over_at(order, product_id) < self.terms.since:
                return Rejection(RejectionReason.TOO_LATE, product_id)
        return self._transition(OrderStatus.CONFIRMED, order, moved)

    def _cancel(self, order: OrderRecord) -> _Answer:
        """Cancel all that is left."""
        given = any(s.action == OrderAction.CANCEL and s.step_id is None for s in order.steps)
        if order.status == OrderStatus.FULFILLED:
            return IdempotencyMatch.SAME_REQUEST if given else RejectionReason.ORDER_FULFILLED
        # If it was given, a hand-over was taken back since, so it may be a late duplicate.
        return RejectionReason.STEP_ID_NEEDED if given else self._move_open(order)

    def _move_open(self, order: OrderRecord) -> MatchResult:
        """Fulfil or cancel the named open units, or all of them. The order ends when no open units are left."""
        still_open = _open_units(order)
        moved = self.quantities or still_open
        if too_many := Counter(moved) - Counter(still_open):
            return Rejection(RejectionReason.NOT_OPEN, next(iter(too_many)))
        return self._transition(status_after(order, self.step("", moved)), order, moved)

    def _return(self, order: OrderRecord) -> _Answer:
        units = units_of(order)
        undelivered = Counter(self.quantities) - Counter(
            {product_id: line.delivered for product_id, line in units.items()}
        )
        if too_many := undelivered - Counter({p: line.open for p, line in units.items()}):
            return Rejection(RejectionReason.NOT_DELIVERED, next(iter(too_many)))
        if undelivered:
            return RejectionReason.NOT_FULFILLED
        return self._transition(order.status, order, self.quantities)

    def _rejected(self, order: OrderRecord, rejection: Rejection) -> Transition:
        """The change that notes in the order that the command is rejected for good."""
        version = order.require_version()
        return Transition(self, version, order.status, self.step(""), rejected=rejection)

    def note_rejection(self, order: OrderRecord, rejection: Rejection, at: str) -> OrderRecord:
        """The order with a note that the command was rejected. It has the rejection of its first late payment only."""
        told = ConfirmationRejection(at, rejection.reason, self.if_version)
        return replace(order, confirmation_rejected=told)

    def _transition(
        self,
        status: str,
        order: OrderRecord,
        moved: Mapping[str, int] | None = None,
        extended_to: str | None = None,
    ) -> Rejection | Transition:
        step = self.step("", moved)
        # For a step without items, room is kept free. So units whose hand-over was taken back can always be handed over.
        if self.step_id is not None and moved is not None and not has_room(order, step):
            return Rejection(RejectionReason.TOO_MANY_STEPS, order.order_id)
        return Transition(
            self,
            order.require_version(),
            status,
            step,
            self._leaving(order, moved),
            moves_goods=self.action is OrderAction.RETURN,
            extended_to=extended_to,
        )

    def _leaving(
        self, order: OrderRecord, moved: Mapping[str, int] | None
    ) -> dict[Generation, int]:
        """Units that leave the warehouse, because open units move without going back into stock. Negative if they never left."""
        is_undone = self.action is OrderAction.UNFULFIL
        if not is_undone and (self.action.restocks is None or self.restocks):
            return {}
        leaving = _open_units(order) if moved is None else moved
        return {
            Generation(line.key, line.product_created_at or ""): leaving[line.product_id]
            * (-1 if is_undone else 1)
            for line in order.lines
            if line.product_id in leaving
        }


_CARRIED_OUT: Mapping[OrderAction, Callable[[OrderCommand, OrderRecord], _Answer]] = {
    OrderAction.CONFIRM: OrderCommand._confirm,
    OrderAction.EXTEND: OrderCommand._extend,
    OrderAction.EXPIRE: OrderCommand._expire,
    OrderAction.RETURN: OrderCommand._return,
    OrderAction.FULFIL: OrderCommand._fulfil,
    OrderAction.CANCEL: OrderCommand._cancel,
    OrderAction.UNFULFIL: OrderCommand._unfulfil,
}
"""What each command makes of an order that can take it. `Amend` has its own way."""


@dataclass(frozen=True, slots=True)
class Transition(StoredOrderChange[OrderCommand]):
    """The change that a command makes to a stored order.

    Units only go back into stock of the generation from which they were taken.

    Attributes:
        status: The order's status after the command.
        step: The step that records the command, without its time. It names the units that are handed over, cancelled or
            returned, unless all units that are left are fulfilled.
        outbound: The units that leave the warehouse.
        moves_goods: Whether the units come back to the warehouse. Units that other actions restock never left it.
        rejected: Why the command is rejected for good; None if it is carried out.
        extended_to: For an extension, the new end of the hold.
    """

    status: str
    step: Step
    outbound: Mapping[Generation, int] = field(default_factory=dict, hash=False)
    moves_goods: bool = False
    rejected: Rejection | None = None
    extended_to: str | None = None

    stores_rejection: bool = True

    @property
    def gives_back(self) -> Mapping[str, int]:
        """Units that go back into stock if it is accepted, by the key of the row from which the order took them."""
        moved = (self.step.quantities or {}) if self.arrived.restocks else {}
        return {
            line.key: moved[line.product_id]
            for line in self.order.lines
            if line.product_id in moved
        }

    @property
    def refunds(self) -> Refunds:
        is_unsold = self.step.action in (OrderAction.CANCEL, OrderAction.EXPIRE, OrderAction.AMEND)
        return self.order.refunds(self.step.quantities or {}) if is_unsold else {}

    def written_on(self, page: OutboundPage) -> Transition:
        """Return the same change with the outbound page that its record will name."""
        return replace(
            self, step=replace(self.step, out_page=str(page.key), out_version=page.version)
        )

    @property
    def product_ids(self) -> Collection[str]:
        return self.gives_back.keys()

    @property
    def record_size(self) -> int:
        return self.order.size + self.step.size + _ROOM_OF_STATUS

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        return self.rejected

    def deltas(self, products: StockById) -> Mapping[str, int]:
        gives_back = self.gives_back
        return {
            line.key: gives_back[line.key]
            for line in self.order.lines
            if line.key in gives_back
            and (product := products.get(line.key)) is not None
            # An empty page has no generation, so the planner decides.
            and product.created_at in ("", line.product_created_at)
        }

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Update[OrderRecord]:
        order, version = self.order, self.order.version + 1
        if rejection is not None:
            written = self.arrived.note_rejection(order, rejection, at)
        else:
            step = replace(self.step, at=at, **_restocked(self.gives_back, after))
            # Only the last extension is kept, so that the row does not outgrow its limit.
            extends = step.action == OrderAction.EXTEND
            kept = (s for s in order.steps if not (extends and s.action == step.action))
            # A hold ends when its status changes.
            is_held, is_new = self.status == OrderStatus.PENDING, self.status != order.status
            written = replace(
                order,
                status=self.status,
                steps=(*kept, step),
                expires_at=(self.extended_to or order.expires_at) if is_held else None,
                changed_version=order.changed_version if extends else version,
                **(_stamps(order, step.action, self.status, at) if is_new else {}),
            )
        return Update(order, replace(written, last_updated_at=at, version=version))


def _restocked(keys: Iterable[str], after: Mapping[str, Stock]) -> dict[str, Any]:
    """Attributes of a step that show the books that units came back, where, and when."""
    came = {product_of(key): after[key] for key in keys if key in after}
    pages = {p: str(stock.page) for p, stock in came.items() if isinstance(stock, PageStock)}
    versions = {p: stock.version for p, stock in came.items()}
    return {"restocked_versions": versions, "restocked_pages": pages}


def _stamps(order: OrderRecord, action: str, status: str, at: str) -> dict[str, Any]:
    """The times of an order after an action changes its status. If a hand-over is taken back, it was paid before."""
    return {
        "status_at": at,
        "confirmed_at": at if action == OrderAction.CONFIRM else order.confirmed_at,
        "fulfilled_at": at if status == OrderStatus.FULFILLED else None,
    }


def _handed_over_at(order: OrderRecord, product_id: str) -> str:
    """When units of a product were handed over last."""
    fulfilled = (step for step in order.steps if step.action == OrderAction.FULFIL)
    return max(s.at for s in fulfilled if product_id in (s.quantities or {product_id}))


def _content_of(step: Step) -> dict[str, object]:
    """What makes two steps the same request, by names that the sender knows."""
    quantities = {f"quantity of {p}": units for p, units in (step.quantities or {}).items()}
    return {"action": step.action, **quantities, "restock": step.restock}


def has_room(order: OrderRecord, step: Step, size_of_lines: int = 0) -> bool:
    """Whether the order's row has room for a step with an id, for the lines that it adds, and for later commands without items."""
    named = sum(before.step_id is not None for before in order.steps)
    end = sum(SIZE_OF_UNITS + len(line.product_id) for line in order.lines)
    size = order.size + step.size + size_of_lines + end + _ROOM_OF_STEPS
    return named < MAX_NAMED_STEPS and size <= MAX_ROW_SIZE


def units_of(order: OrderRecord) -> dict[str, LineUnits]:
    """Add up what has become of the units of each line, by product id.

    Raises:
        CorruptItemError: A line lacks its quantity or generation, or the steps contradict the lines.
    """
    added = (line for step in order.steps for line in step.added)
    for line in (*order.as_asked.lines, *added):
        if not isinstance(line.quantity, int) or not isinstance(line.product_created_at, str):
            raise CorruptItemError(
                f"order {order.order_id} is {order.status}, but its line for {line.product_id} lacks the number of units "
                "(quantity) or their generation (productCreatedAt); repair the item"
            )
    try:
        units = order.units()
    except KeyError as error:
        raise CorruptItemError(
            f"order {order.order_id} has a step with units of {error}, but no line for that product; repair the item"
        ) from None
    for product_id, moved in units.items():
        if min(moved.quantity - 1, moved.open, moved.delivered) < 0:
            raise CorruptItemError(
                f"order {order.order_id} has steps that move more units of {product_id} than its line has; repair the item"
            )
    return units


def status_after(order: OrderRecord, step: Step) -> str:
    """The status of an order after a step that moves open units. Without any, it has ended."""
    units = replace(order, steps=(*order.steps, step)).units().values()
    if any(line.open for line in units):
        return order.status
    is_handed_over = any(line.moved[OrderAction.FULFIL] for line in units)
    return OrderStatus.FULFILLED if is_handed_over else OrderStatus.CANCELLED


def _open_units(order: OrderRecord) -> dict[str, int]:
    """The units that are neither handed over nor cancelled, by product id."""
    return {product_id: line.open for product_id, line in units_of(order).items() if line.open}


def _reason_of(order: OrderRecord, told: ConfirmationRejection) -> RejectionReason:
    """The reason why the confirmation of an order was rejected.

    Raises:
        CorruptItemError: The stored reason is not one that the service uses to reject confirmations.
    """
    reasons = (*REASONS_OF_ENDS.values(), RejectionReason.VERSION_CHANGED)
    if told.reason not in reasons:
        raise CorruptItemError(
            f"order {order.order_id} has a confirmationRejected whose reason is {told.reason!a}; it must be one of "
            f"{', '.join(reasons)}; repair the item"
        )
    return RejectionReason[told.reason]


def _stored_time(order: OrderRecord, name: str, value: str) -> str:
    """Return a time from an order's row, if it can be compared as a string.

    Raises:
        CorruptItemError: The value is not a time, or not in the format that the service writes.
    """
    with suppress(TypeError, ValueError, OverflowError):
        moment = datetime.fromisoformat(value).astimezone(UTC)
        if moment.isoformat(timespec="microseconds") == value:
            return value
    raise CorruptItemError(
        f"order {order.order_id} has a {name} that is not a time in the service's format; repair the item"
    )
