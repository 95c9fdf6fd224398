"""Computes the tables in docs/costs.md: what orders, and a month without orders, cost on AWS.

The numbers of read and write units follow from DynamoDB's rules and from what the service writes. A test measures
both, and the size of the log, with the real handlers. Another test counts the resources in the template. Prices come
from `operations.prices`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.settings import Settings
from inventory_orders.domain.allotments import PAGES
from inventory_orders.domain.outbound import OUTBOUND_KEYS
from inventory_orders.domain.record import OrderStatus
from inventory_orders.store.sweep_rows import STOCK_PARTS
from inventory_orders.store.tables import LATE_PAYMENT_SHARDS, TRANSFER_SHARDS, status_shards
from local import ROOT
from operations import prices
from operations.prices import Bill

PAGE = ROOT / "docs" / "costs.md"

MILLION = 1_000_000
SECONDS_OF_AN_INVOCATION = 0.1
"""Seconds of an invocation. A conservative assumption: a read and a transaction of 100 actions take some 60 ms on AWS."""
SECONDS_OF_A_COLD_START = 0.5
"""Seconds of Lambda's billed INIT phase. A conservative assumption: `python -m bench overhead` measures 0.2 to
0.35 s of CPU until a handler is ready, and Lambda gives this phase one vCPU or more."""
COLD_STARTS = 0.01
"""The minimum share of cold starts: aws.amazon.com/blogs/compute/aws-lambda-standardizes-billing-for-init-phase
says that it is below 1 % in production."""
IDLE_SECONDS = 300
"""Idle time after which a function starts cold. A conservative assumption, because AWS documents no time."""
MESSAGES_PER_POLL = 10

PLATFORM_LOG_BYTES = 300
"""Log bytes of one invocation: Lambda's own lines START, END and REPORT."""

LOG_BYTES_OF_AN_EVENT = 650
"""Log bytes of an invocation that publishes one event, within 15 %. A conservative assumption: each publishes one."""

ACCESS_LOG_BYTES = 290
"""Bytes in the access log for one request to the HTTP API, within 15 %."""

LOG_BYTES_OF_A_REQUEST = ACCESS_LOG_BYTES + 360 + PLATFORM_LOG_BYTES
"""The same with the function's log, within 15 %."""

STORED_BYTES = (552, 118, 100)
"""Stored bytes of an order of one product, held, confirmed and fulfilled: its row, and its entries in the indexes byUser and
byStatus. Its id has 6 characters, its user's and product's ids have 3."""

# A mapping polls a quiet queue with five long polls at a time, 20 seconds each. With `maximumConcurrency`, which all
# mappings here have, Lambda does not use fewer than five. AWS documents this for standard queues; for FIFO it is assumed.
# docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
HOURS_OF_A_MONTH = 730
POLLERS = 5
EMPTY_POLLS = POLLERS * HOURS_OF_A_MONTH * 3600 // 20


def seconds_of(invocations: float, cold: float = COLD_STARTS) -> float:
    """Compute how many seconds Lambda bills for a number of invocations, if a given share of them are cold starts."""
    return invocations * (SECONDS_OF_AN_INVOCATION + cold * SECONDS_OF_A_COLD_START)


def cold_starts(invocations_a_second: float) -> float:
    """Compute what share of a function's invocations are cold starts if they arrive at random times."""
    return max(COLD_STARTS, math.exp(-IDLE_SECONDS * invocations_a_second))


