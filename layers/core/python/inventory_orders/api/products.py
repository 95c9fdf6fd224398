"""The routes of the HTTP API that show products to customers, and stock to operators."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain

from inventory_orders.api.barcodes import find_listed
from inventory_orders.api.requests import (
    HttpAnswer,
    Listed,
    Request,
    answer_with_page,
    limit_of,
    location_in,
    malformed,
    reading,
    times_in,
)
from inventory_orders.api.serving import Caller
from inventory_orders.clock import Deadline
from inventory_orders.domain.barcode import shown_barcodes
from inventory_orders.domain.location import (
    DEFAULT_LOCATION,
    DEFAULT_NAME,
    in_words,
    location_of,
    product_of,
    public_key,
    stock_key,
)
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.scan import read_scan
from inventory_orders.domain.words import words_to_find
from inventory_orders.engine.retrying_client import (
    CommitStats,
    RetryingClient,
    read_all,
    read_rows,
)
from inventory_orders.errors import InvalidMessageError, ProductNotFoundError
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger
from inventory_orders.lanes.levels import (
    ALL_LANES,
    StockLevel,
    estimate_levels,
    lent_products,
    list_levels,
    read_levels,
)
from inventory_orders.messages.documents import checked_id, not_one_of
from inventory_orders.store import lists, movements
from inventory_orders.store.cancellations import require_product
from inventory_orders.store.dynamodb import READ_LIMIT, Snapshot
from inventory_orders.store.rows import Row, drop_none
from inventory_orders.store.tables import BY_COUNT, BY_LEVEL, BY_STOCKTAKE

_MOST_ROWS = 300
"""Maximum number of rows that a request for several products reads: one for each product and location."""

_MOST_STEPS = 2_000
"""How many steps of transfers are read of each part of their index: about 60 read units."""


def get_product(request: Request, caller: Caller) -> HttpAnswer:
    """Show one product.

    Raises:
        InventoryOrdersError: The product does not exist or cannot be read.
    """
    product_id = request.id_of("productId")
    process = runtime.process()
    client = process.engine.client if caller.customer is None else process.eventual_client
    levels, found, _ = _read([product_id], client)
    require_product(found.unreadable.get(product_id) or found.products[product_id], product_id)
    shown = shown_product(levels[product_id])
    # The row's version is not enough: each location has its own, and sales from lanes change none of them.
    etag = f'"{hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:32]}"'
    return HttpAnswer.of_state(request, shown, etag)


def get_products(request: Request, _: Caller) -> HttpAnswer:
    """Show several products: those that the query names, or those that a search finds by a whole barcode or by words.

    For the former, the answer lists the ids of unknown, unreadable and remaining products separately.

    Raises:
        InventoryOrdersError: The query is invalid, or DynamoDB failed.
    """
    query = request.query
    if query.keys() != {"ids"} and ("ids" in query or "search" not in query):
        raise malformed(
            "ids",
            "send either ids alone or search, for example ids=tea-earl-grey,milk or search=earl",
        )
    return (_named_products if "ids" in query else _found_products)(query)


def _named_products(query: Mapping[str, str]) -> HttpAnswer:
    named = query["ids"].split(",")
    if len(named) > READ_LIMIT:
        raise malformed("ids", f"may name at most {READ_LIMIT} products, but names {len(named)}")
    ids = list(dict.fromkeys(checked_id("ids", each, "productId") for each in named))
    levels, found, remaining = _read(ids, runtime.process().eventual_client)
    known = {*levels, *found.unreadable, *remaining}
    return HttpAnswer(
        200,
        {
            "products": [shown_product(levels[each]) for each in ids if each in levels],
            "unknown": [each for each in ids if each not in known],
            "unreadable": [each for each in ids if each in found.unreadable],
            "remaining": remaining,
        },
    )


def _found_products(query: Mapping[str, str]) -> HttpAnswer:
    wanted, limit = words_to_find(query["search"]), limit_of(query)
    client, deadline = reading()
    listed = find_listed(read_scan(query["search"]), client, deadline)
    if not (wanted or listed):
        raise malformed("search", "must have a word of at least two letters or digits")
    # No user id begins with #.
    name = f"#SEARCH {' '.join(wanted)}"

    def read_page(after: lists.ListPosition | None) -> Listed:
        places, last = (
            ([lists.ListPosition("", row["productId"]) for row in listed], None)
            if listed
            else client.ask(lists.search_products, deadline, wanted, limit, after)
        )
        ids = [place.id for place in places]
        levels, found, remaining = _read(ids, runtime.process().eventual_client)
        if remaining:
            last = places[-len(remaining) - 1]
        return {
            "products": [shown_product(levels[each]) for each in ids if each in levels],
            "unreadable": [each for each in ids if each in found.unreadable],
        }, last

    return answer_with_page(name, query, read_page, deadline)


def _read(
    ids: Sequence[str], client: RetryingClient
) -> tuple[dict[str, list[StockLevel]], Snapshot, list[str]]:
    """Read products at all their locations.

    Returns:
        The readable stock levels of each product, starting with its own row; all rows; and the ids of the last products, if
        the locations of all would be more than `_MOST_ROWS` rows. A product without a readable row of its own has no levels.
    """
    _, deadline = reading()
    found, remaining = _read_rows(client, ids, deadline)
    levels = (
        list_levels(client, found, deadline, on_hand=False)
        if runtime.process().shows_numbers
        else {key: StockLevel(row) for key, row in found.products.items() if row}
    )
    if found.unreadable:
        problems = {in_words(key): str(error) for key, error in found.unreadable.items()}
        logger.error("products cannot be read", extra={"products": problems})
    by_product = {
        each: [levels[key] for key in (each, *levels[each].product.place_keys) if key in levels]
        for each in ids
        if each in levels
    }
    return by_product, found, remaining


def _read_rows(
    client: RetryingClient, ids: Sequence[str], deadline: Deadline
) -> tuple[Snapshot, list[str]]:
    """Read at most `_MOST_ROWS` rows, but all rows of the first product. Returns them, and the ids that are left."""
    found = read_rows(client, ids, deadline, everywhere=False)
    places = [row.place_keys if (row := found.products.get(each)) else [] for each in ids]
    rows = accumulate(map(len, places), initial=len(ids))
    fitting = max(1, sum(total <= _MOST_ROWS for total in rows) - 1)
    remaining = [*ids[fitting:]]
    for each in remaining:
        found.products.pop(each, None)
        found.unreadable.pop(each, None)
    found.add(read_all(client, [*chain.from_iterable(places[:fitting])], deadline, CommitStats()))
    return found, remaining


def get_stock(request: Request, caller: Caller) -> HttpAnswer:
    """Show operators how many units of a product there are at each location and in each lane.

    The numbers are a snapshot, or an estimate if other processes keep writing the rows.

    Raises:
        InventoryOrdersError: The product does not exist or cannot be read.
    """
    key, everywhere = _key_in(request), "locationId" not in request.query
    client, deadline = reading()
    found = read_levels(client, key, deadline, CommitStats(), everywhere=everywhere)
    if not found:
        raise ProductNotFoundError(f"there is no product {in_words(key)}")
    levels = [level for level in found if caller.works_at(_location_of(level))]
    if not levels:
        raise caller.other_location()
    shown, now = shown_stock(levels, runtime.process().locations), client.clock.now().timestamp()
    for level, part in zip(levels, shown.get("places", [shown]), strict=True):
        if (count := shown_count(level.product, now)) is not None:
            if not caller.has_any("stock.count"):
                del count["lease"]
            part["count"] = count
    return HttpAnswer(200, shown)


def shown_count(row: Product, now: float) -> direct.Answer | None:
    """Show operators the count that is open for a product's row; None if there is none.

    Args:
        row: The product's row.
        now: The Unix time.

    Returns:
        Its `holder`, when its lease was acquired or last renewed (`since`), and the `lease` that `release` needs.
    """
    if row.lock_time is None or not row.lease_left(now):
        return None
    lease = {
        **public_key(row.product_id),
        "createdAt": row.created_at,
        "owner": row.locked_by,
        "version": row.lock_version,
        "expiresAt": f"{row.lock_time:.6f}",
    }
    # The service adds a unique suffix to the name that the holder gave.
    holder, _, _ = (row.locked_by or "").rpartition("-")
    # Nothing but the owner of a lease writes the row while the lease is live.
    return {"holder": holder, "since": row.last_updated_at, "lease": lease}


def _key_in(request: Request) -> str:
    """Find the row that a request is about: the product's row at the location in the query, or else at the default location."""
    return stock_key(request.id_of("productId"), location_in(request.query) or DEFAULT_LOCATION)


