"""Sample orders: invented orders of a tea shop with its catalogue, a wholesaler's real orders, and orders from a file."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from inventory_orders.domain.location import (
    DEFAULT_LOCATION,
    location_of,
    product_of,
    stock_key,
)
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import order_in
from inventory_orders.messages.documents import strict_json
from local import ROOT
from operations.orders_file import OrderMessage, message_of, order_message, read_orders

REAL_ORDERS = ROOT / "local" / "real_orders" / "baskets.csv.gz"
"""A wholesaler's orders. Each line has the product codes of one order, separated by commas. Nothing else is known."""

HOT_PRODUCT = "tea-first-flush-drop"
HOT_STOCK = 400

WAREHOUSE, STORE = "berlin", "store"
LOCATIONS = (DEFAULT_LOCATION, WAREHOUSE, STORE)
"""The locations of the sample products: two warehouses, one of which is the default location, and a store."""

REAL_ORDERS_SENT = 1000
"""How many of `REAL_ORDERS` the demonstration sends. It sends all orders of other files."""

DROP_PRODUCT, DROP_STOCK, DROP_LIMIT = "tea-advent-box", 150, 2
"""A product that each buyer may buy two of, with enough stock for all of its customers."""

_FANS, _NAMES, _TABS = 60, 12, 6
RESELLER = f"{_NAMES} names, {_TABS} tabs each, one card"

UNPAID = 20
HOLD_SECONDS = 10

_OWN = "demo-"
COPY = f"{_OWN}file-"
"""Prefix of the products for the orders of a file. No product of the demonstration's own day has it."""
_LONGEST_PRODUCT_ID, _LONGEST_ORDER_ID = 64, 128
HELD_PRODUCT = NewProduct(f"{_OWN}never-paid", UNPAID, name="Ordered, but never paid (demo)")
"""A product for unpaid orders only. Otherwise, they would take the last units from other orders."""

# The maximum opening stock of a product.
_MOST_UNITS = 1_000_000_000

_TEAS = """
assam-breakfast:Assam Breakfast:690  ceylon-highland:Ceylon Highland:720  chamomile-flowers:Chamomile Flowers:540
darjeeling-autumn:Darjeeling Autumn:1150  dragonwell:Dragonwell:1480  earl-grey:Earl Grey:680
earl-grey-decaf:Earl Grey Decaf:740  english-breakfast:English Breakfast:620  genmaicha:Genmaicha:820
ginger-lemon:Ginger and Lemon:560  gunpowder:Gunpowder:650  gyokuro:Gyokuro:2450  hibiscus:Hibiscus:520
hojicha:Hojicha:880  irish-breakfast:Irish Breakfast:640  jasmine-pearls:Jasmine Pearls:1690
keemun:Keemun:990  kukicha:Kukicha:860  lady-grey:Lady Grey:690  lapsang-souchong:Lapsang Souchong:930
lemon-verbena:Lemon Verbena:580  lung-ching:Lung Ching:1390  matcha-ceremonial:Matcha Ceremonial:2890
matcha-kitchen:Matcha Kitchen:1290  mint-moroccan:Moroccan Mint:590  nilgiri-frost:Nilgiri Frost:1080
oolong-milk:Milk Oolong:1320  oolong-tieguanyin:Tieguanyin Oolong:1560  peppermint:Peppermint:490
puerh-ripe:Ripe Pu-erh:1740  rooibos-plain:Rooibos:530  rooibos-vanilla:Rooibos Vanilla:570
sencha-first:Sencha First Pick:1260  sencha-daily:Sencha Daily:780  silver-needle:Silver Needle:2190
white-peony:White Peony:1440  yerba-mate:Yerba Mate:610  yunnan-gold:Yunnan Gold:1370  chai-masala:Masala Chai:650
"""


