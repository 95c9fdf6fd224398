"""Products, their stock, and the status that follows from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.location import location_of, product_of, stock_key
from inventory_orders.domain.words import words_of
from inventory_orders.errors import InvalidMessageError

K = TypeVar("K")

_MOST_WORDS = 8
"""How many words of a product's name, and of its id, a search knows."""


class ProductStatus(StrEnum):
    """The status of a product, which depends on its stock unless it is discontinued."""

    ACTIVE = "ACTIVE"
    LOW_STOCK = "LOW_STOCK"
    OUT_OF_STOCK = "OUT_OF_STOCK"
    DISCONTINUED = "DISCONTINUED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTerms:
    """What people decide about a product, and may change.

    Attributes:
        backorder_limit: How far below zero the stock may go, in units.
        low_stock_threshold: The number of units at or below which the product counts as low in stock.
        safety_stock: Units that orders leave. With any, it has no backorders.
        limit_group: The products that share its purchase limit; by default, the product has a group of its own.
        name: For people; None if there is none.
        price: In minor units of the currency (cents, pence); None if there is none.
        barcodes: Its barcodes, as `barcode.written` returns them. Only the row at the default location lists them.
    """

    backorder_limit: int = 0
    low_stock_threshold: int = 0
    safety_stock: int = 0
    limit_group: str | None = None
    name: str | None = None
    price: int | None = None
    barcodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Product(ProductTerms):
    """A product at one location, as read or as it will be after an update.

    Attributes:
        product_id: The key of its row: its id, with the location if it is not the default one.
        stock_count: Units that orders can take, except those in lanes; negative when units are on backorder.
        on_hand: Units in the warehouse, sold or not, before those on outbound pages are subtracted.
        version: Rises by one with every successful change to the row.
        created_at: Identifies the generation: a product that is deleted and created again gets a new one.
        status: Follows from the stock, unless the product is discontinued.
        purchase_limit: How many units of its group each buyer may buy; 0 for no limit.
        price_changed_at: When the price was last set.
        details_event_time: Time of the newest catalogue event that was applied.
        details_event_id: Id of that event, as `sortable_id` returns it.
        last_updated_at: Time of the last change; empty if the row has none.
        changed_by: Who gave the last command that created or changed the product and named its sender; None if none did.
        changed_at: When that was.
        locked_by: Owner of the lease on it; None if there is none.
        lock_time: Unix time in seconds when the lease ends; None if there is none.
        lock_version: The version after the owner's last write; None if there is no lease.
        lock_on_hand: Units on hand when the owner began to count; None if it is not counting.
        lent_to: The lanes that may hold more units of it. While there are any, it is `ACTIVE`.
        places: Further locations at which it has rows. Only the row at the default location lists them.
        counted_at: As of which time its units were last counted; before the first count, when it was created.
        other: Attributes that the service does not know, kept unchanged.
        size: Bytes of the stored row, for the size limit of transactions.
    """

    product_id: str
    stock_count: int
    on_hand: int
    version: int
    created_at: str
    status: ProductStatus
    purchase_limit: int = 0
    price_changed_at: str | None = None
    details_event_time: str | None = None
    details_event_id: str | None = None
    last_updated_at: str = ""
    changed_by: str | None = None
    changed_at: str | None = None
    locked_by: str | None = None
    lock_time: float | None = None
    lock_version: int | None = None
    lock_on_hand: int | None = None
    lent_to: frozenset[int] = frozenset()
    places: frozenset[str] = frozenset()
    counted_at: str = ""
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)
    size: int = field(default=0, compare=False)

    @property
    def sellable(self) -> int:
        """Units that can still be sold, including backorders."""
        return self.stock_count + self.backorder_limit - self.safety_stock

    @property
    def removable(self) -> int:
        """Units that adjustments can still remove: orders leave some of them as safety stock."""
        return self.stock_count + self.backorder_limit

    @property
    def is_discontinued(self) -> bool:
        """Whether the product no longer accepts orders."""
        return self.status is ProductStatus.DISCONTINUED

    @property
    def words(self) -> frozenset[str]:
        """The words by which a search finds it: the first eight of its id and of its name; none for a row at another location."""
        texts = () if location_of(self.product_id) else (self.product_id, str(self.name or ""))
        return frozenset(word for text in texts for word in words_of(text)[:_MOST_WORDS])

    @property
    def place_keys(self) -> list[str]:
        """The keys of the product's rows at all other locations."""
        return [stock_key(self.product_id, place) for place in sorted(self.places)]

    @property
    def is_partial(self) -> bool:
        """Whether lanes may hold more units. If so, a shortage in the row is not enough to reject a change."""
        return bool(self.lent_to)

    @property
    def spare_units(self) -> int:
        """Units that can be taken from the row without recalling any from lanes."""
        return self.stock_count - self.least_if_lent if self.lent_to else self.sellable

    @property
    def least_if_lent(self) -> int:
        """The fewest units that keep the product `ACTIVE`, and one of them for sale, in a row whose units lanes hold too."""
        return self.safety_stock + max(0, self.low_stock_threshold) + 1

    @property
    def may_be_lent(self) -> bool:
        """Whether lanes may hold units of the product: it is `ACTIVE`, with enough stock in its row, and has no purchase limit."""
        return (
            self.status is ProductStatus.ACTIVE
            and not self.purchase_limit
            and self.stock_count >= self.least_if_lent
        )

    @property
    def charged_group(self) -> str | None:
        """The group to which units of a product with a purchase limit are charged; None without a limit."""
        return (self.limit_group or product_of(self.product_id)) if self.purchase_limit else None

    def may_change_by(self, delta: int) -> bool:
        """Whether `delta` units may be added to the row, or taken from it if negative, while lanes may hold more."""
        return self.with_stock(self.stock_count + delta, self.version).may_be_lent

    def lease_left(self, now: float) -> float:
        """How long a lease still locks the product, in seconds; 0 if there is none. `now` is a Unix time in seconds."""
        return max(0.0, self.lock_time - now) if self.lock_time is not None else 0.0

    def is_fenced_by(self, owner: str) -> bool:
        """Whether the last writer was this owner of a lease, which may then write even after the lease has ended."""
        return self.locked_by == owner and self.lock_version == self.version

    def with_stock(self, stock_count: int, version: int) -> Product:
        """Return the product with a new stock count and version, and the status that follows from the stock."""
        return replace(
            self,
            stock_count=stock_count,
            version=version,
            status=stock_status(
                stock_count - self.safety_stock,
                self.backorder_limit,
                self.low_stock_threshold,
                self.status,
            ),
        )

    def is_same_version(self, other: Product) -> bool:
        """Whether both products have the same generation and version."""
        return (self.created_at, self.version) == (other.created_at, other.version)