def list_stock(request: Request, caller: Caller) -> HttpAnswer:
    """List the stock of all products at each location for operators, unsorted; with a status, sorted by id.

    The numbers are estimates, because units move while they are read. Those of products in lanes come from the last sweep.

    Raises:
        InventoryOrdersError: The query is invalid, or DynamoDB failed.
    """
    query, limit, location_id = request.query, limit_of(request.query), location_in(request.query)
    status = query.get("status", "ACTIVE")
    if status not in tuple(ProductStatus):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", not_one_of("status", ProductStatus, status), "status"
        )
    if query.get("inLanes", "true") != "true":
        raise malformed("inLanes", "must be true, or left out")
    _, deadline = reading()
    # These are estimates, so they may be a moment old.
    client, locations = runtime.process().eventual_client, runtime.process().locations

    def read_page(after: lists.ListPosition | None) -> Listed:
        found, last = _rows_to_list(query, limit, after, deadline)
        # Only the pages show which lane has how many units.
        levels = (estimate_levels if "inLanes" in query else list_levels)(client, found, deadline)
        shown = [
            shown_level(level, locations)
            for level in levels.values()
            # The index may still show a product under its last status.
            if query.get("status", level.product.status) == level.product.status
            and (level.in_lanes or "inLanes" not in query)
            and _is_at(location_id, level.product.product_id, caller)
        ]
        unreadable = [in_words(k) for k in found.unreadable if _is_at(location_id, k, caller)]
        return {"products": shown, "unreadable": unreadable}, last

    # No user id begins with #.
    name = f"#STOCK {'inLanes' in query} {query.get('status', '')}"
    return answer_with_page(name, query, read_page, deadline)


