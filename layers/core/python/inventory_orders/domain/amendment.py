"""Amends of orders: changes to the units and attributes of an order that is held or paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from inventory_orders.domain.change import MAX_ACTIONS, MatchResult, T, Update
from inventory_orders.domain.location import product_of
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import (
    REASONS_OF_ENDS,
    OrderCommand,
    Terms,
    Transition,
    has_room,
    status_after,
    units_of,
)
from inventory_orders.domain.product import Stock, StockById, sum_by_key
from inventory_orders.domain.purchases import PurchasesByBuyer, Refunds
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    MAX_REJECTED_AMENDS,
    SIZE_OF_LINE,
    Asked,
    LineUnits,
    OrderAction,
    OrderLine,
    OrderRecord,
    OrderStatus,
    RejectedAmend,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason


@dataclass(frozen=True)
class Amend(OrderCommand):
    """A command that says how many units of some products shall be open in an order, neither handed over nor cancelled.

    Attributes:
        group: `MessageGroupId`, when it came through the FIFO queue.
        locations: The location that an item requires, by product id.
        attributes: The shop's own attributes, which replace the order's; None to keep those.
    """

    group: str | None = field(default=None, compare=False)
    locations: Mapping[str, str] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, str | int | bool] | None = field(default=None, hash=False)

    def _carry_out(self, order: OrderRecord) -> MatchResult:
        reason = self._reason_to_reject(order)
        change = self._amendment(order) if reason is None else Rejection(reason, order.order_id)
        if isinstance(change, Rejection) and self.terms.keeps_rejections:
            return self._rejected(order, change)
        return change

    def note_rejection(self, order: OrderRecord, rejection: Rejection, at: str) -> OrderRecord:
        rejected = (*order.rejected_amends, RejectedAmend(self.step_id or "", at, rejection))
        return replace(order, rejected_amends=rejected[-MAX_REJECTED_AMENDS:])

    def _reason_to_reject(self, order: OrderRecord) -> RejectionReason | None:
        """Why the order cannot be amended, whatever the amend says."""
        reasons = {**REASONS_OF_ENDS, OrderStatus.FULFILLED: RejectionReason.ORDER_FULFILLED}
        if not self.terms.amends_paid:
            reasons[OrderStatus.CONFIRMED] = RejectionReason.ALREADY_PAID
        is_right = order.is_as_in(self.if_version)
        return reasons.get(order.status, None if is_right else RejectionReason.VERSION_CHANGED)

    def _amendment(self, order: OrderRecord) -> Rejection | Amendment:
        """Find the units to add and to take away. A line whose units move to another location loses them all there."""
        units, places = units_of(order), {line.product_id: line.location_id for line in order.lines}
        asked = {**places, **self.locations}
        moved = {product_id for product_id in places if asked[product_id] != places[product_id]}
        if stuck := sorted(p for p in moved if units[p].moved[OrderAction.FULFIL]):
            return Rejection(RejectionReason.PARTLY_FULFILLED, stuck[0])
        more, less = self._differences(units, moved)
        step = self.step("", less)
        status = order.status if more else status_after(order, step)
        amendment = Amendment(
            *(order.order_id, str(order.user_id), more, self.group),
            attributes=order.attributes if self.attributes is None else self.attributes,
            locations=order.locations,
            split=order.split,
            asked_locations=asked,
            default_locations=self.terms.locations,
            named_buyers=order.buyers,
            counts_users=_counts_user(order, self.terms),
            transition=Transition(self, order.require_version(), status, step),
            bought={p: held.bought - less[p] for p, held in units.items()},
            moved=moved,
        )
        return amendment.unless_too_big()

    def _differences(
        self, units: Mapping[str, LineUnits], moved: Set[str]
    ) -> tuple[Counter[str], Counter[str]]:
        """The units to add and to take away, by product id. Those of products that are moved are all taken away."""
        wanted = Counter(self.quantities)
        is_open = Counter({p: units[p].open for p in wanted if p in units})
        stays = Counter({p: n for p, n in (is_open & wanted).items() if p not in moved})
        return wanted - stays, is_open - stays


def _counts_user(order: OrderRecord, terms: Terms) -> bool:
    """Whether the user is the buyer if the order names none. What was charged to a user stays so when the setting changes."""
    return order.pseudonymised_at is None and (
        terms.counts_users or any(line.limit_group for line in order.lines)
    )


@dataclass(frozen=True)
class Amendment(Order):
    """The change that an amend makes to a stored order. Units that it adds are judged and sold like an order of these units.

    Attributes:
        transition: The change without these units: others go back into stock as by a cancellation.
        bought: Units of each line that stay bought, by product id.
        moved: The products whose units move to another location. Other lines get more units only from where they are.
    """

    transition: Transition = field(kw_only=True)
    bought: Mapping[str, int] = field(default_factory=dict)
    moved: Set[str] = frozenset()

    def unless_too_big(self) -> Rejection | Amendment:
        """Reject it if its transaction, a later cancellation, or the order's row would have no room for it."""
        order, step = self.transition.order, self.transition.step
        rows = len({*self.lines_before, *self.quantities}) + len(self.moved) + len(self.buyers)
        # Its rejection is proven by one read of all rows that it may take units from, and of the order.
        if self.quantities and max(rows, len(self.product_ids)) >= MAX_ACTIONS:
            return Rejection(RejectionReason.TOO_MANY_PRODUCTS, order.order_id)
        if not has_room(order, step, self.record_size - order.size):
            return Rejection(RejectionReason.TOO_MANY_STEPS, order.order_id)
        return self

    @property
    def lines_before(self) -> dict[str, OrderLine]:
        """The order's lines, by product id."""
        return {line.product_id: line for line in self.transition.order.lines}

    @property
    def record_size(self) -> int:
        # A new line is stored twice: in the step, too. The first amend also keeps the order as it was.
        lines = 2 * sum(SIZE_OF_LINE + len(product_id) for product_id in self.quantities)
        return sum(
            (self.transition.record_size, self.transition.order.size, lines, MAX_ATTRIBUTES_SIZE)
        )

    @property
    def gives_back(self) -> Mapping[str, int]:
        """See `Transition`."""
        return self.transition.gives_back

    @cached_property
    def offers(self) -> tuple[tuple[str, ...], ...]:
        return tuple((*offer, *self.gives_back) for offer in super().offers)

    def is_limited(self, limited: Set[str]) -> bool:
        is_charged = any(line.limit_group for line in self.transition.order.lines)
        return is_charged or super().is_limited(limited)

    @property
    def refunds(self) -> Refunds:
        # With additional units, the limits apply to the difference.
        return {} if self.quantities else self.transition.refunds

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:
        # Units go back to a lane, too.
        return {**dict.fromkeys(self.gives_back, 0), **self._taken(super().lane_units(short))}

    def judge(self, products: StockById, purchases: PurchasesByBuyer) -> Rejection | None:
        return super().judge(self._taken(products), purchases)

    def deltas(self, products: StockById) -> Mapping[str, int]:
        return {**self.transition.deltas(products), **super().deltas(self._taken(products))}

    def _taken(self, values: Mapping[str, T]) -> dict[str, T]:
        """The values of the products from which units are taken."""
        return {key: value for key, value in values.items() if key not in self.gives_back}

    def _why(self, product_id: str, product: Stock | None) -> RejectionReason | None:
        line = self.lines_before.get(product_of(product_id))
        if product and line and line.key == product_id:
            product = product if product.created_at == line.product_created_at else None
        return super()._why(product_id, product)

    def charges(self, products: StockById) -> Mapping[str, int]:
        """Units to add to the purchases of its buyers, by group; negative for units that they may buy again.

        A line is charged as a whole: if its product's limit or group has changed, all its units are charged anew.
        """
        again = Counter({p: n for p, n in self.bought.items() if p in self.quantities})
        less = Counter(self.transition.step.quantities if self.quantities else None)
        units = Counter[str]()
        units.subtract(self.transition.order.groups_of(again + less))
        units.update(
            sum_by_key(
                (row.charged_group, self.quantities[product_of(key)] + again[product_of(key)])
                for key, row in self._taken(products).items()
                if self.buyers and row is not None and row.charged_group is not None
            )
        )
        return {group: n for group, n in units.items() if n}

    def record(  # type: ignore[override]  # an order is written once, but amended later
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Update[OrderRecord]:
        order, step = self.transition.order, self.transition.step
        if rejection is not None:
            return self.transition.record(rejection, after, at)
        taken = self.lines(self._taken(after))
        added = tuple(replace(line, asked_location=None) for line in taken)
        change = replace(self.transition, step=replace(step, added=added))
        written, lines = change.record(None, after, at).after, self.lines_before
        if added or self.attributes != order.attributes:
            written = replace(written, asked=order.asked or Asked(order.lines, order.attributes))
        for line in added:
            held = lines.get(line.product_id, replace(line, quantity=0, backordered=0))
            # The line names the place of the latest units.
            lines[line.product_id] = replace(
                line,
                quantity=held.quantity + line.quantity,
                backordered=held.backordered + line.backordered,
                asked_location=held.asked_location,
                other=held.other,
            )
        amended = replace(written, lines=tuple(lines.values()), attributes=self.attributes)
        return Update(order, amended)
