"""The interface of stock changes: deltas of products, and a record that ensures that they are applied only once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from inventory_orders.domain.allotments import LaneLease, Page
from inventory_orders.domain.outbound import Generation, OutboundPage
from inventory_orders.domain.product import Product, Stock, StockById
from inventory_orders.domain.purchases import BuyerKey, Purchases, PurchasesByBuyer, Refunds
from inventory_orders.domain.record import OrderKey, OrderRecord, Record, RecordKey
from inventory_orders.domain.rejection import Rejection

T = TypeVar("T")
C = TypeVar("C", bound="Change")

MAX_ACTIONS = 100
"""Maximum number of actions in a transaction:
docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """The write of a row or page, on condition that it has not changed since it was read.

    Attributes:
        before: The row or page as read.
        after: The row or page as it will be stored. If this is the same object as `before`, it is only checked.
    """

    before: T
    after: T


class IdempotencyMatch(Enum):
    """The stored record and a change with the same key belong to the same request."""

    SAME_REQUEST = auto()


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """The stored record and a change with the same key belong to different requests.

    Attributes:
        differences: The fields that differ, for people.
    """

    differences: Sequence[str]

    @classmethod
    def between(cls, stored: Mapping[str, object], sent: Mapping[str, object]) -> OtherRequest:
        """Describe each field that differs, with both values. An absent field and None are the same."""
        texts = {
            name: (_as_text(stored.get(name)), _as_text(sent.get(name)))
            for name in {**stored, **sent}
        }
        return cls(
            [
                f"{name} (stored {was[:_MAX_SHOWN]}, sent {now[:_MAX_SHOWN]})"
                for name, (was, now) in texts.items()
                if was != now
            ]
        )


_MAX_SHOWN = 40


def _as_text(value: object) -> str:
    return "nothing" if value is None else json.dumps(value, default=str)


MatchResult: TypeAlias = "IdempotencyMatch | OtherRequest | Rejection | Change"
"""What becomes of a change whose record exists: it is answered, or another change replaces it."""


