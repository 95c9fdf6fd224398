"""Holds that end together while orders go on, on the embedded AWS.

The whole stack takes part: the sweep sends the holds to the queue of expiries, two invocations at a time expire them, and
orders come through their queue, which is never empty. The rows tell when each order was placed, and when it expired.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice

from rich.console import Console

from bench import embedded, report
from bench.cells import Found, Result, Study, Value
from bench.figures import Pace
from bench.workloads import Workload, endless, make
from inventory_orders.clock import SystemClock
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_record import OrderStatus
from inventory_orders.domain.product import NewProduct
from local import stack
from local.demo import Patience, place_unpaid, stock_up
from local.emulator import Emulator
from local.endpoint import use_embedded
from operations import queues
from operations.audit import read_books
from operations.aws import Aws, holds
from operations.books import Books
from operations.errors import UserError
from operations.orders_file import OrderMessage

_BEFORE_SECONDS = 20.0
_MIN_WAITING = 1_000


class StoppedClock(SystemClock):
    """A clock that shows one moment, for holds that end at the same one."""

    def __init__(self, shown: float) -> None:
        self._shown = datetime.fromtimestamp(shown, UTC)

    def now(self) -> datetime:
        return self._shown


def cells(_size: str) -> Iterator[dict[str, Value]]:
    """The holds of docs/benchmarks.md."""
    yield {
        "engine": "embedded",
        "holds": 10_000,
        "hold_seconds": 90,
        "workload": "zipf",
        "seed": 0,
    }


def measure(engine: str, holds: int, hold_seconds: int, workload: str, seed: int) -> Result:
    """Let holds end on an embedded AWS of its own while orders go on.

    Args:
        engine: The embedded AWS.
        holds: How many end.
        hold_seconds: Seconds until they end: enough to place all, and for orders to start.
        workload: The orders. Held orders are for the same products.
        seed: Seed of the orders.
    """
    del engine
    made = make(workload, 2_000, seed)
    unpaid = never_paid(made, holds, hold_seconds, seed)
    embedded.stop()
    stack.down()
    try:
        emulator = stack.up(lambda _: None)
        use_embedded(emulator.endpoint)
        aws = Aws.of_stack(stack.STACK_NAME)
        began, books = _measure(aws, emulator, made, unpaid, hold_seconds, seed)
    finally:
        stack.down()
    pace = pace_of(books, unpaid, began + hold_seconds)
    return {"pace": asdict(pace), "clean": is_clean(books, unpaid)}


def show(found: Found, screen: Console) -> bool:
    """Print the rates of orders and expiries."""
    table = report.table("Holds that end, on the embedded AWS", "workload")
    for heading in (*Pace.HEADINGS, ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for parameters, result in found:
        table.add_row(
            parameters["workload"],
            *Pace(**result["pace"]).row(),
            "" if result["clean"] else report.UNBALANCED,
        )
    screen.print(table, "")
    return all(result["clean"] for _, result in found)


def _measure(
    aws: Aws,
    emulator: Emulator,
    workload: Workload,
    unpaid: Sequence[Order],
    hold_seconds: int,
    seed: int,
) -> tuple[float, Books]:
    """Run it. Returns the Unix second in which the unpaid orders were placed, and the books at the end."""
    run = f"b{uuid.uuid4().hex[:6]}"
    stock_up(aws, [NewProduct(product_id, n) for product_id, n in workload.stock.items()], run)
    began = time.time()
    end = began + hold_seconds
    # It also sweeps: the next minute's sweep would send the holds while the orders before their end are counted.
    place_unpaid(aws, unpaid, StoppedClock(began))
    if time.time() > end - 1.5 * _BEFORE_SECONDS:
        raise UserError(
            f"placing {len(unpaid):,} holds took nearly all of the {hold_seconds} s that they last: "
            "raise hold_seconds"
        )
    _keep_ordering(aws, emulator, workload, len(unpaid), end, seed)
    return began, read_books(aws)


def pace_of(books: Books, unpaid: Iterable[Order], end: float) -> Pace:
    """Compute the pace.

    Args:
        books: The tables after the last expiry.
        unpaid: The orders whose holds have expired.
        end: The Unix second in which the holds ended.
    """
    held = {order.order_id for order in unpaid}
    ordered = [_moment(row["createdAt"]) for key, row in books.orders.items() if key not in held]
    expired = [_moment(row["lastUpdatedAt"]) for key, row in books.orders.items() if key in held]
    return Pace.of(sorted(ordered), sorted(expired), end - _BEFORE_SECONDS, end)


def never_paid(workload: Workload, count: int, hold_seconds: int, seed: int) -> list[Order]:
    """Make orders that stay unpaid, with the lines of a workload's orders.

    Args:
        workload: The workload.
        count: How many orders.
        hold_seconds: Seconds until the holds end.
        seed: Seed of the choice.
    """
    chance = random.Random(f"holds {seed}")
    wanted = [workload.quantities(order_id) for order_id in workload.bodies]
    return [
        Order(
            f"held-{number:07}",
            f"user-{number}",
            chance.choice(wanted),
            default_hold=hold_seconds,
        )
        for number in range(count)
    ]


def _keep_ordering(
    aws: Aws, emulator: Emulator, workload: Workload, count: int, end: float, seed: int
) -> None:
    """Send orders until the last hold has expired, enough that some always wait. Then wait for the last answer."""
    orders = (OrderMessage(body, order_id) for order_id, body, _ in endless(workload, seed))
    left, patience = count, Patience()
    while left:
        emulator.check()
        if queues.depth(aws, queues.STANDARD).waiting < _MIN_WAITING:
            queues.send(aws, queues.STANDARD, islice(orders, _MIN_WAITING // 2))
        if time.time() > end:
            left = _left(aws)
            patience.look(left, left)
        time.sleep(0.1)
    while waiting := queues.depth(aws, queues.STANDARD).total:
        emulator.check()
        patience.look(waiting, waiting)
        time.sleep(0.1)


def _left(aws: Aws) -> int:
    """Count the holds that have not expired. Asks their queue first, because a count in the index slows the orders."""
    return queues.depth(aws, queues.EXPIRIES).total or holds(aws)


def is_clean(books: Books, unpaid: Iterable[Order]) -> bool:
    """Whether each hold has expired once, every row can be read, and the books balance."""
    rows = [books.orders.get(order.order_id, {}) for order in unpaid]
    return all(
        (row.get("status"), row.get("_version")) == (OrderStatus.EXPIRED, 2) for row in rows
    ) and not (books.corrupt or any(not account.balances for account in books.accounts))


def _moment(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


STUDY = Study("holds that end while orders go on, on the embedded AWS", cells, measure, show)
