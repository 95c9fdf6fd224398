"""Holds that end together, or one after the other, while orders go on, on the embedded AWS: `python -m bench.holds`.

The whole stack takes part: the sweep sends the holds to the queue of expiries, two invocations at a time expire them, and
orders come through their queue, which is never empty. The rows tell when each order was placed, and when it expired.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console

from bench import workloads
from bench.figures import Pace, percentile
from bench.workloads import Workload, endless
from inventory_orders.clock import SystemClock
from inventory_orders.domain.change import OrderStatus
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from local import stack
from local.demo import Patience, place_unpaid, progress_bar, stock_up
from local.emulator import Emulator
from local.endpoint import use_embedded
from operations import queues
from operations.audit import Books, read_books
from operations.aws import Aws, holds
from operations.errors import UserError
from operations.orders_file import OrderMessage

_BEFORE_SECONDS = 20.0
_LEAST_WAITING = 1_000


class StoppedClock(SystemClock):
    """A clock that shows one moment, for holds that end at the same one."""

    def __init__(self, shown: float) -> None:
        self._shown = datetime.fromtimestamp(shown, UTC)

    def now(self) -> datetime:
        return self._shown


def main(
    count: Annotated[int, typer.Option("--holds", min=1, help="how many end")] = 10_000,
    over: Annotated[
        int, typer.Option(min=0, help="seconds that their ends are spread over; 0: all at once")
    ] = 0,
    hold_seconds: Annotated[
        int,
        typer.Option(
            min=40, help="when the first ends: time to place them, and for orders to get going"
        ),
    ] = 90,
    workload: Annotated[str, typer.Option(help=f"one of {', '.join(workloads.NAMES)}")] = "zipf",
    seed: Annotated[int, typer.Option(help="seed of the orders")] = 0,
) -> None:
    """End holds on an embedded AWS of its own while orders go on, and print the figures."""
    console = Console(highlight=False, stderr=True)
    made = workloads.make(workload, 2_000, seed)
    orders = never_paid(made, count, hold_seconds, over, seed)
    try:
        with _deployed(console) as (aws, emulator):
            began, books = _measure(aws, emulator, console, made, orders, hold_seconds, seed)
    except UserError as error:
        console.print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        raise typer.Exit(1) from None
    clean = is_clean(books, orders)
    pace, late = figures_of(books, orders, began)
    typer.echo(f"{Pace.HEAD} late p50    p99  clean")
    typer.echo(f"{pace.row()} {percentile(late, 50):8.1f} {percentile(late, 99):6.1f} {clean!s:>6}")
    raise typer.Exit(0 if clean else 1)


@contextmanager
def _deployed(console: Console) -> Iterator[tuple[Aws, Emulator]]:
    stack.down()
    try:
        emulator = stack.up(lambda step: console.print(f"[dim]{step}[/]"))
        use_embedded(emulator.endpoint)
        yield Aws.of_stack(stack.STACK_NAME), emulator
    finally:
        stack.down()


def _measure(
    aws: Aws,
    emulator: Emulator,
    console: Console,
    workload: Workload,
    unpaid: Sequence[Order],
    hold_seconds: int,
    seed: int,
) -> tuple[float, Books]:
    """Returns the Unix second in which the unpaid orders were placed, and the books at the end."""
    run = f"b{uuid.uuid4().hex[:6]}"
    with console.status(f"Stocking {len(workload.stock):,} products"):
        stock_up(aws, [NewProduct(product_id, n) for product_id, n in workload.stock.items()], run)
    began = time.time()
    end = began + hold_seconds
    with console.status(f"Placing {len(unpaid):,} orders that nobody will pay"):
        # It has them swept at once. The next minute's sweep would send them while the orders before the end are counted.
        place_unpaid(aws, unpaid, StoppedClock(began))
    if time.time() > end - 1.5 * _BEFORE_SECONDS:
        raise UserError(
            f"placing {len(unpaid):,} holds took nearly all of the {hold_seconds} s that they last: give a longer --hold-seconds"
        )
    _keep_ordering(aws, emulator, console, workload, len(unpaid), end, seed)
    with console.status("Reading the books"):
        return began, read_books(aws)


def figures_of(books: Books, unpaid: Iterable[Order], began: float) -> tuple[Pace, list[float]]:
    """Compute the pace, and for how many seconds each hold outlasted its end.

    Args:
        books: The tables at the end.
        unpaid: The orders whose holds have ended.
        began: The Unix second in which they were placed.
    """
    ends = {order.order_id: began + (order.default_hold or 0) for order in unpaid}
    ordered, expired, late = [], [], []
    for order_id, row in books.orders.items():
        if order_id in ends:
            expired.append(_moment(row["lastUpdatedAt"]))
            late.append(expired[-1] - ends[order_id])
        else:
            ordered.append(_moment(row["createdAt"]))
    end = min(ends.values())
    return Pace.of(sorted(ordered), sorted(expired), end - _BEFORE_SECONDS, end), late


def never_paid(
    workload: Workload, count: int, hold_seconds: int, over: int, seed: int
) -> list[Order]:
    """Make orders that nobody will pay. They want what the orders of a workload want.

    Args:
        workload: Those orders.
        count: How many.
        hold_seconds: When the first hold ends.
        over: So many seconds later the last one does.
        seed: Of the choice.
    """
    chance = random.Random(f"holds {seed}")
    wanted = [workload.quantities(order_id) for order_id in workload.bodies]
    return [
        Order.of(
            f"held-{number:07}",
            f"user-{number}",
            list(chance.choice(wanted).items()),
            default_hold=hold_seconds + number * over // max(1, count - 1),
        )
        for number in range(count)
    ]


def _keep_ordering(
    aws: Aws,
    emulator: Emulator,
    console: Console,
    workload: Workload,
    count: int,
    end: float,
    seed: int,
) -> None:
    """Send orders until the last hold has expired, always so many that some wait, and wait for the last of them."""
    orders = (OrderMessage(body, order_id, "", "") for order_id, body, _ in endless(workload, seed))
    left, patience = count, Patience()
    with progress_bar(console) as progress:
        bar = progress.add_task("Expired", total=count, note="")
        while left:
            emulator.check()
            if queues.depth(aws, queues.STANDARD).waiting < _LEAST_WAITING:
                queues.send(aws, queues.STANDARD, islice(orders, _LEAST_WAITING // 2))
            note = f"they end in {end - time.time():.0f} s"
            if time.time() > end:
                left, note = _left(aws), "orders go on"
                patience.look(left, left)
            progress.update(bar, completed=count - left, note=note)
            time.sleep(0.1)
    with console.status("Waiting for the last orders"):
        while waiting := queues.depth(aws, queues.STANDARD).total:
            emulator.check()
            patience.look(waiting, waiting)
            time.sleep(0.1)


def _left(aws: Aws) -> int:
    """How many holds have not expired. Their queue is asked first: to count them in the index disturbs the others."""
    return queues.depth(aws, queues.EXPIRIES).total or holds(aws)


def is_clean(books: Books, unpaid: Iterable[Order]) -> bool:
    """Whether each hold has expired once, and every unit is explained."""
    rows = [books.orders.get(order.order_id, {}) for order in unpaid]
    return all(
        (row.get("status"), row.get("_version")) == (OrderStatus.EXPIRED, 2) for row in rows
    ) and all(account.difference == 0 for account in books.accounts)


def _moment(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


if __name__ == "__main__":
    typer.run(main)
