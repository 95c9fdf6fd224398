"""The demonstration: a shop's day in a few seconds, and the books at the end."""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from inventory_orders.clock import Clock, Deadline, SystemClock
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.change import IdempotencyMatch, OrderStatus
from inventory_orders.domain.events import EventType
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import PoisonMessageError, Verdict
from inventory_orders.messages.parse import parse_order
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import Row, read_order
from local import STATE, sample_orders
from local.emulator import Emulator
from local.process import LOGS
from local.shop import Shop, percentile
from operations import emf, queues
from operations.audit import Account, Books, read_books
from operations.aws import Aws
from operations.errors import UserError
from operations.follow import Heard, listening
from operations.lanes import read_all
from operations.orders_file import OrderMessage
from operations.words import counted

ORDERS = 2000
_QUIET_SECONDS = 90
_COLUMNS = 40
_LOG_GROUP = "PlaceOrdersLogGroupName"


@dataclass(frozen=True)
class Workload:
    """The messages of the demonstration.

    Attributes:
        products: The opening stock.
        unpaid: Orders that are placed beforehand, and stay unpaid until their hold ends.
        standard: Messages for the standard queue, in order, including duplicates and poison.
        fifo: Messages for the FIFO queue.
        title: The heading of its summary.
    """

    products: Sequence[NewProduct]
    unpaid: Sequence[Order]
    standard: Sequence[OrderMessage]
    fifo: Sequence[OrderMessage]
    title: str

    @property
    def messages(self) -> list[OrderMessage]:
        """The messages of both queues."""
        return [*self.standard, *self.fifo]

    @property
    def order_ids(self) -> set[str]:
        """Ids of the distinct valid orders among the messages."""
        return {m.order_id for m in self.messages if m.order_id is not None}


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration.

    Attributes:
        workload: The messages that were sent.
        seconds: From the first message sent until the last one ended.
        books: The tables at the end.
        dead_letters: The dead letters of this workload, without duplicates.
        samples: The handlers' metrics of this run.
        lost: Number of messages of valid orders that are not stored, and of others that are no dead letters.
        shop: The shop, with the events that it heard.
    """

    workload: Workload
    seconds: float
    books: Books
    dead_letters: Sequence[queues.DeadLetter]
    samples: Sequence[emf.Sample]
    lost: int
    shop: Shop

    @property
    def rows(self) -> dict[str, Row]:
        """The stored orders of this run: those that were sent, and those that were placed beforehand."""
        ids = self.workload.order_ids | {order.order_id for order in self.workload.unpaid}
        return {
            order_id: self.books.orders[order_id] for order_id in ids & self.books.orders.keys()
        }

    @property
    def sent(self) -> list[Row]:
        """The stored orders that were sent."""
        sent = self.workload.order_ids
        return [row for order_id, row in self.rows.items() if order_id in sent]

    @property
    def differences(self) -> list[str]:
        """Differences between events and rows, and unpaid orders that have not expired."""
        held = (
            f"{order.order_id}: unpaid, and not expired"
            for order in self.workload.unpaid
            if self.rows.get(order.order_id, {}).get("status") != OrderStatus.EXPIRED
        )
        return [*self.shop.differences(self.rows), *held]

    @property
    def accounts(self) -> list[Account]:
        """The accounts of this workload's products only."""
        own = {product.product_id for product in self.workload.products}
        return [account for account in self.books.accounts if account.product_id in own]

    @property
    def balance(self) -> bool:
        """Whether every row can be read, and the accounts of these products are settled and show nothing wrong."""
        return not self.books.corrupt and all(account.balances for account in self.accounts)

    @property
    def missing(self) -> int:
        """Number of events that did not come."""
        return max(0, self.shop.awaited - len(self.shop.heard))

    @property
    def sold(self) -> Counter[tuple[str, str]]:
        """Units that the orders of this run took, by product and incarnation."""
        units: Counter[tuple[str, str]] = Counter()
        for row in self.rows.values():
            order = read_order(row)
            incarnations = {
                line.product_id: (line.product_id, line.product_created_at)
                for line in order.lines
                if line.product_created_at is not None
            }
            for line in order.lines:
                if line.product_id in incarnations:
                    units[incarnations[line.product_id]] += line.quantity
            for step in order.steps:
                for product_id in step.returned_versions:
                    units[incarnations[product_id]] -= (step.quantities or {})[product_id]
        return units

    @property
    def summary(self) -> dict[str, Any]:
        """The content of `.local/demo.json`: every figure that `show` prints, of this run alone."""
        reasons = Counter(row["reason"] for row in self.sent if row["status"] == "REJECTED")
        rejected = reasons.total()
        placed = len(self.sent) - rejected
        attempts = emf.values_of(self.samples, "VersionConflict")
        retries = emf.values_of(self.samples, "Retries")
        transactions = len(emf.values_of(self.samples, "OrdersPerTransaction"))
        codes = Counter(dead_letter.code for dead_letter in self.dead_letters)
        messages = len(self.workload.messages)
        events, delays = self.shop.events, self.shop.delays
        return {
            "ordersSent": len(self.workload.order_ids),
            "messagesSent": messages,
            "ordersPlaced": placed,
            "ordersRejected": rejected,
            "rejectedByReason": dict(reasons.most_common()),
            "ordersReplayed": int(sum(emf.values_of(self.samples, "OrdersReplayed"))),
            "ordersLost": self.lost,
            "deadLetters": len(self.dead_letters),
            "deadLettersByCode": dict(codes.most_common()),
            "booksBalance": self.balance,
            "seconds": round(self.seconds, 3),
            "ordersPerSecond": round((placed + rejected) / self.seconds, 1),
            "messagesPerSecond": round(messages / self.seconds, 1),
            "transactions": transactions,
            "transactionsPer100Orders": round(100 * transactions / max(1, placed + rejected), 1),
            "commitAttempts": len(attempts),
            "conflicts": int(sum(attempts)),
            "conflictRate": round(sum(attempts) / max(1, len(attempts)), 4),
            "retriesOnAverage": round(sum(retries) / max(1, len(retries)), 3),
            "retriesAtMost": int(max(retries, default=0)),
            "eventsDelivered": events.total(),
            "eventsByType": {kind: events[kind] for kind in EventType if kind in events},
            "eventsRepeated": self.shop.repeated,
            "eventsMissing": self.missing,
            "eventDifferences": len(self.differences),
            "eventDelayP50": round(percentile(delays, 0.50), 3),
            "eventDelayP99": round(percentile(delays, 0.99), 3),
        }

    @property
    def good(self) -> bool:
        """Whether no message was lost, the books balance, each event came, and events and rows agree."""
        return self.lost == self.missing == 0 and self.balance and not self.differences


