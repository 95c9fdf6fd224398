"""Exports as shops write them, and the result that their import must have.

They are written from the platforms' documentation and from real files. Each is drawn from a model of levels and of orders, whose open units
are the committed ones, so the model and not the importer decides what is right. Faults are added to the files afterwards.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

AS_OF = "2026-11-20T09:00:00+01:00"
_BEFORE, _AFTER = "2026-11-18 17:02:11 +0100", "2026-11-20 09:00:01 +0100"


def _columns(names: str) -> list[str]:
    return names.split(",")


Draw = Callable[[st.SearchStrategy[Any]], Any]
Rows = list[dict[str, str]]
Open = tuple[frozenset[tuple[str, int]], bool]
"""The open units of an order by SKU, and whether it is paid."""


@dataclass
class Level:
    """Units of a product at a location. Units on hand are available, committed to orders, or unavailable."""

    available: int
    unavailable: int = 0
    committed: int = 0

    @property
    def on_hand(self) -> int:
        return self.available + self.committed + self.unavailable


@dataclass
class Export:
    """Files, and what they mean.

    Attributes:
        files: Their contents, by option of the command.
        levels: The units by SKU and location.
        open: The open orders.
        barcodes: A code of each product whose SKU cannot be its id.
        options: Further options of the command.
        faults: For each reason to refuse the export, a word that the refusal must contain.
        mentioned: Words that a report must contain even if the export is imported.
        may_refuse: Whether the files leave room for doubt, so that they may also be refused.
    """

    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    levels: dict[tuple[str, str], Level] = field(default_factory=dict)
    open: Counter[Open] = field(default_factory=Counter)
    barcodes: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    mentioned: list[str] = field(default_factory=list)
    may_refuse: bool = False


@dataclass(eq=False)
class _Variant:
    sku: str
    handle: str
    option: str
    barcode: str = ""
    tracked: bool = True
    status: str = "active"
    price: str = "12.50"


@dataclass
class _Line:
    variant: _Variant | None
    units: int
    place: str = ""
    state: str = "pending"
    gone: int = 0


@dataclass(frozen=True)
class _Kind:
    """The columns of an order, and whether its lines are open."""

    financial: str
    fulfilment: str
    lines: str
    is_open: bool = False
    cancelled: bool = False


_KINDS = {
    "paid": _Kind("paid", "unfulfilled", "pending", is_open=True),
    "waiting": _Kind("pending", "unfulfilled", "pending", is_open=True),
    "authorized": _Kind("authorized", "unfulfilled", "pending", is_open=True),
    "money back": _Kind("partially_refunded", "unfulfilled", "pending", is_open=True),
    "test": _Kind("paid", "unfulfilled", "pending", is_open=True),
    "half": _Kind("paid", "partial", "pending", is_open=True),
    "half refunded": _Kind("partially_refunded", "unfulfilled", "pending", is_open=True),
    "shipped": _Kind("paid", "fulfilled", "fulfilled"),
    # A line of a fulfilled order that stays pending was removed from the order.
    "removed": _Kind("paid", "fulfilled", "pending"),
    "cancelled": _Kind("voided", "unfulfilled", "pending", cancelled=True),
    "cancelled, money not back yet": _Kind("paid", "unfulfilled", "pending", cancelled=True),
    "restocked": _Kind("refunded", "restocked", "restocked", cancelled=True),
    # The customer has the money back; the file does not show whether the goods are still wanted.
    "refunded": _Kind("refunded", "unfulfilled", "pending"),
    "later": _Kind("paid", "unfulfilled", "pending"),
}
_PAID = {"paid", "partially_refunded"}

_SKUS = ("TEE-RED-M", "00123", "123", "1E5", "mug_8oz", "9780140328721", "x", "X", "Z" * 64)
# Ids cannot have these characters; the last SKU looks like the id of another one.
_STRANGE = ("TEE RED", "Größe-L", "a#1", "A/1", "mug, blue", "Gr~C3~B6~C3~9Fe-L")
_PLACES = {
    "Main Warehouse": "",
    'Shop "Ost", Berlin': "berlin",
    "Lager Süd": "sued",
}


def written(rows: Rows, header: Sequence[str], draw: Draw, delimiter: str = ",") -> bytes:
    """Write CSV as a platform, or a spreadsheet that saved its file again, does."""
    out = io.StringIO()
    quoting = draw(st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
    end = draw(st.sampled_from(("\n", "\r\n")))
    writer = csv.DictWriter(
        out, header, "", "ignore", delimiter=delimiter, quoting=quoting, lineterminator=end
    )
    writer.writeheader()
    writer.writerows(rows)
    mark: str = draw(st.sampled_from(("", "\ufeff")))
    return (mark + out.getvalue()).encode()


def _some(draw: Draw, items: Iterable[Any], most: int) -> list[Any]:
    """One or more of the items; none if there are none."""
    chosen = sorted(items)
    count = draw(st.sampled_from(range(1, most + 1))) if chosen else 0
    shuffled: list[Any] = draw(st.permutations(chosen))
    return shuffled[:count]


def _rarely(draw: Draw) -> bool:
    return bool(draw(st.sampled_from(range(8))) == 7)


# ---------------------------------------------------------------- Shopify

_OPTIONS = [f"Option{n} {what}" for n in (1, 2, 3) for what in ("Name", "Value")]
_ALL_PRODUCTS = _columns(
    "Handle,Title,Body (HTML),Vendor,Product Category,Type,Tags,Published,Option1 Name,Option1 Value,Option1 Linked To,"
    "Option2 Name,Option2 Value,Option2 Linked To,Option3 Name,Option3 Value,Option3 Linked To,Variant SKU,Variant Grams,"
    "Variant Inventory Tracker,Variant Inventory Qty,Variant Inventory Policy,Variant Fulfillment Service,Variant Price,"
    "Variant Compare At Price,Variant Requires Shipping,Variant Taxable,Unit Price Total Measure,"
    "Unit Price Total Measure Unit,Unit Price Base Measure,Unit Price Base Measure Unit,Variant Barcode,Image Src,"
    "Image Position,Image Alt Text,Gift Card,SEO Title,SEO Description,Variant Image,Variant Weight Unit,Variant Tax Code,"
    "Cost per item,Status"
)
# The quantity is there only if the shop has one location.
_PRODUCTS = (_ALL_PRODUCTS, [name for name in _ALL_PRODUCTS if name != "Variant Inventory Qty"])
_NUMBERS = ("Incoming", "Unavailable", "Committed", "Available")
_INVENTORY = {
    "2024": (
        ["Handle", "Title", *_OPTIONS, "SKU", "HS Code", "COO", "Location", "Bin name"],
        {name: f"{name} (not editable)" for name in _NUMBERS} | {"On hand": "On hand (current)"},
        ["On hand (new)"],
    ),
    "2023": (
        ["Handle", "Title", *_OPTIONS, "SKU", "HS Code", "COO", "Location"],
        {name: name for name in (*_NUMBERS, "On hand")},
        [],
    ),
}
_ADDRESS = _columns("Name,Street,Address1,Address2,Company,City,Zip,Province,Country,Phone")
_ORDERS = [
    *_columns(
        "Name,Email,Financial Status,Paid at,Fulfillment Status,Fulfilled at,Accepts Marketing,Currency,Subtotal,Shipping,"
        "Taxes,Total,Discount Code,Discount Amount,Shipping Method,Created at,Lineitem quantity,Lineitem name,"
        "Lineitem price,Lineitem compare at price,Lineitem sku,Lineitem requires shipping,Lineitem taxable,"
        "Lineitem fulfillment status"
    ),
    *(f"{whose} {part}" for whose in ("Billing", "Shipping") for part in _ADDRESS),
    *_columns(
        "Notes,Note Attributes,Cancelled at,Payment Method,Payment Reference,Refunded Amount,Vendor,Outstanding Balance,"
        "Employee,Location,Device ID,Id,Tags,Risk Level,Source,Lineitem discount"
    ),
    *(f"Tax {n} {what}" for n in range(1, 6) for what in ("Name", "Value")),
    *_columns(
        "Phone,Receipt Number,Duties,Billing Province Name,Shipping Province Name,Payment ID,Payment Terms Name,"
        "Next Payment Due At,Payment References"
    ),
]


@st.composite
def shopify(draw: Draw) -> Export:
    """The exports of products, inventory and orders of a Shopify shop."""
    export = Export(options=["--as-of", AS_OF])
    names = _some(draw, _PLACES, 3)
    variants = _variants(draw, export)
    stocked = {
        (variant.sku, name): Level(draw(st.integers(0, 9)), draw(st.sampled_from((0, 0, 0, 2))))
        for variant in variants
        if variant.tracked
        for name in names
        if not _rarely(draw)
    }
    tools = _Making(draw, export, names, variants, stocked)
    orders = _shopify_orders(draw, tools)
    tools.plant()
    tools.choose_options()
    export.levels = {(sku, _PLACES[name]): level for (sku, name), level in stocked.items()}
    export.files |= {
        "--products": written(tools.products(), draw(st.sampled_from(_PRODUCTS)), draw),
        "--inventory": tools.inventory(),
        "--orders": written(orders, _ORDERS, draw),
        "--locations": written(
            [{"location": name, "locationId": _PLACES[name]} for name in tools.mapped],
            ("location", "locationId"),
            draw,
        ),
    }
    return export


def _variants(draw: Draw, export: Export) -> list[_Variant]:
    skus = _some(draw, _SKUS, 4)
    skus += _some(draw, _STRANGE, 2) if _rarely(draw) else []
    variants = []
    for number, sku in enumerate(skus):
        handle = f"product-{draw(st.integers(0, number))}"
        variant = _Variant(sku, handle, f"Size {number}")
        variant.status = draw(st.sampled_from(("active", "active", "draft", "archived")))
        variant.price = draw(st.sampled_from(("12.50", "0.00", "18", "1999.99")))
        variant.tracked = not _rarely(draw)
        if sku in _STRANGE or draw(st.booleans()):
            variant.barcode = f"'code-{number}"
        if sku in _STRANGE:
            export.barcodes[sku] = variant.barcode.lstrip("'")
        variants.append(variant)
    return sorted(variants, key=lambda variant: variant.handle)


@dataclass
class _Making:
    """Adds faults to an export, and writes its products and its inventory."""

    draw: Draw
    export: Export
    names: Sequence[str]
    variants: list[_Variant]
    levels: dict[tuple[str, str], Level]
    mapped: list[str] = field(default_factory=list)
    faulty: list[str] = field(default_factory=list)
    twins: list[tuple[_Variant, Level, str]] = field(default_factory=list)
    changed: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    gone: list[tuple[str, _Line]] = field(default_factory=list)

    def plant(self) -> None:
        """Put at most two faults in."""
        self.mapped = list(self.names)
        faults = {
            "sku": self._without_sku,
            "long": self._long_sku,
            "twice": self._twice,
            "fraction": self._fraction,
            "place": self._unknown_place,
            "committed": self._committed,
            "sum": self._sum,
            "oversold": self._oversold,
        }
        plain = sorted({sku for sku, _ in self.levels if sku in _SKUS})
        if not plain or self.draw(st.sampled_from(range(8))) < 5:
            return
        # One fault of a product may hide another, so each is about another product.
        skus = self.faulty = _some(self.draw, plain, 2)
        for sku in skus:
            name = self.draw(st.sampled_from(sorted(n for s, n in self.levels if s == sku)))
            faults[self.draw(st.sampled_from(sorted(faults)))](sku, name)

    def _without_sku(self, sku: str, name: str) -> None:
        """A product with stock, but without a SKU."""
        nameless = _Variant("", "no-sku", "One size")
        self.twins.append((nameless, Level(3), name))
        self.export.faults.append("SKU")

    def _long_sku(self, sku: str, name: str) -> None:
        """A product whose SKU is longer than an id."""
        self.twins.append((_Variant("Y" * 70, "long-sku", "One size"), Level(3), name))
        self.export.faults.append("Y" * 20)

    def _twice(self, sku: str, name: str) -> None:
        """Another product with the same SKU."""
        self.twins.append((_Variant(sku, "twin", "Copy"), Level(1), name))
        self.export.faults.append(sku)

    def _fraction(self, sku: str, name: str) -> None:
        level = self.levels[sku, name]
        numbers = {"Available": level.available + 0.5, "On hand": level.on_hand + 0.5}
        self.changed.setdefault((sku, name), {}).update(
            {column: str(units) for column, units in numbers.items()}
        )
        self.export.faults.append(".5")

    def _unknown_place(self, sku: str, name: str) -> None:
        others = [other for other in self.mapped if other != name]
        # It hides what is wrong with the units there.
        if others and len(self.faulty) == 1:
            self.mapped = others
            self.export.faults.append(name)

    def _committed(self, sku: str, name: str) -> None:
        """Units that no order in the file explains, as when an old order was not exported."""
        self.levels[sku, name].committed += 100  # more than refunds of other orders could explain
        self.export.faults.append(sku)

    def _sum(self, sku: str, name: str) -> None:
        units = str(self.levels[sku, name].on_hand + 1)
        self.changed.setdefault((sku, name), {})["On hand"] = units
        self.export.faults.append(sku)

    def _oversold(self, sku: str, name: str) -> None:
        """More units are committed, or even gone, than there were."""
        level = self.levels[sku, name]
        level.available = -self.draw(st.integers(1, level.committed + 2))
        if level.available + level.committed < 0 or not self.draw(st.booleans()):
            self.export.faults.append(sku)
            return
        self.export.options += ["--oversold", "allow"]
        # A product has either safety stock or backorders.
        self.export.may_refuse |= bool(level.unavailable)

    def choose_options(self) -> None:
        unavailable = [sku for (sku, _), level in self.levels.items() if level.unavailable]
        if self.draw(st.booleans()):
            self.export.options += ["--unavailable", "safety"]
        else:
            self.export.mentioned += [sku for sku in unavailable if sku not in _STRANGE]
        if not self.gone:
            return
        if not _rarely(self.draw):
            rows = [
                {"Name": name, "Lineitem sku": line.variant.sku, "shipped": str(line.gone)}
                for name, line in self.gone
                if line.variant
            ]
            self.export.files["--shipped"] = written(rows, tuple(rows[0]), self.draw)
        else:
            # The file marks lines that are shipped in part. Refunded units show only in the numbers.
            self.export.faults += [
                name if line.state == "partial" else line.variant.sku
                for name, line in self.gone
                if line.variant and line.variant.sku not in self.faulty
            ]

    def products(self) -> Rows:
        rows: Rows = []
        variants = [*self.variants, *(twin for twin, _, _ in self.twins)]
        for variant in variants:
            first = not any(row["Handle"] == variant.handle for row in rows)
            rows.append({"Handle": variant.handle, **self._product(variant, first=first)})
            if first and self.draw(st.booleans()):
                # A further picture has a row of its own.
                picture = {"Image Src": "https://cdn.example/2.jpg", "Image Position": "2"}
                rows.append({"Handle": variant.handle, **picture})
        return rows

    @staticmethod
    def _product(variant: _Variant, *, first: bool) -> dict[str, str]:
        shared = {
            "Title": f'The "{variant.handle}", new',
            "Body (HTML)": "<p>Two lines,\nand a comma</p>",
            "Vendor": "Acme",
            "Published": "true",
            "Option1 Name": "Size",
            "Gift Card": "false",
            "Status": variant.status,
        }
        return (shared if first else {}) | {
            "Option1 Value": variant.option,
            "Variant SKU": variant.sku,
            "Variant Grams": "0.0",
            "Variant Inventory Tracker": "shopify" if variant.tracked else "",
            "Variant Inventory Qty": "7",
            "Variant Inventory Policy": "deny",
            "Variant Fulfillment Service": "manual",
            "Variant Price": variant.price,
            "Variant Requires Shipping": "true",
            "Variant Taxable": "true",
            "Variant Barcode": variant.barcode,
            "Variant Weight Unit": "kg",
        }

    def inventory(self) -> bytes:
        before, numbers, after = _INVENTORY[self.draw(st.sampled_from(sorted(_INVENTORY)))]
        rows = []
        entries = [
            (variant, self.levels.get((variant.sku, name)), name)
            for variant in self.variants
            if variant.tracked
            for name in self.names
        ]
        for variant, level, name in [*entries, *self.twins]:
            units = dict.fromkeys(numbers, "not stocked")
            if level:
                units = {
                    "Incoming": str(self.draw(st.integers(0, 2))),
                    "Unavailable": str(level.unavailable),
                    "Committed": str(level.committed),
                    "Available": str(level.available),
                    "On hand": str(level.on_hand),
                }
                if (variant, level, name) not in self.twins:
                    units |= self.changed.get((variant.sku, name), {})
            row = {
                "Handle": variant.handle,
                "Title": f'The "{variant.handle}", new',
                "Option1 Name": "Size",
                "Option1 Value": variant.option,
                "SKU": variant.sku,
                "Location": name,
            }
            rows.append(row | {numbers[column]: text for column, text in units.items()})
        return written(rows, [*before, *numbers.values(), *after], self.draw)


def _shopify_orders(draw: Draw, tools: _Making) -> Rows:
    rows: Rows = []
    for number in reversed(range(draw(st.sampled_from((4, 3, 2, 1, 0))))):
        name, kind = f"#{1001 + number}", draw(st.sampled_from(sorted(_KINDS)))
        lines = _lines(draw, tools)
        _mark(draw, tools, name, kind, lines)
        rows += _order_rows(draw, name, number, kind, lines)
    return rows


def _lines(draw: Draw, tools: _Making) -> list[_Line]:
    """Lines for products in stock, of which each is at one location; perhaps one for something else."""
    lines: list[_Line] = []
    by_sku = {variant.sku: variant for variant in tools.variants}
    skus = _some(draw, {sku for sku, _ in tools.levels}, 3)
    if skus and _rarely(draw):
        skus.append(skus[0])  # the same product again, such as with another engraving
    for sku in skus:
        places = sorted(name for other, name in tools.levels if other == sku)
        lines.append(_Line(by_sku[sku], draw(st.integers(1, 4)), draw(st.sampled_from(places))))
    # Here, all units of a product in an order come from one location.
    tools.export.may_refuse |= len({(line.variant, line.place) for line in lines}) > len(set(skus))
    others: list[_Variant | None] = [None, *(v for v in tools.variants if not v.tracked)]
    if not skus or _rarely(draw):
        lines.append(_Line(draw(st.sampled_from(others)), 1))
    return lines


def _mark(draw: Draw, tools: _Making, name: str, kind: str, lines: Sequence[_Line]) -> None:
    """Set the state of the lines, and count the open units."""
    export, of = tools.export, _KINDS[kind]
    for line in lines:
        line.state = of.lines
    if kind == "half" and len(lines) > 1:
        lines[0].state = "fulfilled"
    elif kind in ("half", "half refunded") and lines[0].place:
        lines[0].units += 1
        lines[0].gone = draw(st.integers(1, lines[0].units - 1))
        lines[0].state = "partial" if kind == "half" else "pending"
        tools.gone.append((name, lines[0]))
    if kind == "later":
        export.mentioned.append(name)
    export.may_refuse |= kind == "refunded"
    units: Counter[str] = Counter()
    for line in lines if of.is_open else ():
        if line.state == "fulfilled":
            continue
        if line.variant is None or not line.variant.tracked:
            continue  # it holds no stock
        left = line.units - line.gone
        tools.levels[line.variant.sku, line.place].committed += left
        units[line.variant.sku] += left
    if units:
        export.open[frozenset(units.items()), of.financial in _PAID] += 1


def _order_rows(
    draw: Draw, name: str, number: int, kind: str, lines: Sequence[_Line]
) -> Iterable[dict[str, str]]:
    of = _KINDS[kind]
    created = _AFTER if kind == "later" else _BEFORE
    whole = {
        "Financial Status": of.financial,
        "Paid at": created if of.financial == "paid" else "",
        "Fulfillment Status": of.fulfilment,
        "Currency": "EUR",
        "Total": "141.70",
        "Billing Name": "Ana Núñez",
        "Shipping Zip": "'10115",
        "Location": "Main Warehouse" if kind == "shipped" else "",
        "Notes": draw(st.sampled_from(("", 'Ring "twice",\nplease'))),
        "Cancelled at": created if of.cancelled else "",
        "Payment Method": "(for testing) Bogus Gateway" if kind == "test" else "manual",
        "Refunded Amount": "5.00" if "refunded" in of.financial else "0.00",
        "Id": str(6097582719028 + number),
        "Risk Level": "Low",
        "Source": "web",
    }
    email = draw(st.sampled_from(("ana@example.com", "")))
    for place, line in enumerate(lines):
        yield {
            "Name": name,
            "Email": email,
            "Created at": created,
            "Lineitem quantity": str(line.units),
            "Lineitem name": line.variant.handle if line.variant else "Gift wrapping",
            "Lineitem price": line.variant.price if line.variant else "2.00",
            "Lineitem sku": line.variant.sku if line.variant else "",
            "Lineitem requires shipping": "true",
            "Lineitem taxable": "true",
            "Lineitem fulfillment status": line.state,
            "Vendor": "Acme",
            **(whole if place == 0 else {}),
        }


# ---------------------------------------------------------------- WooCommerce

_WOO_PRODUCTS = [
    *("ID", "Type", "SKU", "GTIN, UPC, EAN, or ISBN"),
    *_columns(
        "Name,Published,Is featured?,Visibility in catalog,Short description,Description,"
        "Date sale price starts,Date sale price ends,Tax status,Tax class,In stock?,Stock,Low stock amount,"
        "Backorders allowed?,Sold individually?,Weight (kg),Length (cm),Width (cm),Height (cm),Allow customer reviews?,"
        "Purchase note,Sale price,Regular price,Categories,Tags,Shipping class,Images,Download limit,Download expiry days,"
        "Parent,Grouped products,Upsells,Cross-sells,External URL,Button text,Position,Attribute 1 name,"
        "Attribute 1 value(s),Meta: _wpcom_is_markdown"
    ),
]
_WHERE = "first_name,last_name,company,{},phone,address_1,address_2,postcode,city,state,country"
_WOO_ORDERS = [
    *_columns(
        "order_id,order_number,order_date,paid_date,status,shipping_total,shipping_tax_total,fee_total,fee_tax_total,"
        "tax_total,cart_discount,order_discount,discount_total,order_total,order_subtotal,order_key,order_currency,"
        "payment_method,payment_method_title,transaction_id,customer_ip_address,customer_user_agent,shipping_method,"
        "customer_id,customer_user,customer_email"
    ),
    *(f"billing_{part}" for part in _WHERE.format("email").split(",")),
    *(f"shipping_{part}" for part in _WHERE.replace("{},", "").split(",")),
    *_columns(
        "customer_note,wt_import_key,shipping_items,fee_items,tax_items,coupon_items,refund_items,order_notes,"
        "download_permissions"
    ),
]
_ITEM = _columns(
    "product_id,name,sku,quantity,subtotal,subtotal_tax,total,total_tax,refunded,refunded_qty,meta"
)
# Whether an order of this status has taken its units out of the stock, is still to be shipped, and is paid.
_STATUSES = {
    "processing": (True, True, True),
    "on-hold": (True, True, False),
    "pending": (False, False, False),
    "completed": (True, False, True),
    "cancelled": (False, False, False),
    "refunded": (False, False, False),
    "failed": (False, False, False),
}


@dataclass
class _Item:
    """A product or variation in WooCommerce, and the product whose stock it takes."""

    number: int
    sku: str
    keeper: str
    parent: int = 0


@st.composite
def woocommerce(draw: Draw) -> Export:
    """WooCommerce's own export of products, and the orders as WebToffee's extension exports them."""
    export = Export()
    rows, items = _woo_products(draw, export)
    orders = _woo_orders(draw, export, items)
    export.files = {
        "--products": written(rows, _WOO_PRODUCTS, draw),
        "--orders": orders,
    }
    return export


def _woo_products(draw: Draw, export: Export) -> tuple[Rows, list[_Item]]:
    """Simple products, and products whose variations have stock of their own or share one."""
    rows: Rows = []
    items: list[_Item] = []

    def add(kind: str, sku: str, stock: str, parent: str = "") -> int:
        number = 40 + len(rows)
        price = draw(st.sampled_from(("12.50", "12,50", "18", "")))
        row = {"ID": str(number), "Type": kind, "SKU": _escaped(sku), "Stock": stock}
        row |= {"Name": "Tea | loose, 100 g", "Published": draw(st.sampled_from(("1", "-1", "0")))}
        row |= {"In stock?": "1", "Regular price": price, "Parent": parent}
        row |= {"Backorders allowed?": "0", "Description": r"Two lines\nand a comma, too"}
        rows.append(row)
        return number

    skus = _some(draw, (*_SKUS, "-A1"), 4)
    faulty = draw(st.sampled_from((*skus, *([""] * 4))))
    for sku in skus:
        kind = draw(
            st.sampled_from(("simple", "simple", "variable", "shared", "not counted", "virtual"))
        )
        if kind == "not counted":
            add("simple", sku, "")
        elif kind == "virtual":
            add("simple, downloadable, virtual", sku, "")
        elif kind == "variable":
            parent = add("variable", f"{sku[:50]}-parent", "")
            stock = _woo_stock(draw, export, sku, is_faulty=sku == faulty)
            items.append(
                _Item(add("variation", sku, stock, f"{sku[:50]}-parent"), sku, sku, parent)
            )
        elif kind == "shared":
            parent = add("variable", sku, _woo_stock(draw, export, sku, is_faulty=sku == faulty))
            own = draw(st.sampled_from((f"{sku[:50]}-M", "")))
            # WebToffee shows the SKU of the product for a variation that has none.
            number = add("variation", own, "parent", _escaped(sku))
            items.append(_Item(number, own or sku, sku, parent))
        else:
            stock = _woo_stock(draw, export, sku, is_faulty=sku == faulty)
            items.append(_Item(add("simple", sku, stock), sku, sku))
    add("grouped", "a-set", "")
    return rows, items


def _escaped(text: str) -> str:
    """Text as WooCommerce's exporter writes it, so that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _woo_stock(draw: Draw, export: Export, sku: str, *, is_faulty: bool) -> str:
    """A number in the column of the stock. It is not reduced by orders yet."""
    level = export.levels[sku, ""] = Level(draw(st.integers(0, 9)))
    if not is_faulty:
        return str(level.available)
    if draw(st.booleans()):
        export.faults.append(sku)
        return f"{level.available}.5"
    level.available = -draw(st.integers(1, 3))
    # Before 2025, WooCommerce escaped negative numbers like text.
    escape: str = draw(st.sampled_from(("", "'")))
    return f"{escape}{level.available}"


