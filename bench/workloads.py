"""Builds the workloads, each of which is a catalogue with stock, and orders as message bodies."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from bench import contenders
from inventory_orders.domain.location import DEFAULT_LOCATION, stock_key
from inventory_orders.messages.commands import MAX_CANDIDATES
from local import ROOT, sample_orders
from local.sample_orders import demand, orders_of
from operations.errors import UserError
from operations.orders_file import OrderMessage

REAL_ORDERS = str(sample_orders.REAL_ORDERS.relative_to(ROOT))
"""The file of real orders, from the project's root. Their quantities are invented: the data has none."""

NAMES = ("hot", "zipf", "real", "real-scarce", "sell-out")

CREATED_AT = "2026-11-01T00:00:00.000000+00:00"
WARM_UP_PRODUCT = "warm-up"
PLENTY = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Orders for a catalogue.

    Attributes:
        name: Name on the command line.
        title: Name in reports.
        stock: Opening stock, by the key of a product's row at a location.
        bodies: The orders as message bodies, by order id, in the order in which they are sent.
        attributes: Further attributes of all products' rows.
    """

    name: str
    title: str
    stock: Mapping[str, int]
    bodies: Mapping[str, str]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def quantities(self, order_id: str) -> dict[str, int]:
        """The units of an order, by product."""
        return contenders.quantities(json.loads(self.bodies[order_id]))

    def preferred(self, order_id: str) -> dict[str, int]:
        """The units of an order, by the row that it prefers."""
        (first, *_) = json.loads(self.bodies[order_id]).get("locations", [DEFAULT_LOCATION])
        return {stock_key(p, first): units for p, units in self.quantities(order_id).items()}


def hot_product(count: int, seed: int) -> Workload:
    """Make orders for one product, with enough stock for all."""
    chance = random.Random(f"hot {seed}")
    orders = [_order(f"hot-{n:06}", [("drop", chance.choice((1, 1, 1, 2)))]) for n in range(count)]
    return Workload("hot", "one hot product", {"drop": PLENTY}, dict(orders))


def sell_out(count: int, seed: int) -> Workload:
    """Make orders for one product, with stock for half of them."""
    chance = random.Random(f"sell-out {seed}")
    wanted = [chance.choice((1, 1, 1, 2)) for _ in range(count)]
    orders = [_order(f"out-{n:06}", [("drop", quantity)]) for n, quantity in enumerate(wanted)]
    return Workload("sell-out", "a sell-out", {"drop": sum(wanted) // 2}, dict(orders))


def limited_sale(
    count: int, seed: int, keys: int = 1, *, flood: int = 0, sells_out: bool = True
) -> Workload:
    """Make orders for one product with a purchase limit of 2. A tenth of them exceeds it, because the same buyer orders twice.

    Args:
        count: Number of orders.
        seed: Seed of the quantities.
        keys: How many keys each buyer has.
        flood: How many more orders one buyer sends in between.
        sells_out: Whether the stock covers only half of the ordered units.
    """
    chance = random.Random(f"limited {seed}")
    orders: list[tuple[str, str]] = []
    wanted = 0
    for number in range(count):
        again = number % 10 == 9
        quantity = 2 if again else chance.choice((1, 1, 1, 2))
        wanted += quantity
        orders.append(_limited(f"limited-{number:06}", number - again, quantity, keys))
    orders += [_limited(f"flood-{number:06}", count, 1, keys) for number in range(flood)]
    chance.shuffle(orders)
    stock = {"drop": wanted // 2 if sells_out else PLENTY}
    title = f"a sale of a limited product, {keys} keys for each buyer"
    return Workload("limited", title, stock, dict(orders), {"purchaseLimit": 2})


def _limited(order_id: str, buyer: int, quantity: int, keys: int) -> tuple[str, str]:
    _, body = _order(order_id, [("drop", quantity)])
    buyers = [f"buyer-{buyer}-{key}" for key in range(keys)]
    return order_id, json.dumps(json.loads(body) | {"buyers": buyers})


def without_limit(workload: Workload) -> Workload:
    """Give a workload no purchase limit, and a threshold because of which its products are not lent either."""
    low = {"lowStockThreshold": PLENTY, "status": "LOW_STOCK"}
    return replace(workload, title=f"{workload.title}, without the limit", attributes=low)


def zipf(count: int, seed: int, size: int = 1_000) -> Workload:
    """Make orders for 1 to 5 of the products, with popularity by Zipf's law (exponent 1)."""
    chance = random.Random(f"zipf {seed}")
    products = [f"product-{rank:04}" for rank in range(1, size + 1)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, size + 1)))
    orders = []
    for number in range(count):
        chosen = chance.choices(products, cum_weights=weights, k=chance.randint(1, 5))
        lines = [(product_id, chance.choice((1, 1, 2, 3))) for product_id in dict.fromkeys(chosen)]
        orders.append(_order(f"zipf-{number:06}", lines))
    stock = dict.fromkeys(products, PLENTY)
    return Workload("zipf", f"Zipf over {size:,} products", stock, dict(orders))


