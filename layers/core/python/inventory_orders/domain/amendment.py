"""Amends: changes to the units and attributes of an order that is held or paid. Additional units are sold as orders sell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from inventory_orders.domain.change import MAX_ACTIONS, MatchResult, Update
from inventory_orders.domain.location import DEFAULT_LOCATION, product_of
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import (
    REASONS_OF_ENDS,
    OrderCommand,
    Transition,
    has_room,
    units_of,
)
from inventory_orders.domain.product import Stock, StockById
from inventory_orders.domain.purchases import BuyerKey, PurchasesByBuyer, Refunds
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    MAX_DETAILS,
    MAX_REJECTED_AMENDS,
    SIZE_OF_LINE,
    Asked,
    LineUnits,
    OrderLine,
    OrderRecord,
    OrderStatus,
    RejectedAmend,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason


@dataclass(frozen=True, slots=True)
class Terms:
    """What the stage decides about amends and hand-overs, and the way by which a command came.

    Attributes:
        locations: Where new lines of an order without `locations` may come from, best first.
        counts_users: Whether the user is the buyer of an order that names none.
        amends_paid: Whether orders that are paid may be amended.
        keeps_rejections: Whether a rejection is stored and published, because the message may arrive again.
        since: The time since which units must have been handed over so that this can be taken back; empty for any.
    """

    locations: tuple[str, ...] = (DEFAULT_LOCATION,)
    counts_users: bool = True
    amends_paid: bool = False
    keeps_rejections: bool = False
    since: str = ""


DEFAULT_TERMS = Terms()


@dataclass(frozen=True)
class Amend(OrderCommand):
    """A command that says how many units of some products shall be open in an order, neither handed over nor cancelled.

    Attributes:
        group: `MessageGroupId`, when it came through the FIFO queue.
        locations: The location that an item requires, by product id.
        attributes: The shop's own attributes, which replace the order's; None to keep those.
        terms: What the stage decides.
    """

    group: str | None = field(default=None, compare=False)
    locations: Mapping[str, str] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, str | int | bool] | None = field(default=None, hash=False)
    terms: Terms = field(default_factory=Terms, compare=False)

    def _carry_out(self, order: OrderRecord, status: OrderStatus) -> MatchResult:
        refusal = self._refusal(order, status)
        change = self._amendment(order) if refusal is None else Rejection(refusal, order.order_id)
        if isinstance(change, Rejection) and self.terms.keeps_rejections:
            step, none = self.step(""), Increase(order.order_id, "", {})
            return Amendment(
                *(self, order.require_version(), order.status, step),
                rejected=change,
                increase=none,
            )
        return change

    def _refusal(self, order: OrderRecord, status: OrderStatus) -> RejectionReason | None:
        """Why the order cannot be amended, whatever the amend says."""
        reasons = {**REASONS_OF_ENDS, OrderStatus.FULFILLED: RejectionReason.ORDER_FULFILLED}
        if not self.terms.amends_paid:
            reasons[OrderStatus.CONFIRMED] = RejectionReason.ALREADY_PAID
        if status not in reasons and self.if_version not in (None, order.version):
            return RejectionReason.VERSION_CHANGED
        return reasons.get(status)

    def _amendment(self, order: OrderRecord) -> Rejection | Amendment:
        """Find the units to add and to take away. A line whose units move to another location loses them all."""
        units, lines = units_of(order), {line.product_id: line for line in order.lines}
        less, more = dict[str, int](), dict[str, int]()
        kept, moved = dict[str, OrderLine](), dict[str, OrderLine]()
        for product_id, wanted in self.quantities.items():
            line, held = lines.get(product_id), units.get(product_id, LineUnits(0))
            if line is not None and (held.open or held.is_delivered):
                is_here = self.locations.get(product_id, line.location_id) == line.location_id
                if held.is_delivered and not is_here:
                    return Rejection(RejectionReason.PARTLY_FULFILLED, product_id)
                (kept if is_here else moved)[product_id] = line
            stays = 0 if product_id in moved else min(held.open, wanted)
            less[product_id], more[product_id] = held.open - stays, wanted - stays
        increase = Increase(
            *(order.order_id, order.user_id or "", +Counter(more)),
            locations=order.locations,
            split=order.split,
            asked_locations={**self.locations, **{p: held.location_id for p, held in kept.items()}},
            default_locations=self.terms.locations,
            named_buyers=order.buyers,
            counts_users=self.terms.counts_users and order.pseudonymised_at is None,
            before=lines,
            kept=kept,
            bought={p: line.bought - less.get(p, 0) for p, line in units.items()},
            less=+Counter(less),
            width=len({*lines, *more}) + len(moved),
        )
        return self._fitting(order, increase, _status_after(order, units, increase))

    def _fitting(
        self, order: OrderRecord, increase: Increase, status: str
    ) -> Rejection | Amendment:
        """The amendment, if its transaction and the order's row have room for it."""
        step = self.step("", increase.less or None)
        size = sum(2 * (SIZE_OF_LINE + len(product_id)) for product_id in increase.quantities)
        size += MAX_ATTRIBUTES_SIZE + (0 if order.asked else order.size)
        if increase.quantities and increase.width >= MAX_ACTIONS:
            return Rejection(RejectionReason.TOO_MANY_PRODUCTS, order.order_id)
        if not has_room(order, step, size):
            return Rejection(RejectionReason.TOO_MANY_STEPS, order.order_id)
        return Amendment(
            *(self, order.require_version(), status, step),
            stores_rejection=self.terms.keeps_rejections,
            split=order.split,
            increase=increase,
        )


