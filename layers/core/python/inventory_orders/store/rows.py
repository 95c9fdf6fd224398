"""Converts objects of the domain into rows of plain values and DynamoDB items, and back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from decimal import Decimal
from operator import attrgetter
from typing import Any

from inventory_orders.domain.adjustment import STEPS_OF_TRANSFERS
from inventory_orders.domain.allotments import NO_NEEDS, LaneLease, Needs, Page, PageEntry, PageKey
from inventory_orders.domain.barcode import BarcodeKey, code_and_units, key_of_barcode
from inventory_orders.domain.location import (
    DEFAULT_LOCATION,
    DEFAULT_NAME,
    in_words,
    key_in,
    location_of,
    product_of,
    public_key,
)
from inventory_orders.domain.outbound import Generation, OutboundKey, OutboundPage
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.purchases import BuyerKey, Purchases
from inventory_orders.domain.record import (
    MAX_DETAILS,
    NOTES,
    NOTES_OF_ADJUSTMENT,
    SCANNED,
    AdjustmentKey,
    AdjustmentRecord,
    Asked,
    ConfirmationRejection,
    OrderKey,
    OrderLine,
    OrderRecord,
    Record,
    RecordKey,
    RejectedAmend,
    Step,
)
from inventory_orders.domain.rejection import ExceededLimit, Rejection, RejectionReason, Shortage
from inventory_orders.domain.words import WordKey
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.tables import (
    EXPIRY_SHARDS,
    KEYS,
    LATE_PAYMENT_SHARDS,
    OTHER_STATUS_SHARDS,
    SHARDS,
    STATUS_SHARDS,
    TRANSFER_SHARDS,
    Table,
)

Row = dict[str, Any]
"""Plain values by attribute name."""

Item = Mapping[str, Any]
"""The same values with their types: `{"S": ...}`, `{"N": ...}`, and so on."""

_ZERO: Item = {"N": "0"}
_NO_TEXTS: Item = {"SS": ()}

LOCK = ("lockedBy", "lockTime", "lockVersion", "lockOnHand")
"""Attributes of a lease."""

_TEXTS = {
    "priceChangedAt": "price_changed_at",
    "detailsEventTime": "details_event_time",
    "detailsEventId": "details_event_id",
    "limitGroup": "limit_group",
    "lockedBy": "locked_by",
    "changedBy": "changed_by",
    "changedAt": "changed_at",
}
_OPTIONAL = {
    "name": "name",
    "price": "price",
    "lockVersion": "lock_version",
    "lockOnHand": "lock_on_hand",
    **_TEXTS,
}
_OWN_OF_PRODUCT = {
    *("productId", "stockCount", "onHand", "_version", "createdAt", "status", "backorderLimit"),
    *(
        "lowStockThreshold",
        "safetyStock",
        "purchaseLimit",
        "lastUpdatedAt",
        "lentTo",
        "places",
        "barcodes",
        "countPlace",
        "countedAt",
        "of",
        "locationId",
        *LOCK,
    ),
    *_OPTIONAL,
}

_OWN_OF_LINE = {
    *("productId", "quantity", "productCreatedAt", "productVersion", "lanePage", "laneVersion"),
    *("locationId", "askedLocationId", "limitGroup", "backordered"),
}

_OWN_OF_STEP = {
    *("action", "at", "stepId", "items", "restock", "outPage", "outVersion", "added", "ifVersion"),
    *NOTES,
}

Key = str | RecordKey | PageKey | OutboundKey | BuyerKey
"""A product's id, or the key of a record, a page or a buyer's purchases."""

ListingKey = WordKey | BarcodeKey
"""The key of a row that lists a product under a word, or under the code on it."""

Found = (
    Product | Record | Page | OutboundPage | Purchases | LaneLease | Row | CorruptItemError | None
)
"""An item as stored; None if it does not exist, or the error if it breaks its table's contract."""