def groups(count: int, seed: int, size: int = 200) -> Workload:
    """Make orders for one product each. Every product has 100 to 1,000 units."""
    chance = random.Random(f"groups {seed}")
    stock = {f"product-{number:04}": chance.randint(100, 1_000) for number in range(size)}
    products = list(stock)
    orders = [
        _order(f"group-{number:06}", [(chance.choice(products), chance.choice((1, 1, 1, 2)))])
        for number in range(count)
    ]
    return Workload("groups", f"{size} products in groups", stock, dict(orders))


def scarce(count: int, seed: int, size: int = 40) -> Workload:
    """Make orders for 1 to 5 of the products. The stock covers half of the ordered units, so most products sell out."""
    chance = random.Random(f"scarce {seed}")
    products = [f"product-{number:04}" for number in range(size)]
    orders = []
    for number in range(count):
        chosen = chance.sample(products, chance.randint(1, 5))
        lines = [(product_id, chance.choice((1, 1, 1, 2))) for product_id in chosen]
        orders.append(_order(f"scarce-{number:06}", lines))
    # An order asks for 3.75 units on average.
    stock = dict.fromkeys(products, max(1, round(count * 3.75 / size / 2)))
    return Workload("scarce", f"{size} scarce products", stock, dict(orders))


def at_locations(
    workload: Workload, locations: Sequence[str], first: int | None = None
) -> Workload:
    """Spread the stock evenly over locations. Each location is preferred by an equal share of the orders.

    Args:
        workload: The orders, and their stock at one location.
        locations: The locations.
        first: If given, all orders prefer the first location, which has this many units of each product; the other
            locations share the rest.
    """
    stock, bodies = dict[str, int](), dict[str, str]()
    shares = len(locations) if first is None else len(locations) - 1
    for product_id, units in workload.stock.items():
        rest = units - (first or 0)
        for number, location in enumerate(locations):
            least, more = divmod(rest, shares)
            share = least + (number % shares < more)
            is_given = first is not None and number == 0
            stock[stock_key(product_id, location)] = (first or 0) if is_given else share
    for number, (order_id, body) in enumerate(workload.bodies.items()):
        turn = number % len(locations) if first is None else 0
        turned = [*locations[turn:], *locations[:turn]]
        # The largest orders may name fewer locations.
        most = MAX_CANDIDATES // len(workload.quantities(order_id))
        bodies[order_id] = json.dumps(json.loads(body) | {"locations": turned[:most]})
    title = f"{workload.title} at {len(locations)} locations"
    return Workload(workload.name, title, stock, bodies)