class Change:
    """A stock change: the deltas of some products, and a record by which a repetition is recognised.

    This base class changes no stock and is never rejected. Subclasses override that.

    Attributes:
        stores_rejection: Whether a rejection that is final is stored too.
        split: Whether its lines may be taken from different offers if no offer has all of them.
        moves_goods: Whether its deltas also change the units on hand, because goods come in or go out.
        outbound: Units that leave the warehouse if it is accepted; negative for units that have not left after all. They are
            written to an outbound page, not to product rows, unless no page lists units that have not left.
        stamps: Attributes of `Product` that it sets in the rows that it changes, besides their units.
        id_reused_code: The `errorCode` if its record belongs to a different request.
    """

    __slots__ = ()

    stores_rejection: bool = False
    split: bool = False
    moves_goods: bool = False
    outbound: Mapping[Generation, int] = MappingProxyType({})
    stamps: Mapping[str, Any] = MappingProxyType({})
    id_reused_code: ClassVar[str]

    @property
    def record_key(self) -> RecordKey:
        """The key of its record. If two changes have the same key, they are the same change, or one of them is a mistake."""
        raise NotImplementedError

    @property
    def parts(self) -> Sequence[Change]:
        """The changes of which it consists, each with a record of its own. None of these records may exist yet."""
        return (self,)

    @property
    def product_ids(self) -> Collection[str]:
        """The keys of all product rows that it may affect."""
        return ()

    @property
    def offers(self) -> Sequence[Collection[str]]:
        """The ways to carry it out, best first. Each is the set of product rows that it would affect."""
        return (self.product_ids,)

    @property
    def buyers(self) -> Collection[BuyerKey]:
        """Whose purchases the limits of its products limit; empty if no limits apply to it."""
        return ()

    def is_limited(self, limited: Set[str]) -> bool:
        """Whether its buyers' purchases may change, given the products with purchase limits."""
        return not limited.isdisjoint(self.product_ids)

    @property
    def refunds(self) -> Refunds:
        """What buyers may buy again if it is accepted."""
        return {}

    @property
    def group(self) -> str | None:
        """Its group: changes of a group take effect in the sequence in which they arrive. None if it has no group."""
        return None

    @property
    def record_size(self) -> int:
        """The maximum size of its record, in bytes."""
        return 600

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:  # noqa: ARG002
        """The units that it takes, by product id, if lanes may serve it; 0 if it gives some back. Empty if only rows can serve it.

        Args:
            short: Products that were found to be short. Offers without them are preferred.
        """
        return {}

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        """Decide whether to reject an offer, given its products as they are now; None if it is accepted."""
        return None

    def judge(self, products: StockById, purchases: PurchasesByBuyer) -> Rejection | None:  # noqa: ARG002
        """Decide like `rejection`, given what its buyers have bought, too."""
        return self.rejection(products)

    def charges(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        """The units that an accepted offer adds to the purchases of each of its buyers, by group."""
        return {}

    def decisive_rows(
        self,
        why: Callable[[Collection[str]], Rejection | None],  # noqa: ARG002
        offers: Sequence[Collection[str]],
    ) -> Sequence[Collection[str]]:
        """Choose the rows that decide whether it is rejected, if all of its offers are impossible.

        Args:
            why: Returns why rows of an offer make it impossible; None if they do not.
            offers: The offers that were tried.

        Returns:
            Rows of each offer.
        """
        return offers

    def final_rejection(self, rejections: Sequence[Rejection]) -> Rejection:
        """Combine the rejections of all offers, by their decisive rows, into the reason why the change is rejected."""
        return rejections[0]

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        """The units that an accepted offer adds to each of its products; negative if it removes them."""
        return {}

    def written_on(self, page: OutboundPage) -> Change:  # noqa: ARG002
        """Return the same change with the outbound page that its record will name."""
        return self

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Record | Update[OrderRecord]:
        """Build the record of the decision. `after` contains the products that it changes: see `Transaction.stock_after_each`."""
        raise NotImplementedError

    def match(self, record: Any) -> MatchResult:
        """Compare the change with the record that is stored under its key, which is of the same kind as its own.

        Raises:
            CorruptItemError: The record contradicts what the change needs.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StoredOrderChange(Change, Generic[C]):
    """A change to the row of an order, which has been read.

    Attributes:
        arrived: The change that arrived, an order or a command.
        order: The order as stored.
    """

    arrived: C
    order: OrderRecord

    @property
    def record_key(self) -> OrderKey:
        return self.order.key

    @property
    def group(self) -> str | None:
        return self.arrived.group


@dataclass(frozen=True, slots=True)
class Decision:
    """What a plan decides about one change, which is accepted unless there is a rejection.

    Attributes:
        change: The change.
        rejection: Why the change is rejected; None if it is accepted.
        deltas: Units that it adds, or takes away if negative, by product id.
        products: The products of the accepted offer; for a rejection, the products that it depends on.
        checked: Rows that its transaction checks, because the rejection is only true if they have not changed.
        charges: Units by group that it adds to the purchases of its buyers.
        buyers: The buyers whose purchases it adds to, or checks.
    """

    change: Change
    rejection: Rejection | None
    deltas: Mapping[str, int]
    products: Collection[str]
    checked: Collection[str] = ()
    charges: Mapping[str, int] = field(default_factory=dict)
    buyers: Collection[BuyerKey] = ()

    @property
    def purchases(self) -> set[BuyerKey]:
        """The rows of buyers that its transaction writes or checks."""
        return {*self.buyers, *self.change.refunds}

    @property
    def has_record(self) -> bool:
        """Whether the decision is stored in a record."""
        return self.rejection is None or (self.change.stores_rejection and self.rejection.is_final)

    @property
    def records(self) -> Sequence[Change]:
        """The parts of its change whose records are written."""
        return self.change.parts if self.has_record else ()

    @property
    def keys(self) -> set[object]:
        """What it may share with other decisions: its products and buyers, and the group of its change."""
        group = self.change.group
        return {*self.products, *self.purchases, *(() if group is None else [("group", group)])}


@dataclass(frozen=True, slots=True)
class Transaction:
    """The writes of one transaction, which are applied together or not at all.

    Attributes:
        updates: Updates and checks of product rows.
        decisions: The changes that it decides.
        pages: Updates and checks of pages.
        stock_after: The row or page from which each product is sold, in its state after the transaction, by product id.
        lent: Units that move from rows to the depot, by product id.
        release: A lane's lease that the transaction releases.
        outbound: The update of an outbound page, if units leave the warehouse.
        on_hand: Units that no outbound page lists and that have not left the warehouse after all, by generation.
        purchases: Updates and checks of what buyers have bought.
        refunds: What buyers may buy again.
    """

    updates: tuple[Update[Product], ...]
    decisions: tuple[Decision, ...]
    pages: tuple[Update[Page], ...] = ()
    stock_after: Mapping[str, Stock] = field(default_factory=dict)
    lent: Mapping[str, int] = field(default_factory=dict)
    release: LaneLease | None = None
    outbound: Update[OutboundPage] | None = None
    on_hand: Mapping[Generation, int] = field(default_factory=dict)
    purchases: tuple[Update[Purchases], ...] = ()
    refunds: Refunds = field(default_factory=dict)

    def is_loan(self, update: Update[Product]) -> bool:
        """Whether an update does nothing but lend units of a row to the depot."""
        before, after = update.before, update.after
        units = self.lent.get(before.product_id)
        return units is not None and after == replace(
            before,
            stock_count=before.stock_count - units,
            lent_to=after.lent_to,
            version=after.version,
        )

    def stock_after_each(self) -> list[dict[str, Stock]]:
        """The products that each decision changes, in their state after it; the version is that after the transaction.

        Only stock below zero differs from the state after the transaction, because no record depends on other stock.
        """
        after, found = dict(self.stock_after), list[dict[str, Stock]]()
        for decision in reversed(self.decisions):
            found.append({product_id: after[product_id] for product_id in decision.deltas})
            for product_id, delta in decision.deltas.items():
                if (stock := after[product_id]).stock_count < 0:
                    after[product_id] = stock.with_stock(stock.stock_count - delta, stock.version)
        return found[::-1]
