"""Tables of the results."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench import contenders
from bench.figures import Figures
from operations import prices

_TITLES = {
    "hot": "one hot product",
    "zipf": "Zipf over 1,000 products",
    "real": "real orders",
    "real-scarce": "real orders, little stock",
    "sell-out": "a sell-out",
}
_ENGINES = {"embedded": "embedded AWS, real processes", "simulated": "simulated, virtual time"}
UNBALANCED = "[bold red]the books do not balance[/]"


def show_contenders(cells: Sequence[Figures], screen: Console) -> None:
    """Print a table for each engine and workload."""
    for engine, workload in dict.fromkeys((cell.engine, cell.workload) for cell in cells):
        chosen = [cell for cell in cells if (cell.engine, cell.workload) == (engine, workload)]
        shown = table(f"{_TITLES[workload]}: {_ENGINES[engine]}", "contender")
        for heading in (
            *("workers", "orders/s", "requests", "writes", "reads", "conflicts", "retries", "p95"),
            *("p50 ms", "p99 ms", "USD", ""),
        ):
            shown.add_column(heading, justify="right", no_wrap=True)
        for cell in chosen:
            shown.add_row(*_row(cell))
        screen.print(shown, "")
    screen.print(
        "[dim]Requests, writes and reads (capacity units, without the index) and conflicts are counted per placed order, "
        f"retries per answered order. USD is the cost of a million placed orders at prices of {prices.AS_OF}.[/]\n",
        soft_wrap=True,
    )


def _row(cell: Figures) -> list[str]:
    return [
        contenders.describe(cell.contender).title,
        str(cell.workers),
        f"{cell.orders_per_second:,.0f}",
        f"{cell.requests:.3f}",
        f"{cell.write_units:.2f}",
        f"{cell.read_units:.2f}",
        f"{cell.conflicts:.3f}",
        f"{cell.retries:.2f}",
        str(cell.retries_p95),
        f"{cell.p50_ms:,.0f}",
        f"{cell.p99_ms:,.0f}",
        f"{cell.dollars_per_million:.2f}",
        _faults(cell),
    ]


def _faults(cell: Figures) -> str:
    faults = {
        "units oversold": cell.oversold,
        "units taken twice": cell.applied_twice,
        "orders lost": cell.lost,
    }
    parts = [f"[bold red]{count} {what}[/]" for what, count in faults.items() if count]
    return ", ".join([*parts, *([f"{cell.given_up} given up"] if cell.given_up else [])])


def table(title: str, first: str) -> Table:
    """Build an empty table.

    Args:
        title: Its title.
        first: Heading of the first column, which contains names.
    """
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    made.add_column(first, no_wrap=True)
    return made
