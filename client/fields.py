"""The fields of requests to the HTTP API, by the names in docs/openapi.yaml, which says what each one means."""

# Not `from __future__ import annotations`, which would hide from Python which fields are required.
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, TypedDict

Lease = Mapping[str, Any]
"""The `lease` of an earlier answer."""
Scans = Mapping[str, Sequence[str]]
"""Scanned codes by product."""


class Line(TypedDict):
    """Some units of a product."""

    productId: str
    quantity: int


class PlacedLine(Line, total=False):
    """A line of an order, perhaps with the only location that may supply it."""

    locationId: str


class Barcode(TypedDict):
    """A barcode of a product, and the units in a package with this barcode."""

    code: str
    units: NotRequired[int]


class NewOrder(TypedDict, total=False):
    """An order to place."""

    orderId: Required[str]
    userId: Required[str]
    items: Required[Sequence[PlacedLine]]
    holdSeconds: int
    locations: Sequence[str]
    split: bool
    buyers: Sequence[str]
    attributes: Mapping[str, str | int | bool]


class Noted(TypedDict, total=False):
    """The notes that most commands may have."""

    reference: str
    reason: str


class Confirmation(Noted, total=False):
    """A payment."""

    ifVersion: int


class Extension(Noted):
    """A longer hold."""

    until: str


class Amend(Noted, total=False):
    """A change of an order's units or attributes."""

    stepId: Required[str]
    items: Sequence[PlacedLine]
    attributes: Mapping[str, str | int | bool]
    ifVersion: int


class Part(Noted, total=False):
    """The units to hand over; by default all remaining ones."""

    stepId: str
    items: Sequence[Line]
    scanned: Scans


class Undoing(Noted, total=False):
    """A hand-over that did not take place."""

    stepId: Required[str]
    items: Sequence[Line]
    force: bool


class Cancellation(Noted, total=False):
    """The units to cancel; by default all remaining ones."""

    stepId: str
    items: Sequence[Line]
    restock: bool


class Return(Noted, total=False):
    """Units that came back."""

    stepId: Required[str]
    items: Required[Sequence[Line]]
    restock: Required[bool]
    scanned: Scans


class AtLocation(TypedDict, total=False):
    """A location, by default the one without a name."""

    locationId: str


class _ProductFields(AtLocation, total=False):
    """What can be set when a product is listed, and later."""

    lowStockThreshold: int
    backorderLimit: int
    safetyStock: int
    purchaseLimit: int
    limitGroup: str
    name: str
    price: int
    barcodes: Sequence[Barcode]


class ProductChange(_ProductFields, total=False):
    """New values of a product's fields."""

    ifBarcodes: Sequence[Barcode]


class NewProduct(_ProductFields):
    """A product to list."""

    productId: str
    openingStock: int


class NewAdjustment(AtLocation, total=False):
    """Units that came or went."""

    adjustmentId: Required[str]
    delta: Required[int]
    reason: Required[str]
    reference: str
    sentTo: str
    comment: str
    scanned: Scans


# `from` is a keyword, so these two are called.
NewTransfer = TypedDict(
    "NewTransfer",
    {
        "transferId": str,
        "from": str,
        "to": str,
        "quantity": int,
        "reference": NotRequired[str],
        "scanned": NotRequired[Scans],
    },
)
"""Units to move to another location."""
Period = TypedDict("Period", {"from": str, "to": str}, total=False)
"""The times between which something happened."""


class Acquisition(AtLocation, total=False):
    """A lease to acquire."""

    action: Required[Literal["acquire"]]
    productId: Required[str]
    seconds: Required[int]
    holder: str
    outliveInvocation: bool


class Renewal(TypedDict):
    """A lease to renew."""

    action: Literal["renew"]
    lease: Lease
    seconds: int
    outliveInvocation: NotRequired[bool]


class Commit(TypedDict):
    """Units counted under a lease."""

    action: Literal["commit"]
    lease: Lease
    counted: int
    adjustmentId: str
    reference: NotRequired[str]
    scanned: NotRequired[Scans]


class Release(TypedDict):
    """A lease to release."""

    action: Literal["release"]
    lease: Lease


class Begin(TypedDict):
    """A count to begin, as of now."""

    action: Literal["begin"]
    productId: str
    locationId: str
    adjustmentId: str
    blind: NotRequired[bool]


class Counted(TypedDict):
    """Units counted as of an earlier time."""

    action: Literal["count"]
    productId: str
    locationId: str
    snapshot: str
    counted: int
    adjustmentId: str
    reference: NotRequired[str]


Count = Acquisition | Renewal | Commit | Release | Begin | Counted


class Page(TypedDict, total=False):
    """A page of a list."""

    limit: int
    cursor: str


class OrderFilter(Page, Period, total=False):
    """Which orders to list."""

    userId: str
    status: Literal["PENDING", "CONFIRMED", "FULFILLED", "REJECTED", "CANCELLED", "EXPIRED"]
    latePayment: Literal["true"]
    reference: str
    productId: str
    locationId: str


class ProductFilter(Page, total=False):
    """Which products to get: up to 100 ids, or the words to find."""

    ids: Sequence[str]
    search: str


class Generation(AtLocation):
    """The product to delist, by the `createdAt` that an operator saw."""

    createdAt: str


class LocationPage(Page, AtLocation):
    """A page of a list about one location."""


class HistoryFilter(LocationPage, Period):
    """Which stock changes to list."""


class StockFilter(LocationPage, total=False):
    """Which stock to list."""

    status: Literal["ACTIVE", "LOW_STOCK", "OUT_OF_STOCK", "DISCONTINUED"]
    inLanes: Literal["true"]


class CountFilter(LocationPage, total=False):
    """Which counts to list."""

    reference: str