def catalogue() -> list[NewProduct]:
    """Make about 40 products: one hot product with little stock, and some that soon sell out."""
    chance = random.Random("tea")
    products = [
        NewProduct(
            HOT_PRODUCT,
            HOT_STOCK,
            low_stock_threshold=40,
            name="First Flush 2026, limited drop",
            price=3900,
        )
    ]
    for entry in _TEAS.replace("\n", "  ").strip().split("  "):
        slug, name, price = entry.split(":")
        stock = chance.choice((60, 120, 900, 1500, 2500))
        products.append(
            NewProduct(f"tea-{slug}", stock, low_stock_threshold=25, name=name, price=int(price))
        )
    return products


def orders(run: str, count: int, chance: random.Random) -> list[OrderMessage]:
    """Make valid orders: a third for the hot product alone, the rest for 1 to 4 teas."""
    teas = [product.product_id for product in catalogue() if product.product_id != HOT_PRODUCT]
    # A few best sellers and a long tail, as in real shops.
    popularity = [1 / (rank + 1) for rank in range(len(teas))]
    chance.shuffle(teas)
    messages = []
    for number in range(count):
        if number % 3 == 0:
            lines = [(HOT_PRODUCT, chance.choice((1, 1, 1, 2)))]
        else:
            chosen = chance.choices(teas, popularity, k=chance.choice((1, 1, 2, 2, 3, 4)))
            lines = [(product_id, chance.choice((1, 1, 2, 3))) for product_id in chosen]
        user = f"user-{chance.randrange(count // 2)}"
        messages.append(order_message(f"{run}-{number:05}", user, lines))
    return messages


def drop(run: str, chance: random.Random) -> tuple[list[OrderMessage], list[OrderMessage]]:
    """Make orders for `DROP_PRODUCT`: those of its customers, and those of a reseller with one card behind many names.

    The keys of buyers are those of this run, so that each run begins with buyers who have not bought anything.
    """

    def ordered(order_id: str, card: str, units: int) -> OrderMessage:
        name, _, _ = order_id.rpartition(".")
        message = order_message(order_id, name, [(DROP_PRODUCT, units)])
        more = {"buyers": [name, f"{run}-card-{card}"], "locations": [DEFAULT_LOCATION]}
        return message_of(json.dumps(json.loads(message.body) | more))

    fans = [ordered(f"{run}-fan-{n}.1", f"{n}", chance.choice((1, 2))) for n in range(_FANS)]
    names, tabs = range(1, _NAMES + 1), range(1, _TABS + 1)
    resold = [ordered(f"{run}-name-{name}.{tab}", "reseller", 1) for name in names for tab in tabs]
    return fans, resold