def _status_after(order: OrderRecord, units: Mapping[str, LineUnits], increase: Increase) -> str:
    """The status of an order after an amend. Without open units, it has ended."""
    is_open = sum(line.open for line in units.values()) > sum(increase.less.values())
    if increase.quantities or is_open:
        return order.status
    is_delivered = any(line.is_delivered for line in units.values())
    return OrderStatus.FULFILLED if is_delivered else OrderStatus.CANCELLED


@dataclass(frozen=True)
class Increase(Order):
    """The units that an amend adds, which are judged and sold like an order of these units.

    Attributes:
        before: The order's lines, by product id.
        kept: Those whose units stay where they are, so that more can only come from there.
        bought: Units of each line that stay bought, by product id.
        less: Units that the amend takes away, by product id.
        width: How many rows the amended order and this amend concern.
    """

    before: Mapping[str, OrderLine] = field(default_factory=dict)
    kept: Mapping[str, OrderLine] = field(default_factory=dict)
    bought: Mapping[str, int] = field(default_factory=dict)
    less: Mapping[str, int] = field(default_factory=dict)
    width: int = 0

    def _why(self, product_id: str, product: Stock | None) -> RejectionReason | None:
        line = self.kept.get(product_of(product_id))
        if product and line and product.created_at != line.product_created_at:
            return RejectionReason.UNKNOWN_PRODUCT
        return super()._why(product_id, product)

    def charges(self, products: StockById) -> Mapping[str, int]:
        """Units to add to the purchases of its buyers, by group; negative for units that they may buy again.

        A line is charged as a whole: if its product's limit or group has changed, all its units are charged anew.
        """
        units = Counter[str | None]()
        for product_id, quantity in self.less.items():
            units[self.before[product_id].limit_group] -= quantity
        for key, row in products.items():
            product_id, line = product_of(key), self.before.get(product_of(key))
            before = None if line is None else line.limit_group
            group = row.charged_group if row is not None and self.buyers else None
            units[group] += self.quantities[product_id]
            if group != before:
                units[group] += self.bought.get(product_id, 0)
                units[before] -= self.bought.get(product_id, 0)
        return {group: n for group, n in units.items() if n and group is not None}