SWEEPS = HOURS_OF_A_MONTH * 60
READ_UNITS_OF_LANES = 49.0
"""Read units of an idle sweep in Allotments: 90 leases, existing or not, and the depot's pages. Each idle lane adds four."""
READ_UNITS_OF_HOLDS = 16
"""Read units of an idle sweep in Orders: a query for each of 32 shards. Every 35 holds or so add half a unit."""
_KEYS_OF_LISTS = LATE_PAYMENT_SHARDS + sum(
    len(status_shards(status)) for status in (OrderStatus.CONFIRMED, OrderStatus.PENDING)
)
READ_UNITS_OF_OVERVIEW = PAGES + (_KEYS_OF_LISTS + TRANSFER_SHARDS) / 2
"""Read units of an idle sweep for its overview: the depot's pages, and a query for each key of three lists of orders and of transfers."""
WRITE_UNITS_OF_A_SWEEP = 1
"""Write units of an idle sweep: the counts for the desk's first page."""
READ_UNITS_OF_A_SWEEP = (
    READ_UNITS_OF_LANES + READ_UNITS_OF_HOLDS + len(OUTBOUND_KEYS) + READ_UNITS_OF_OVERVIEW
)
"""Read units of an idle sweep, including the outbound pages."""
SWEEP = (
    prices.SCHEDULED_INVOCATION
    + prices.LAMBDA_REQUEST
    + seconds_of(1) * prices.MEMORY_GIGABYTES / 2 * prices.LAMBDA_GIGABYTE_SECOND
    + READ_UNITS_OF_A_SWEEP * prices.READ_UNIT
    + WRITE_UNITS_OF_A_SWEEP * prices.WRITE_UNIT
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Orders of one kind, or one step of their lifecycle, and the batches in which their messages arrive.

    Attributes:
        title: The name in the table.
        batch: Orders in one invocation, on average.
        lines: Products in one order.
        updates: Updates to products, pages and leases in one invocation. Several orders for one product share an update.
        reads: Read units of one invocation for products, pages and leases.
        log_bytes: Bytes that the handler logs in one invocation, including metrics (accurate to 15 %).
        row_kilobytes: Size of the order's row, rounded up.
        index_units: Write units that one order uses in the indexes.
        row_read_units: Read units that it takes to read the order's row.
        sent_together: How many messages the sender puts into one request.
        queue_requests: Additional requests to SQS in one invocation.
        cold: The share of cold starts.
        buyers: How many keys of its buyer an order for a product with a purchase limit names.
    """

    title: str
    batch: float
    lines: int
    updates: float
    reads: float
    log_bytes: int
    row_kilobytes: int = 1
    index_units: int = 2
    row_read_units: float = 0.5
    sent_together: int = 1
    queue_requests: int = 0
    cold: float = COLD_STARTS
    buyers: int = 0

    @property
    def write_units(self) -> float:
        """The write units that one order uses: its row, products, pages and buyers, doubled because of the transaction, plus the indexes."""
        own = self.row_kilobytes + self.buyers
        return 2 * own + self.index_units + 2 * self.updates / self.batch

    @property
    def read_units(self) -> float:
        """The read units that one order uses: its row, its buyers, and its share of reading each product once per invocation."""
        return self.row_read_units + self.buyers + self.reads / self.batch

    @property
    def log_bytes_of_an_order(self) -> float:
        """The number of bytes in an order's share of the invocation's log."""
        return (self.log_bytes + PLATFORM_LOG_BYTES) / self.batch

    def bill(self, orders: int) -> Bill:
        """Compute the usage of a number of orders, without storage and log."""
        invocations = orders / self.batch
        return Bill(
            write_units=self.write_units * orders,
            read_units=self.read_units * orders,
            invocations=round(invocations),
            seconds=seconds_of(invocations, self.cold),
            messages=orders // self.sent_together,
            deliveries=orders,
            messages_per_poll=min(self.batch, MESSAGES_PER_POLL),
            queue_requests=round(self.queue_requests * invocations),
        )

    def dollars(self, orders: int) -> float:
        """Compute the cost of a number of orders, without storage and log."""
        return self.bill(orders).dollars


# An order for more than ten products is placed from the worker's lane, which is full here.
_FROM_A_LANE: dict[str, Any] = {"updates": PAGES, "reads": 0, "row_read_units": 0.0}

KINDS = (
    Kind("for 1 product, one at a time", 1, lines=1, updates=1, reads=1, log_bytes=1450),
    Kind("for 1 product each, in batches of 10", 10, lines=1, updates=10, reads=10, log_bytes=2050),
    Kind("for 3 products each, in batches of 10", 10, lines=3, log_bytes=2050, **_FROM_A_LANE),
    Kind(
        "for the same hot product, in batches of 96",
        96,
        lines=1,
        updates=1,
        reads=1,
        log_bytes=6300,
    ),
    Kind(
        "the same product, but sold out",
        96,
        lines=1,
        updates=0,
        reads=1,
        log_bytes=58_000,
    ),
    Kind(
        "for 1 product with a purchase limit, in batches of 48",
        48,
        lines=1,
        updates=1,
        reads=1,
        log_bytes=3400,
        buyers=1,
    ),
    Kind(
        "for 13 products, one at a time",
        1,
        13,
        log_bytes=1450,
        row_kilobytes=2,
        **_FROM_A_LANE,
    ),
    # It takes leases of a lane and the depot (single writes: half an update each), writes 13 rows and 8 pages, and releases the depot.
    Kind(
        "the same, for a worker's first order",
        *(1, 13, 23, 24.0),
        log_bytes=1800,
        row_kilobytes=2,
        row_read_units=0.0,
    ),
)


@dataclass(frozen=True, slots=True)
class Life:
    """The lifecycle of an order, step by step. Each step publishes one event.

    Attributes:
        title: The name in the table.
        steps: The steps, in sequence.
        cold: The share of cold starts of the publishing function.
    """

    title: str
    steps: tuple[Kind, ...]
    cold: float = COLD_STARTS

    @property
    def write_units(self) -> float:
        """The write units that one order uses in all its steps."""
        return sum(step.write_units for step in self.steps)

    @property
    def read_units(self) -> float:
        """The read units that one order uses in all its steps."""
        return sum(step.read_units for step in self.steps)

    @property
    def events(self) -> int:
        """The number of events that are published for one order."""
        return len(self.steps)

    def bills(self, orders: int) -> list[Bill]:
        """Compute the usage of a number of orders for each step, and for publishing their events."""
        published = self.events * orders
        # The publishing function has half the memory.
        seconds = seconds_of(published, self.cold) / 2
        publishing = Bill(0, 0, published, seconds, 0, 0, MESSAGES_PER_POLL, events=published)
        return [*(step.bill(orders) for step in self.steps), publishing]

    def dollars(self, orders: int) -> float:
        """Compute the cost of a number of orders, without storage and log."""
        return sum(bill.dollars for bill in self.bills(orders))

    @property
    def log_bytes_of_an_order(self) -> float:
        """The number of bytes that the functions log for one order, in all its steps."""
        publishing = self.events * (LOG_BYTES_OF_AN_EVENT + PLATFORM_LOG_BYTES)
        return sum(step.log_bytes_of_an_order for step in self.steps) + publishing


def _steps(batch: float, command_batch: float, updates: float) -> list[Kind]:
    """Describe the steps of an order for one product: it is placed with a hold, confirmed and fulfilled."""
    placing, step = round(1405 + 45 * batch), round(1205 + 45 * command_batch)
    return [
        Kind("placed", batch, 1, updates, updates, placing, index_units=3),
        # The order leaves byExpiry, changes its status in byUser, and moves in byStatus, which takes two units.
        Kind("confirmed", command_batch, 1, 0, 0, step, index_units=4, row_read_units=1),
        # It writes an outbound page. The later fold by the sweep is stated separately.
        Kind("fulfilled", command_batch, 1, 1, 0, step, index_units=3, row_read_units=1),
    ]


_IN_TENS = _steps(10, 10, 10)
_EXPIRED = Kind(
    *("expired", 10, 1, 10, 10, 1750),
    index_units=4,
    row_read_units=1,
    sent_together=10,
    queue_requests=1,
)
"""The sweep sends ten holds together; before a batch of them expires, the service asks how many commands are waiting."""

LIVES = (
    Life("held, confirmed and fulfilled one at a time", tuple(_steps(1, 1, 1))),
    Life("the same in batches of 10", tuple(_IN_TENS)),
    Life("the same for a hot product, in batches of 96 and 10", tuple(_steps(96, 10, 1))),
    Life("held and expired in batches of 10", (_IN_TENS[0], _EXPIRED)),
)


@dataclass(frozen=True, slots=True)
class HandOver:
    """A hand-over by one command, and the later fold that subtracts its units from the products' rows.

    Attributes:
        title: The name in the table.
        lines: Number of products handed over.
        row_kilobytes: Size of the order's row, rounded up.
        index_units: Write units used in the indexes.
    """

    title: str
    lines: int
    row_kilobytes: int
    index_units: int

    @property
    def write_units(self) -> float:
        """The write units that the command uses, for the order's row, an outbound page of less than 1 KB, and the indexes."""
        return 2 * self.row_kilobytes + 2 + self.index_units

    def fold_units(self, alike: int) -> float:
        """The write units per hand-over, if a sweep folds `alike` hand-overs of the same products together."""
        return (2 + 2 * self.lines) / alike


HAND_OVERS = (
    HandOver("an order of 1 product", 1, 1, 3),
    HandOver("an order of 13 products", 13, 2, 3),
    # The order's status does not change.
    HandOver("1 of the 13 products", 1, 2, 0),
)
ALIKE = 100
"""The number of like hand-overs per sweep in the table."""


def batch_of(queue: str, rate: float) -> float:
    """Compute how many messages an invocation receives on average, with the default settings.

    Five pollers share the messages. Each waits for the batching window after its first message, and messages pile up
    while all workers are busy.

    Args:
        queue: The name of the queue.
        rate: How many messages arrive per second, at random times.
    """
    settings = _QUEUES[queue]
    waiting = 1 + rate * settings.batchWindowSeconds / POLLERS
    busy = rate * SECONDS_OF_AN_INVOCATION / settings.maximumConcurrency
    return min(settings.batchSize, max(waiting, busy))


def life_at(rate: float, *, hot: bool = False) -> Life:
    """Describe the lifecycle of one-product orders that are held, confirmed and fulfilled, and arrive at a given rate.

    Args:
        rate: How many orders arrive per second, at random times.
        hot: Whether all orders are for the same product. Otherwise, each is for a different one.
    """
    batch, commands = batch_of("OrderQueue", rate), batch_of("OrderCommandQueue", 2 * rate)
    steps = _steps(batch, commands, 1 if hot else batch)
    cold = [cold_starts(rate / batch), *[cold_starts(2 * rate / commands)] * 2]
    colder = (replace(one, cold=share) for one, share in zip(steps, cold, strict=True))
    return Life("held, confirmed and fulfilled", tuple(colder), cold_starts(3 * rate))


_QUEUES = Settings.from_context("dev").queues

SHOP_ORDERS = 10_000
"""Monthly orders of a small shop: one every four minutes."""

RATES = {
    f"{SHOP_ORDERS:,} a month": SHOP_ORDERS / (HOURS_OF_A_MONTH * 3600),
    "1 a second": 1.0,
    "10 a second": 10.0,
    "100 a second": 100.0,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A monthly cost that does not depend on orders.

    Attributes:
        title: The name in the table.
        count: How many of these resources a stage has.
        price: The monthly price of one resource, in USD.
    """

    title: str
    count: int
    price: float

    @property
    def dollars(self) -> float:
        """The monthly price of all these resources, in USD."""
        return self.count * self.price


_STANDARD_QUEUES = 6

STANDING = (
    Standing("custom metrics", 47, prices.CUSTOM_METRIC_MONTH),
    Standing("alarms", 74, prices.ALARM_MONTH),
    Standing("dashboards", 1, prices.DASHBOARD_MONTH),
    # Two for a table with a sort key: docs.aws.amazon.com/amazondynamodb/latest/developerguide/contributorinsights_HowItWorks.html
    Standing("rules of Contributor Insights", 4, prices.INSIGHT_RULE_MONTH),
    Standing(
        "standard queues, polled while empty", _STANDARD_QUEUES, EMPTY_POLLS * prices.SQS_REQUEST
    ),
    Standing("FIFO queues, polled while empty", 1, EMPTY_POLLS * prices.SQS_FIFO_REQUEST),
    Standing("sweeps, one a minute", SWEEPS, SWEEP),
)

BASIC = {
    "custom metrics": 0,
    "alarms": 10,
    "dashboards": 0,
    "rules of Contributor Insights": 0,
    "FIFO queues, polled while empty": 0,
}
"""Differing counts with `monitoring: basic` and without the FIFO queue, by title."""


SWEEP_MINUTES = 5
"""The setting `sweepMinutes` of the cheapest idle stage: its maximum."""


def in_free_tiers() -> float:
    """Compute what the cheapest idle stage costs a month, in USD, if nothing else uses the account's free tiers.

    The free tiers cover its alarms and invocations, but not its reads and writes, and not all of its requests to SQS.
    """
    polls = _STANDARD_QUEUES * EMPTY_POLLS - prices.FREE_SQS_REQUESTS
    units = READ_UNITS_OF_A_SWEEP * prices.READ_UNIT + WRITE_UNITS_OF_A_SWEEP * prices.WRITE_UNIT
    return polls * prices.SQS_REQUEST + SWEEPS / SWEEP_MINUTES * units


PRODUCT_BYTES = 312
"""Bytes of a product's row with a name and a price, within 10 %. Assumed."""

LEVEL_BYTES = 25
"""Bytes per product in the compressed record of the last published stock, for many products, within 10 %."""


@dataclass(frozen=True, slots=True)
class StockEvents:
    """The additional capacity that the setting `stockEvents` uses.

    Attributes:
        products: The number of products, if none of them is in lanes.
    """

    products: int

    @property
    def read_units(self) -> float:
        """The read units of a sweep: products' rows, the last published stock, and the outbound pages once per 1,000 rows."""
        rows = self.products * PRODUCT_BYTES / 4096
        outbound = len(OUTBOUND_KEYS) * math.ceil(self.products / 1_000)
        return rows + outbound + STOCK_PARTS * math.ceil(self._part_bytes / 4096) / 2

    @property
    def write_units(self) -> float:
        """The write units of one change in stock, if no other change shares its row of published stock in this sweep.

        The row is written before and after the event is published.
        """
        return 2 * math.ceil(self._part_bytes / 1024)

    @property
    def _part_bytes(self) -> float:
        return self.products / STOCK_PARTS * LEVEL_BYTES

    @property
    def month(self) -> float:
        """Compute what a month of sweeps costs, in USD, if the stock never changes."""
        return SWEEPS * self.read_units * prices.READ_UNIT

    def dollars(self, changes: int) -> float:
        """Compute what a number of changes cost, if no two of them share a row of published stock in the same sweep."""
        return changes * (self.write_units * prices.WRITE_UNIT + prices.EVENT)


STOCK_EVENTS = tuple(map(StockEvents, (1_000, 10_000, 50_000)))


POLL_SECONDS = 2.5
"""Seconds between two requests for changes of a page of the desk that is open and visible."""
READ_UNITS_OF_A_POLL = 0.5
"""Read units of such a request, while the row of changes has at most 4 KB."""
REST_SECONDS = 5
"""Least seconds between two readings of a page because of changes."""
READ_UNITS_OF_A_LIST = 146
"""Read units of a list of 100 orders to ship, of two lines each, over 30 products."""


@dataclass(frozen=True, slots=True)
class OpenDesks:
    """Pages of the desk that are open, and send a request every few seconds: by default, for what has changed.

    Attributes:
        title: The name in the table.
        pages: How many are open at the same time.
        hours: How many hours a month each of them is visible.
        seconds: Seconds between two requests.
        units: Read units of a request.
    """

    title: str
    pages: int
    hours: int
    seconds: float = POLL_SECONDS
    units: float = READ_UNITS_OF_A_POLL

    @property
    def requests(self) -> int:
        """The number of requests in a month, each with one invocation."""
        return round(self.pages * self.hours * 3600 / self.seconds)

    @property
    def read_units(self) -> float:
        """The read units of these requests."""
        return self.requests * self.units

    @property
    def dollars(self) -> float:
        """The cost of these requests without their log, in USD."""
        return asking_dollars(self.requests, read_units=self.units)

    @property
    def logged(self) -> float:
        """The cost of their log, in USD."""
        return log_dollars(self.requests * LOG_BYTES_OF_A_REQUEST)


DESKS = (
    OpenDesks("none", 0, 0),
    OpenDesks("1, for 8 hours on 22 days", 1, 8 * 22),
    OpenDesks("100, for 8 hours on 22 days", 100, 8 * 22),
    OpenDesks("100, day and night", 100, HOURS_OF_A_MONTH),
    OpenDesks(
        "100, read again every 5 s, 8 hours on 22 days",
        *(100, 8 * 22, REST_SECONDS, READ_UNITS_OF_A_LIST),
    ),
)


def _table(head: str, columns: int, rows: Sequence[str]) -> str:
    return "\n".join([head, "|---|" + "--:|" * columns, *rows]) + "\n"


def _of_a_million(orders: Kind | Life) -> str:
    logged = log_dollars(MILLION * orders.log_bytes_of_an_order)
    return f"${orders.dollars(MILLION):.2f} | ${logged:.2f}"


def _with_log(life: Life) -> str:
    return f"${life.dollars(MILLION) + log_dollars(MILLION * life.log_bytes_of_an_order):.2f}"


def _at_a_rate(title: str, ordinary: Life, hot: Life) -> str:
    placing = ordinary.steps[0]
    return (
        f"| {title} | {placing.batch:.0f} | {placing.cold:.0%} | {_with_log(ordinary)} | "
        f"{_with_log(hot)} |"
    )


def _at_all_rates() -> list[str]:
    full = _at_a_rate("full batches", Life("", tuple(_steps(96, 10, 96))), LIVES[2])
    rates = RATES.items()
    return [*(_at_a_rate(title, life_at(at), life_at(at, hot=True)) for title, at in rates), full]


def _standing_table() -> str:
    """Write the table of what a stage without orders costs each month."""
    basic = sum(one.price * BASIC.get(one.title, one.count) for one in STANDING)
    saved = (1 - 1 / SWEEP_MINUTES) * SWEEPS * SWEEP
    return _table(
        "| each month | how many | each | total |",
        3,
        [
            *(
                f"| {one.title} | {one.count:,} | ${one.price:.2f} | ${one.dollars:.2f} |"
                for one in STANDING
            ),
            f"| total | | | ${sum(one.dollars for one in STANDING):.2f} |",
            f"| with `monitoring: basic` and without the FIFO queue | | | ${basic:.2f} |",
            f"| the same with `sweepMinutes: {SWEEP_MINUTES}` | | | ${basic - saved:.2f} |",
            f"| the same within an account's free tiers | | | ${in_free_tiers():.2f} |",
        ],
    )


def tables() -> list[str]:
    """Write the tables of docs/costs.md, as Markdown."""
    shop = small_shop()
    return [
        _table(
            "| orders | write units | read units | 1 M orders | their log |",
            4,
            [
                f"| {kind.title} | {kind.write_units:.2f} | {kind.read_units:.2f} | {_of_a_million(kind)} |"
                for kind in KINDS
            ],
        ),
        _table(
            "| an order's lifecycle | write units | read units | events | 1 M orders | their log |",
            5,
            [
                f"| {life.title} | {life.write_units:.2f} | {life.read_units:.2f} | {life.events} | {_of_a_million(life)} |"
                for life in (LIVES[0], LIVES[-1])
            ],
        ),
        _table(
            f"| handed over by one command | write units | folded alone | its share of a fold of {ALIKE} |",
            3,
            [
                f"| {one.title} | {one.write_units:.2f} | {one.fold_units(1):.2f} | {one.fold_units(ALIKE):.2f} |"
                for one in HAND_OVERS
            ],
        ),
        _table(
            "| orders | orders per batch | cold starts | 1 M orders | 1 M for a hot product |",
            4,
            _at_all_rates(),
        ),
        _standing_table(),
        _table(
            "| with stockEvents | read units per sweep | a month of sweeps | write units per change | 1 M changes | 1 M orders |",
            5,
            [
                f"| {one.products:,} products | {one.read_units:,.0f} | ${one.month:.2f} | {one.write_units} | "
                f"${one.dollars(MILLION):.2f} | ${KINDS[0].dollars(MILLION) + one.dollars(MILLION):.2f} |"
                for one in STOCK_EVENTS
            ],
        ),
        _table(
            "| open pages of the desk | requests, invocations | read units | a month | their log |",
            4,
            [
                f"| {one.title} | {one.requests:,} | {one.read_units:,.0f} | ${one.dollars:.2f} | ${one.logged:.2f} |"
                for one in DESKS
            ],
        ),
        _table(
            "| a small shop's month | USD |",
            1,
            [
                *(f"| {title} | ${dollars:.2f} |" for title, dollars in shop.items()),
                f"| total | ${sum(shop.values()):.2f} |",
            ],
        ),
    ]


def updated(page: str) -> str:
    """Replace the tables in the page with up-to-date ones."""
    for table in tables():
        head = "|".join(table.split("|")[:3])
        before, _, after = page.partition(head)
        rows = re.match(r".*?\n(?!\|)", after, flags=re.DOTALL)
        if rows is None:
            raise ValueError(f"the page has no table that begins with {head}")
        page = before + table + after[rows.end() :]
    return page


def log_dollars(size: float) -> float:
    """Compute what a number of log bytes costs if CloudWatch keeps them for a month without compression."""
    return size / 10**9 * (prices.LOG_GIGABYTE + prices.LOG_GIGABYTE_MONTH)


def storage_dollars(*stored_bytes: int) -> float:
    """Compute what it costs to store a million orders for a month: rows, index entries and point-in-time recovery."""
    gigabytes = sum(size + _OVERHEAD_BYTES for size in stored_bytes) * 10**6 / 10**9
    return gigabytes * (prices.STORAGE_GIGABYTE_MONTH + prices.RECOVERY_GIGABYTE_MONTH)


def publishing_dollars(events: int, in_one_invocation: int) -> float:
    """Compute the cost of publishing a number of events: the bus and the function. Reading streams is free for Lambda.

    docs.aws.amazon.com/amazondynamodb/latest/developerguide/CostOptimization_StreamsUsage.html
    """
    seconds = seconds_of(1) * prices.MEMORY_GIGABYTES / 2
    invocation = prices.LAMBDA_REQUEST + seconds * prices.LAMBDA_GIGABYTE_SECOND
    return events * (prices.EVENT + invocation / in_one_invocation)


def asking_dollars(requests: int, write_units: float = 0.0, read_units: float = 0.0) -> float:
    """Compute the cost of a number of requests to the HTTP API: API Gateway, the function, and the tables."""
    seconds = seconds_of(1) * prices.MEMORY_GIGABYTES
    request = prices.HTTP_REQUEST + prices.LAMBDA_REQUEST + seconds * prices.LAMBDA_GIGABYTE_SECOND
    tables = write_units * prices.WRITE_UNIT + read_units * prices.READ_UNIT
    return requests * (request + tables)


REQUESTS_OF_AN_ORDER = 20
"""Assumed requests to the HTTP API per order: the order itself, and reads of products and orders, a unit each."""


def small_shop() -> dict[str, float]:
    """Compute the items of the monthly bill that a small shop gets after a year."""
    requests = SHOP_ORDERS * REQUESTS_OF_AN_ORDER
    life = life_at(RATES[f"{SHOP_ORDERS:,} a month"])
    logged = SHOP_ORDERS * life.log_bytes_of_an_order + requests * LOG_BYTES_OF_A_REQUEST
    kept = 12 * SHOP_ORDERS
    return {
        "everything that does not depend on orders": sum(one.dollars for one in STANDING),
        f"{SHOP_ORDERS:,} orders of one product, {LIVES[0].title}": life.dollars(SHOP_ORDERS),
        f"{requests:,} requests to the HTTP API": asking_dollars(requests, read_units=1.0),
        "logs of these orders and requests": log_dollars(logged),
        f"storage of {kept:,} orders": storage_dollars(*STORED_BYTES) * kept / 10**6,
    }


UNITS_OF_A_WAITED_ORDER = (6.0, 1.5)
"""Write and read units of an order of one product that the API places immediately, like a single order."""

# DynamoDB adds these bytes to each item, and to each entry of an index.
_OVERHEAD_BYTES = 100