_KEYS: Mapping[type, tuple[Table, Callable[[Any], tuple[str, ...]]]] = {
    str: (Table.PRODUCTS, lambda product_id: (product_id,)),
    OrderKey: (Table.ORDERS, lambda key: (key.order_id,)),
    AdjustmentKey: (Table.STOCK_ADJUSTMENTS, attrgetter("product_id", "adjustment_id")),
    PageKey: (Table.ALLOTMENTS, lambda key: (str(key),)),
    OutboundKey: (Table.ALLOTMENTS, lambda key: (str(key),)),
    int: (Table.ALLOTMENTS, lambda lane: (f"{lane}/lease",)),
    WordKey: (Table.WORDS, lambda key: (key.word[:2], "#".join(key))),
    BarcodeKey: (Table.BARCODES, tuple),
    BuyerKey: (Table.PURCHASES, tuple),
}
"""By the type of a key: its table, and the function that returns the values of its key attributes."""


def key_of(key: Key | ListingKey | int) -> tuple[Table, tuple[str, ...]]:
    """The table of a key, and the values of its key attributes. The number of a lane stands for the lane's lease."""
    table, values = _KEYS[type(key)]
    return table, values(key)


def described(key: Key | ListingKey | int) -> str:
    """Write a key for people."""
    match key:
        case str():
            return f"product {in_words(key)}"
        case int():
            return f"the lease of lane {key}"
        case PageKey() | OutboundKey():
            return f"page {key}"
        case _:
            return str(key)


def key_item(key: Key | ListingKey | int) -> dict[str, Any]:
    """The primary key of a product, record, page, lane's lease, word, barcode or buyer, in DynamoDB's format."""
    table, values = key_of(key)
    return {name: {"S": value} for name, value in zip(KEYS[table], values, strict=True)}


# ---------------------------------------------------------------------- products


def product_row(product: Product) -> Row:
    """Convert a product into its row."""
    lock_time, location = product.lock_time, location_of(product.product_id)
    not_empty = {
        "safetyStock": product.safety_stock,
        "purchaseLimit": product.purchase_limit,
        "lentTo": product.lent_to,
        "places": product.places,
        "barcodes": product.barcodes,
        "countedAt": product.counted_at,
        "locationId": location,
    }
    return drop_none(
        dict(product.other)
        | {
            "productId": product.product_id,
            "stockCount": product.stock_count,
            "onHand": product.on_hand,
            "backorderLimit": product.backorder_limit,
            "lowStockThreshold": product.low_stock_threshold,
            "_version": product.version,
            "status": product.status,
            "createdAt": product.created_at,
            "lastUpdatedAt": product.last_updated_at,
            "lockTime": None if lock_time is None else Decimal(f"{lock_time:.6f}"),
            "countPlace": location or DEFAULT_NAME,
            "of": product_of(product.product_id) if location else None,
        }
        | {name: value for name, value in not_empty.items() if value}
        | {name: getattr(product, attribute) for name, attribute in _OPTIONAL.items()}
    )


def read_product(item: Item) -> Product:
    """Convert an item into a product.

    Raises:
        CorruptItemError: The item breaks the table's contract.
    """
    try:
        return Product(
            product_id=item["productId"]["S"],
            stock_count=int(item["stockCount"]["N"]),
            on_hand=int(item["onHand"]["N"]),
            version=int(item["_version"]["N"]),
            created_at=item["createdAt"]["S"],
            status=ProductStatus(item["status"]["S"]),
            backorder_limit=int(item.get("backorderLimit", _ZERO)["N"]),
            low_stock_threshold=int(item.get("lowStockThreshold", _ZERO)["N"]),
            safety_stock=int(item.get("safetyStock", _ZERO)["N"]),
            purchase_limit=int(item.get("purchaseLimit", _ZERO)["N"]),
            last_updated_at=plain_value(item.get("lastUpdatedAt")) or "",
            counted_at=item.get("countedAt", item["createdAt"])["S"],
            lock_time=float(item["lockTime"]["N"]) if "lockTime" in item else None,
            lent_to=frozenset(map(int, item.get("lentTo", _NO_TEXTS)["SS"])),
            places=frozenset(item.get("places", _NO_TEXTS)["SS"]),
            barcodes=frozenset(item.get("barcodes", _NO_TEXTS)["SS"]),
            **{
                attribute: item[name]["S"] if name in _TEXTS else plain_value(item[name])
                for name, attribute in _OPTIONAL.items()
                if name in item
            },
            other={
                name: plain_value(value)
                for name, value in item.items()
                if name not in _OWN_OF_PRODUCT
            },
            size=size_of(item),
        )
    except (KeyError, ValueError, TypeError) as error:
        product_id = item.get("productId", {}).get("S", "?")
        raise CorruptItemError(
            f"product {in_words(product_id)} breaks the contract of the Products table "
            f"({type(error).__name__}: {error}); repair the item",
            "CORRUPT_PRODUCT",
        ) from error


