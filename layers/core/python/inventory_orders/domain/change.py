"""Stock changes: product deltas, and the record that makes them exactly-once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import ClassVar, Generic, TypeAlias, TypeVar

from inventory_orders.domain.outbound import Generation, OutboundPage
from inventory_orders.domain.product import Stock, StockById
from inventory_orders.domain.record import OrderRecord, Record, RecordKey
from inventory_orders.domain.rejection import Rejection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """A write of a row or page, on condition that nothing has changed it since it was read.

    Attributes:
        before: As read.
        after: As it will be stored. The same object as `before` if the write only checks that a page is unchanged.
    """

    before: T
    after: T


class IdempotencyMatch(Enum):
    """Whether a record belongs to the same request as a change with its key."""

    SAME_REQUEST = auto()
    OTHER_REQUEST = auto()


MatchResult: TypeAlias = "IdempotencyMatch | Rejection | Change"
"""What becomes of a change whose record exists: it is answered, or another change replaces it."""


class Change:
    """A set of product deltas, and one record that makes them exactly-once.

    By default it changes no stock, and the business never rejects it. Subclasses override that.

    Attributes:
        stores_rejection: Whether a rejection is stored too, which makes it final.
        moves_goods: Whether its deltas also change the units on hand, because goods come in or go out.
        outbound: Units that leave the warehouse if it is accepted. They are written to an outbound page, never to product rows.
        id_reused_code: `errorCode` of a change whose record belongs to another request.
    """

    __slots__ = ()

    stores_rejection: ClassVar = False
    moves_goods: bool = False
    outbound: Mapping[Generation, int] = MappingProxyType({})
    id_reused_code: ClassVar[str]

    @property
    def record_key(self) -> RecordKey:
        """The key of the record. Two changes with the same key are the same change, or one of them is a mistake."""
        raise NotImplementedError

    @property
    def record_keys(self) -> Collection[RecordKey]:
        """The keys of all records that it writes, none of which may exist yet."""
        return (self.record_key,)

    @property
    def product_ids(self) -> Collection[str]:
        """The products that it may affect: keys of their rows, with the location unless that is the default one."""
        return ()

    @property
    def offers(self) -> Sequence[Collection[str]]:
        """The ways to carry it out, best first: each is a set of products that it would affect."""
        return (self.product_ids,)

    @property
    def splits(self) -> bool:
        """Whether lines may be taken from different offers if none has them all."""
        return False

    @property
    def group(self) -> str | None:
        """Changes of one group take effect in order of arrival; None if the order does not matter."""
        return None

    @property
    def record_size(self) -> int:
        """Upper bound of the record's size, in bytes."""
        return 600

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:  # noqa: ARG002
        """Units that it takes and that may be sold from lanes, by product id.

        Empty for a change that only the rows can serve.

        Args:
            short: Products that were found short. An offer without them is preferred.
        """
        return {}

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        """Why an offer is rejected with the products in this state; None if it is accepted."""
        return None

    def final_rejection(
        self,
        rejections: Sequence[Rejection],
        products: StockById,  # noqa: ARG002
    ) -> Rejection:
        """Why it is rejected when all of its offers are, with the products in this state."""
        return rejections[0]

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        """Units to add or remove (negative), by product id, if an offer is accepted with its products in this state."""
        return {}

    def written_on(self, page: OutboundPage) -> Change:  # noqa: ARG002
        """The same change with the outbound page that its record has to name."""
        return self

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Record | Update[OrderRecord]:
        """The write of the decision; `after` has the products that it changed as the same transaction leaves them."""
        raise NotImplementedError

    def records(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Sequence[Record | Update[OrderRecord]]:
        """All writes of the decision besides the products'."""
        return (self.record(rejection, after, at),)

    def match(self, record: Record) -> MatchResult:
        """Match the change with a stored record.

        Raises:
            CorruptItemError: The record contradicts what the change needs.
        """
        raise NotImplementedError
