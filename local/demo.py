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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.change import Change, IdempotencyMatch
from inventory_orders.domain.events import EventType
from inventory_orders.domain.location import (
    DEFAULT_LOCATION,
    in_words,
    location_of,
    named_key,
    product_of,
)
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from inventory_orders.domain.record import OrderAction, OrderStatus
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
from inventory_orders.errors import InvalidMessageError, Outcome
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.messages.commands import order_in
from inventory_orders.messages.documents import strict_json
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import Row, read_order
from local import STATE, sample_orders, shelf
from local.emulator import Emulator
from local.process import LOGS
from local.shop import Shop, percentile
from operations import emf, queues
from operations.audit import read_books
from operations.aws import Aws
from operations.books import Account, Books
from operations.dead_letters import DeadLetter, read_dead_letters
from operations.errors import UserError
from operations.follow import Heard, listening
from operations.lanes import read_all
from operations.orders_file import OrderMessage
from operations.stock import list_stock
from operations.words import counted, location_name

ORDERS = 2000
HOT_PRODUCT = sample_orders.own_id(sample_orders.HOT_PRODUCT)
_QUIET_SECONDS = 90
# The units that a count finds missing, and the units that are transferred between locations.
_MISSING, _TRANSFERRED = 2, 40
_TRIES = 5
_LOG_GROUP = "PlaceOrdersLogGroupName"
_OVER = RejectionReason.PURCHASE_LIMIT.value


@dataclass(frozen=True)
class Workload:
    """The messages of the demonstration.

    Attributes:
        products: The opening stock of each product at each of its locations.
        unpaid: Orders that are placed first, and stay unpaid until their hold ends.
        standard: Messages for the standard queue, in sequence, including duplicates and invalid ones.
        fifo: Messages for the FIFO queue.
        title: The heading of its summary.
        text: A description of the orders and of all that is invented, for the user.
        default_locations: The locations that serve an order without `locations`, in order of preference.
        transfer: The locations between which some units move; None for no transfer.
        resold: Ids of the orders of a reseller, for a product with a purchase limit.
    """

    products: Sequence[NewProduct]
    unpaid: Sequence[Order]
    standard: Sequence[OrderMessage]
    fifo: Sequence[OrderMessage]
    title: str
    text: str
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,)
    transfer: tuple[str, str] | None = None
    resold: frozenset[str] = frozenset()

    @property
    def messages(self) -> list[OrderMessage]:
        """The messages of both queues."""
        return [*self.standard, *self.fifo]

    @property
    def locations(self) -> list[str]:
        """The locations with stock for the sent orders."""
        unpaid = {product_id for order in self.unpaid for product_id in order.quantities}
        stocked = {p.product_id for p in self.products if p.opening_stock} - unpaid
        return sorted({location_of(key) for key in stocked})

    @property
    def order_ids(self) -> set[str]:
        """Ids of the distinct valid orders among the messages."""
        return {m.order_id for m in self.messages if m.order_id is not None}


@dataclass(frozen=True, slots=True)
class ShelfCount:
    """A stock count of one product, after all orders.

    Attributes:
        key: The key of the row: the product and location counted.
        counted: Units found on the shelf, including units of open orders.
        committed: Counted units that open orders are waiting for.
        delta: Units found, less units on hand according to the row.
    """

    key: str
    counted: int
    committed: int
    delta: int