def word_row(word: str, product_id: str, words: frozenset[str]) -> Row:
    """Build the row that lists a product under one of its words. It contains all of them, so that a search reads no others."""
    return decode(key_item(WordKey(word, product_id))) | {"words": words}


def barcode_row(barcode: str, product: Product) -> Row:
    """Build the row that says which generation of a product a barcode belongs to."""
    return {
        "code": key_of_barcode(barcode).code,
        "productId": product.product_id,
        "productCreatedAt": product.created_at,
        "units": code_and_units(barcode)[1],
    }


# ---------------------------------------------------------------------- pages and leases of lanes


def page_units(page: Page | OutboundPage) -> bytes:
    """Compress the entries of a page. A lane's page also lists the products of which it has no units left."""
    entries: list[list[object]]
    if isinstance(page, OutboundPage):
        entries = [[*generation, units] for generation, units in page.units.items()]
    else:
        entries = [
            [product_id, entry.created_at, entry.units, entry.reach]
            for product_id, entry in sorted(page.entries.items())
        ] + [[product_id] for product_id in sorted(page.emptied)]
    return zlib.compress(json.dumps(entries, separators=(",", ":")).encode())


def read_page(item: Item) -> Page:
    """Convert an item into the page of a lane.

    Raises:
        CorruptItemError: The item breaks the table's contract.
    """
    with _parts_of_page(item) as (name, stored, common):
        lane, number = name.split("/")
        entries: dict[str, PageEntry] = {}
        emptied: set[str] = set()
        for entry in stored:
            match entry:
                case [str(product_id)]:
                    emptied.add(product_id)
                case _:
                    entries.update([_read_entry(*entry)])
        return Page(
            PageKey(int(lane), int(number)), entries=entries, emptied=frozenset(emptied), **common
        )


def read_outbound_page(item: Item) -> OutboundPage:
    """Convert an item into an outbound page.

    Raises:
        CorruptItemError: The item breaks the table's contract.
    """
    with _parts_of_page(item) as (name, stored, common):
        # Entries are checked like those of a lane's page.
        entries = (_read_entry(key, created_at, n, 0) for key, created_at, n in stored)
        units = {Generation(key, held.created_at): held.units for key, held in entries}
        return OutboundPage(OutboundKey(int(name.split("/")[1])), units=units, **common)


@contextmanager
def _parts_of_page(item: Item) -> Iterator[tuple[str, Iterable[Any], dict[str, Any]]]:
    """Yield the name of a page, its entries, and what all pages have in common. Errors mean that the item is corrupt."""
    name = item.get("page", {}).get("S", "?")
    try:
        common = {
            "version": int(item["_version"]["N"]),
            "epoch": item["epoch"]["S"],
            "last_updated_at": plain_value(item.get("lastUpdatedAt")) or "",
            "size": size_of(item),
        }
        yield name, json.loads(zlib.decompress(bytes(item["units"]["B"]))), common
    except (KeyError, ValueError, TypeError, IndexError, zlib.error) as error:
        raise CorruptItemError(
            f"page {name} breaks the contract of the Allotments table ({type(error).__name__}: {error}); "
            "repair the item",
            "CORRUPT_PAGE",
        ) from error


def _read_entry(
    product_id: object, created_at: object, units: object, reach: object
) -> tuple[str, PageEntry]:
    if (
        isinstance(product_id, str)
        and isinstance(created_at, str)
        and isinstance(units, int)
        and isinstance(reach, int)
        and units > 0
    ):
        return product_id, PageEntry(created_at, units, reach)
    raise ValueError(
        f"the entry for {in_words(str(product_id))} is malformed: it needs an id and a creation time as strings, "
        "a positive whole number of units, and a whole number for its reach"
    )


