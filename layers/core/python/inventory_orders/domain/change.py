"""A change of stock: product deltas, and the record that makes them exactly-once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from enum import Enum, auto
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from inventory_orders.domain.outbound import Generation, OutboundPage
from inventory_orders.domain.product import Stock, StockById
from inventory_orders.domain.record import OrderUpdate, Record, RecordKey
from inventory_orders.domain.rejection import Rejection


class IdempotencyMatch(Enum):
    """Whether a record is of the same request as a change with its key."""

    SAME_REQUEST = auto()
    OTHER_REQUEST = auto()


MatchResult: TypeAlias = "IdempotencyMatch | Rejection | Change"
"""What becomes of a change whose record is there: it is answered, or another change takes its place."""


class Change:
    """A set of product deltas, and one record that makes them exactly-once.

    As it stands here it touches no stock, and the business never rejects it: each kind says how it differs.

    Attributes:
        stores_rejection: Whether a rejection is stored too, and so is final.
        moves_goods: Whether its deltas change what is on hand, too: goods come in or go out.
        outbound: Units that leave what is on hand, if it is accepted: on an outbound page, and never with rows of products.
        id_reused_code: `errorCode` of a change whose record belongs to another request.
    """

    __slots__ = ()

    stores_rejection: ClassVar = False
    moves_goods: bool = False
    outbound: Mapping[Generation, int] = MappingProxyType({})
    id_reused_code: ClassVar[str]

    @property
    def record_key(self) -> RecordKey:
        """Names the record: two changes with one key are one change, or one of them is a mistake."""
        raise NotImplementedError

    @property
    def record_keys(self) -> Collection[RecordKey]:
        """The keys of all records that it writes. None of them may exist yet."""
        return (self.record_key,)

    @property
    def product_ids(self) -> Collection[str]:
        """The products that it may be about: keys of their rows, with the location unless that is the default one."""
        return ()

    @property
    def offers(self) -> Sequence[Collection[str]]:
        """The ways to carry it out, the best first: each is the products that it would be about."""
        return (self.product_ids,)

    @property
    def splits(self) -> bool:
        """Whether each line may be taken from another offer, if none has them all."""
        return False

    @property
    def group(self) -> str | None:
        """Changes of one group take effect in the order in which they arrived; None if order is free."""
        return None

    @property
    def record_size(self) -> int:
        """Upper bound of the record's size, in bytes."""
        return 600

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:  # noqa: ARG002
        """Units that it takes, by product id, and that may be sold from lanes.

        Empty for a change that is for the rows alone.

        Args:
            short: Products that were found short. An offer without them is preferred.
        """
        return {}

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        """Why one of its offers is rejected in this state of its products; None if it is accepted."""
        return None

    def final_rejection(
        self,
        rejections: Sequence[Rejection],
        products: StockById,  # noqa: ARG002
    ) -> Rejection:
        """Why it is rejected when all of its offers are, in this state of all products."""
        return rejections[0]

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        """Change of stock by product id, in units, if an offer is accepted in this state of its products."""
        return {}

    def written_on(self, page: OutboundPage) -> Change:  # noqa: ARG002
        """The change, as its record says where its units left."""
        return self

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Record | OrderUpdate:
        """The write of the decision, with the products that it changed as the same transaction leaves them."""
        raise NotImplementedError

    def records(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> Sequence[Record | OrderUpdate]:
        """All writes of the decision beside those of products."""
        return (self.record(rejection, after, at),)

    def match(self, record: Record) -> MatchResult:
        """Match the change with a stored record.

        Raises:
            CorruptItemError: The record contradicts what the change needs.
        """
        raise NotImplementedError