def _woo_orders(draw: Draw, export: Export, items: Sequence[_Item]) -> bytes:
    often = (*sorted(_STATUSES), *(["processing", "on-hold"] * 3))
    lines = [
        (100 + number, draw(st.sampled_from(often)), _woo_lines(draw, items))
        for number in reversed(range(draw(st.sampled_from((4, 3, 2, 1, 0)))))
    ]
    most = max((len(of) for _, _, of in lines), default=1)
    by_row = draw(st.booleans())
    rows: Rows = []
    for number, status, of in lines:
        _woo_count(export, status, of)
        taken = _STATUSES[status][0]
        row = {"order_id": str(number), "order_number": str(number), "status": status}
        row |= {"order_date": "2026-11-26 10:00:00", "order_currency": "EUR"}
        row |= {"billing_email": "ana@example.com", "customer_note": 'Ring "twice",\nplease'}
        if by_row:
            rows += [row | _woo_row(item, units, back, taken=taken) for item, units, back in of]
        else:
            cells = {
                f"line_item_{place}": _woo_cell(item, units, back, taken=taken)
                for place, (item, units, back) in enumerate(of, 1)
            }
            rows.append(row | cells)
    columns = [f"item_{part}" for part in _ITEM]
    if not by_row:
        columns = [f"line_item_{place}" for place in range(1, most + 1)]
    _woo_oversold(draw, export)
    return written(rows, [*_WOO_ORDERS, *columns], draw)