def read_lease(item: Item) -> LaneLease:
    """Convert an item into the lease of a lane. An unreadable lease counts as expired, unreadable needs as none."""
    lane = int(item["page"]["S"].split("/")[0])
    try:
        return LaneLease(
            lane,
            item["lockedBy"]["S"],
            float(item["lockTime"]["N"]),
            float(item.get("lockWait", _ZERO)["N"]),
            _read_needs(item),
        )
    except (KeyError, ValueError, TypeError):
        return LaneLease(lane, "", 0.0)


def _read_needs(item: Item) -> Needs:
    """The needs in the row of a lease. Every visitor of the depot uses them, so none may come to grief over them."""
    with suppress(KeyError, ValueError, TypeError, AttributeError):
        needs = Needs(**plain_value(item["needs"]))
        numbers = (needs.orders, needs.version + 1, needs.until, *needs.units.values())
        if all(needs.units) and all(isinstance(n, int) and n > 0 for n in numbers):
            return needs
    return NO_NEEDS


def read_purchases(item: Item) -> Purchases:
    """Convert an item into a buyer's purchases.

    Raises:
        CorruptItemError: The item breaks the table's contract.
    """
    row = decode(item)
    key = BuyerKey(row["buyer"])
    try:
        units = {group: int(n["N"]) for group, n in item["units"]["M"].items()}
        return Purchases(key, int(item["_version"]["N"]), _text(row, "epoch"), units, size_of(item))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorruptItemError(
            f"{key} break the contract of the Purchases table ({type(error).__name__}: {error}); repair the item",
            "CORRUPT_PURCHASES",
        ) from error


# ---------------------------------------------------------------------- records


def order_row(order: OrderRecord) -> Row:
    """Convert an order into its row."""
    late_payment = order.confirmation_rejected
    supplied_from = {line.location_id for line in order.lines}
    row = {
        "orderId": order.order_id,
        "userId": order.user_id,
        "items": [*map(_line_row, order.lines)],
        "status": order.status,
        "statusAt": order.status_at,
        "reason": order.reason,
        "createdAt": order.created_at,
        "lastUpdatedAt": order.last_updated_at,
        "_version": order.version,
        "changedVersion": order.changed_version,
        "holdSeconds": order.hold_seconds,
        "expiresAt": order.expires_at,
        "expiryShard": None
        if order.expires_at is None
        else shard_of(order.order_id, EXPIRY_SHARDS),
        "confirmedAt": order.confirmed_at,
        "fulfilledAt": order.fulfilled_at,
        "confirmationRejected": None
        if late_payment is None
        else drop_none(
            {
                "at": late_payment.at,
                "reason": late_payment.reason,
                "ifVersion": late_payment.if_version,
            }
        ),
        "asked": None
        if (asked := order.asked) is None
        else {"items": [*map(_line_row, asked.lines)], "attributes": dict(asked.attributes)},
        "locations": _list_of(order.locations),
        "buyers": _list_of(order.buyers),
        "pseudonymisedAt": order.pseudonymised_at,
        "requestId": order.request_id,
        "placedBy": order.placed_by,
    }
    # A tombstone is not an order yet, so no list contains it.
    if order.user_id is not None:
        shards = STATUS_SHARDS.get(str(order.status), OTHER_STATUS_SHARDS)
        row["statusShard"] = shard_of(order.order_id, shards, f"{order.status}#")
        if late_payment is not None:
            row["latePaymentAt"] = late_payment.at
            row["latePaymentShard"] = shard_of(order.order_id, LATE_PAYMENT_SHARDS)
    not_empty = {
        "shortages": [*map(shortage_row, order.shortages)],
        "limits": [*map(asdict, order.limits)],
        "steps": [*map(_step_row, order.steps)],
        "attributes": dict(order.attributes),
        "rejectedAmends": [*map(_rejected_row, order.rejected_amends)],
        "locationsAsked": [*order.locations_asked],
        "split": order.split,
        # Most orders come from the default location, so they do without this attribute.
        "suppliedFrom": sorted(supplied_from) if supplied_from != {DEFAULT_LOCATION} else [],
    }
    return drop_none(row) | {name: value for name, value in not_empty.items() if value}


