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

from bench import plan
from bench.figures import Pace, percentile
from bench.workloads import Workload, endless
from inventory_orders.clock import SystemClock
from inventory_orders.domain.change import OrderStatus
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from inventory_orders.store.rows import Row
from local import stack
from local.demo import place_unpaid, progress_bar, stock_up
from local.emulator import Emulator
from local.endpoint import use_embedded
from local.process import LOGS
from operations import queues
from operations.audit import Books, read_books
from operations.aws import Aws
from operations.errors import UserError
from operations.orders_file import OrderMessage

_BEFORE_SECONDS = 20.0
_LEAST_WAITING = 1_000
_HELD = "held-"
_QUIET_SECONDS = 90.0


class StoppedClock(SystemClock):
    """A clock that shows one moment, for holds that end at the same one."""

    def __init__(self, shown: float) -> None:
        self._shown = datetime.fromtimestamp(shown, UTC)

    def now(self) -> datetime:
        return self._shown


def main(
    holds: Annotated[int, typer.Option(min=1, help="how many end")] = 10_000,
    over: Annotated[
        int, typer.Option(min=0, help="seconds that their ends are spread over; 0: all at once")
    ] = 0,
    hold_seconds: Annotated[
        int,
        typer.Option(
            min=40, help="when the first ends: time to place them, and for orders to get going"
        ),
    ] = 90,
    workload: Annotated[str, typer.Option(help=f"one of {', '.join(plan.WORKLOADS)}")] = "zipf",
    seed: Annotated[int, typer.Option(help="seed of the orders")] = 0,
) -> None:
    """End holds on an embedded AWS of its own while orders go on, and print the figures."""
    console = Console(highlight=False, stderr=True)
    made = plan.named(workload, 2_000, seed)
    orders = unpaid(made, holds, hold_seconds, over, seed)
    try:
        with _deployed(console) as (aws, emulator):
            began, books = _measure(aws, emulator, console, made, orders, hold_seconds, seed)
    except UserError as error:
        console.print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        raise typer.Exit(1) from None
    clean = is_clean(books, holds)
    pace, late = figures_of(books, orders, began, hold_seconds)
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


def figures_of(
    books: Books, unpaid: Iterable[Order], began: float, hold_seconds: int
) -> tuple[Pace, list[float]]:
    """Compute the pace, and for how many seconds each hold outlasted its end."""
    ends = {order.order_id: began + (order.default_hold or 0) for order in unpaid}
    ordered, expired, late = [], [], []
    for order_id, row in books.orders.items():
        if order_id in ends:
            expired.append(_moment(row["lastUpdatedAt"]))
            late.append(expired[-1] - ends[order_id])
        else:
            ordered.append(_moment(row["createdAt"]))
    end = began + hold_seconds
    return Pace.of(sorted(ordered), sorted(expired), end - _BEFORE_SECONDS, end), late


def unpaid(workload: Workload, holds: int, hold_seconds: int, over: int, seed: int) -> list[Order]:
    """Make orders that nobody will pay. They want what the orders of a workload want.

    Args:
        workload: Those orders.
        holds: How many.
        hold_seconds: When the first hold ends.
        over: So many seconds later the last one does.
        seed: Of the choice.
    """
    chance = random.Random(f"holds {seed}")
    wanted = [workload.quantities(order_id) for order_id in workload.bodies]
    return [
        Order.of(
            f"{_HELD}{number:07}",
            f"user-{number}",
            list(chance.choice(wanted).items()),
            default_hold=hold_seconds + number * over // max(1, holds - 1),
        )
        for number in range(holds)
    ]


def _keep_ordering(
    aws: Aws,
    emulator: Emulator,
    console: Console,
    workload: Workload,
    holds: int,
    end: float,
    seed: int,
) -> None:
    """Send orders until the last hold has expired, always so many that some wait, and wait for the last of them."""
    orders = (OrderMessage(body, order_id, "", "") for order_id, body, _ in endless(workload, seed))
    left, changed = holds, end
    with progress_bar(console) as progress:
        bar = progress.add_task("Expired", total=holds, note="")
        while left:
            emulator.check()
            if queues.depth(aws, queues.STANDARD).waiting < _LEAST_WAITING:
                queues.send(aws, queues.STANDARD, islice(orders, _LEAST_WAITING // 2))
            now = time.time()
            known, left = left, _left(aws) if now > end else holds
            if left != known:
                changed = now
            if now - changed > _QUIET_SECONDS:
                raise UserError(f"{left:,} holds do not expire: see {LOGS / 'emulator.log'}")
            note = f"they end in {end - now:.0f} s" if now < end else "orders go on"
            progress.update(bar, completed=holds - left, note=note)
            time.sleep(0.1)
    with console.status("Waiting for the last orders"):
        while queues.depth(aws, queues.STANDARD).total:
            emulator.check()
            time.sleep(0.1)


def _left(aws: Aws) -> int:
    """How many holds have not expired. If their queue has any, that is quick to say, and disturbs nobody."""
    if waiting := queues.depth(aws, queues.EXPIRIES).total:
        return waiting
    pages = aws.dynamodb.get_paginator("scan").paginate(
        TableName=aws.outputs["OrdersTableName"], IndexName="byExpiry", Select="COUNT"
    )
    return sum(page["Count"] for page in pages)


def is_clean(books: Books, holds: int) -> bool:
    """Whether each hold has expired once, and every unit is explained."""
    held = [row for row in books.orders.values() if _is_hold(row)]
    return (
        len(held) == holds
        and all((row["status"], row["_version"]) == (OrderStatus.EXPIRED, 2) for row in held)
        and all(account.difference == 0 for account in books.accounts)
    )


def _is_hold(row: Row) -> bool:
    return str(row["orderId"]).startswith(_HELD)


def _moment(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


if __name__ == "__main__":
    typer.run(main)
