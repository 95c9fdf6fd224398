"""Reads lists page by page: orders by user, status or late payment, holds, products, words, transfers, counts and adjustments.

Each function raises a `StoreError` if a request fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import chain, groupby, islice
from math import inf
from operator import itemgetter
from typing import Any

from inventory_orders.domain.adjustment import TRANSFER_LOST, TRANSFER_OUT
from inventory_orders.domain.location import DEFAULT_LOCATION, location_of, product_of
from inventory_orders.domain.record import OrderStatus
from inventory_orders.domain.words import WordKey, first_match
from inventory_orders.store.dynamodb import Snapshot, Store
from inventory_orders.store.rows import Item, Row, decode, encode, key_item
from inventory_orders.store.tables import (
    BY_LATE_PAYMENT,
    BY_STATUS,
    BY_STOCKTAKE,
    BY_TRANSFER,
    BY_USER,
    INDEXES,
    KEYS,
    LATE_PAYMENT_SHARDS,
    SHARDS,
    TRANSFER_SHARDS,
    Index,
    Table,
    status_shards,
)

_WORDS_OF_A_PAGE, _WORDS_TO_TRY = 200, 4

_LAST = "\x7f"
"""Sorts after all ids and times."""

_WAITING = (OrderStatus.PENDING, OrderStatus.CONFIRMED)
"""The statuses of orders that wait for something. The longest wait is listed first."""

_SPARE = 6
"""Entries that are read of each key, in addition to its share of the page. Then a second request is rare."""

_FILTERED = 100
"""Entries that are read of each key if most of them may be filtered out."""


SideBySide = Callable[[Any, Sequence[Any]], Iterable[Any]]
"""A function like `map`, which may call a function on several arguments in parallel."""


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
        return (self.location_id, self.seen_at) != (None, None) or (
            self.user_id is not None and self != OrderFilter(self.user_id)
        )

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


def _source_of(wanted: OrderFilter) -> tuple[Index, Sequence[str], bool]:
    """The index that contains a list, its keys there, and whether its oldest entries come first."""
    if wanted.user_id is not None:
        return BY_USER, [wanted.user_id], False
    if wanted.paid_late:
        return BY_LATE_PAYMENT, SHARDS[:LATE_PAYMENT_SHARDS], False
    # A filter without a known status is an error, so that it does not pass for an empty list.
    return BY_STATUS, status_shards(OrderStatus(wanted.status or "")), wanted.status in _WAITING


def list_orders(
    store: Store,
    wanted: OrderFilter,
    limit: int,
    after: ListPosition | None,
    side_by_side: SideBySide = map,
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
    _, keys, _ = _source_of(wanted)
    size = _FILTERED if wanted.is_sparse else limit // len(keys) + _SPARE
    # Before three quarters of what the first requests may read, hardly any key needs a second one.
    most = size * len(keys) * 3 // 4 if wanted.is_sparse else inf
    found, reached = list[ListPosition](), after
    for number, (place, is_wanted) in enumerate(_entries(store, wanted, after, size, side_by_side)):
        if len(found) == limit or number >= most:
            return found, reached
        reached = place
        if is_wanted:
            found.append(place)
    return found, None


def _entries(
    store: Store,
    wanted: OrderFilter,
    after: ListPosition | None,
    size: int,
    side_by_side: SideBySide,
) -> Iterator[tuple[ListPosition, bool]]:
    """Yield the positions in an index after a given one, and whether the list includes the order there."""
    index, keys, is_forward = _source_of(wanted)
    # A user's orders are sorted by creation, so their other times are only known when they are read.
    first, last = (OrderFilter() if index is BY_USER else wanted).times
    if after is not None:
        # An index does not sort entries with the same time, so these are read again.
        first, last = (max(first, after.at), last) if is_forward else (first, min(last, after.at))
    parts = [
        read_range(store, Table.ORDERS, index, key, (first, last), size, is_forward=is_forward)
        for key in keys
        if first <= last
    ]
    heads = side_by_side(lambda part: [*islice(part, 1)], parts)

    def place_of(entry: Row) -> ListPosition:
        return ListPosition(entry[index.keys[1]], entry["orderId"])

    for entry in merge(*map(chain, heads, parts), key=place_of, reverse=not is_forward):
        place = place_of(entry)
        if after is None or (place > after if is_forward else place < after):
            yield place, wanted.includes(entry)


def read_range(
    store: Store,
    table: Table,
    index: Index | None,
    key: str,
    times: tuple[str, str],
    size: int,
    *,
    is_forward: bool = False,
) -> Iterator[Row]:
    """Yield the rows of a partition between two sort keys, those with the same sort key in the order of the table's keys.

    Args:
        store: The tables.
        table: The table.
        index: Its index; None for the table itself.
        key: The partition key.
        times: The first and the last sort key.
        size: How many rows the first request reads. The next one is sent when its rows are needed, and reads twice as many.
        is_forward: Whether the oldest rows come first.
    """
    names = KEYS[table] if index is None else index.keys
    order: dict[str, Any] = {
        "Limit": size,
        "ScanIndexForward": is_forward,
        **({} if index is None else {"IndexName": index.name}),
    }

    def rows() -> Iterator[Row]:
        after: Item | None = {}
        while after is not None:
            found, after = store.query(
                table,
                f"#{names[0]} = :key AND #{names[1]} BETWEEN :first AND :last",
                {"key": key, "first": times[0], "last": times[1]},
                after,
                **order,
            )
            yield from found
            order["Limit"] *= 2

    for _, same in groupby(rows(), itemgetter(names[1])):
        yield from sorted(same, key=itemgetter(*KEYS[table]), reverse=not is_forward)


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
    start = {} if after is None else {"ExclusiveStartKey": key_item(after.id)}
    response = store.scan(Table.PRODUCTS, ConsistentRead=True, Limit=limit, **start)
    last, snapshot = response.get("LastEvaluatedKey"), Snapshot()
    for item in response["Items"]:
        snapshot.add_item(item["productId"]["S"], item)
    return snapshot, ListPosition("", last["productId"]["S"]) if last else None


def list_entries(
    store: Store,
    index: Index | None,
    key: str,
    limit: int,
    after: ListPosition | None,
    until: str = _LAST,
) -> tuple[list[Row], ListPosition | None]:
    """List the entries of an index, which is eventually consistent, or the adjustments of a row by id, strongly consistent.

    Args:
        store: The tables.
        index: `BY_LEVEL`, sorted by product; `BY_COUNT`, the longest not counted first; `BY_STOCKTAKE`, the newest first; or
            `BY_EXPIRY`, the hold that ends first. None for adjustments.
        key: The status, location, stocktake or shard, as stored; for adjustments, the key of the product's row.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.
        until: The last sort key.

    Returns:
        The entries, and where to continue; None at the end.
    """
    table = next((each for each in INDEXES if index in INDEXES[each]), Table.STOCK_ADJUSTMENTS)
    keys, (partition, sort) = KEYS[table], KEYS[table] if index is None else index.keys
    how: dict[str, Any] = {"ConsistentRead": True} if index is None else {"IndexName": index.name}
    # No id contains a space.
    start = {} if after is None else dict(zip(keys, after.id.split(" "), strict=True))
    rows, last = store.query(
        table,
        f"#{partition} = :key AND #{sort} <= :until",
        {"key": key, "until": until},
        encode(start | {partition: key, sort: after.at}) if after else None,
        Limit=limit,
        ScanIndexForward=index is not BY_STOCKTAKE,
        **how,
    )
    end = decode(last) if last else None
    return rows, ListPosition(end[sort], " ".join(end[k] for k in keys)) if end else None


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
        rows, last = store.query(
            Table.WORDS,
            "#prefix = :prefix AND begins_with(#word, :word)",
            {"prefix": word[:2], "word": word},
            key_item(WordKey(after.at, after.id)) if after else None,
            Limit=_WORDS_OF_A_PAGE,
        )
        if last is None:
            break
    found = _matching(rows, word, wanted)
    if len(found) > limit:
        return found[:limit], found[limit - 1]
    return found, _word_of(decode(last)) if last else None


def _matching(rows: Iterable[Row], word: str, wanted: Sequence[str]) -> list[ListPosition]:
    """The products that have all wanted words. Each is listed once, although several of its words may begin with `word`."""
    places = ((_word_of(row), row.get("words", ())) for row in rows)
    return [place for place, words in places if place.at == first_match(words, word, wanted)]


def _word_of(row: Row) -> ListPosition:
    return ListPosition(*row["word"].partition("#")[::2])


def list_transfers(
    store: Store, most: int | None = None, side_by_side: SideBySide = map
) -> tuple[list[tuple[Row, Sequence[Row]]], str | None]:
    """List transfers, the oldest first: the units of a product that left a location under a reference. The list is eventually consistent.

    Transfers stay in the list until the sweep takes off those that have ended: all their units have arrived or were lost. Units
    that were moved in one transaction are never in transit.

    Args:
        store: The tables.
        most: How many of the newest steps to read of each part of the index; None for all.
        side_by_side: Calls a function on each argument, in parallel if it can.

    Returns:
        The transfers, each with its steps as `BY_TRANSFER` projects them, and the time before which some are missing because not
        all steps were read; None if none are. A transfer has its `reference` and `productId`, the `units` in transit, the
        locations that they come `from` and, as far as known, were sent `to`, and the times of its first step (`since`) and its
        last one (`changedAt`).
    """
    # One more shows that the last one is the only one of its time.
    size = 1000 if most is None else most + 1
    read = partial(
        read_range, store, Table.STOCK_ADJUSTMENTS, BY_TRANSFER, times=(" ", "~"), size=size
    )
    newest = [*side_by_side(lambda shard: [*islice(read(shard), most)], SHARDS[:TRANSFER_SHARDS])]
    # For earlier transfers, the departure may have been read, but not the arrival.
    since = max((rows[-1]["appliedAt"] for rows in newest if len(rows) == most), default=None)
    found = defaultdict[tuple[str, str], list[Row]](list)
    for row in sorted(chain.from_iterable(newest), key=itemgetter("appliedAt")):
        if row["appliedAt"] > (since or ""):
            found[row["reference"], product_of(row["productId"])].append(row)
    return [(_transfer(*key, steps), steps) for key, steps in found.items()], since


def _transfer(reference: str, product_id: str, steps: Sequence[Row]) -> Row:
    lost = (number for number, step in enumerate(steps, 1) if step["reason"] == TRANSFER_LOST)
    out = [step for step in steps if step["reason"] == TRANSFER_OUT]
    return {
        "reference": reference,
        "productId": product_id,
        "units": -sum(step["delta"] for step in steps[max(lost, default=0) :]),
        "from": sorted({location_of(step["productId"]) for step in out}),
        "to": sorted({step["sentTo"] for step in out if "sentTo" in step}),
        "since": steps[0]["appliedAt"],
        "changedAt": steps[-1]["appliedAt"],
    }