def stocked() -> list[NewProduct]:
    """Divide the stock of the hot product and of a quarter of the others between `LOCATIONS`. Each product comes before its places."""
    products, places = list[NewProduct](), list[NewProduct]()
    for number, product in enumerate(catalogue()):
        elsewhere = {}
        if number % 4 == 1 or product.product_id == HOT_PRODUCT:
            stock = product.opening_stock
            elsewhere = {WAREHOUSE: stock * 3 // 10, STORE: stock // 5}
        left = product.opening_stock - sum(elsewhere.values())
        products.append(replace(product, opening_stock=left))
        places += [
            NewProduct(stock_key(product.product_id, location), units, low_stock_threshold=5)
            for location, units in elsewhere.items()
        ]
    name = "Advent box, two for each customer"
    limited = NewProduct(DROP_PRODUCT, DROP_STOCK, name=name, purchase_limit=DROP_LIMIT)
    return [*products, replace(limited, price=4500), *places]


# Most customers are near the default location, some are near the other warehouse, and a few collect their order at the store.
_WISHES = {
    LOCATIONS: 7,
    (WAREHOUSE, DEFAULT_LOCATION, STORE): 2,
    (STORE, DEFAULT_LOCATION, WAREHOUSE): 1,
}


def with_locations(messages: Iterable[OrderMessage], chance: random.Random) -> list[OrderMessage]:
    """Add `LOCATIONS` to orders, in order of preference. Every second order for several products may be split."""
    return [_with_locations(message, chance) for message in messages]


def _with_locations(message: OrderMessage, chance: random.Random) -> OrderMessage:
    document = json.loads(message.body)
    (wish,) = chance.choices(list(_WISHES), list(_WISHES.values()))
    document["locations"] = list(wish)
    if len({item["productId"] for item in document["items"]}) > 1 and chance.random() < 0.5:
        document["split"] = True
    return message_of(json.dumps(document))


def never_paid(run: str) -> list[Order]:
    """Make orders for one unit each of `HELD_PRODUCT`. They stay unpaid, so their holds expire.

    Their holds are shorter than 60 s, the minimum in a message, so that they expire during the demonstration.
    """
    return [
        Order(
            f"{run}-unpaid-{n}",
            f"user-{n}",
            {HELD_PRODUCT.product_id: 1},
            default_hold=HOLD_SECONDS,
        )
        for n in range(UNPAID)
    ]


def own_id(product_id: str) -> str:
    """Return the id of the demonstration's own copy of a sample product. The sample product stays unchanged."""
    return f"{_OWN}{product_id}"


def own_location(location_id: str) -> str:
    """Return the demonstration's own location for one of `LOCATIONS`, which a user may have too."""
    return location_id and f"{_OWN}{location_id}"


def own(product: NewProduct) -> NewProduct:
    """Make the demonstration's own copy of a sample product, with another name, because lists show both products."""
    name = product.name and f"{product.name} (demo)"
    key = product.product_id
    own_key = stock_key(own_id(product_of(key)), own_location(location_of(key)))
    return replace(product, product_id=own_key, name=name)


def _prefixed(prefix: str, given: str, longest: int) -> str:
    """Prefix an id. If the result is too long, a hash replaces the id, so that different ids stay different."""
    long = f"{prefix}{given}"
    return (
        long if len(long) <= longest else prefix + hashlib.sha256(given.encode()).hexdigest()[:40]
    )


def own_orders(messages: Iterable[OrderMessage]) -> list[OrderMessage]:
    """Replace the sample products and their locations in orders with the demonstration's own."""
    return [_own_order(message) for message in messages]


def _own_order(message: OrderMessage) -> OrderMessage:
    document = json.loads(message.body)
    for line in document["items"]:
        line["productId"] = own_id(line["productId"])
    if "locations" in document:
        document["locations"] = [own_location(one) for one in document["locations"]]
    return message_of(json.dumps(document))


def copies_of(
    messages: Iterable[OrderMessage], locations: tuple[str, ...] = (DEFAULT_LOCATION,)
) -> list[OrderMessage]:
    """Replace the products in the valid orders of a file with copies. The user's products stay unchanged.

    Args:
        messages: The orders, and lines that are not orders.
        locations: The setting `locations`. With these, orders of many products become invalid.
    """
    return [
        message if message.order_id is None else _copy_of(message, locations)
        for message in messages
    ]


def _copy_of(message: OrderMessage, locations: tuple[str, ...]) -> OrderMessage:
    document = json.loads(message.body)
    for line in document["items"]:
        line["productId"] = _prefixed(COPY, line["productId"], _LONGEST_PRODUCT_ID)
    copy = message_of(json.dumps(document))
    try:
        order_in(strict_json(copy.body), default_locations=locations)
    except InvalidMessageError:
        return replace(copy, order_id=None)
    return copy


def invalid_orders(run: str, count: int, good: Sequence[OrderMessage]) -> list[OrderMessage]:
    """Make invalid orders of each kind in turn. Some of them reuse the id of a valid order."""
    many = ", ".join(_line(f"tea-{number}", "1") for number in range(100))
    kinds = [
        '{"orderId": "{id}", "userId": ',
        "Dear shop, please send me two packets of Earl Grey.",
        _document("{id}", '"items": []'),
        _document("{id}", f'"items": [{_line(HOT_PRODUCT, "1")}], "coupon": "FREE"'),
        *(
            _document("{id}", f'"items": [{_line(HOT_PRODUCT, quantity)}]')
            for quantity in ("2.0", "0", '"1"', "NaN", "true", "1000001")
        ),
        _document("{id}", f'"items": [{_line(HOT_PRODUCT, "1")}], "items": []'),
        _document("{id}", f'"items": [{many}]'),
        _document(
            "{id}", f'"items": [{_line(HOT_PRODUCT, "1")}], "locations": ["{STORE}", "{STORE}"]'
        ),
        _document("{id} with spaces", f'"items": [{_line(HOT_PRODUCT, "1")}]'),
        f'{{"userId": "mallory", "items": [{_line(HOT_PRODUCT, "1")}]}}',
        _document("{used}", f'"items": [{_line(HOT_PRODUCT, "1")}]'),
    ]
    messages = []
    for number in range(count):
        used = good[number * 7 % len(good)].order_id or ""
        bad_id = f"{run}-invalid-{number}"
        body = kinds[number % len(kinds)].replace("{id}", bad_id).replace("{used}", used)
        messages.append(OrderMessage(body, None, HOT_PRODUCT))
    return messages


def _document(order_id: str, fields: str) -> str:
    return f'{{"orderId": "{order_id}", "userId": "mallory", {fields}}}'


def _line(product_id: str, quantity: str) -> str:
    return f'{{"productId": "{product_id}", "quantity": {quantity}}}'


def orders_of(path: Path, run: str, count: int | None) -> list[OrderMessage]:
    """Read the first orders of a file, and give them ids of this run, so that each run places new orders.

    Args:
        path: `REAL_ORDERS`, or a file that `read_orders` accepts.
        run: Prefix of the ids.
        count: How many orders to read; None for all.

    Raises:
        UserError: The file cannot be read.
    """
    messages = _baskets() if is_real(path) else read_orders(path)
    return [
        message
        if message.order_id is None
        else message_of(
            json.dumps(
                json.loads(message.body)
                | {"orderId": _prefixed(f"{run}-", message.order_id, _LONGEST_ORDER_ID)}
            )
        )
        for message in islice(messages, count)
    ]


def is_real(path: Path) -> bool:
    """Whether this is the file `REAL_ORDERS`."""
    return path.resolve() == REAL_ORDERS


def _baskets() -> Iterator[OrderMessage]:
    """Read `REAL_ORDERS`. Quantities (1 to 3) and customers are made up, but are the same on every run."""
    with gzip.open(REAL_ORDERS, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            products = [
                (code, hashlib.sha256(f"basket-{number:06}/{code}".encode()).digest()[0] % 3 + 1)
                for code in line.rstrip("\n").split(",")
            ]
            customer = f"customer-{number % 10_000:04}"
            yield order_message(f"basket-{number:06}", customer, products)


def demand(
    messages: Sequence[OrderMessage], locations: tuple[str, ...] = (DEFAULT_LOCATION,)
) -> dict[str, int]:
    """Add up the ordered units of each product, at the first location of each order.

    An order that is sent twice counts once.

    Args:
        messages: The orders, and lines that are not orders.
        locations: The setting `locations`, for orders that name none.

    Returns:
        Units by the key of a product's row, over all valid orders. They are 0 where orders look only after the first location.
    """
    valid = [message for message in reversed(messages) if message.order_id is not None]
    wanted: dict[str, int] = {}
    for message in {message.order_id: message for message in valid}.values():
        order = order_in(strict_json(message.body), default_locations=locations)
        for key, quantity in zip(order.offers[0], order.quantities.values(), strict=True):
            wanted[key] = wanted.get(key, 0) + quantity
        for key in order.product_ids:
            wanted.setdefault(key, 0)
    return wanted


def stock_for(wanted: Mapping[str, int]) -> list[NewProduct]:
    """Create a catalogue for the orders of a file, with enough stock of most products and too little of a few best sellers.

    Args:
        wanted: Units by the key of a product's row. Products that are wanted only at other locations have no units at the default one.
    """
    best_sellers = sorted(filter(wanted.get, wanted), key=lambda key: (-wanted[key], key))
    scarce = set(best_sellers[5 : max(6, len(best_sellers) // 40) : 5])
    everywhere = {product_of(key): 0 for key in wanted} | dict(wanted)
    return [
        NewProduct(
            key, min(_MOST_UNITS, units * 3 // 4 if key in scarce else units), low_stock_threshold=5
        )
        for key, units in sorted(everywhere.items())
    ]
