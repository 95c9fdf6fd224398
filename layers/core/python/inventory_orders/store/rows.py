"""The layout of the tables' rows: from domain objects to rows and items, and back.

A row is a dict of plain Python values by attribute name. An item is the same in the types of DynamoDB's low-level API:
`{"S": ...}`, `{"N": ...}`, and so on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, assert_never

from inventory_orders.domain.allotments import LaneLease, Page, PageEntry, PageKey, StockPart
from inventory_orders.domain.order_record import (
    ConfirmationRejection,
    OrderKey,
    OrderLine,
    OrderRecord,
    OrderStatus,
    Step,
)
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.record import (
    NOTES,
    NOTES_OF_ADJUSTMENT,
    AdjustmentKey,
    AdjustmentRecord,
    Record,
    RecordKey,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage
from inventory_orders.errors import CorruptItemError

Row = dict[str, Any]
Item = Mapping[str, Any]


class Table(StrEnum):
    """The tables of the service."""

    PRODUCTS = "Products"
    ORDERS = "Orders"
    STOCK_ADJUSTMENTS = "StockAdjustments"
    ALLOTMENTS = "Allotments"


KEYS = {
    Table.PRODUCTS: ("productId",),
    Table.ORDERS: ("orderId",),
    Table.STOCK_ADJUSTMENTS: ("productId", "adjustmentId"),
    Table.ALLOTMENTS: ("page",),
}
"""Names of the key attributes of each table, the partition key first."""

LOCK = ("lockedBy", "lockTime", "lockVersion")
"""Attributes of a lease."""

_TEXTS = {
    "priceChangedAt": "price_changed_at",
    "detailsEventTime": "details_event_time",
    "detailsEventId": "details_event_id",
    "lockedBy": "locked_by",
}
_OPTIONAL = {"name": "name", "price": "price", "lockVersion": "lock_version", **_TEXTS}
_OWN_OF_PRODUCT = {
    *("productId", "stockCount", "_version", "createdAt", "status", "backorderLimit"),
    *("lowStockThreshold", "lastUpdatedAt", "lentTo", *LOCK),
    *_OPTIONAL,
}
_OWN_OF_LINE = {
    *("productId", "quantity", "productCreatedAt", "productVersion", "lanePage", "laneVersion"),
}

_OWN_OF_STEP = {*("action", "at", "stepId", "items", "restock"), *NOTES}

_ZERO = {"N": "0"}

EXPIRY_SHARDS = 32
"""Parts of the index of holds: holds that end together are written to as many partitions."""

FULFIL_SHARDS = 16
"""Parts of the index of orders to ship."""

Key = str | RecordKey | PageKey
"""Names a product (by its id), a record or a page."""


def key_of(key: Key | int) -> tuple[Table, tuple[str, ...]]:
    """The table of what a key names, or of the lease of a lane (by its number), and the values of its key attributes."""
    match key:
        case int():
            return Table.ALLOTMENTS, (f"{key}/lease",)
        case PageKey():
            return Table.ALLOTMENTS, (str(key),)
        case OrderKey(order_id):
            return Table.ORDERS, (order_id,)
        case AdjustmentKey(product_id, adjustment_id):
            return Table.STOCK_ADJUSTMENTS, (product_id, adjustment_id)
        case str():
            return Table.PRODUCTS, (key,)
        case unknown:
            assert_never(unknown)


def key_item(key: Key | int) -> dict[str, Any]:
    """The primary key of a product, a record, a page or a lane's lease, as DynamoDB takes it."""
    table, values = key_of(key)
    return {name: {"S": value} for name, value in zip(KEYS[table], values, strict=True)}


# ---------------------------------------------------------------------- products


def product_row(product: Product) -> Row:
    """A product as it is stored."""
    lock_time = product.lock_time
    return _without_none(
        dict(product.other)
        | {
            "productId": product.product_id,
            "stockCount": product.stock_count,
            "backorderLimit": product.backorder_limit,
            "lowStockThreshold": product.low_stock_threshold,
            "_version": product.version,
            "status": product.status,
            "createdAt": product.created_at,
            "lastUpdatedAt": product.last_updated_at,
            "lockTime": None if lock_time is None else Decimal(f"{lock_time:.6f}"),
            "lentTo": product.lent_to or None,
        }
        | {name: getattr(product, attribute) for name, attribute in _OPTIONAL.items()}
    )