ProductsById = Mapping[str, Product | None]
"""Products by id as read, strongly consistent; None for a product that does not exist."""


@dataclass(frozen=True, slots=True)
class PageStock:
    """The units of a product on a page of a lane. Orders take units from it as they do from the product's row.

    Attributes:
        product_id: The product.
        stock_count: Units on the page.
        version: The version of the page.
        created_at: The generation of the product.
        page: The key of the page.
    """

    product_id: str
    stock_count: int
    version: int
    created_at: str
    page: PageKey

    is_discontinued: ClassVar = False
    is_partial: ClassVar = True
    purchase_limit: ClassVar = 0
    charged_group: ClassVar = None
    places: ClassVar = frozenset[str]()

    @property
    def sellable(self) -> int:
        """Units that can be sold from the page, which has no backorders."""
        return self.stock_count

    removable = sellable

    def may_change_by(self, delta: int) -> bool:
        """Whether `delta` units may be added to the page, or taken from it if negative.

        An empty page takes none back, because a recall may have removed its lane from the row's `lent_to`.
        """
        return 0 < self.stock_count >= -delta

    def with_stock(self, stock_count: int, version: int) -> PageStock:
        """Return the same product with a new number of units on the page, and a new version."""
        return replace(self, stock_count=stock_count, version=version)


Stock = Product | PageStock
"""Where units are: a product's row, or a page."""

StockById = Mapping[str, Stock | None]
"""Units by product id; None for a product that does not exist."""


def sum_by_key(units: Iterable[tuple[K, int]]) -> Counter[K]:
    """Add up units by key, such as a product or a group of products."""
    total: Counter[K] = Counter()
    for key, n in units:
        total[key] += n
    return total


