"""Reads lists page by page: orders by user, status or late payment, ending holds, products, words, and a product's adjustments.

Each function raises a `StoreError` if a request fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from inventory_orders.domain.location import DEFAULT_LOCATION
from inventory_orders.domain.record import AdjustmentKey, OrderStatus
from inventory_orders.domain.words import WordKey, first_match
from inventory_orders.store.dynamodb import Snapshot, Store
from inventory_orders.store.rows import Item, Row, decode, key_item
from inventory_orders.store.tables import (
    BY_EXPIRY,
    BY_LATE_PAYMENT,
    BY_LEVEL,
    BY_STATUS,
    BY_USER,
    KEYS,
    LATE_PAYMENT_SHARDS,
    SHARDS,
    Index,
    Table,
    status_shards,
)

_HOLDS_OF_A_PAGE = 1000
_WORDS_OF_A_PAGE, _WORDS_TO_TRY = 200, 4

_WAITING = (OrderStatus.PENDING, OrderStatus.CONFIRMED)
"""The statuses of orders that wait for something. The longest wait is listed first."""

_SPARE = 4
"""Entries that each part of a list is asked for, in addition to its share of the page. Then a second round is rare."""

_FILTERED = 100
"""Entries that each part is asked for, once for each page, if most of them may be filtered out."""


@dataclass(frozen=True, slots=True, order=True)
class ListPosition:
    """A position in a list.

    Attributes:
        at: The time by which the list is sorted. A user's orders are sorted by creation, orders of a status by when they
            entered it, late payments by their rejection, and holds by their end. In a search, the word. Empty in other lists.
        id: The order, product or adjustment.
    """

    at: str
    id: str


@dataclass(frozen=True, slots=True)
class OrderFilter:
    """Which orders to list: one of `user_id`, `status`, `paid_late`, `reference` and `product_key` has to be given.

    Attributes:
        user_id: The customer; None for all.
        status: The status; None for all.
        paid_late: Whether only orders with a late payment are listed. They have no other filters than times.
        since: The earliest time, as stored, at which they entered their status, were paid too late, got the reference, or took
            units of the product.
        until: They did so before this time, as stored.
        location_id: A location that supplied some of their units; None for all.
        seen_at: The locations whose orders the reader may see; None for all.
        reference: The reference of a step that moved some of their units; None for all.
        product_key: The key of the row that some of their units came from; None for all.
    """

    user_id: str | None = None
    status: str | None = None
    paid_late: bool = False
    since: str = " "
    until: str = "~"
    location_id: str | None = None
    seen_at: Collection[str] | None = None
    reference: str | None = None
    product_key: str | None = None

    @property
    def is_of_movements(self) -> bool:
        """Whether `movements.list_orders` lists them. Then there are no other filters than times and `status`."""
        return (self.reference, self.product_key) != (None, None)

    @property
    def times(self) -> tuple[str, str]:
        """The limits of the times that it includes. Without its offset, a time sorts just before the same stored time."""
        return self.since, self.until.removesuffix("+00:00")

    @property
    def is_sparse(self) -> bool:
        """Whether it may leave out most entries that are read."""
        of_user = self.user_id is not None and self != OrderFilter(self.user_id)
        return of_user or self.location_id is not None or self.seen_at is not None

    def includes(self, entry: Row) -> bool:
        """Whether it includes an order, by its entry in an index."""
        first, last = self.times
        supplied_from = entry.get("suppliedFrom", [DEFAULT_LOCATION])
        return (
            self.status in (None, entry.get("status"))
            and first <= entry.get("statusAt", first) <= last
            and (self.location_id is None or self.location_id in supplied_from)
            and (self.seen_at is None or not {*self.seen_at}.isdisjoint(supplied_from))
        )


@dataclass(slots=True)
class _Part:
    """What was read of one key of an index, and where to continue."""

    key: str
    found: list[ListPosition] = field(default_factory=list)
    rest: Item | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """The index that contains a list, its keys, and the first and the last time to read."""

    index: Index
    keys: Sequence[str]
    times: tuple[str, str]
    is_oldest_first: bool = False

    @classmethod
    def of(cls, wanted: OrderFilter) -> _Source:
        if wanted.user_id is not None:
            return cls(BY_USER, [wanted.user_id], OrderFilter().times)
        if wanted.paid_late:
            return cls(BY_LATE_PAYMENT, SHARDS[:LATE_PAYMENT_SHARDS], wanted.times)
        status = wanted.status or ""
        return cls(BY_STATUS, status_shards(status), wanted.times, status in _WAITING)

    def after(self, place: ListPosition | None) -> _Source:
        """The rest of the list. It includes entries with the same time, because an index does not sort these."""
        low, high = self.times
        if place is not None:
            low, high = (
                (max(low, place.at), high) if self.is_oldest_first else (low, min(high, place.at))
            )
        return replace(self, times=(low, high), keys=self.keys if low <= high else ())

    def comes_first(self, one: Any, other: Any) -> bool:
        """Whether a position or time comes before another one in the list."""
        return bool(one < other if self.is_oldest_first else one > other)

    def query(self, store: Store, key: str, rest: Item | None = None, **parameters: Any) -> Any:
        """Query entries with one key of the index."""
        partition, sort = self.index.keys
        first, last = self.times
        return store.query(
            Table.ORDERS,
            f"#{partition} = :key AND #{sort} BETWEEN :first AND :last",
            {"key": key, "first": first, "last": last},
            rest,
            IndexName=self.index.name,
            **parameters,
        )

    def read(
        self, store: Store, wanted: OrderFilter, after: ListPosition | None, size: int, part: _Part
    ) -> None:
        """Read up to `size` more entries of a part."""
        forward = self.is_oldest_first
        response = self.query(store, part.key, part.rest, Limit=size, ScanIndexForward=forward)
        part.rest = response.get("LastEvaluatedKey")
        listed = (item for item in response["Items"] if wanted.includes(decode(item)))
        places = (_position(item, self.index.keys[1]) for item in listed)
        part.found += (p for p in places if after is None or self.comes_first(after, p))

    def merged(self, parts: Iterable[_Part]) -> list[ListPosition]:
        """Everything that was read, sorted as the list is."""
        found = chain.from_iterable(part.found for part in parts)
        return sorted(found, reverse=not self.is_oldest_first)

    def edge(self, parts: Iterable[_Part]) -> str | None:
        """The time from which on entries may be missing; None if all were read."""
        ends = [part.rest[self.index.keys[1]]["S"] for part in parts if part.rest is not None]
        return (min if self.is_oldest_first else max)(ends, default=None)

    def before(self, edge: str | None, found: Iterable[ListPosition]) -> list[ListPosition]:
        """The positions before a time; all if there is none."""
        return [place for place in found if edge is None or self.comes_first(place.at, edge)]

    def needed(self, parts: Iterable[_Part], last: Sequence[ListPosition]) -> list[_Part]:
        """The parts that may have more entries before the last one that is needed, if enough were found."""
        ends = ((part, self.edge([part])) for part in parts)
        return [
            part
            for part, end in ends
            if end is not None and not (last and self.comes_first(last[0].at, end))
        ]


def _one_by_one(read: Callable[[_Part], None], parts: Sequence[_Part]) -> object:
    return [*map(read, parts)]


def list_orders(
    store: Store,
    wanted: OrderFilter,
    limit: int,
    after: ListPosition | None,
    side_by_side: Callable[[Callable[[_Part], None], Sequence[_Part]], object] = _one_by_one,
) -> tuple[list[ListPosition], ListPosition | None]:
    """List orders. The list is eventually consistent.

    `PENDING` and `CONFIRMED` orders are listed with the longest wait first, others and late payments with the newest first, and
    a user's orders by creation, the newest first.

    Args:
        store: The tables.
        wanted: Which orders.
        limit: Maximum number of entries. With a filter that few orders pass, there may be fewer, although more follow.
        after: The position to continue after; None for the beginning.
        side_by_side: Calls a function on each argument, in parallel if it can.

    Returns:
        The orders, and where to continue; None at the end.
    """
    source = _Source.of(wanted).after(after)
    parts = unread = [_Part(key) for key in source.keys]
    size = _FILTERED if wanted.is_sparse else limit // max(1, len(parts)) + _SPARE
    while True:
        side_by_side(partial(source.read, store, wanted, after, size), unread)
        found, edge = source.merged(parts), source.edge(parts)
        whole = source.before(edge, found)
        if len(whole) > limit:
            return whole[:limit], whole[limit - 1]
        if edge is None:
            return whole, None
        if wanted.is_sparse and edge not in source.times:
            # Ids have no characters beyond `~`.
            return whole, ListPosition(edge, "" if source.is_oldest_first else "\x7f")
        unread = source.needed(parts, found[limit : limit + 1])


def count_orders(store: Store, wanted: OrderFilter, most: int = 100) -> int:
    """Count the orders of a status, or with a late payment. Other filters than times are ignored.

    Args:
        store: The tables.
        wanted: Which orders.
        most: Counting stops once there are more.

    Returns:
        Their number, at most `most + 1`.
    """
    source, found = _Source.of(wanted), 0
    for key in source.keys:
        found += source.query(store, key, Select="COUNT", Limit=most + 1 - found)["Count"]
        if found > most:
            break
    return found


def list_products(
    store: Store, limit: int, after: ListPosition | None
) -> tuple[Snapshot, ListPosition | None]:
    """List products in no particular sequence, with strong consistency.

    Args:
        store: The tables.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The products, and where to continue; None at the end.
    """
    items, last = _scan(store, Table.PRODUCTS, after, ConsistentRead=True, Limit=limit)
    snapshot = Snapshot()
    for item in items:
        snapshot.add_item(item["productId"]["S"], item)
    return snapshot, last


def list_by_level(
    store: Store, status: str, limit: int, after: ListPosition | None
) -> tuple[list[str], ListPosition | None]:
    """List the products with a status, sorted by id. The list is eventually consistent.

    Args:
        store: The tables.
        status: The status.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The keys of their rows, and where to continue; None at the end.
    """
    response = store.query(
        Table.PRODUCTS,
        "#status = :status",
        {"status": status},
        {"status": {"S": status}, **key_item(after.id)} if after else None,
        Limit=limit,
        IndexName=BY_LEVEL.name,
    )
    keys = [item["productId"]["S"] for item in response["Items"]]
    return keys, ListPosition("", keys[-1]) if "LastEvaluatedKey" in response else None


def search_products(
    store: Store, wanted: Sequence[str], limit: int, after: ListPosition | None
) -> tuple[list[ListPosition], ListPosition | None]:
    """Find products, each wanted word of which begins a word of their id or name. The list is eventually consistent.

    This reads up to 200 small rows of the longest word, and if there are more, of the next one, until it has read all rows of a
    word. So it may find fewer products than there are, or none.

    Args:
        store: The tables.
        wanted: The words, as `words_to_find` returns them.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The products, sorted by the word that was found, and where to continue; None at the end.
    """
    # No wanted word begins another one, so a position belongs to one of them.
    words = [word for word in wanted if after is None or after.at.startswith(word)]
    for word in words[:_WORDS_TO_TRY]:
        answer = store.query(
            Table.WORDS,
            "#prefix = :prefix AND begins_with(#word, :word)",
            {"prefix": word[:2], "word": word},
            key_item(WordKey(after.at, after.id)) if after else None,
            Limit=_WORDS_OF_A_PAGE,
        )
        if "LastEvaluatedKey" not in answer:
            break
    found = _matching(answer["Items"], word, wanted)
    if len(found) > limit:
        return found[:limit], found[limit - 1]
    last = answer.get("LastEvaluatedKey")
    return found, _word_of(last) if last else None


def _matching(items: Sequence[Item], word: str, wanted: Sequence[str]) -> list[ListPosition]:
    """The products that have all wanted words. Each is listed once, although several of its words may begin with `word`."""
    places = ((_word_of(item), decode(item).get("words", ())) for item in items)
    return [place for place, words in places if place.at == first_match(words, word, wanted)]


def _word_of(item: Item) -> ListPosition:
    return ListPosition(*item["word"]["S"].partition("#")[::2])


def _scan(
    store: Store, table: Table, after: ListPosition | None, **parameters: Any
) -> tuple[Sequence[Item], ListPosition | None]:
    (key,) = KEYS[table]
    if after is not None:
        parameters["ExclusiveStartKey"] = {key: {"S": after.id}}
    response = store.scan(table, **parameters)
    last = response.get("LastEvaluatedKey")
    return response["Items"], ListPosition("", last[key]["S"]) if last else None


def list_adjustments(
    store: Store, product_id: str, limit: int, after: ListPosition | None
) -> tuple[list[Row], ListPosition | None]:
    """List a product's adjustments, sorted by id, with strong consistency.

    Args:
        store: The tables.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        Their rows, and where to continue; None at the end.
    """
    response = store.query(
        Table.STOCK_ADJUSTMENTS,
        "#productId = :product",
        {"product": product_id},
        key_item(AdjustmentKey(product_id, after.id)) if after else None,
        Limit=limit,
        ConsistentRead=True,
    )
    rows = [decode(item) for item in response["Items"]]
    last = response.get("LastEvaluatedKey")
    return rows, ListPosition("", last["adjustmentId"]["S"]) if last else None


def list_holds(
    store: Store, shard: int, until: str, after: ListPosition | None = None
) -> tuple[list[ListPosition], ListPosition | None]:
    """List the holds of a shard that end by a given time, oldest first. They are a hint: the list is eventually consistent.

    Args:
        store: The tables.
        shard: The number of the shard, below `EXPIRY_SHARDS`.
        until: The time.
        after: The position to continue after; None for the beginning.

    Returns:
        Some of the holds, and where to continue; None at the end.
    """
    name = SHARDS[shard]
    response = store.query(
        Table.ORDERS,
        "#expiryShard = :shard AND #expiresAt <= :until",
        {"shard": name, "until": until},
        _start(after, expiresAt=after.at, expiryShard=name) if after else None,
        Limit=_HOLDS_OF_A_PAGE,
        IndexName=BY_EXPIRY.name,
    )
    last = response.get("LastEvaluatedKey")
    holds = [_position(item, "expiresAt") for item in response["Items"]]
    return holds, _position(last, "expiresAt") if last else None


def _position(item: Item, time: str) -> ListPosition:
    return ListPosition(item[time]["S"], item["orderId"]["S"])


def _start(after: ListPosition, **keys: str) -> Item:
    """Build the key after which a query of an index continues."""
    return {name: {"S": value} for name, value in {**keys, "orderId": after.id}.items()}