def _woo_lines(draw: Draw, items: Sequence[_Item]) -> list[tuple[_Item | None, int, int]]:
    """Products, units, and how many of them were refunded and put back. One may be deleted in the meantime."""
    lines: list[tuple[_Item | None, int, int]] = []
    for place in _some(draw, range(len(items)), 2):
        units = draw(st.integers(1, 4))
        back = draw(st.integers(0, units - 1)) if _rarely(draw) else 0
        lines.append((items[place], units, back))
    if not lines or _rarely(draw):
        lines.append((None, 1, 0))
    return lines


def _woo_count(export: Export, status: str, lines: Iterable[tuple[_Item | None, int, int]]) -> None:
    _, is_open, is_paid = _STATUSES[status]
    units: Counter[str] = Counter()
    for item, ordered, back in lines if is_open else ():
        if item is None:
            export.may_refuse = True
            continue
        export.levels[item.keeper, ""].committed += ordered - back
        units[item.keeper] += ordered - back
    if units:
        export.open[frozenset(units.items()), is_paid] += 1


def _woo_oversold(draw: Draw, export: Export) -> None:
    """Refuse negative stock, or allow it where open orders explain it."""
    negative = {sku: level for (sku, _), level in export.levels.items() if level.available < 0}
    if negative and draw(st.booleans()):
        export.options += ["--oversold", "allow"]
        negative = {sku: level for sku, level in negative.items() if level.on_hand < 0}
    export.faults += negative


