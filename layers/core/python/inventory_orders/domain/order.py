"""Orders that customers place, including orders that are cancelled before they arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar

from inventory_orders.domain.change import (
    MAX_ACTIONS,
    Change,
    IdempotencyMatch,
    MatchResult,
    OtherRequest,
    StoredOrderChange,
    Update,
)
from inventory_orders.domain.location import (
    DEFAULT_LOCATION,
    in_words,
    location_of,
    product_of,
    stock_key,
)
from inventory_orders.domain.product import PageStock, Stock, StockById, sum_by_key
from inventory_orders.domain.purchases import MAX_GROUPS, BuyerKey, PurchasesByBuyer
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    SIZE_OF_LINE,
    OrderContent,
    OrderKey,
    OrderLine,
    OrderRecord,
    OrderStatus,
)
from inventory_orders.domain.rejection import (
    REASONS_OF_ORDERS,
    ExceededLimit,
    Rejection,
    RejectionReason,
    Shortage,
)


@dataclass(frozen=True)
class Order(OrderContent, Change):
    """A customer's order. All of its lines are placed, or none of them.

    Attributes:
        order_id: The sender's idempotency key.
        user_id: The customer.
        quantities: Units by product id, summed over a product's lines, in order of first mention.
        group: `MessageGroupId`, when the order came through the FIFO queue.
        default_hold: How long stock is held if the order has no `hold_seconds`; None for no limit.
        asked_locations: The location that a line requires, by product id.
        default_locations: Used if the order has no `locations`.
        named_buyers: The keys of its buyer; None if the sender named none.
        counts_users: Whether the user is the buyer of an order that names none.
    """

    order_id: str
    user_id: str
    quantities: Mapping[str, int]
    group: str | None = None
    default_hold: int | None = None
    asked_locations: Mapping[str, str] = field(default_factory=dict)
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,)
    named_buyers: tuple[str, ...] | None = None
    counts_users: bool = True

    stores_rejection = True
    id_reused_code: ClassVar = "ORDER_ID_REUSED"

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    @cached_property
    def buyers(self) -> tuple[BuyerKey, ...]:
        user = (self.user_id,) if self.counts_users else ()
        return tuple(map(BuyerKey, user if self.named_buyers is None else self.named_buyers))

    @cached_property
    def offers(self) -> tuple[tuple[str, ...], ...]:
        """One offer for each location: the rows of all lines there. A line that names a location keeps it in every offer."""
        locations = self.default_locations if self.locations is None else self.locations
        offers = (
            tuple(stock_key(p, self.asked_locations.get(p, location)) for p in self.quantities)
            for location in locations
        )
        return tuple(dict.fromkeys(offers))

    @property
    def product_ids(self) -> Collection[str]:
        return dict.fromkeys(chain.from_iterable(self.offers)).keys()

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:
        fresh = [offer for offer in self.offers if short.isdisjoint(offer)]
        wanted = fresh[:1] or (self._lines_without(short) if self.split else self.offers)
        return {p: self.quantities[product_of(p)] for offer in wanted for p in offer}

    def _lines_without(self, short: Set[str]) -> Iterator[Sequence[str]]:
        """For each line, yield its first row that is not short, or all of its rows if they all are."""
        for line in zip(*self.offers, strict=True):
            yield [product_id for product_id in line if product_id not in short][:1] or line

    @property
    def record_size(self) -> int:
        # Ids are ASCII; 1,200 covers the attribute names, times and numbers of a row, and its locations. A shortage is
        # stored instead of a line's times, and there may be one for each offer. A limit is stored instead of a line's group.
        lines = sum(SIZE_OF_LINE + len(product_id) for product_id in self.quantities)
        shortages = SIZE_OF_LINE * len(self.offers)
        attributes = MAX_ATTRIBUTES_SIZE if self.attributes else 0
        buyers = sum(1 + len(buyer.encode()) for buyer in self.named_buyers or ())
        return 1_200 + lines + shortages + attributes + buyers

    def rejection(self, products: StockById) -> Rejection | None:
        # Partial products come last: if another product is a reason to reject, their units need no recall.
        rows = sorted(products.items(), key=lambda item: bool(item[1] and item[1].is_partial))
        found = [(reason, key) for key, row in rows if (reason := self._why(key, row)) is not None]
        if not found:
            return None
        reason, first = min(found, key=lambda each: REASONS_OF_ORDERS.index(each[0]))
        is_short = reason is RejectionReason.INSUFFICIENT_STOCK
        shortages = self._shortages(first, products) if is_short else ()
        return Rejection(reason, first, shortages, self._asked(products))

    def judge(self, products: StockById, purchases: PurchasesByBuyer) -> Rejection | None:
        charges = +Counter(self.charges(products))
        over_limit = self._over_limit(products, charges, purchases) if charges else None
        return min(filter(None, (self.rejection(products), over_limit)), key=_rank, default=None)

    def charges(self, products: StockById) -> Mapping[str, int]:
        return sum_by_key(
            (row.charged_group, self.quantities[product_of(key)])
            for key, row in products.items()
            if self.buyers and row is not None and row.charged_group is not None
        )

    def _over_limit(
        self, products: StockById, charges: Mapping[str, int], purchases: PurchasesByBuyer
    ) -> Rejection | None:
        """Why an offer's units may not be charged to its buyers. A buyer whose purchases are not known counts as new."""
        bought = [purchases[key].units for key in self.buyers if key in purchases]
        limits = _exceeded_limits(products, charges, bought)
        groups = {each.group for each in limits} or charges.keys()
        rows = tuple(filter(partial(_is_of, products, groups), products))
        reason = RejectionReason.PURCHASE_LIMIT if limits else RejectionReason.TOO_MANY_GROUPS
        if len(self.quantities) + len(self.buyers) >= MAX_ACTIONS:
            reason, rows = RejectionReason.TOO_MANY_PRODUCTS, rows[:1]
        # Groups without units are about to be removed from a buyer's row.
        elif not limits and all(len({*+Counter(u), *charges}) <= MAX_GROUPS for u in bought):
            return None
        return Rejection(reason, rows[0], asked=self._asked(products), limits=limits, rows=rows)

    def _why(self, product_id: str, product: Stock | None) -> RejectionReason | None:
        """Why a row cannot supply its line."""
        if product is None:
            return RejectionReason.UNKNOWN_PRODUCT
        if product.is_discontinued:
            return RejectionReason.DISCONTINUED_PRODUCT
        if product.sellable < self.quantities[product_of(product_id)]:
            return RejectionReason.INSUFFICIENT_STOCK
        return None

    def _asked(self, products: StockById) -> tuple[str, ...]:
        """Where its units were looked for; empty if its products have no other location."""
        asked = tuple(dict.fromkeys(map(location_of, self.product_ids)))
        is_elsewhere = any(row is not None and row.places for row in products.values())
        return asked if is_elsewhere or asked != (DEFAULT_LOCATION,) else ()

    def decisive_rows(
        self,
        why: Callable[[Collection[str]], Rejection | None],
        offers: Sequence[Collection[str]],
    ) -> Sequence[Collection[str]]:
        """Choose one row of each offer, or all those with a limit that the order exceeds.

        They are all of one product if it is sold nowhere or, in a split order, short everywhere.
        """

        def best(line: Iterable[str]) -> int:
            """The best reason among the rows of a line; the number of reasons if one of its rows is suitable."""
            rejections = (why((key,)) for key in line)
            return max(
                len(REASONS_OF_ORDERS) if r is None else REASONS_OF_ORDERS.index(r.reason)
                for r in rejections
            )

        line = min(zip(*self.offers, strict=True), key=best)
        reason = (*REASONS_OF_ORDERS, None)[best(line)]
        if reason and (self.split or reason is not RejectionReason.INSUFFICIENT_STOCK):
            return [(key,) for key in line]
        found = map(why, offers)
        return [each.rows or (each.subject,) for each in found if each is not None]

    def final_rejection(self, rejections: Sequence[Rejection]) -> Rejection:
        if of_buyers := [rejection for rejection in rejections if rejection.rows]:
            return min(of_buyers, key=_rank)
        asked = rejections[0].asked
        reasons = {rejection.reason for rejection in rejections}
        products = {product_of(rejection.subject) for rejection in rejections}
        if len(products) == 1 and RejectionReason.INSUFFICIENT_STOCK not in reasons:
            return Rejection(max(reasons, key=REASONS_OF_ORDERS.index), products.pop(), (), asked)
        shortages = (
            each.shortages[0]
            if each.shortages
            else Shortage(each.subject, self.quantities[product_of(each.subject)], 0)
            for each in rejections
        )
        return Rejection(
            RejectionReason.INSUFFICIENT_STOCK,
            rejections[0].subject,
            tuple(dict.fromkeys(shortages)),
            asked,
        )

    def _shortages(self, first: str, products: StockById) -> tuple[Shortage, ...]:
        """List the known shortages. Products other than the first are left out if lanes may hold more units of them."""
        return tuple(
            Shortage(product_id, quantity, max(0, product.sellable))
            for product_id, product in products.items()
            if product is not None
            and not product.is_discontinued
            and product.sellable < (quantity := self.quantities[product_of(product_id)])
            and (product_id == first or not product.is_partial)
        )

    def deltas(self, products: StockById) -> Mapping[str, int]:
        return {product_id: -self.quantities[product_of(product_id)] for product_id in products}

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> OrderRecord:
        hold = self.default_hold if self.hold_seconds is None else self.hold_seconds
        end = (
            None
            if rejection is not None or hold is None
            else datetime.fromisoformat(at) + timedelta(seconds=hold)
        )
        shortages, limits = (rejection.shortages, rejection.limits) if rejection else ((), ())
        return OrderRecord(
            self.order_id,
            self.user_id,
            self.lines(after),
            OrderStatus.PENDING if rejection is None else OrderStatus.REJECTED,
            version=1,
            created_at=at,
            last_updated_at=at,
            status_at=at,
            reason=None if rejection is None else rejection.reason,
            shortages=shortages,
            limits=limits,
            hold_seconds=self.hold_seconds,
            expires_at=None if end is None else end.isoformat(timespec="microseconds"),
            attributes=self.attributes,
            locations=self.locations,
            locations_asked=rejection.asked if rejection and self.locations is None else (),
            split=self.split,
            buyers=self.named_buyers,
            request_id=self.request_id,
            placed_by=self.placed_by,
        )

    def lines(self, taken_from: Mapping[str, Stock]) -> tuple[OrderLine, ...]:
        """Build the lines to store. Each names the row or page from which its units were taken, if any were."""
        stock_of = {product_of(p): stock for p, stock in taken_from.items()}
        return tuple(self._line(p, stock_of.get(p)) for p in self.quantities)

    def _line(self, product_id: str, stock: Stock | None) -> OrderLine:
        quantity, asked = self.quantities[product_id], self.asked_locations.get(product_id)
        if stock is None:
            return OrderLine(product_id, quantity, asked_location=asked)
        page = stock.page if isinstance(stock, PageStock) else None
        return OrderLine(
            product_id,
            quantity,
            product_created_at=stock.created_at,
            product_version=stock.version if page is None else None,
            lane_page=None if page is None else str(page),
            lane_version=None if page is None else stock.version,
            location_id=location_of(stock.product_id),
            asked_location=asked,
            limit_group=stock.charged_group if self.buyers else None,
            # A page has no backorders.
            backordered=min(quantity, max(0, -stock.stock_count)),
        )

    def match(self, record: OrderRecord) -> MatchResult:
        if record.user_id is None:
            return CancelledBeforehand(self, record.require_version())
        record = record.as_asked
        sent = replace(
            record,
            user_id=self.user_id,
            lines=self.lines({}),
            hold_seconds=self.hold_seconds,
            attributes=self.attributes,
            locations=self.locations,
            split=self.split,
            buyers=self.named_buyers,
        )
        if record.pseudonymised_at is not None:
            # Once the user is replaced by a pseudonym, only the ordered items can be compared.
            sent = replace(
                sent, user_id=record.user_id, attributes=record.attributes, buyers=record.buyers
            )
        other = OtherRequest.between(_content_of(record), _content_of(sent))
        if record.buyers != sent.buyers:
            # Without values: neither a customer nor a log shows keys of buyers.
            other = OtherRequest([*other.differences, "buyers"])
        if not other.differences:
            return IdempotencyMatch.SAME_REQUEST
        # A customer must not learn what another one has ordered.
        return other if record.user_id == self.user_id else OtherRequest(["userId"])


