"""The demonstration's summary, printed for the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inventory_orders.domain.events import EventType
from inventory_orders.domain.location import in_words, location_of, product_of
from local import sample_orders
from local.demo import HOT_PRODUCT, DemoResult, rate
from operations.books import Account
from operations.emf import Sample
from operations.words import counted, location_name

_COLUMNS = 32
# With fewer messages, a timeline is not worth showing.
_FEWEST = 100
_SHOWN_PRODUCTS = 8
_NAME, _NUMBER = len("dead letters"), len("10,000/s")
_EVENTS = {
    EventType.ORDER_PLACED: "placed",
    EventType.ORDER_REJECTED: "rejected",
    EventType.ORDER_CONFIRMED: "paid",
    EventType.ORDER_PARTLY_FULFILLED: "shipped in part",
    EventType.ORDER_PARTLY_CANCELLED: "cancelled in part",
    EventType.ORDER_FULFILLED: "shipped",
    EventType.ORDER_CANCELLED: "cancelled",
    EventType.ORDER_RETURNED: "returned",
    EventType.ORDER_EXPIRED: "expired",
    EventType.CONFIRMATION_REJECTED: "paid too late",
}


def show(result: DemoResult, console: Console) -> None:
    """Print the summary."""
    summary = result.summary
    console.print()
    console.rule(f"[bold]{escape(result.workload.title)}", align="left")
    _show_rows(_orders(summary), console)
    if len(result.workload.locations) > 1:
        _show_rows(_locations(result, summary), console)
    if result.workload.resold:
        _show_rows(_resellers(summary), console)
    _show_rows(_events(summary), console)
    for difference in result.differences[:5]:
        console.print(f"[bold red]{escape(difference)}[/]", soft_wrap=True)
    _show_rows(_goods(result), console)
    _show_rows(_work(summary, result.seconds), console)
    _show_timeline(result, console)
    _show_books(result, console)
    _show_end(result, console)


_Cells = tuple[str, str, str]


def _show_rows(rows: Iterable[_Cells], console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_column(style="dim")
    for name, number, words in rows:
        # The same width in all tables, so that the numbers are aligned.
        table.add_row(name.ljust(_NAME), number.rjust(_NUMBER), words)
    console.print(table, "")


def _orders(summary: Mapping[str, Any]) -> list[_Cells]:
    """List the outcomes of the messages. All rows after the first add up to the first row."""
    lost = summary["ordersLost"]
    return [
        (
            "Orders sent",
            f"{summary['ordersSent']:,}",
            f"in {counted(summary['messagesSent'], 'message')}:",
        ),
        ("placed", f"{summary['ordersPlaced']:,}", "stock taken for every line"),
        ("rejected", f"{summary['ordersRejected']:,}", _reasons(summary["rejectedByReason"])),
        (
            "replayed",
            f"{summary['ordersReplayed']:,}",
            "the same order again, without effect",
        ),
        ("dead letters", f"{summary['deadLetters']:,}", _reasons(summary["deadLettersByCode"])),
        (
            "lost",
            f"{lost:,}",
            "neither stored nor a dead letter" if lost else "every message is accounted for",
        ),
    ]


def _locations(result: DemoResult, summary: Mapping[str, Any]) -> Iterator[_Cells]:
    """List the locations that supplied the orders. The numbers add up to the number of placed orders."""
    yield (
        "Locations",
        f"{len(result.workload.locations):,}",
        "each order tries them in order of preference; placed from:",
    )
    for location, placed in summary["ordersPlacedFrom"].items():
        yield location_name(location), f"{placed:,}", "orders"
    yield (
        "several",
        f"{summary['ordersSplit']:,}",
        "orders, line by line, because no single location had all products",
    )
    yield (
        "not first choice",
        f"{summary['ordersNotFromFirstLocation']:,}",
        "of these orders could not be filled by their first location",
    )
    if (moved := result.transferred) is not None:
        yield (
            "transferred",
            f"{moved.quantity:,}",
            f"units of {moved.product_id} from {moved.source} to {moved.target}, in one transaction, while orders were placed",
        )


def _resellers(summary: Mapping[str, Any]) -> list[_Cells]:
    """List what became of the orders of the reseller, which are among the orders above."""
    sent, away = summary["ordersResold"], summary["ordersTurnedAway"]
    most, limit = summary["unitsOfOneBuyerAtMost"], sample_orders.DROP_LIMIT
    end = (
        f"one buyer has {most:,} units, more than {limit}"
        if most > limit
        else f"no buyer has more than {limit} units"
    )
    return [
        ("Reseller", f"{sent:,}", f"of these orders: {sample_orders.RESELLER}"),
        ("turned away", f"{away:,}", end),
    ]


def _events(summary: Mapping[str, Any]) -> list[_Cells]:
    """List the events that the shop received. The counts by type in the first row add up to its total."""
    by_type: Mapping[str, int] = summary["eventsByType"]
    counts = {words: by_type[kind] for kind, words in _EVENTS.items() if kind in by_type}
    missing, unpaid = summary["eventsMissing"], summary["ordersNeverPaid"]
    as_expected = not missing and not summary["eventDifferences"]
    return [
        ("Events", f"{summary['eventsDelivered']:,}", _counts(counts)),
        (
            "never paid",
            f"{unpaid:,}",
            f"further orders, placed beforehand with a hold of {sample_orders.HOLD_SECONDS} s: "
            "placed, then expired",
        ),
        (
            "missing",
            f"{missing:,}",
            "in sequence per order, matching the tables" if as_expected else "",
        ),
        (
            "delay",
            f"{1000 * summary['eventDelayP50']:,.0f} ms",
            f"median time from the change to the shop's queue; 99 % within "
            f"{1000 * summary['eventDelayP99']:,.0f} ms; {summary['eventsRepeated']:,} arrived twice",
        ),
    ]


def _goods(result: DemoResult) -> Iterator[_Cells]:
    """List the units that left, came back, or were missing in the count."""
    moved, count = result.moved, result.count
    yield (
        "Shipped",
        f"{moved['shipped']:,}",
        f"units; {moved['returned']:,} came back, {moved['lost']:,} more broke during packing: cancelled and not restocked",
    )
    if count is not None:
        yield (
            "not found",
            f"{-count.delta:,}",
            f"in a count of {in_words(count.key)}: {count.counted:,} on the shelf, {count.committed:,} of them already sold",
        )


def _work(summary: Mapping[str, Any], seconds: float) -> list[_Cells]:
    """List the attempts to write, by outcome, and the requests to DynamoDB."""
    parts = {
        f"wrote orders ({summary['transactionsPer100Orders']:.0f} per 100 orders)": "transactions",
        "moved stock between products and lanes": "laneTransactions",
        f"lost to another worker ({100 * summary['conflictRate']:.1f} %)": "conflicts",
        "refused for other reasons, such as an order that was just stored": "otherFailedAttempts",
    }
    return [
        (
            "Throughput",
            f"{rate(summary['messagesSent'] / seconds)}/s",
            f"messages: {summary['messagesSent']:,} in {summary['seconds']:.1f} s, including sending; "
            f"{rate(summary['ordersSent'] / seconds)} orders a second",
        ),
        (
            "Transactions",
            f"{summary['commitAttempts']:,}",
            "sent to DynamoDB: "
            + _counts({words: summary[name] for words, name in parts.items() if summary[name]}),
        ),
        (
            "Retries",
            f"{summary['retriesOnAverage']:.2f}",
            f"per order on average, at most {summary['retriesAtMost']}",
        ),
    ]


def _show_timeline(result: DemoResult, console: Console) -> None:
    """Print throughput and conflict rate over time as text bars, from the first message on."""
    ends = _points(
        sample
        for sample in result.samples
        if sample.name in _ENDS and dict(sample.dimensions).keys() == {"service"}
    )
    attempts = _points(sample for sample in result.samples if sample.name == "VersionConflict")
    if len(result.workload.messages) < _FEWEST or not ends or not attempts:
        return
    width = max(1, round(1000 * result.seconds / _COLUMNS))

    def columns(points: Sequence[tuple[int, float]]) -> list[list[float]]:
        buckets: list[list[float]] = [[] for _ in range(_COLUMNS)]
        for at, value in points:
            buckets[min(_COLUMNS - 1, max(0, at - result.began) // width)].append(value)
        return buckets

    summary = result.summary
    rates = [sum(bucket) * 1000 / width for bucket in columns(ends)]
    conflicts = [sum(bucket) / max(1, len(bucket)) for bucket in columns(attempts)]
    console.print(
        f"[bold]Messages/s[/]   {_bars(rates, max(rates))}  average {rate(summary['messagesSent'] / result.seconds)}, "
        f"highest {rate(max(rates))}"
    )
    console.print(
        f"[bold]Conflicts[/]    {_bars(conflicts, 1.0)}  average {100 * summary['conflictRate']:.1f} %, "
        f"highest {100 * max(conflicts):.0f} %"
    )
    console.print(f"[dim]Each character is {width / 1000:.2g} s.[/]\n")


_ENDS = {"OrdersPlaced", "OrdersRejected", "OrdersReplayed", "MessagesDeadLettered"}


def _points(samples: Iterable[Sample]) -> list[tuple[int, float]]:
    return [(sample.timestamp, value) for sample in samples for value in sample.values]


def _bars(values: Sequence[float], full: float) -> str:
    blocks = " ▁▂▃▄▅▆▇█"
    return "".join(blocks[round(value / max(full, 1e-9) * (len(blocks) - 1))] for value in values)


def _show_books(result: DemoResult, console: Console) -> None:
    sold, count = result.sold, result.count
    found = {} if count is None else {count.key: count.delta}

    def figures(account: Account) -> tuple[int, ...]:
        own, delta = sold[account.generation], found.get(account.product_id, 0)
        # Changes by other programs during the run count as opening stock.
        start = account.adjusted - delta - (account.sold - own)
        return start, delta, own, account.available, account.open, account.on_hand

    def order_of_interest(product_id: str) -> tuple[bool, bool, bool, bool, int]:
        accounts = by_product[product_id]
        is_counted = any(account.product_id in found for account in accounts)
        balances = all(account.balances for account in accounts)
        is_left = any(account.available > 0 for account in accounts)
        units = sum(sold[account.generation] for account in accounts)
        return (balances, product_id != HOT_PRODUCT, not is_counted, is_left, -units)

    def add(name: str, accounts: Iterable[Account], style: str = "") -> None:
        columns = zip(*map(figures, accounts), strict=True)
        table.add_row(escape(name), *(f"{sum(column):,}" for column in columns), style=style)

    by_product: dict[str, list[Account]] = {}
    for account in result.accounts:
        by_product.setdefault(product_of(account.product_id), []).append(account)
    products = sorted(by_product, key=order_of_interest)
    shown, others = products[:_SHOWN_PRODUCTS], products[_SHOWN_PRODUCTS:]
    table = Table(box=None, pad_edge=False)
    table.add_column("product")
    for heading in ("start", "count", "sold", "available", "committed", "on hand"):
        table.add_column(heading, justify="right")
    for product_id in shown:
        accounts, is_hot = by_product[product_id], product_id == HOT_PRODUCT
        add(product_id, accounts, "bold" if is_hot else "")
        if is_hot and len(accounts) > 1:
            for one in accounts:
                add(f"  {location_name(location_of(one.product_id))}", [one])
    if others:
        add(f"{len(others):,} more", chain.from_iterable(map(by_product.__getitem__, others)))
    add(f"all {counted(len(products), 'product')}", result.accounts)
    console.print("[bold]The books of this run, in units[/]")
    console.print(table)
    _say(
        "[dim]Start + count - sold = available: the units that further orders can take. Available + committed = on hand: the "
        "units on the shelf. Sold: units that this run's orders took and did not return, including lost units. Committed: units "
        "sold in this or an earlier run, but not shipped yet.[/]\n",
        console,
    )


def _show_end(result: DemoResult, console: Console) -> None:
    summary = result.summary
    if summary["deadLetters"]:
        _say(
            f"Two alarms are on, because of this run's {counted(summary['deadLetters'], 'dead letter')}. Messages Dead "
            "Lettered turns off after five minutes, Order Queue Dead Letters when you delete the dead letters.",
            console,
        )
    _say(
        "[dim]The next run sends the same orders: the numbers of orders, messages, replays and dead letters stay the "
        "same. Which orders get stock depends on which worker comes first, so the other numbers vary. Rates and "
        "times vary with the machine.[/]\n",
        console,
    )
    failures = (
        (result.lost, "message", "lost"),
        (result.missing, "event", "missing"),
        (len(result.differences), "difference", "between events and tables"),
    )
    if found := [f"{counted(number, thing)} {what}" for number, thing, what in failures if number]:
        console.print(f"[bold red]The demonstration failed:[/] {', '.join(found)}.")
    if result.balance:
        console.print("[bold green]The books balance.[/]")
        return
    wrong = [f"{in_words(a.product_id)} {_finding(a)}" for a in result.accounts if not a.balances]
    wrong += result.books.corrupt
    console.print(
        f"[bold red]The books do not balance: {counted(len(wrong), 'finding')}. See "
        "`.venv/bin/inventory-orders audit`[/]",
        soft_wrap=True,
    )
    for one in wrong[:5]:
        console.print(f"  {escape(one)}", soft_wrap=True)


def _say(text: str, console: Console) -> None:
    """Print sentences, wrapped between words."""
    console.print(text, soft_wrap=False)


def _finding(account: Account) -> str:
    """Describe why an account does not balance."""
    if not account.settled:
        return "changed during every read"
    units = [f"has {words}" for words in account.unexplained_in_words]
    return "; ".join([*units, *account.problems])


def _reasons(counts: Mapping[str, int]) -> str:
    """Format how often each reason occurred. A single reason needs no number, because the total is next to it."""
    return _counts(counts) if len(counts) > 1 else "".join(counts)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