def _is_at(location_id: str | None, key: str, caller: Caller) -> bool:
    """Whether a row is at the location that a query names, if it names one, and at one of the caller's."""
    there = location_of(key)
    return location_id in (None, there) and caller.works_at(there)


def _rows_to_list(
    query: Mapping[str, str], limit: int, after: lists.ListPosition | None, deadline: Deadline
) -> tuple[Snapshot, lists.ListPosition | None]:
    """Read the rows on a page of the list of stock, and where the next page begins."""
    client, keys, last = runtime.process().eventual_client, list[str](), None
    if "inLanes" in query:
        lent = lent_products(client, deadline)
        keys = [key for key in lent if after is None or key > after.id][:limit]
        last = lists.ListPosition("", keys[-1]) if keys and keys[-1] < lent[-1] else None
    elif "status" in query:
        rows, last = client.ask(
            lists.list_entries, deadline, BY_LEVEL, query["status"], limit, after
        )
        keys = [row["productId"] for row in rows]
    else:
        return client.ask(lists.list_products, deadline, limit, after)
    return read_all(client, keys, deadline, CommitStats()), last


def list_adjustments(request: Request, caller: Caller) -> HttpAnswer:
    """List the adjustments of a product for operators, sorted by id. Adjustments of delisted products remain.

    Raises:
        InventoryOrdersError: The product never existed, or its adjustments cannot be read.
    """
    key, limit = _key_in(request), limit_of(request.query)
    caller.check_works_at(location_of(key))
    client, deadline = reading()

    def read_page(after: lists.ListPosition | None) -> Listed:
        rows, last = client.ask(lists.list_entries, deadline, None, key, limit, after)
        if not rows and after is None:
            # Every product has at least its opening adjustment.
            raise ProductNotFoundError(f"there is no product {in_words(key)}")
        return {"adjustments": [*map(_shown_adjustment, rows)]}, last

    return answer_with_page(f"#ADJUSTMENTS {key}", request.query, read_page, deadline)