@dataclass(frozen=True, slots=True)
class CancelledBeforehand(StoredOrderChange[Order]):
    """An order that was cancelled before it arrived. It is added to the cancellation's row, and takes no stock."""

    @property
    def record_size(self) -> int:
        return self.arrived.record_size

    def record(
        self,
        rejection: Rejection | None,  # noqa: ARG002
        after: Mapping[str, Stock],  # noqa: ARG002
        at: str,
    ) -> Update[OrderRecord]:
        return Update(
            self.order,
            replace(
                self.order,
                user_id=self.arrived.user_id,
                lines=self.arrived.lines({}),
                hold_seconds=self.arrived.hold_seconds,
                attributes=self.arrived.attributes,
                locations=self.arrived.locations,
                split=self.arrived.split,
                buyers=self.arrived.named_buyers,
                last_updated_at=at,
                version=self.order.version + 1,
            ),
        )


def _exceeded_limits(
    products: StockById, charges: Mapping[str, int], bought: Sequence[Mapping[str, int]]
) -> tuple[ExceededLimit, ...]:
    """The limits that buyers would exceed, one for each group: the lowest one of the order's products."""
    lowest: dict[str | None, int] = {}
    for row in products.values():
        if row is not None:
            limit = row.purchase_limit
            lowest[row.charged_group] = min(limit, lowest.get(row.charged_group, limit))
    found = (
        ExceededLimit(
            group, lowest[group], max((u.get(group, 0) for u in bought), default=0), wanted
        )
        for group, wanted in charges.items()
    )
    return tuple(each for each in found if each.bought + each.wanted > each.limit)


def _is_of(products: StockById, groups: Collection[str], key: str) -> bool:
    """Whether units of a row are charged to one of some groups."""
    return (row := products[key]) is not None and row.charged_group in groups


def _rank(rejection: Rejection) -> int:
    """The rank of a rejection. If an order has several, the first one is given."""
    return REASONS_OF_ORDERS.index(rejection.reason)


def _content_of(order: OrderRecord) -> dict[str, Any]:
    """What makes two orders the same request, by names that the sender knows."""
    return {
        "userId": order.user_id,
        **{f"quantity of {in_words(line.product_id)}": line.quantity for line in order.lines},
        **{
            f"locationId of {in_words(line.product_id)}": line.asked_location
            for line in order.lines
        },
        "holdSeconds": order.hold_seconds,
        "locations": order.locations,
        "split": order.split,
        **{f"attributes.{name}": value for name, value in order.attributes.items()},
    }