@dataclass(frozen=True, slots=True)
class Transferred:
    """Units that moved from one location to another while orders were placed.

    Attributes:
        product_id: The product.
        quantity: The number of units.
        source: Where they came from.
        target: Where they went.
    """

    product_id: str
    quantity: int
    source: str
    target: str


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration.

    Attributes:
        workload: The messages that were sent.
        seconds: Seconds from the first message sent until the last one was settled.
        books: The tables at the end.
        dead_letters: The dead letters of this workload, without duplicates.
        samples: The handlers' metrics of this run.
        lost: Number of messages with valid orders that were not stored, plus other messages that did not become dead
            letters.
        replayed: Number of messages that repeated a stored order.
        shop: The shop, with the events that it received.
        began: When the first message was sent (Unix milliseconds).
        count: The stock count at the end; None if there was nothing to count.
        transferred: The transfer; None if products have only one location.
    """

    workload: Workload
    seconds: float
    books: Books
    dead_letters: Sequence[DeadLetter]
    samples: Sequence[emf.Sample]
    lost: int
    replayed: int
    shop: Shop
    began: int
    count: ShelfCount | None
    transferred: Transferred | None

    @property
    def rows(self) -> dict[str, Row]:
        """The stored orders of this run, both sent and placed beforehand."""
        ids = self.workload.order_ids | {order.order_id for order in self.workload.unpaid}
        return {
            order_id: self.books.orders[order_id] for order_id in ids & self.books.orders.keys()
        }

    @property
    def sent(self) -> list[Row]:
        """The stored orders that arrived through queues."""
        sent = self.workload.order_ids
        return [row for order_id, row in self.rows.items() if order_id in sent]

    @property
    def differences(self) -> list[str]:
        """Differences between events and rows, and unpaid orders that have not expired."""
        held = (
            f"{order.order_id}: unpaid, but not expired"
            for order in self.workload.unpaid
            if self.rows.get(order.order_id, {}).get("status") != OrderStatus.EXPIRED
        )
        return [*self.shop.differences(self.rows), *held]

    @property
    def accounts(self) -> list[Account]:
        """The audit's accounts of this workload's products only."""
        own = {product.product_id for product in self.workload.products}
        return [account for account in self.books.accounts if account.product_id in own]

    @property
    def balance(self) -> bool:
        """Whether every row is readable, and the accounts of these products are final and balance."""
        return not self.books.corrupt and all(account.balances for account in self.accounts)

    @property
    def missing(self) -> int:
        """Number of events that did not arrive."""
        return max(0, self.shop.awaited - len(self.shop.heard))

    @property
    def sold(self) -> Counter[tuple[str, str]]:
        """Units that the orders of this run took, by the key of the product's row and its generation."""
        units: Counter[tuple[str, str]] = Counter()
        for row in self.rows.values():
            order = read_order(row)
            generations = {
                line.product_id: (line.key, line.product_created_at)
                for line in order.lines
                if line.product_created_at is not None
            }
            for line in order.lines:
                if line.product_id in generations:
                    units[generations[line.product_id]] += line.quantity
            for step in order.steps:
                for product_id in step.restocked_versions:
                    units[generations[product_id]] -= (step.quantities or {})[product_id]
        return units

    @property
    def placed_from(self) -> Counter[tuple[str, ...]]:
        """Count the sent orders by the locations that supplied them. A split order has several."""
        return Counter(
            tuple(sorted({line.location_id for line in read_order(row).lines}))
            for row in self.sent
            if row["status"] != OrderStatus.REJECTED
        )

    @property
    def passed_over(self) -> int:
        """How many orders were placed, but not entirely from their first location."""
        placed = (read_order(row) for row in self.sent if row["status"] != OrderStatus.REJECTED)
        default = self.workload.default_locations
        return sum(
            {line.location_id for line in order.lines} != {(order.locations or default)[0]}
            for order in placed
        )

    @property
    def moved(self) -> Counter[str]:
        """Units of this run's orders that were `shipped`, `lost` or `returned`."""
        units: Counter[str] = Counter()
        for row in self.rows.values():
            order = read_order(row)
            for line in order.units().values():
                units["shipped"] += line.moved[OrderAction.FULFIL]
                units["returned"] += line.moved[OrderAction.RETURN]
            for step in order.steps:
                if step.action == OrderAction.CANCEL and step.restock is False:
                    units["lost"] += sum((step.quantities or {}).values())
        return units

    @property
    def changes(self) -> dict[str, int]:
        """Count the amends of this run's orders, those that were refused, and the hand-overs that were undone."""
        orders = [read_order(row) for row in self.rows.values()]
        steps = Counter(step.action for order in orders for step in order.steps)
        return {
            "ordersChanged": steps[OrderAction.AMEND],
            "changesRefused": sum(len(order.rejected_amends) for order in orders),
            "handOversUndone": steps[OrderAction.UNFULFIL],
        }

    @property
    def bought(self) -> Counter[str]:
        """Units of products with a purchase limit that each buyer has bought and not cancelled."""
        units: Counter[str] = Counter()
        for order in map(read_order, self.rows.values()):
            limited = {line.product_id for line in order.lines if line.limit_group is not None}
            for product_id, line in order.units().items():
                if product_id in limited:
                    units.update(dict.fromkeys(order.buyers or (), line.bought))
        return units

    @property
    def turned_away(self) -> int:
        """How many orders of the reseller were rejected for the purchase limit."""
        resold = self.workload.resold
        return sum(row["orderId"] in resold and row.get("reason") == _OVER for row in self.sent)

    @property
    def summary(self) -> dict[str, Any]:
        """The content of `.local/demo.json`: every figure that `show` prints, for this run only."""
        reasons = Counter(row["reason"] for row in self.sent if row["status"] == "REJECTED")
        rejected = reasons.total()
        placed = len(self.sent) - rejected
        attempts = emf.values_of(self.samples, "VersionConflict")
        retries = emf.values_of(self.samples, "Retries")
        transactions = len(emf.values_of(self.samples, "OrdersPerTransaction"))
        committed = len(emf.values_of(self.samples, "CommitLatency"))
        conflicts = int(sum(attempts))
        codes = Counter(dead_letter.code for dead_letter in self.dead_letters)
        messages = len(self.workload.messages)
        events, delays = self.shop.events, self.shop.delays
        moved, placed_from = self.moved, self.placed_from
        return {
            "ordersSent": len(self.workload.order_ids),
            "messagesSent": messages,
            "ordersPlaced": placed,
            "ordersPlacedFrom": {
                location: placed_from[location,] for location in self.workload.locations
            },
            "ordersSplit": sum(n for places, n in placed_from.items() if len(places) > 1),
            "ordersNotFromFirstLocation": self.passed_over,
            "ordersRejected": rejected,
            "rejectedByReason": dict(reasons.most_common()),
            "ordersResold": len(self.workload.resold),
            "ordersTurnedAway": self.turned_away,
            "unitsOfOneBuyerAtMost": max(self.bought.values(), default=0),
            "ordersReplayed": self.replayed,
            "ordersLost": self.lost,
            "deadLetters": len(self.dead_letters),
            "deadLettersByCode": dict(codes.most_common()),
            "ordersNeverPaid": len(self.workload.unpaid),
            **self.changes,
            "unitsShipped": moved["shipped"],
            "unitsLost": moved["lost"],
            "unitsReturned": moved["returned"],
            "unitsTransferred": self.transferred.quantity if self.transferred else 0,
            "unitsMissingInCount": 0 if self.count is None else -self.count.delta,
            "booksBalance": self.balance,
            "seconds": round(self.seconds, 3),
            "ordersPerSecond": round((placed + rejected) / self.seconds, 1),
            "messagesPerSecond": round(messages / self.seconds, 1),
            "transactions": transactions,
            "transactionsPer100Orders": round(100 * transactions / max(1, placed + rejected), 1),
            "laneTransactions": committed - transactions,
            "commitAttempts": len(attempts),
            "conflicts": conflicts,
            "conflictRate": round(conflicts / max(1, len(attempts)), 4),
            "otherFailedAttempts": len(attempts) - committed - conflicts,
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
        """Whether no message was lost, the books balance, all events arrived as they should, and no buyer exceeds a limit."""
        is_complete = self.lost == self.missing == 0 and not self.differences
        return is_complete and self.balance and self.is_fair

    @property
    def is_fair(self) -> bool:
        """Whether no buyer has bought more units than the limit."""
        return max(self.bought.values(), default=0) <= sample_orders.DROP_LIMIT


def tea_shop_day(run: str, count: int) -> Workload:
    """Create a workload. A third of the orders are for one hot product, 10 % are sent twice, and 1 % are invalid.

    Further orders are for a product with a purchase limit: most are those of a reseller, who sends them from many tabs at once.
    Apart from its ids, the workload is always the same.
    """
    chance = random.Random("a tea shop's day")
    plain = sample_orders.orders(run, count, chance)
    good = sample_orders.own_orders(sample_orders.with_locations(plain, chance))
    bad = sample_orders.invalid_orders(run, max(1, count // 100), good)
    again = chance.sample(good, count // 10)
    hot = [message for message in good if message.group == HOT_PRODUCT]
    # Half of the hot orders use the FIFO queue. The other half meets contention on the standard queue.
    fifo = hot[::2]
    through_fifo = {message.order_id for message in fifo}
    standard = [message for message in good if message.order_id not in through_fifo]
    fans, resold = map(sample_orders.own_orders, sample_orders.drop(run, chance))
    for extra in [*again, *bad, *fans]:
        standard.insert(chance.randrange(len(standard) + 1), extra)
    middle = len(standard) // 2
    standard[middle:middle] = resold
    products = [sample_orders.own(product) for product in sample_orders.stocked()]
    return Workload(
        [*products, sample_orders.HELD_PRODUCT],
        sample_orders.never_paid(run),
        standard,
        fifo,
        "A tea shop's day",
        f"{count:,} orders for a shop with two warehouses and a store, a third for one product with {sample_orders.HOT_STOCK:,} units; {len(again):,} are sent "
        f"twice, and {len(bad):,} more messages are invalid. {len(fans) + len(resold):,} more are for a product limited to {sample_orders.DROP_LIMIT} each, "
        f"{len(resold):,} by a reseller. Everything is invented; products and locations begin with demo-.",
        transfer=(
            sample_orders.own_location(sample_orders.WAREHOUSE),
            sample_orders.own_location(sample_orders.STORE),
        ),
        resold=frozenset(message.order_id for message in resold if message.order_id is not None),
    )


def day_of_file(run: str, path: Path, locations: tuple[str, ...] = (DEFAULT_LOCATION,)) -> Workload:
    """Create a workload from a file's orders, with so little stock that some products sell out.

    Args:
        run: Prefix of the orders' ids.
        path: The file.
        locations: The setting `locations`, for orders that name none.

    Raises:
        UserError: The file has no valid orders.
    """
    real = sample_orders.is_real(path)
    found = sample_orders.orders_of(path, run, sample_orders.REAL_ORDERS_SENT if real else None)
    messages = sample_orders.copies_of(found, locations)
    wanted = sample_orders.demand(messages, locations)
    products = sample_orders.stock_for(wanted)
    if not products:
        raise UserError(f"{path} has no valid orders, but the demonstration needs at least one")
    title = (
        f"{len(messages):,} real orders of a wholesaler, with invented quantities and customers"
        if real
        else f"The orders of {path.name}"
    )
    text = (
        f"{counted(len({m.order_id for m in messages} - {None}), 'order')} for "
        f"{counted(len({product_of(key) for key in wanted}), 'product')}"
        f"{_locations_in_words(messages, wanted, locations)}. The stock is invented: {_stock_in_words(products, wanted)}. So are "
        f"the payments, parcels and returns, {counted(sample_orders.UNPAID, 'further order')} that stay unpaid, and a count that "
        f"finds {counted(_MISSING, 'unit')} missing. None of your products changes: the orders are for copies, whose ids begin "
        f"with {sample_orders.COPY}."
    )
    if real:
        text = f"Quantities and customers are invented: the data has neither. {text}"
    else:
        text += " To use your own stock instead, `.venv/bin/inventory-orders load` your products, then `send` the orders."
    return Workload(
        [*products, sample_orders.HELD_PRODUCT],
        sample_orders.never_paid(run),
        messages,
        [],
        title,
        text,
        locations,
    )


def _locations_in_words(
    messages: Iterable[OrderMessage], wanted: Mapping[str, int], setting: tuple[str, ...]
) -> str:
    """Name the locations that may supply a file's orders. Return nothing if this is only the default one."""
    found = sorted({location_of(key) for key in wanted})
    if found == [DEFAULT_LOCATION]:
        return ""
    words = f" at {', '.join(map(location_name, found))}"
    orders = (order_in(strict_json(m.body)) for m in messages if m.order_id is not None)
    if setting == (DEFAULT_LOCATION,) or all(order.locations for order in orders):
        return words
    names = ", then ".join(map(location_name, setting))
    return f"{words}. Orders that name no locations use the setting: {names}"


def _stock_in_words(products: Sequence[NewProduct], wanted: Mapping[str, int]) -> str:
    """Describe the stock that a file's orders meet, with an example of a product that has too little."""
    short = [p for p in products if p.opening_stock < wanted.get(p.product_id, 0)]
    at_first = {location_of(key) for key in wanted} != {DEFAULT_LOCATION}
    words = "as many units as the orders need" + (
        ", at the first location of each" if at_first else ""
    )
    if not short:
        return words
    one = max(short, key=lambda product: wanted[product.product_id])
    return (
        f"{words}, but fewer for {counted(len(short), 'best seller')}, such as {one.opening_stock:,} of "
        f"{in_words(one.product_id)}, where they need {wanted[one.product_id]:,}"
    )


def run_demo(aws: Aws, emulator: Emulator, console: Console, orders: Path | None) -> DemoResult:
    """Stock the shop, send the orders, wait until every message is settled, and read the books.

    Raises:
        UserError: Another demonstration is running, the queues do not drain, or the embedded AWS stops.
    """
    with _alone():
        return _run(aws, emulator, console, orders)


@contextmanager
def _alone() -> Iterator[None]:
    """Let only one demonstration run at a time, because handlers log figures per batch, not per sender."""
    with (STATE / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another demo is already running on this embedded AWS, and the two would distort each other's figures: "
                "wait for it to finish, then start this one"
            ) from None
        yield


def _run(aws: Aws, emulator: Emulator, console: Console, orders: Path | None) -> DemoResult:
    run = f"d{uuid.uuid4().hex[:6]}"
    workload = day_of_file(run, orders, aws.locations) if orders else tea_shop_day(run, ORDERS)
    if queues.FIFO not in aws.outputs:
        workload = replace(workload, standard=workload.messages, fifo=())
    _wait_for_earlier_messages(aws, emulator, console)
    console.print(workload.text, soft_wrap=False)
    with console.status(f"Stocking {counted(len(workload.products), 'product')}"):
        stock_up(aws, workload.products, run)
    with listening(aws) as listen, ThreadPoolExecutor(1) as beside:
        place_unpaid(aws, workload.unpaid)
        began = int(time.time() * 1000)
        transfer = beside.submit(transfer_some, aws, workload, run)
        ids, seconds = _send_and_watch(aws, emulator, console, workload)
        transferred = transfer.result()
        unpaid = frozenset(order.order_id for order in workload.unpaid)
        shop = Shop(run, len(workload.order_ids), unpaid)
        _live_on(aws, emulator, console, shop, listen)
    count = count_shelf(aws, workload.products, run)

    with console.status("Reading the books"):
        books = read_books(aws)
        dead_letters = {
            delivery.content.original_message_id: delivery.content
            for deliveries in read_dead_letters(aws, 100_000)[0].values()
            for delivery in deliveries
            if delivery.content.original_message_id in ids
        }
        samples = _samples_since(began, emf.read_samples(aws, _LOG_GROUP, began))
    return DemoResult(
        workload=workload,
        seconds=seconds,
        books=books,
        dead_letters=list(dead_letters.values()),
        samples=samples,
        lost=count_lost(ids, dead_letters, books),
        replayed=count_replayed(ids, dead_letters, books),
        shop=shop,
        began=began,
        count=count,
        transferred=transferred,
    )


def place_unpaid(aws: Aws, orders: Sequence[Order]) -> None:
    """Place orders with holds of a few seconds. The stack's sweep later ends the holds.

    The engine places them in this process, with a default hold shorter than the settings allow.
    """
    for outcome in _apply(aws, orders).outcomes:
        _check_applied(outcome, "an order to be left unpaid could not be placed")
    aws.functions.invoke(FunctionName=aws.live("Sweep"), Payload=json.dumps({"action": "sweep"}))


def _live_on(
    aws: Aws,
    emulator: Emulator,
    console: Console,
    shop: Shop,
    listen: Callable[[float], Iterable[Heard]],
) -> None:
    """Receive events and answer them with commands, until all expected events have arrived or nothing changes any more."""
    patience = Patience()
    with progress_bar(console) as progress:
        bar = progress.add_task("Events  ", total=shop.awaited, note="")
        while len(shop.heard) < shop.awaited:
            emulator.check()
            # This is short, because the shop answers events only when it has stopped listening.
            queues.send(aws, queues.COMMANDS, shop.hear(listen(0.1)))
            progress.update(bar, completed=len(shop.heard), total=shop.awaited)
            # Compare totals, because a message that is delivered again and again is not progress.
            commands = queues.depth(aws, queues.COMMANDS).total
            holds = queues.depth(aws, queues.EXPIRIES).total
            if patience.is_over((len(shop.heard), shop.repeated, commands, holds)):
                missing = shop.awaited - len(shop.heard)
                console.print(
                    f"[bold red]Nothing has changed for {_QUIET_SECONDS} s, so the demo stops waiting for "
                    f"{counted(missing, 'event')}. In the queues: {counted(commands, 'command')}, "
                    f"{counted(holds, 'hold')} to expire.[/] {_where_to_look()}",
                    soft_wrap=True,
                )
                return


def transfer_some(aws: Aws, workload: Workload, run: str) -> Transferred | None:
    """Choose the product with the most units at the first location of the transfer, and move some of them to the other one.

    Raises:
        UserError: The transfer failed.
    """
    if workload.transfer is None:
        return None
    source, target = workload.transfer
    there = [p for p in workload.products if location_of(p.product_id) == source]
    most = max(there, key=lambda product: (product.opening_stock, product.product_id))
    product_id = product_of(most.product_id)
    command = {
        "action": "transfer",
        "transferId": f"transfer-{run}",
        "productId": product_id,
        "from": source,
        "to": target,
        "quantity": _TRANSFERRED,
    }
    # Orders for the product may won every attempt of an invocation.
    for _ in range(_TRIES):
        answer = aws.invoke("AdjustStock", command)
        if answer["result"] != "RETRY_LATER":
            break
    if answer["result"] not in ("APPLIED", "REPLAYED"):
        raise UserError(f"{product_id} could not be transferred: {answer.get('message', answer)}")
    return Transferred(product_id, _TRANSFERRED, source, target)


def count_shelf(aws: Aws, products: Sequence[NewProduct], run: str) -> ShelfCount | None:
    """Count the product with the most committed units, at one location, and report fewer units than its row has on hand.

    Raises:
        UserError: The count was refused.
    """
    own = {product.product_id for product in products}
    # With fewer units, open orders would hold units that the count does not find, and the count would be refused.
    countable = [
        level
        for level in list_stock(aws)[0]
        if level.product.product_id in own and level.available > _MISSING
    ]
    if not countable:
        return None
    most = max(countable, key=lambda level: (level.committed, level.product.product_id))
    key = most.product.product_id
    acquire = {"action": "acquire", **named_key(key), "seconds": 60}
    taken = aws.invoke("CountStock", acquire | {"holder": "demo", "outliveInvocation": True})
    lease, on_hand = taken.get("lease"), taken.get("onHand", 0)
    commit = {"action": "commit", "lease": lease, "adjustmentId": f"count-{run}"}
    done = aws.invoke("CountStock", commit | {"counted": on_hand - _MISSING}) if lease else taken
    if done.get("result") != "COMMITTED":
        raise UserError(f"{in_words(key)} could not be counted: {done.get('message', done)}")
    return ShelfCount(key, done["counted"], taken["committed"], done["delta"])


def _samples_since(since: int, found: Iterable[emf.Sample]) -> list[emf.Sample]:
    """Select the metrics logged since a time (Unix milliseconds).

    The embedded AWS may log the last lines of an earlier run late, among the lines of this run.
    """
    return [sample for sample in found if sample.timestamp >= since]


def count_lost(
    messages: Mapping[str, OrderMessage],
    dead_letters: Mapping[str, DeadLetter],
    books: Books,
) -> int:
    """Count the messages with valid orders that were not stored, and other messages that did not become dead letters.

    A valid order may be a dead letter only if another message with its id came first.

    Args:
        messages: The sent messages, by SQS message id.
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


def count_replayed(
    messages: Mapping[str, OrderMessage],
    dead_letters: Mapping[str, DeadLetter],
    books: Books,
) -> int:
    """Count the messages that repeated a stored order.

    Args:
        messages: The sent messages, by SQS message id.
        dead_letters: Their dead letters, by SQS message id.
        books: The tables afterwards.
    """
    answered = [_stored_id(m, books) for key, m in messages.items() if key not in dead_letters]
    stored = [order_id for order_id in answered if order_id is not None]
    return len(stored) - len(set(stored))


def _stored_id(message: OrderMessage, books: Books) -> str | None:
    """Return the id of a message's order if it is stored with the same content, else None."""
    try:
        order = order_in(strict_json(message.body))
    except InvalidMessageError:
        return None
    row = books.orders.get(order.order_id)
    is_stored = row is not None and order.match(read_order(row)) is IdempotencyMatch.SAME_REQUEST
    return order.order_id if is_stored else None


def stock_up(aws: Aws, products: Sequence[NewProduct], run: str) -> None:
    """Create missing products, and adjust existing ones to their opening stock."""
    created = shelf.create(aws, products)
    known = [product for product, new in zip(products, created, strict=True) if not new]
    places = read_all(aws)
    adjustments = []
    for product in known:
        delta = product.opening_stock - places.available(product.product_id)
        if delta:
            restock = Adjustment(product.product_id, f"restock-{run}", delta, "CORRECTION")
            adjustments.append(restock)
    report = _apply(aws, adjustments)
    for adjustment, outcome in zip(adjustments, report.outcomes, strict=True):
        what = in_words(adjustment.product_id)
        _check_applied(outcome, f"the stock of {what} could not be set")


def _apply(aws: Aws, changes: Sequence[Change]) -> CommitReport:
    engine = engine_with_lanes(Store(aws.dynamodb, aws.tables))
    return engine.apply(changes, Deadline.after(60, SystemClock()))


def _check_applied(outcome: ChangeOutcome, failure: str) -> None:
    if outcome.kind is not Outcome.APPLIED:
        words = outcome.detail if outcome.rejection is None else outcome.rejection.words
        raise UserError(
            f"{failure}: {words or outcome.cause}. Start the demo again. If it fails again, start "
            "afresh: `make down` deletes all data"
        )


def rate(a_second: float) -> str:
    """Format a rate, with one decimal if it is small."""
    return f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.1f}"


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
        """Check figures that change while messages move. Returns whether they have been unchanged for too long."""
        now = time.monotonic()
        if value != self._seen:
            self._seen, self._since = value, now
        return now - self._since > _QUIET_SECONDS

    def look(self, value: int, waiting: int) -> None:
        """Check a figure that changes while messages move.

        Raises:
            UserError: It has been unchanged for too long.
        """
        if self.is_over(value):
            raise UserError(
                f"{counted(waiting, 'message')} still waiting after {_QUIET_SECONDS} s without progress. {_where_to_look()}"
            )


def _wait_for_earlier_messages(aws: Aws, emulator: Emulator, console: Console) -> None:
    """Wait until the order queues are empty, because earlier messages would count as work of this run."""
    patience = Patience()
    with console.status("Waiting for earlier messages"):
        while waiting := queues.orders_waiting(aws):
            emulator.check()
            patience.look(waiting, waiting)
            time.sleep(0.1)


def _send_and_watch(
    aws: Aws, emulator: Emulator, console: Console, workload: Workload
) -> tuple[dict[str, OrderMessage], float]:
    """Send everything and show progress until the queues are empty.

    Returns:
        The messages by SQS message id, and the seconds from the first one sent until the last one was settled.
    """
    total = len(workload.messages)
    sent = 0

    def count(more: int) -> None:
        nonlocal sent
        sent += more

    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool, progress_bar(console) as progress:
        sending = [
            pool.submit(queues.send, aws, queue, messages, on_sent=count)
            for queue, messages in (
                (queues.STANDARD, workload.standard),
                (queues.FIFO, workload.fifo),
            )
            if messages
        ]
        bar = progress.add_task("Messages", total=total, note="")
        patience = Patience()
        while True:
            emulator.check()
            done = all(future.done() for future in sending)
            waiting = queues.orders_waiting(aws)
            settled = max(0, sent - waiting)
            seconds = max(time.monotonic() - began, 0.001)
            pace = settled / seconds
            progress.update(bar, completed=settled, note=f"{rate(pace)} a second")
            if done and waiting == 0:
                break
            patience.look(settled, waiting)
            time.sleep(0.1)
        ids = [message_id for future in sending for message_id in future.result()]
        return dict(zip(ids, workload.messages, strict=True)), seconds


def write_json(result: DemoResult) -> Path:
    """Write the summary to `.local/demo.json`, for other tools."""
    path = STATE / "demo.json"
    path.write_text(json.dumps(result.summary, indent=2) + "\n", "utf-8")
    return path