@dataclass(frozen=True)
class Amendment(Transition):
    """The change that an amend makes to a stored order: units go back as by a cancellation, or are taken as by an order.

    Attributes:
        increase: The units to add.
    """

    command: Amend
    split: bool = field(default=False, kw_only=True)
    increase: Increase = field(kw_only=True)

    @property
    def group(self) -> str | None:
        return self.command.group

    @property
    def offers(self) -> Sequence[Collection[str]]:
        return [(*offer, *self.gives_back) for offer in self.increase.offers]

    @property
    def product_ids(self) -> Collection[str]:
        return {**dict.fromkeys(self.increase.product_ids), **self.gives_back}.keys()

    @property
    def buyers(self) -> Collection[BuyerKey]:
        return self.increase.buyers if self.increase.quantities else ()

    @property
    def is_charged(self) -> bool:
        return any(line.limit_group for line in self.increase.before.values())

    @property
    def refunds(self) -> Refunds:
        # With additional units, the limits apply to the difference.
        return {} if self.buyers else self.order.refunds(self.increase.less)

    @property
    def record_size(self) -> int:
        lines = sum(2 * (SIZE_OF_LINE + len(product_id)) for product_id in self.increase.quantities)
        return 2 * super().record_size + lines + MAX_ATTRIBUTES_SIZE

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:
        return self.increase.lane_units(short)

    def rejection(self, products: StockById) -> Rejection | None:
        return self.rejected or self.increase.rejection(self._taken(products))

    def judge(self, products: StockById, purchases: PurchasesByBuyer) -> Rejection | None:
        return self.rejected or self.increase.judge(self._taken(products), purchases)

    def charges(self, products: StockById) -> Mapping[str, int]:
        return self.increase.charges(self._taken(products)) if self.buyers else {}

    def decisive_rows(
        self,
        why: Callable[[Collection[str]], Rejection | None],
        offers: Sequence[Collection[str]],
    ) -> Sequence[Collection[str]]:
        return self.increase.decisive_rows(why, offers)

    def final_rejection(self, rejections: Sequence[Rejection]) -> Rejection:
        return self.increase.final_rejection(rejections)

    def deltas(self, products: StockById) -> Mapping[str, int]:
        return {
            **super().deltas(products),
            **self.increase.deltas(self._taken(products)),
        }

    def _taken(self, products: StockById) -> StockById:
        """The products, or pages, from which units are taken."""
        taken = self.increase.product_ids
        return {key: product for key, product in products.items() if key in taken}

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Update[OrderRecord]:
        order, increase = self.order, self.increase
        if rejection is not None:
            kept = replace(
                rejection,
                shortages=rejection.shortages[:MAX_DETAILS],
                limits=rejection.limits[:MAX_DETAILS],
            )
            rejected = (*order.rejected_amends, RejectedAmend(self.step.step_id or "", at, kept))
            written = replace(
                order,
                rejected_amends=rejected[-MAX_REJECTED_AMENDS:],
                last_updated_at=at,
                version=order.version + 1,
            )
            return Update(order, written)
        taken = {p: after[p] for p in after.keys() & set(increase.product_ids)}
        added = tuple(replace(line, asked_location=None) for line in increase.lines(taken))
        step = replace(self.step, added=added)
        written = super(Amendment, replace(self, step=step)).record(None, after, at).after
        lines = dict(increase.before)
        for line in added:
            held = lines.get(line.product_id)
            lines[line.product_id] = line if held is None else _joined(held, line)
        attributes = self.command.attributes
        if added or attributes is not None:
            written = replace(written, asked=order.asked or Asked(order.lines, order.attributes))
        given = order.attributes if attributes is None else attributes
        return Update(order, replace(written, lines=tuple(lines.values()), attributes=given))


def _joined(held: OrderLine, added: OrderLine) -> OrderLine:
    """A line with additional units. If it had no units left, or they moved, it names the place of the new ones."""
    return replace(
        added,
        quantity=held.quantity + added.quantity,
        backordered=held.backordered + added.backordered,
        asked_location=held.asked_location,
        other=held.other,
    )