def read_product(item: Item) -> Product:
    """A product from its item.

    Raises:
        CorruptItemError: It breaks the table's contract.
    """
    try:
        return Product(
            product_id=item["productId"]["S"],
            stock_count=int(item["stockCount"]["N"]),
            version=int(item["_version"]["N"]),
            created_at=item["createdAt"]["S"],
            status=ProductStatus(item["status"]["S"]),
            backorder_limit=int(item.get("backorderLimit", _ZERO)["N"]),
            low_stock_threshold=int(item.get("lowStockThreshold", _ZERO)["N"]),
            last_updated_at=_plain(item.get("lastUpdatedAt")) or "",
            lock_time=float(item["lockTime"]["N"]) if "lockTime" in item else None,
            lent_to=frozenset(map(int, item["lentTo"]["SS"] if "lentTo" in item else ())),
            **{
                attribute: item[name]["S"] if name in _TEXTS else _plain(item[name])
                for name, attribute in _OPTIONAL.items()
                if name in item
            },
            other={
                name: _plain(value) for name, value in item.items() if name not in _OWN_OF_PRODUCT
            },
            size=_size(item),
        )
    except (KeyError, ValueError, TypeError) as error:
        product_id = item.get("productId", {}).get("S", "?")
        raise CorruptItemError(
            f"product {product_id} breaks the contract of the Products table "
            f"({type(error).__name__}: {error}); repair the item",
            "CORRUPT_PRODUCT",
        ) from error


# ---------------------------------------------------------------------- pages


def page_units(page: Page) -> bytes:
    """The entries of a page and the products that it was emptied of, compressed."""
    entries: list[list[object]] = [
        [product_id, entry.created_at, entry.units, entry.reach]
        for product_id, entry in sorted(page.entries.items())
    ]
    entries += [[product_id] for product_id in sorted(page.emptied)]
    return zlib.compress(json.dumps(entries, separators=(",", ":")).encode())


def read_page(item: Item) -> Page:
    """A page from its item.

    Raises:
        CorruptItemError: It breaks the table's contract.
    """
    try:
        name = item["page"]["S"]
        lane, number = name.split("/")
        entries: dict[str, PageEntry] = {}
        emptied: set[str] = set()
        for entry in json.loads(zlib.decompress(bytes(item["units"]["B"]))):
            match entry:
                case [str(product_id)]:
                    emptied.add(product_id)
                case _:
                    entries.update([_read_entry(*entry)])
        return Page(
            PageKey(int(lane), int(number)),
            version=int(item["_version"]["N"]),
            epoch=item["epoch"]["S"],
            entries=entries,
            last_updated_at=_plain(item.get("lastUpdatedAt")) or "",
            size=_size(item),
            emptied=frozenset(emptied),
        )
    except (KeyError, ValueError, TypeError, zlib.error) as error:
        name = item.get("page", {}).get("S", "?")
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
    raise ValueError(f"{units!r} units of {product_id!r} of {created_at!r}, for {reach!r} lanes")


def read_lease(item: Item) -> LaneLease:
    """A lane's lease from its item. One that cannot be read is over."""
    lane = int(item["page"]["S"].split("/")[0])
    try:
        return LaneLease(
            lane,
            item["lockedBy"]["S"],
            float(item["lockTime"]["N"]),
            float(item.get("lockWait", _ZERO)["N"]),
        )
    except (KeyError, ValueError, TypeError):
        return LaneLease(lane, "", 0.0)


# ---------------------------------------------------------------------- what was published


def stock_part_key(number: int) -> dict[str, Any]:
    """The primary key of a part of what was published of products' stock."""
    return {"page": {"S": f"stock/{number}"}}


def stock_part_row(part: StockPart) -> Row:
    """A part as it is stored, but for its key."""
    return {
        "levels": zlib.compress(json.dumps([part.levels, part.pending]).encode()),
        "at": part.at,
        "_version": part.version,
    }


def read_stock_part(item: Item) -> StockPart:
    """A part from its item.

    Raises:
        CorruptItemError: It breaks the table's contract.
    """
    try:
        levels, pending = json.loads(zlib.decompress(bytes(item["levels"]["B"])))
        return StockPart(
            int(item["page"]["S"].split("/")[1]),
            version=int(item["_version"]["N"]),
            at=item["at"]["S"],
            levels={product_id: tuple(level) for product_id, level in levels.items()},
            pending=pending,
        )
    except (KeyError, ValueError, TypeError, AttributeError, zlib.error) as error:
        raise CorruptItemError(
            f"{item['page']['S']} of the Allotments table cannot be read ({type(error).__name__}: {error}); delete "
            "the item: the stock of its products is then published again",
            "CORRUPT_PAGE",
        ) from error


