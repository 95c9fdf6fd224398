"""Tables and plots of the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import PLOTS, contenders
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
# The palette of Okabe and Ito, and markers, for colour-blind readers.
_STYLES = {
    "textbook": ("#000000", "o"),
    "powertools_batch": ("#E69F00", "s"),
    "pynamodb_transaction": ("#CC79A7", "^"),
    "atomic": ("#56B4E9", "D"),
    "ours_10": ("#009E73", "v"),
    "ours_99": ("#D55E00", "P"),
    "ours_lanes": ("#0072B2", "X"),
}
# The panels. All scales are logarithmic, because the contenders differ by orders of magnitude.
_PANELS: list[tuple[str, Callable[[Figures], float]]] = [
    ("orders/s", lambda cell: cell.orders_per_second),
    ("write units per order, without the index", lambda cell: cell.write_units),
    ("requests to DynamoDB per order", lambda cell: cell.requests),
    ("p99 from receipt to durable, ms", lambda cell: cell.p99_ms),
]

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
        "[dim]Requests, writes and reads (capacity units, without the index) and conflicts are per placed order, "
        f"retries per answered one. USD: for a million placed orders, prices of {prices.AS_OF}.[/]\n",
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
    """Make an empty table.

    Args:
        title: Its title.
        first: Heading of the column with names.
    """
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    made.add_column(first, no_wrap=True)
    return made


def plot(cells: Sequence[Figures], folder: Path = PLOTS) -> list[Path]:
    """Draw the hot product by engine, and the other workloads, as PNG. Returns the files written."""
    written = []
    for engine, title in _ENGINES.items():
        hot = [cell for cell in cells if (cell.engine, cell.workload) == (engine, "hot")]
        if hot:
            written.append(folder / f"bench-hot-{engine}.png")
            _plot_by_workers(hot, f"One hot product ({title})", written[-1])
        others = [cell for cell in cells if cell.engine == engine and cell.workload != "hot"]
        if others:
            written.append(folder / f"bench-workloads-{engine}.png")
            _plot_workloads(others, f"Other workloads ({title})", written[-1])
    return written


def _plot_by_workers(cells: Sequence[Figures], title: str, path: Path) -> None:
    figure, axes = _figure(title)
    for axis, (label, value) in zip(axes, _PANELS, strict=True):
        for name in contenders.NAMES:
            chosen = sorted((c for c in cells if c.contender == name), key=lambda c: c.workers)
            if chosen:
                colour, marker = _STYLES[name]
                axis.plot(
                    [cell.workers for cell in chosen],
                    [value(cell) for cell in chosen],
                    color=colour,
                    marker=marker,
                    markersize=5,
                    label=contenders.describe(name).title,
                )
        counts = sorted({cell.workers for cell in cells})
        axis.set(title=label, xlabel="workers", xscale="log")
        axis.set_xticks(counts, [str(count) for count in counts], minor=False)
        axis.set_xticks([], minor=True)
        _logarithmic(axis)
    _save(figure, axes[0], path)


def _plot_workloads(cells: Sequence[Figures], title: str, path: Path) -> None:
    """Draw groups of bars: one group per workload, with the number of workers that the goals use."""
    workers = 8 if any(cell.workers == 8 for cell in cells) else max(c.workers for c in cells)
    chosen = [cell for cell in cells if cell.workers == workers]
    names = [name for name in contenders.NAMES if any(c.contender == name for c in chosen)]
    groups = [workload for workload in _TITLES if any(c.workload == workload for c in chosen)]
    figure, axes = _figure(f"{title}, {workers} workers")
    width = 0.8 / len(names)
    for axis, (label, value) in zip(axes, _PANELS, strict=True):
        for place, name in enumerate(names):
            mine = {cell.workload: value(cell) for cell in chosen if cell.contender == name}
            bars = axis.bar(
                [group + (place - (len(names) - 1) / 2) * width for group in range(len(groups))],
                [mine.get(workload, math.nan) for workload in groups],
                width * 0.92,
                color=_STYLES[name][0],
                label=contenders.describe(name).title,
            )
            axis.bar_label(bars, fmt=_plain, fontsize=7, padding=1)
        axis.set(title=label)
        axis.set_xticks(range(len(groups)), [_TITLES[group] for group in groups])
        axis.tick_params(axis="x", length=0)
        _logarithmic(axis)
        axis.margins(y=0.1)
    _save(figure, axes[0], path)


def _logarithmic(axis: Any) -> None:
    from matplotlib import ticker  # noqa: PLC0415 - slow to import

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    axis.yaxis.set_minor_locator(ticker.NullLocator())
    axis.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _figure(title: str) -> tuple[Any, list[Any]]:
    import matplotlib as mpl  # noqa: PLC0415 - slow to import

    mpl.use("agg")
    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 10})
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, grid = plt.subplots(2, 2, figsize=(9.5, 7), layout="constrained")
    figure.suptitle(title)
    axes = [axis for row in grid for axis in row]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, axis: Any, path: Path) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=115, metadata={"Software": None})