@cache
def real_orders(count: int, file: str = REAL_ORDERS, *, scarce: bool = False) -> Workload:
    """Read those orders of a file that each fit into one transaction. If there are too few, the file is repeated with new ids.

    Args:
        count: Number of orders.
        file: Path of the file, absolute or from the project's root. Besides `REAL_ORDERS`, it may be any file that the
            command `send` accepts.
        scarce: Whether the stock just covers these orders, instead of being plentiful.

    Raises:
        UserError: The file cannot be read, or has no order that fits.
    """
    messages: list[OrderMessage] = []
    for time in itertools.count():
        # One order in 30 has more than 99 products, which no contender can place in one transaction.
        read = orders_of(ROOT / file, f"real-{time}", count + count // 10 + 1)
        fitting = [message for message in read if message.order_id][: count - len(messages)]
        if not fitting:
            raise UserError(f"{file} has no orders that fit into a transaction")
        messages += fitting
        if len(messages) == count:
            break
    bodies = {message.order_id: message.body for message in messages if message.order_id}
    stock = demand(messages)
    if scarce:
        return Workload("real-scarce", "real orders, little stock", stock, bodies)
    return Workload("real", "real orders", dict.fromkeys(stock, PLENTY), bodies)


def make(name: str, count: int, seed: int, orders: str = REAL_ORDERS) -> Workload:
    """Create a workload by its name.

    Args:
        name: One of `NAMES`.
        count: Number of orders.
        seed: Seed of its orders; real orders need none.
        orders: The file of real orders.

    Raises:
        UserError: There is no such workload, or its file cannot be read.
    """
    if name in ("real", "real-scarce"):
        return real_orders(count, orders, scarce=name == "real-scarce")
    makers = {"hot": hot_product, "zipf": zipf, "sell-out": sell_out}
    if name not in makers:
        raise UserError(f"{name} is not a workload; the workloads are {', '.join(NAMES)}")
    return makers[name](count, seed)


def endless(workload: Workload, seed: int) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Repeat the orders of a workload without end: shuffled each time, and with new ids.

    Yields:
        Id, message body, and units by product.
    """
    chance = random.Random(f"queue {seed}")
    orders = [
        (order_id, json.loads(body), workload.quantities(order_id))
        for order_id, body in workload.bodies.items()
    ]
    for time in itertools.count():
        for order_id, order, wanted in chance.sample(orders, len(orders)):
            new_id = f"{order_id}-{time}"
            body = order | {"orderId": new_id, "userId": f"user-{order_id[-5:]}"}
            yield new_id, json.dumps(body), wanted


def with_depth(workload: Workload, seconds: float) -> Workload:
    """Give a workload enough stock for a number of seconds at 500 orders a second."""
    demand = dict.fromkeys(workload.stock, 0)
    for order_id in workload.bodies:
        for product_id, units in workload.quantities(order_id).items():
            demand[product_id] += units
    each = 500 * seconds / len(workload.bodies)
    stock = {product_id: max(1, round(each * units)) for product_id, units in demand.items()}
    return replace(workload, stock=stock)


def product_rows(workload: Workload) -> list[dict[str, Any]]:
    """Build the rows of the Products table as plain values: the catalogue, and the product for warm-up orders."""
    return [
        {
            "productId": product_id,
            "stockCount": stock,
            "onHand": stock,
            "_version": 1,
            "status": "ACTIVE",
            "lowStockThreshold": 0,
            "createdAt": CREATED_AT,
            "lastUpdatedAt": CREATED_AT,
            **(workload.attributes if product_id in workload.stock else {}),
        }
        for product_id, stock in [*workload.stock.items(), (WARM_UP_PRODUCT, PLENTY)]
    ]


def warm_up_order(worker: int) -> str:
    """Build the body of a warm-up order, which is not part of the workload."""
    return _order(f"warm-up-{worker}", [(WARM_UP_PRODUCT, 1)])[1]


def sqs_event(
    messages: Sequence[tuple[str, int, float]],
) -> dict[str, Any]:
    """Build the event that Lambda passes to a handler.

    Args:
        messages: For each message, its body, the number of deliveries, and the Unix second of the first delivery. Its
            position becomes the `messageId`.
    """
    return {
        "Records": [
            {
                "messageId": str(position),
                "receiptHandle": f"receipt-{position}",
                "body": body,
                "attributes": {
                    "ApproximateReceiveCount": str(deliveries),
                    "SentTimestamp": "1793491200000",
                    "SenderId": "bench",
                    "ApproximateFirstReceiveTimestamp": str(int(first * 1000)),
                },
                "messageAttributes": {},
                "md5OfBody": "",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:bench",
                "awsRegion": "us-east-1",
            }
            for position, (body, deliveries, first) in enumerate(messages)
        ]
    }


def _order(order_id: str, lines: Sequence[tuple[str, int]]) -> tuple[str, str]:
    items = [{"productId": product_id, "quantity": quantity} for product_id, quantity in lines]
    body = {"orderId": order_id, "userId": f"user-{order_id[-5:]}", "items": items}
    return order_id, json.dumps(body)