def tea_shop_day(run: str, count: int) -> Workload:
    """Make a workload: a third of the orders for one hot product, 10 % sent twice, 1 % poison of all kinds."""
    chance = random.Random(run)
    good = sample_orders.orders(run, count, chance)
    bad = sample_orders.poison(run, max(1, count // 100), good)
    hot = [message for message in good if message.group == sample_orders.HOT_PRODUCT]
    # Half of the hot orders use the FIFO queue, so that the rest meets contention on the standard queue.
    fifo = hot[::2]
    through_fifo = {message.order_id for message in fifo}
    standard = [message for message in good if message.order_id not in through_fifo]
    for extra in [*chance.sample(good, count // 10), *bad]:
        standard.insert(chance.randrange(len(standard) + 1), extra)
    products = sample_orders.catalogue()
    unpaid = sample_orders.never_paid(run, products)
    return Workload(products, unpaid, standard, fifo, "A tea shop's day, with a hot drop")


def day_of_file(run: str, path: Path) -> Workload:
    """Make a workload of the first orders of a file, with so little stock that some products are sold out.

    Raises:
        UserError: The file holds no valid order.
    """
    messages = sample_orders.orders_of(path, run, sample_orders.ORDERS_OF_FILE)
    products = sample_orders.stock_for(sample_orders.demand(messages))
    if not products:
        raise UserError(
            f"{path} holds no valid order in its first {sample_orders.ORDERS_OF_FILE:,}; the demonstration needs one"
        )
    unpaid = sample_orders.never_paid(run, products)
    invented = path.resolve() == sample_orders.REAL_ORDERS
    title = (
        "Real orders, with invented quantities and customers"
        if invented
        else f"Orders of {path.name}"
    )
    return Workload(products, unpaid, messages, [], title)


def run_demo(aws: Aws, emulator: Emulator, console: Console, orders: Path | None) -> DemoResult:
    """Stock the shop, send the orders, wait until every message has ended, and read the books.

    Raises:
        UserError: Another demonstration is running, the queues do not drain, or the embedded AWS stops.
    """
    with _alone():
        return _run(aws, emulator, console, orders)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one demonstration of a checkout run at a time, because handlers log figures per batch, not per sender."""
    with (STATE / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another demo is running on this embedded AWS, and their figures would mix: "
                "start this one when the other one has ended"
            ) from None
        yield


def _run(aws: Aws, emulator: Emulator, console: Console, orders: Path | None) -> DemoResult:
    run = f"d{uuid.uuid4().hex[:6]}"
    workload = day_of_file(run, orders) if orders else tea_shop_day(run, ORDERS)
    if queues.FIFO not in aws.outputs:
        workload = replace(workload, standard=workload.messages, fifo=())
    _wait_for_earlier_messages(aws, emulator, console)
    with console.status(f"Stocking {counted(len(workload.products), 'product')}"):
        stock_up(aws, workload.products, run)
    since = int(time.time() * 1000)
    with listening(aws) as listen:
        place_unpaid(aws, workload.unpaid)
        began = time.monotonic()
        ids = _send_and_watch(aws, emulator, console, workload)
        seconds = time.monotonic() - began
        unpaid = frozenset(order.order_id for order in workload.unpaid)
        shop = Shop(run, len(workload.order_ids), unpaid)
        _live_on(aws, emulator, console, shop, listen)

    with console.status("Reading the books"):
        books = read_books(aws)
        dead_letters = {
            dead_letter.original_message_id: dead_letter
            for dead_letter in queues.dead_letters(aws, 100_000)
            if dead_letter.original_message_id in ids
        }
        samples = _samples_since(since, emf.read_samples(aws, _LOG_GROUP, since))
    return DemoResult(
        workload=workload,
        seconds=seconds,
        books=books,
        dead_letters=list(dead_letters.values()),
        samples=samples,
        lost=count_lost(ids, dead_letters, books),
        shop=shop,
    )


def place_unpaid(aws: Aws, orders: Sequence[Order], clock: Clock | None = None) -> None:
    """Place orders with holds of a few seconds. The stack's sweep then finds their ends.

    The engine places them in this process, with a default hold that is shorter than the settings allow.

    Args:
        aws: The stack.
        orders: The orders.
        clock: Source of the time at which they are placed, and so of the ends of their holds.
    """
    report = Committer(Store(aws.dynamodb, aws.tables), clock=clock).apply(
        orders, Deadline.after(60, SystemClock())
    )
    failed = [outcome for outcome in report.outcomes if outcome.verdict is not Verdict.APPLIED]
    if failed:
        raise UserError(f"an order with a short hold could not be placed: {failed[0]}")
    aws.functions.invoke(FunctionName=aws.live("Sweep"), Payload=json.dumps({"action": "sweep"}))


def _live_on(
    aws: Aws,
    emulator: Emulator,
    console: Console,
    shop: Shop,
    listen: Callable[[float], Iterable[Heard]],
) -> None:
    """Hear the orders' events, pay, ship and take back, until all expected events have come or nothing moves any more."""
    patience = Patience()
    with progress_bar(console) as progress:
        bar = progress.add_task("Outcomes", total=shop.awaited, note="")
        while len(shop.heard) < shop.awaited:
            emulator.check()
            # Not for longer: it answers what it has heard when it has listened.
            queues.send(aws, queues.COMMANDS, shop.hear(listen(0.1)))
            last = next(reversed(shop.heard.values()), None)
            progress.update(
                bar,
                completed=len(shop.heard),
                total=shop.awaited,
                note="" if last is None else last.event["detail-type"],
            )
            # Totals: a message that is delivered again and again without success does not move.
            commands = queues.depth(aws, queues.COMMANDS).total
            holds = queues.depth(aws, queues.EXPIRIES).total
            if patience.is_over((len(shop.heard), shop.repeated, commands, holds)):
                missing = shop.awaited - len(shop.heard)
                console.print(
                    f"[bold red]Nothing has moved for {_QUIET_SECONDS} s, so the demo waits no longer for "
                    f"{counted(missing, 'event')}. In the queues: {counted(commands, 'command')}, "
                    f"{counted(holds, 'hold')} to end.[/] {_where_to_look()}",
                    soft_wrap=True,
                )
                return


def _samples_since(since: int, found: Iterable[emf.Sample]) -> list[emf.Sample]:
    """Select the metrics since a time (Unix milliseconds).

    The embedded AWS may write the last lines of an invocation later, among those of the next run.
    """
    return [sample for sample in found if sample.timestamp >= since]


def count_lost(
    messages: Mapping[str, OrderMessage],
    dead_letters: Mapping[str, queues.DeadLetter],
    books: Books,
) -> int:
    """Count the messages of valid orders that are not stored, and the others that are no dead letters.

    A valid order may be a dead letter only if another message under its id was first.

    Args:
        messages: The messages that were sent, by SQS message id.
        dead_letters: Their dead letters, by SQS message id.
        books: The tables afterwards.
    """
    stored = {key: _stored_id(message, books) for key, message in messages.items()}
    stored_ids = set(stored.values())

    def is_lost(key: str, message: OrderMessage) -> bool:
        dead_letter = dead_letters.get(key)
        if dead_letter is None:
            return stored[key] is None
        if message.order_id is None:
            return False
        is_second = stored[key] is None and message.order_id in stored_ids
        return not (is_second and dead_letter.code == Order.id_reused_code)

    return sum(is_lost(key, message) for key, message in messages.items())


def _stored_id(message: OrderMessage, books: Books) -> str | None:
    """The id of a message's order if it is stored with the same content, else None."""
    try:
        order = parse_order(message.body)
    except PoisonMessageError:
        return None
    row = books.orders.get(order.order_id)
    is_stored = row is not None and order.match(read_order(row)) is IdempotencyMatch.SAME_REQUEST
    return order.order_id if is_stored else None


def stock_up(aws: Aws, products: Sequence[NewProduct], run: str) -> None:
    """Create missing products, and set all others to their opening stock with adjustments."""
    store = Store(aws.dynamodb, aws.tables)
    with ThreadPoolExecutor(4) as pool:
        created = list(pool.map(ProductCatalogue(RetryingClient(store)).create, products))
    known = [product for product, (new, _) in zip(products, created, strict=True) if not new]
    places = read_all(aws)
    adjustments = []
    for product in known:
        delta = product.opening_stock - places.on_hand(product.product_id)
        if delta:
            restock = Adjustment(product.product_id, f"restock-{run}", delta, "CORRECTION")
            adjustments.append(restock)
    report = Committer(store).apply(adjustments, Deadline.after(60, SystemClock()))
    failed = [outcome for outcome in report.outcomes if outcome.verdict is not Verdict.APPLIED]
    if failed:
        raise UserError(f"the shop could not be restocked: {failed[0]}")


def progress_bar(console: Console) -> Progress:
    """Make a progress bar for a queue; each of its tasks has a `note`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
    )


def _where_to_look() -> str:
    return f"See `.venv/bin/inventory-orders status` and {os.path.relpath(LOGS / 'emulator.log')}"


class Patience:
    """Gives up if figures do not change for a while."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = time.monotonic()

    def is_over(self, value: object) -> bool:
        """Look at figures that change while messages move. Returns whether they have not changed for too long."""
        now = time.monotonic()
        if value != self._seen:
            self._seen, self._since = value, now
        return now - self._since > _QUIET_SECONDS

    def look(self, value: int, waiting: int) -> None:
        """Look at a figure that changes while messages move.

        Raises:
            UserError: It has not changed for too long.
        """
        if self.is_over(value):
            raise UserError(
                f"{counted(waiting, 'message')} waiting for {_QUIET_SECONDS} s. {_where_to_look()}"
            )


def _waiting(aws: Aws) -> int:
    order_queues = {queues.STANDARD, queues.FIFO} & aws.outputs.keys()
    return sum(queues.depth(aws, queue).total for queue in order_queues)


def _wait_for_earlier_messages(aws: Aws, emulator: Emulator, console: Console) -> None:
    """Wait until the order queues are empty: earlier messages would count as work of this run."""
    patience = Patience()
    with console.status("Waiting for the messages that were sent before"):
        while waiting := _waiting(aws):
            emulator.check()
            patience.look(waiting, waiting)
            time.sleep(0.1)


def _send_and_watch(
    aws: Aws, emulator: Emulator, console: Console, workload: Workload
) -> dict[str, OrderMessage]:
    """Send everything and show progress until the queues are empty. Returns the messages by SQS message id."""
    total = len(workload.messages)
    sent = 0

    def count(more: int) -> None:
        nonlocal sent
        sent += more

    with ThreadPoolExecutor(2) as pool, progress_bar(console) as progress:
        sending = [
            pool.submit(queues.send, aws, queue, messages, on_sent=count)
            for queue, messages in (
                (queues.STANDARD, workload.standard),
                (queues.FIFO, workload.fifo),
            )
            if messages
        ]
        bar = progress.add_task("Orders", total=total, note="")
        began = time.monotonic()
        patience = Patience()
        while True:
            emulator.check()
            done = all(future.done() for future in sending)
            waiting = _waiting(aws)
            settled = max(0, sent - waiting)
            pace = settled / max(time.monotonic() - began, 0.001)
            progress.update(bar, completed=settled, note=f"{pace:,.0f} a second")
            if done and waiting == 0:
                break
            patience.look(settled, waiting)
            time.sleep(0.1)
        ids = [message_id for future in sending for message_id in future.result()]
        return dict(zip(ids, workload.messages, strict=True))


def write_json(result: DemoResult) -> Path:
    """Write the summary to `.local/demo.json`, for other tools."""
    path = STATE / "demo.json"
    path.write_text(json.dumps(result.summary, indent=2) + "\n", "utf-8")
    return path


def show(result: DemoResult, console: Console) -> None:
    """Print the summary."""
    summary, samples = result.summary, result.samples
    console.print()
    console.rule(f"[bold]{result.workload.title}", align="left")
    _show_orders(summary, console)
    _show_cost(summary, console)
    _show_outcomes(result, console)
    _show_timeline(samples, console)
    _show_books(result, console)


def _show_orders(summary: dict[str, Any], console: Console) -> None:
    table = RichTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row(
        "Orders sent", f"{summary['ordersSent']:,}", f"in {summary['messagesSent']:,} messages"
    )
    table.add_row("placed", f"{summary['ordersPlaced']:,}", "stock taken, all lines or none")
    table.add_row(
        "rejected", f"{summary['ordersRejected']:,}", _counts(summary["rejectedByReason"])
    )
    table.add_row(
        "replayed",
        f"{summary['ordersReplayed']:,}",
        "duplicates, answered as done, applied once",
    )
    table.add_row(
        "dead letters", f"{summary['deadLetters']:,}", _counts(summary["deadLettersByCode"])
    )
    lost = summary["ordersLost"]
    note = "valid orders that are not stored, or others that are no dead letters"
    table.add_row("lost", f"{lost:,}", note if lost else "every message is accounted for")
    console.print(table)


def _show_cost(summary: dict[str, Any], console: Console) -> None:
    table = RichTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row(
        "Throughput",
        f"{summary['ordersPerSecond']:,.0f}/s",
        f"orders answered; {summary['messagesSent']:,} messages in {summary['seconds']:.1f} s, sending included",
    )
    table.add_row(
        "Transactions",
        f"{summary['transactionsPer100Orders']:.0f}",
        "committed per 100 orders",
    )
    table.add_row(
        "Conflicts",
        f"{summary['conflicts']:,}",
        f"{100 * summary['conflictRate']:.1f} % of {summary['commitAttempts']:,} attempts lost to a rival",
    )
    table.add_row(
        "Retries",
        f"{summary['retriesOnAverage']:.2f}",
        f"per order on average, at most {summary['retriesAtMost']}",
    )
    console.print()
    console.print(table)


def _show_outcomes(result: DemoResult, console: Console) -> None:
    """Print the events that the bus delivered."""
    summary = result.summary
    table = RichTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    words = {
        EventType.ORDER_CONFIRMED: "paid",
        EventType.ORDER_PARTLY_FULFILLED: "shipped in part",
        EventType.ORDER_PARTLY_CANCELLED: "cancelled in part",
        EventType.ORDER_FULFILLED: "shipped",
        EventType.ORDER_RETURNED: "returned",
        EventType.ORDER_EXPIRED: "expired",
        EventType.CONFIRMATION_REJECTED: "paid too late (refund)",
    }
    by_type: dict[str, int] = summary["eventsByType"]
    counts = {word: by_type[kind] for kind, word in words.items() if kind in by_type}
    table.add_row(
        "Events",
        f"{summary['eventsDelivered']:,}",
        _counts(counts),
    )
    table.add_row(
        "missing",
        f"{summary['eventsMissing']:,}",
        ""
        if result.missing or result.differences
        else "each once, those of an order in order, as in the tables",
    )
    table.add_row(
        "delay",
        f"{summary['eventDelayP50']:.1f} s",
        f"at the median, 99 % within {summary['eventDelayP99']:.1f} s; {summary['eventsRepeated']:,} came twice",
    )
    console.print()
    console.print(table)
    for difference in result.differences[:5]:
        console.print(f"[bold red]{difference}[/]", soft_wrap=True)


def _show_timeline(samples: Sequence[emf.Sample], console: Console) -> None:
    """Print throughput and conflict rate over time as bars of text."""
    answered = [
        (sample.timestamp, value)
        for name in ("OrdersPlaced", "OrdersRejected", "OrdersReplayed")
        for sample in samples
        if sample.name == name and dict(sample.dimensions).keys() == {"service"}
        for value in sample.values
    ]
    attempts = [
        (sample.timestamp, value)
        for sample in samples
        if sample.name == "VersionConflict"
        for value in sample.values
    ]
    if not answered or not attempts:
        return
    began = min(at for at, _ in answered)
    width = max(1, (max(at for at, _ in answered) - began) // _COLUMNS + 1)

    def columns(points: Sequence[tuple[int, float]]) -> list[list[float]]:
        buckets: list[list[float]] = [[] for _ in range(_COLUMNS)]
        for at, value in points:
            buckets[min(_COLUMNS - 1, max(0, at - began) // width)].append(value)
        return buckets

    rates = [sum(bucket) * 1000 / width for bucket in columns(answered)]
    conflicts = [sum(bucket) / max(1, len(bucket)) for bucket in columns(attempts)]
    console.print()
    console.print(f"[bold]Orders a second[/]  {_bars(rates, max(rates))}  up to {max(rates):,.0f}")
    console.print(
        f"[bold]Conflict rate  [/]  {_bars(conflicts, 1.0)}  up to {100 * max(conflicts):.0f} %"
    )


def _bars(values: Sequence[float], full: float) -> str:
    blocks = " ▁▂▃▄▅▆▇█"
    return "".join(blocks[round(value / max(full, 1e-9) * (len(blocks) - 1))] for value in values)


def _show_books(result: DemoResult, console: Console) -> None:
    console.print()
    sold = result.sold

    def order_of_interest(account: Account) -> tuple[bool, bool, bool, int]:
        is_hot = account.product_id == sample_orders.HOT_PRODUCT
        own = sold[account.product_id, account.created_at]
        return (account.balances, not is_hot, account.on_hand > 0, -own)

    shown = sorted(result.accounts, key=order_of_interest)[:8]
    table = RichTable(
        title="The books of this run", title_justify="left", title_style="bold", box=None
    )
    table.add_column("product")
    for heading in ("at the start", "sold", "should be", "in stock"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    for account in shown:
        own = sold[account.product_id, account.created_at]
        # Changes by other programs meanwhile count into the opening stock.
        should_be = account.adjusted - account.sold
        table.add_row(
            escape(account.product_id),
            f"{should_be + own:,}",
            f"{own:,}",
            f"{should_be:,}",
            f"{account.on_hand:,}",
            account.status,
            style="bold" if account.product_id == sample_orders.HOT_PRODUCT else "",
        )
    console.print(table)
    rest = len(result.accounts) - len(shown)
    if result.balance:
        console.print(f"[dim]... and {rest:,} more, all explained to the last unit.[/]")
        console.print("[bold green]The books balance.[/]")
    else:
        wrong = [f"{a.product_id} {_finding(a)}" for a in result.accounts if not a.balances]
        wrong += result.books.corrupt
        console.print(
            f"[bold red]The books do not balance: {counted(len(wrong), 'finding')}. See "
            "`.venv/bin/inventory-orders audit`[/]",
            soft_wrap=True,
        )
        for one in wrong[:5]:
            console.print(f"  {escape(one)}", soft_wrap=True)


def _finding(account: Account) -> str:
    """What is wrong with an account, in words."""
    if not account.settled:
        return "changed during every read"
    units = [f"{account.unexplained:+,} unexplained"] if account.unexplained else []
    return "; ".join([*units, *account.problems])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