def _shown_adjustment(row: Row) -> direct.Answer:
    return {
        name: location_of(row[name]) if name == "transferWith" else row[name]
        for name in _ADJUSTMENT
        if name in row
    }


_ADJUSTMENT = (
    # Before its first count, a product was counted when it was created.
    "createdAt",
    *("adjustmentId", "delta", "reason", "appliedAt", "counted", "countedAt", "actor", "reference"),
    *("sentTo", "comment", "scanned", "productCreatedAt", "productVersion", "rejected"),
    *("shortages", "transferWith"),
)


def list_history(request: Request, caller: Caller) -> HttpAnswer:
    """List all stock changes of a product for operators, newest first: its adjustments, and the units that orders moved.

    Raises:
        InventoryOrdersError: The query is invalid, the product never existed, or DynamoDB failed.
    """
    key, limit, times = _key_in(request), limit_of(request.query), times_in(request.query)
    caller.check_works_at(location_of(key))
    (client, deadline), recorded = reading(), runtime.process().has_movements
    until = client.ask(movements.complete_until, deadline) if recorded else None

    def read_page(after: lists.ListPosition | None) -> Listed:
        rows, last = client.call(
            lambda: movements.list_history(
                client.store, key, limit, after, has_movements=recorded, **times
            ),
            deadline,
        )
        if not (rows or after or times):
            raise ProductNotFoundError(f"there is no product {in_words(key)}")
        return {"entries": [*map(shown_change, rows)], "completeUntil": until}, last

    return answer_with_page(f"#HISTORY {key} {times}", request.query, read_page, deadline)


def list_transfers(_: Request, caller: Caller) -> HttpAnswer:
    """List the transfers in transit for operators, the oldest first. Staff see those from and to their locations.

    Raises:
        InventoryOrdersError: DynamoDB failed.
    """
    client, deadline = reading()
    found, complete_since = client.ask(
        lists.list_transfers, deadline, _MOST_STEPS, client.side_by_side
    )
    transfers = [
        each
        for each, _ in found
        if each["units"] > 0 and any(map(caller.works_at, each["from"] + each["to"]))
    ]
    return HttpAnswer(200, {"transfers": transfers, "completeSince": complete_since})


def list_counts(request: Request, caller: Caller) -> HttpAnswer:
    """List the counts of a stocktake for operators, newest first; without one, the products at a location by their last count.

    Raises:
        InventoryOrdersError: The query is invalid, or DynamoDB failed.
    """
    query, limit, location_id = request.query, limit_of(request.query), location_in(request.query)
    client, deadline = reading()
    index, key = (
        (BY_STOCKTAKE, checked_id("reference", query["reference"], "note").casefold())
        if "reference" in query
        else (BY_COUNT, location_id or DEFAULT_NAME)
    )

    def read_page(after: lists.ListPosition | None) -> Listed:
        rows, last = client.ask(lists.list_entries, deadline, index, key, limit, after)
        counts = [
            public_key(row["productId"]) | _shown_adjustment(row)
            for row in rows
            if _is_at(location_id, row["productId"], caller)
        ]
        return {"counts": counts}, last

    return answer_with_page(f"#COUNTS {index.name} {key}", query, read_page, deadline)


def shown_change(row: Row) -> direct.Answer:
    """Show operators a row of `StockAdjustments` or `Movements` as a change to a product's stock."""
    if "movementId" not in row:
        shown = _shown_adjustment(row) | {"onHandDelta": row.get("onHandDelta", row["delta"])}
        return {"action": "adjust", "at": shown.pop("appliedAt"), **shown}
    at, *_ = row["movementId"].split("#", 1)
    shown = {name: row[name] for name in _MOVEMENT if name in row}
    if "page" not in row and "version" in row:
        shown["productVersion"] = row["version"]
    return {"action": row["action"], "at": at, "delta": 0, "onHandDelta": 0} | shown