# ---------------------------------------------------------------------- records


def record_row(record: Record) -> Row:
    """A record as it is stored."""
    if isinstance(record, OrderRecord):
        rejected = record.confirmation_rejected
        return _without_none(
            {
                "orderId": record.order_id,
                "userId": record.user_id,
                "items": [_line_row(line) for line in record.lines],
                "status": record.status,
                "reason": record.reason,
                "shortages": shortage_rows(record.shortages) or None,
                "createdAt": record.created_at,
                "lastUpdatedAt": record.last_updated_at,
                "_version": record.version,
                "holdSeconds": record.hold_seconds,
                "expiresAt": record.expires_at,
                "expiryShard": None
                if record.expires_at is None
                else _shard(record.order_id, EXPIRY_SHARDS),
                "confirmedAt": record.confirmed_at,
                "fulfilShard": _shard(record.order_id, FULFIL_SHARDS)
                if record.status == OrderStatus.CONFIRMED
                else None,
                "fulfilledAt": record.fulfilled_at,
                "steps": [_step_row(step) for step in record.steps] or None,
                "confirmationRejected": None
                if rejected is None
                else {"at": rejected.at, "reason": rejected.reason},
                "attributes": dict(record.attributes) or None,
                "pseudonymisedAt": record.pseudonymised_at,
            }
        )
    refused = record.rejection
    return _without_none(
        dict(record.notes)
        | {
            "productId": record.product_id,
            "adjustmentId": record.adjustment_id,
            # A rejection moves nothing, so the sum over all rows is right.
            "delta": record.delta if refused is None else 0,
            "reason": record.reason,
            "productCreatedAt": record.product_created_at or None,
            "productVersion": record.product_version,
            "appliedAt": record.applied_at,
            "counted": record.counted,
            "rejected": None
            if refused is None
            else {"delta": record.delta, "reason": refused.reason},
            "shortages": shortage_rows(refused.shortages if refused is not None else ()) or None,
        }
    )


def shortage_rows(shortages: Iterable[Shortage]) -> list[Row]:
    """What is missing, as it is stored and answered."""
    return [
        {"productId": each.product_id, "wanted": each.wanted, "available": each.available}
        for each in shortages
    ]


def read_record(item: Item) -> Record:
    """A record from its item. Only what identifies it has to be there: its reader judges the rest.

    Raises:
        CorruptItemError: It breaks its table's contract.
    """
    row = decode(item)
    try:
        return read_order(row) if "orderId" in row else _read_adjustment(row)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptItemError(
            f"the stored record breaks its table's contract ({type(error).__name__}: {error}); repair the item"
        ) from error


def read_order(row: Row) -> OrderRecord:
    """An order from its row."""
    return OrderRecord(
        order_id=row["orderId"],
        user_id=row.get("userId"),
        lines=tuple(_read_line(line) for line in row["items"]),
        status=row.get("status", ""),
        version=row.get("_version", 0),
        created_at=row.get("createdAt", ""),
        last_updated_at=row.get("lastUpdatedAt", ""),
        reason=row.get("reason"),
        shortages=_read_shortages(row),
        hold_seconds=row.get("holdSeconds"),
        expires_at=row.get("expiresAt"),
        confirmed_at=row.get("confirmedAt"),
        fulfilled_at=row.get("fulfilledAt"),
        steps=tuple(_read_step(step) for step in row.get("steps", ())),
        confirmation_rejected=ConfirmationRejection(refused["at"], refused["reason"])
        if (refused := row.get("confirmationRejected")) is not None
        else None,
        attributes=_mapping(row.get("attributes")),
        pseudonymised_at=row.get("pseudonymisedAt"),
    )


def _read_adjustment(row: Row) -> AdjustmentRecord:
    asked, rejection = row, None
    if "rejected" in row:
        asked = row["rejected"]
        reason = RejectionReason(asked["reason"])
        rejection = Rejection(reason, row["productId"], _read_shortages(row))
    return AdjustmentRecord(
        product_id=row["productId"],
        adjustment_id=row["adjustmentId"],
        delta=asked["delta"],
        reason=row["reason"],
        product_created_at=row.get("productCreatedAt", ""),
        product_version=row.get("productVersion"),
        applied_at=row.get("appliedAt", ""),
        counted=row.get("counted"),
        notes={name: row[name] for name in NOTES_OF_ADJUSTMENT if name in row},
        rejection=rejection,
    )