def _list_of(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else [*names]


def adjustment_row(adjustment: AdjustmentRecord) -> Row:
    """Convert an adjustment into its row."""
    delta, rejection = adjustment.delta, adjustment.rejection
    row = {**adjustment.notes, **_keys_of_reference(adjustment)} | {
        "productId": adjustment.product_id,
        "adjustmentId": adjustment.adjustment_id,
        # A rejection moves no units, so the sum over all rows is right.
        "delta": delta if rejection is None else 0,
        "reason": adjustment.reason,
        "productCreatedAt": adjustment.product_created_at or None,
        "productVersion": adjustment.product_version,
        "appliedAt": adjustment.applied_at,
        "counted": adjustment.counted,
        "countedAt": adjustment.counted_at,
        "onHandDelta": adjustment.on_hand_delta,
        "transferWith": adjustment.transfer_with,
        "rejected": None if rejection is None else {"delta": delta, "reason": rejection.reason},
        "shortages": [*map(shortage_row, rejection.shortages if rejection else ())] or None,
    }
    return drop_none(row)


def _keys_of_reference(adjustment: AdjustmentRecord) -> Row:
    """The keys of an adjustment in the sparse indexes of stocktakes and of transfers in transit."""
    if adjustment.counted is not None:
        return {"stocktake": adjustment.notes.get("reference", "").casefold() or None}
    is_step = adjustment.reason in STEPS_OF_TRANSFERS and adjustment.transfer_with is None
    shard = shard_of(product_of(adjustment.product_id), TRANSFER_SHARDS)
    return {"transferShard": shard if is_step and "reference" in adjustment.notes else None}


def shortage_row(short: Shortage) -> Row:
    """Convert a shortage into the format that rows and answers have in common."""
    return {**public_key(short.product_id), "wanted": short.wanted, "available": short.available}


def read_record(item: Item) -> Record:
    """Convert an item into a record. Only the key and the lines are checked here; the rest is checked where it is used.

    Raises:
        CorruptItemError: The item breaks its table's contract.
    """
    row = decode(item)
    try:
        if "orderId" not in row:
            return _read_adjustment(row)
        return replace(read_order(row), size=size_of(row))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptItemError(
            f"the stored record breaks its table's contract ({type(error).__name__}: {error}); repair the item"
        ) from error


def read_order(row: Row) -> OrderRecord:
    """Convert a row into an order."""
    return OrderRecord(
        order_id=row["orderId"],
        user_id=row.get("userId"),
        lines=tuple(_read_line(line) for line in row["items"]),
        status=row.get("status", ""),
        version=row.get("_version", 0),
        created_at=row.get("createdAt", ""),
        last_updated_at=row.get("lastUpdatedAt", ""),
        status_at=row.get("statusAt"),
        reason=row.get("reason"),
        shortages=_read_shortages(row),
        limits=tuple(ExceededLimit(**each) for each in row.get("limits", ())),
        hold_seconds=row.get("holdSeconds"),
        expires_at=row.get("expiresAt"),
        confirmed_at=row.get("confirmedAt"),
        fulfilled_at=row.get("fulfilledAt"),
        steps=tuple(_read_step(step) for step in row.get("steps", ())),
        confirmation_rejected=ConfirmationRejection(
            refused["at"], refused["reason"], refused.get("ifVersion")
        )
        if (refused := row.get("confirmationRejected")) is not None
        else None,
        attributes={**({} if (given := row.get("attributes")) is None else given)},
        locations=None if "locations" not in row else tuple(row["locations"]),
        locations_asked=tuple(row.get("locationsAsked", ())),
        buyers=None if "buyers" not in row else tuple(row["buyers"]),
        split=row.get("split", False),
        pseudonymised_at=row.get("pseudonymisedAt"),
        request_id=row.get("requestId"),
        placed_by=row.get("placedBy"),
        asked=None
        if (asked := row.get("asked")) is None
        else Asked(tuple(map(_read_line, asked["items"])), asked["attributes"]),
        rejected_amends=tuple(map(_read_rejected, row.get("rejectedAmends", ()))),
        changed_version=row.get("changedVersion"),
    )


def _read_adjustment(row: Row) -> AdjustmentRecord:
    refused = row.get("rejected")
    rejection = (
        None
        if refused is None
        else Rejection(RejectionReason[refused["reason"]], row["productId"], _read_shortages(row))
    )
    return AdjustmentRecord(
        product_id=row["productId"],
        adjustment_id=row["adjustmentId"],
        delta=(row if refused is None else refused)["delta"],
        reason=row["reason"],
        product_created_at=row.get("productCreatedAt", ""),
        product_version=row.get("productVersion"),
        applied_at=row.get("appliedAt", ""),
        counted=row.get("counted"),
        counted_at=row.get("countedAt"),
        notes={name: row[name] for name in NOTES_OF_ADJUSTMENT if name in row},
        rejection=rejection,
        on_hand_delta=row.get("onHandDelta"),
        transfer_with=row.get("transferWith"),
    )


def _rejected_row(rejected: RejectedAmend) -> Row:
    rejection = rejected.rejection
    return drop_none(
        {
            "stepId": rejected.step_id,
            "at": rejected.at,
            "reason": rejection.reason,
            "subject": rejection.subject,
            # An order has room for some details only.
            "shortages": [*map(shortage_row, rejection.shortages[:MAX_DETAILS])] or None,
            "limits": [*map(asdict, rejection.limits[:MAX_DETAILS])] or None,
        }
    )


def _read_rejected(row: Row) -> RejectedAmend:
    rejection = Rejection(
        RejectionReason[row["reason"]],
        _text(row, "subject"),
        _read_shortages(row),
        limits=tuple(ExceededLimit(**each) for each in row.get("limits", ())),
    )
    return RejectedAmend(_text(row, "stepId"), _text(row, "at"), rejection)


def _read_shortages(row: Row) -> tuple[Shortage, ...]:
    return tuple(
        Shortage(key_in(each), each["wanted"], each["available"])
        for each in row.get("shortages", ())
    )


def shard_of(entry_id: str, shards: int, prefix: str = "") -> str:
    """The key of an order or a product in an index with this number of parts."""
    return prefix + SHARDS[zlib.crc32(entry_id.encode()) % shards]


def _line_row(line: OrderLine) -> Row:
    return drop_none(
        dict(line.other)
        | {
            "productId": line.product_id,
            "quantity": line.quantity,
            "productCreatedAt": line.product_created_at,
            "productVersion": line.product_version,
            "lanePage": line.lane_page,
            "laneVersion": line.lane_version,
            "locationId": line.location_id or None,
            "askedLocationId": line.asked_location,
            "limitGroup": line.limit_group,
            "backordered": line.backordered or None,
        }
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _read_line(line: Row) -> OrderLine:
    return OrderLine(
        product_id=_text(line, "productId"),
        quantity=line["quantity"],
        product_created_at=line.get("productCreatedAt"),
        product_version=line.get("productVersion"),
        lane_page=line.get("lanePage"),
        lane_version=line.get("laneVersion"),
        location_id=_text(line, "locationId") if "locationId" in line else DEFAULT_LOCATION,
        asked_location=line.get("askedLocationId"),
        limit_group=line.get("limitGroup"),
        backordered=line.get("backordered", 0),
        other={name: value for name, value in line.items() if name not in _OWN_OF_LINE},
    )


def _step_row(step: Step) -> Row:
    items = [
        drop_none(
            {
                "productId": product_id,
                "quantity": quantity,
                "returnedVersion": step.restocked_versions.get(product_id),
                "returnedPage": step.restocked_pages.get(product_id),
            }
        )
        for product_id, quantity in (step.quantities or {}).items()
    ]
    return drop_none(
        {**step.other, **step.notes}
        | {
            "action": step.action,
            "at": step.at,
            "stepId": step.step_id,
            "items": items or None,
            "restock": step.restock,
            "outPage": step.out_page,
            "outVersion": step.out_version,
            "added": [*map(_line_row, step.added)] or None,
            "ifVersion": step.if_version,
        }
    )


def _read_units(item: Row) -> tuple[str, int]:
    quantity = item["quantity"]
    if not isinstance(quantity, int):
        raise TypeError(f"a step moves {quantity!r} units, which is not a whole number")
    return _text(item, "productId"), quantity


def _of_items(items: Iterable[Row] | None, name: str) -> dict[str, Any]:
    return {item["productId"]: item[name] for item in items or () if name in item}


def _read_step(row: Row) -> Step:
    items = row.get("items")
    return Step(
        action=_text(row, "action"),
        at=_text(row, "at"),
        step_id=row.get("stepId"),
        quantities=None if items is None else dict(map(_read_units, items)),
        restocked_versions=_of_items(items, "returnedVersion"),
        restocked_pages=_of_items(items, "returnedPage"),
        restock=row.get("restock"),
        notes={
            name: row[name] if name == SCANNED else _text(row, name)
            for name in NOTES
            if name in row
        },
        out_page=row.get("outPage"),
        out_version=row.get("outVersion"),
        added=tuple(map(_read_line, row.get("added", ()))),
        if_version=row.get("ifVersion"),
        other={name: value for name, value in row.items() if name not in _OWN_OF_STEP},
    )


# ---------------------------------------------------------------------- values


def decode(item: Item) -> Row:
    """Convert an item into a row. Whole numbers become `int`, other numbers `Decimal`."""
    return {name: plain_value(value) for name, value in item.items()}


def encode(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row into an item."""
    return {name: _typed_value(value) for name, value in row.items()}


def drop_none(row: Row) -> Row:
    """Drop attributes without a value, because the tables never contain DynamoDB's NULL."""
    return {name: value for name, value in row.items() if value is not None}


_TOO_LARGE = Decimal("1E+126")
"""docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html"""


def _plain_number(digits: str) -> int | Decimal:
    number = Decimal(digits)
    # DynamoDB does not store larger numbers, and converting one to an int can take minutes.
    if number.copy_abs() >= _TOO_LARGE:
        raise ValueError("the number is too large")
    return int(number) if number == number.to_integral_value() else number


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "N": _plain_number,
    "L": lambda elements: [plain_value(element) for element in elements],
    "M": decode,
    "NULL": lambda _: None,
}
"""How to convert values, by their type. Values of other types stay as they are."""


def plain_value(value: Mapping[str, Any] | None) -> Any:
    """Convert the value of an attribute; None if the attribute is missing.

    Raises:
        ValueError: The number is too large for DynamoDB.
    """
    if value is None:
        return None
    ((kind, content),) = value.items()
    return _PLAIN[kind](content) if kind in _PLAIN else content


def _typed_value(value: Any) -> dict[str, Any]:
    match value:
        case str():
            return {"S": str(value)}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": str(value)}
        case list():
            return {"L": [_typed_value(element) for element in value]}
        case dict():
            return {"M": encode(value)}
        case frozenset():
            return {"SS": sorted(map(str, value))}
        case bytes():
            return {"B": value}
        case _:
            raise TypeError(f"cannot store a {type(value).__name__}")


def size_of(value: Any) -> int:
    """The bytes that DynamoDB counts for a row, with numbers rounded up. For an item with its types, an upper bound.

    docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        case bytes():
            return len(value)
        case dict():
            return 3 + sum(1 + size_of(name) + size_of(content) for name, content in value.items())
        case list():
            return 3 + sum(1 + size_of(content) for content in value)
        case bool():
            return 1
        case _:
            return 2 + len(str(value)) // 2


# ---------------------------------------------------------------------- any item

READERS: Mapping[type, Callable[[Item], Found]] = {
    str: read_product,
    OrderKey: read_record,
    AdjustmentKey: read_record,
    PageKey: read_page,
    OutboundKey: read_outbound_page,
    BarcodeKey: decode,
    BuyerKey: read_purchases,
    int: read_lease,
}
"""By the type of a key: the function that converts an item, and raises `CorruptItemError` if the item breaks its table's contract."""


def read_item(key: Key | ListingKey | int, item: Item | None) -> Any:
    """Convert the item under a key; None if there is no item, or the error if it breaks its table's contract."""
    try:
        return READERS[type(key)](item) if item else None
    except CorruptItemError as error:
        return error