def check_terms(product: Product | NewProduct, *, names_group: bool = True) -> None:
    """Check that a product does not have both safety stock and backorders, nor a limit's group without a limit.

    Args:
        product: The product as it will be.
        names_group: Whether the command names its group. A product may keep the group of a limit that is removed.

    Raises:
        InvalidMessageError: It has both.
    """
    if product.safety_stock and product.backorder_limit:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"safetyStock: must be 0 while backorderLimit is not 0, but would be {product.safety_stock:,} with a backorderLimit of "
            f"{product.backorder_limit:,}; set one of them to 0",
            "safetyStock",
        )
    if names_group and product.limit_group and not product.purchase_limit:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"limitGroup: {product.limit_group} has no effect without a limit; send a purchaseLimit of at least 1 too, or leave "
            "limitGroup out",
            "limitGroup",
        )


def stock_status(
    stock_count: int,
    backorder_limit: int = 0,
    low_stock_threshold: int = 0,
    current: ProductStatus = ProductStatus.ACTIVE,
) -> ProductStatus:
    """Derive the status of a product from its stock without its safety stock. A discontinued product stays discontinued."""
    if current is ProductStatus.DISCONTINUED:
        return current
    if stock_count <= -backorder_limit:
        return ProductStatus.OUT_OF_STOCK
    if stock_count <= low_stock_threshold:
        return ProductStatus.LOW_STOCK
    return ProductStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class NewProduct(ProductTerms):
    """A product to be created.

    Attributes:
        product_id: The key of its row.
        opening_stock: Units in stock at the beginning.
        purchase_limit: How many units of its group each buyer may buy; 0 for no limit; None for that of the product's other
            locations. Without a `limit_group`, it gets theirs, or a group of its own.
    """

    product_id: str
    opening_stock: int
    purchase_limit: int | None = None


LIMITS = ("purchase_limit", "limit_group")
"""The attributes that decide how many units a buyer may buy. A change of a product's own row sets them at all locations."""


def with_limit(new: NewProduct, rows: Iterable[Product]) -> NewProduct:
    """Complete a new row with the purchase limit that its product has at other locations, unless the row names its own.

    Args:
        new: The new row.
        rows: The rows of its product at all other locations, perhaps among those of other products.

    Raises:
        InvalidMessageError: The other locations have different limits, or the new row contradicts itself: see `check_terms`.
    """
    own, whole = new.purchase_limit, product_of(new.product_id)
    if own != 0 and None in (own, new.limit_group):
        terms = {
            (row.purchase_limit, row.charged_group)
            for row in rows
            if product_of(row.product_id) == whole
        }
        if len(terms) > 1:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f"purchaseLimit: {whole} has different limits at its locations; send the purchaseLimit and limitGroup of the "
                "new one, or a purchaseLimit of 0",
                "purchaseLimit",
            )
        for limit, group in terms:
            new = replace(
                new,
                purchase_limit=limit if own is None else own,
                limit_group=new.limit_group or group,
            )
    check_terms(new)
    return new


DETAILS = ("name", "price")
"""The attributes of which a catalogue event has a snapshot."""


_DIGITS = re.compile("[0-9]+")


def sortable_id(event_id: str) -> str:
    """Convert an event's id into a string that sorts by the numbers in the id: `e-9` before `e-10`.

    Before each number, without its leading zeros, comes the number of its digits. The id itself follows, so that different ids
    stay different: `e-0019 e-9` and `e-00210 e-10`. A space sorts before all characters of an id.
    """

    def with_length(found: re.Match[str]) -> str:
        number = found[0].lstrip("0")
        return f"{len(number):03}{number}"

    return f"{_DIGITS.sub(with_length, event_id)} {event_id}"


@dataclass(frozen=True, slots=True)
class CatalogueEvent:
    """A snapshot of a product's details in a catalogue system.

    Attributes:
        product_id: The product.
        event_id: Breaks ties between events with the same time: the greater id, by `sortable_id`, is the newer one.
        event_time: The time of the snapshot, in the service's format.
        details: All details at that time. The service removes details that are missing here.
    """

    product_id: str
    event_id: str
    event_time: str
    details: Mapping[str, Any]