def _read_shortages(row: Row) -> tuple[Shortage, ...]:
    return tuple(
        Shortage(each["productId"], each["wanted"], each["available"])
        for each in row.get("shortages", ())
    )


def shard_name(number: int) -> str:
    """The name of a part of an index."""
    return f"{number:02d}"


def _shard(order_id: str, shards: int) -> str:
    return shard_name(zlib.crc32(order_id.encode()) % shards)


def _mapping(value: Any) -> Mapping[str, Any]:
    """A map, or nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no map")
    return value


def _line_row(line: OrderLine) -> Row:
    return _without_none(
        dict(line.other)
        | {
            "productId": line.product_id,
            "quantity": line.quantity,
            "productCreatedAt": line.product_created_at,
            "productVersion": line.product_version,
            "lanePage": line.lane_page,
            "laneVersion": line.lane_version,
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
        other={name: value for name, value in line.items() if name not in _OWN_OF_LINE},
    )


def _step_row(step: Step) -> Row:
    items = [
        _without_none(
            {
                "productId": product_id,
                "quantity": quantity,
                "returnedVersion": step.returned_versions.get(product_id),
            }
        )
        for product_id, quantity in (step.quantities or {}).items()
    ]
    return _without_none(
        {**step.other, **step.notes}
        | {
            "action": step.action,
            "at": step.at,
            "stepId": step.step_id,
            "items": None if step.quantities is None else items,
            "restock": step.restock,
        }
    )


def _read_step(row: Row) -> Step:
    items = row.get("items")
    for item in items or ():
        if not isinstance(item["quantity"], int):
            raise TypeError(f"a step moves {item['quantity']!r} units")
    return Step(
        action=_text(row, "action"),
        at=_text(row, "at"),
        step_id=row.get("stepId"),
        quantities=None if items is None else {_text(i, "productId"): i["quantity"] for i in items},
        returned_versions={
            item["productId"]: item["returnedVersion"]
            for item in items or ()
            if "returnedVersion" in item
        },
        restock=row.get("restock"),
        notes={name: _text(row, name) for name in NOTES if name in row},
        other={name: value for name, value in row.items() if name not in _OWN_OF_STEP},
    )


# ---------------------------------------------------------------------- values


def decode(item: Item) -> Row:
    """An item as a row; numbers are int where they are whole, else Decimal."""
    return {name: _plain(value) for name, value in item.items()}


def encode(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as an item."""
    return {name: _typed(value) for name, value in row.items()}


def _without_none(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


_TOO_LARGE = Decimal("1E+126")
"""docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html"""


def _plain(value: Mapping[str, Any] | None) -> Any:
    if value is None:
        return None
    kind, content = next(iter(value.items()))
    match kind:
        case "N":
            number = Decimal(content)
            # DynamoDB stores none that is larger, and converting a larger one to an int can take minutes.
            if not -_TOO_LARGE < number < _TOO_LARGE:
                raise ValueError("the number is too large")
            return int(number) if number == number.to_integral_value() else number
        case "L":
            return [_plain(element) for element in content]
        case "M":
            return {name: _plain(element) for name, element in content.items()}
        case "NULL":
            return None
        case _:
            return content


def _typed(value: Any) -> dict[str, Any]:
    match value:
        case str():
            return {"S": str(value)}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": str(value)}
        case list():
            return {"L": [_typed(element) for element in value]}
        case dict():
            return {"M": {name: _typed(element) for name, element in value.items()}}
        case frozenset():
            return {"SS": sorted(map(str, value))}
        case bytes():
            return {"B": value}
        case _:
            raise TypeError(f"cannot store a {type(value).__name__}")


def _size(value: Any) -> int:
    """Upper bound of an item's size: DynamoDB counts names and values in UTF-8, plus 1 to 3 bytes a container."""
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        case bytes():
            return len(value)
        case dict():
            return 3 + sum(_size(name) + _size(content) for name, content in value.items())
        case list():
            return 3 + sum(_size(content) for content in value)
        case _:
            return 1