def _woo_cell(item: _Item | None, units: int, back: int, *, taken: bool) -> str:
    sku, number = (item.sku, item.parent or item.number) if item else ("", 0)
    parts = {"name": "Tea | loose, 100 g", "product_id": number, "sku": sku, "quantity": units}
    parts |= {"total": "36.00", "sub_total": "36.00", "tax": "6.84", "meta:pa_size": "M: large"}
    if taken and item:
        parts["meta:_reduced_stock"] = units - back
    if back:
        parts["refunded"] = "12.00"
    if item and item.parent:
        parts["_variation_id"] = item.number
    return "|".join(f"{name}:{value}" for name, value in parts.items())


def _woo_row(item: _Item | None, units: int, back: int, *, taken: bool) -> dict[str, str]:
    meta: list[Mapping[str, object]] = [{"id": 9, "key": "pa_size", "value": "M"}]
    if taken and item:
        meta.append({"id": 10, "key": "_reduced_stock", "value": str(units - back)})
    return {
        "item_product_id": str(item.parent or item.number) if item else "",
        "item_name": "Tea | loose, 100 g",
        "item_sku": item.sku if item else "",
        "item_quantity": str(units),
        "item_total": "36",
        "item_refunded": "12" if back else "",
        "item_refunded_qty": str(back or ""),
        "item_meta": json.dumps(meta),
    }