_MOVEMENT = (
    *("delta", "onHandDelta", "quantity", "isLost", "orderId", "stepId"),
    *("actor", "reference", "reason", "productCreatedAt"),
)


def shown_stock(levels: Sequence[StockLevel], locations: Collection[str]) -> direct.Answer:
    """Show operators a product's stock at all its locations, beginning with the default location.

    Args:
        levels: The stock at each location.
        locations: The setting `locations`.
    """
    shown, own = [shown_level(level, locations) for level in levels], levels[0].product
    if len(shown) == 1:
        return shown[0]
    names = {"productId": product_of(own.product_id), "name": own.name, "price": own.price}
    totals = {name: sum(level[name] for level in shown) for name in _UNITS}
    lanes: Counter[str] = sum((Counter(level["inLanes"]) for level in shown), Counter())
    names["asOf"] = min((level.as_of for level in levels if level.as_of), default=None)
    return {
        **drop_none(names),
        **totals,
        "inLanes": lanes,
        "isExact": all(level.is_exact for level in levels),
        "places": shown,
    }


_UNITS = ("onHand", "committed", "available", "leftToSell", "leftByDefault")


def shown_level(level: StockLevel, locations: Collection[str]) -> direct.Answer:
    """Show operators a product's stock at one location. `locations` is the setting."""
    product, left = level.product, level.left_to_sell
    return {
        **direct.of_product(replace(product, places=frozenset())),
        "onHand": level.on_hand,
        "committed": level.committed,
        "available": level.available,
        "leftToSell": left,
        "leftByDefault": left if location_of(product.product_id) in locations else 0,
        "inLanes": {
            "all" if lane == ALL_LANES else str(lane): units
            for lane, units in level.in_lanes.items()
        },
        "isExact": level.is_exact,
        **drop_none({"changedBy": product.changed_by, "changedAt": product.changed_at}),
        **({"asOf": level.as_of} if level.as_of else {}),
        "lowStockThreshold": product.low_stock_threshold,
        "backorderLimit": product.backorder_limit,
    }


def shown_product(levels: Sequence[StockLevel]) -> direct.Answer:
    """Show customers what an order without `locations` can buy of a product, and where an order that names a location can.

    Args:
        levels: The product's stock levels, beginning with its own row.
    """
    own, process = levels[0].product, runtime.process()
    here = [level for level in levels if _location_of(level) in process.locations]
    elsewhere = {
        _location_of(level): shown
        for level in levels
        if _location_of(level) not in process.locations
        and (shown := availability(level.product)) in _ON_SALE
    }
    # A line takes all its units from one location.
    units = max((level.left_to_sell for level in here), default=0)
    best = min((availability(level.product) for level in here), key=_BEST.index, default="OUT")
    return drop_none(
        {
            "productId": own.product_id,
            "availability": best,
            "elsewhere": elsewhere or None,
            "name": own.name,
            "price": own.price,
            "barcodes": shown_barcodes(own.barcodes),
            "purchaseLimit": direct.of_product(own).get("purchaseLimit"),
            "units": units if process.shows_numbers else None,
        }
    )


def _location_of(level: StockLevel) -> str:
    return location_of(level.product.product_id)


_ON_SALE = ("IN_STOCK", "LOW", "BACKORDER")
_BEST = (*_ON_SALE, "OUT", "DISCONTINUED")


def availability(product: Product) -> str:
    """The availability shown to customers. Lanes need not be read: while they have units, the product is `ACTIVE`."""
    if product.status is ProductStatus.DISCONTINUED:
        return "DISCONTINUED"
    if product.sellable <= 0:
        return "OUT"
    if product.stock_count <= 0:
        return "BACKORDER"
    return "LOW" if product.status is ProductStatus.LOW_STOCK else "IN_STOCK"
