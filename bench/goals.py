"""Goals of the service as deployed, compared with the figures of one run.

Goals are ratios to the textbook contender on the same engine, unless the goal says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from bench import report
from bench.contenders import OURS
from bench.figures import Figures
from bench.studies.overhead import USUAL, Overhead

_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, and whether it is met.

    Attributes:
        figure: The figure that the goal limits.
        goal: The limit, as text.
        value: The measured value, as text.
        met: Whether the goal is met; None if this run did not measure it.
    """

    figure: str
    goal: str
    value: str
    met: bool | None


def check(cells: Sequence[Figures], overhead: Overhead | None) -> list[Goal]:
    """Check all goals, in a fixed order."""
    ours = [cell for cell in cells if cell.contender.startswith("ours")]
    clean = sum(cell.clean for cell in ours)
    return [
        *_embedded_hot_product(Results(cells)),
        *_simulated_hot_product(Results(cells)),
        *_real_orders(Results(cells)),
        *_overhead(overhead or Overhead({}, None, {})),
        Goal(
            "never oversold, lost or applied twice",
            "ours, in every cell",
            f"{clean} of {len(ours)} cells clean",
            clean == len(ours) if ours else None,
        ),
    ]


def show(goals: Sequence[Goal], screen: Console) -> None:
    """Print the goals that were measured, and whether they are met."""
    shown = report.table("Goals", "figure")
    for heading in ("goal", "measured", ""):
        shown.add_column(heading)
    for goal in goals:
        if goal.met is None:
            continue
        state = "[green]met[/]" if goal.met else "[bold red]not met[/]"
        shown.add_row(goal.figure, goal.goal, goal.value, state)
    screen.print(shown)


class Results:
    """Finds cells by engine, workload, contender and workers."""

    def __init__(self, cells: Sequence[Figures]) -> None:
        self._cells = {(c.engine, c.workload, c.contender, c.workers): c for c in cells}

    def get(self, engine: str, workload: str, contender: str, workers: int) -> Figures | None:
        """Find one cell; None if it was not measured."""
        return self._cells.get((engine, workload, contender, workers))

    def all(self, engine: str, workload: str, contender: str) -> list[Figures]:
        """List a contender's cells, ordered by workers."""
        return sorted(
            (c for k, c in self._cells.items() if k[:3] == (engine, workload, contender)),
            key=lambda cell: cell.workers,
        )


def _embedded_hot_product(found: Results) -> Iterator[Goal]:
    def cell(contender: str, workers: int = 8) -> Figures | None:
        return found.get("embedded", "hot", contender, workers)

    for workers, wanted, rivals in ((1, 150, "no rivals"), (8, 60, "8 workers")):
        fewer = _ratio("requests", cell("textbook", workers), cell(OURS, workers))
        figure = f"hot product, requests per order, {rivals}"
        yield _at_least(figure, wanted, fewer, "times fewer")
    ours, figure = cell(OURS), "hot product, 8 workers"
    faster = _ratio("orders_per_second", ours, cell("textbook"))
    yield _at_least(f"{figure}, orders/s", 60, faster, "times as many")
    others = map(cell, ("powertools_batch", "pynamodb_transaction", "atomic"))
    best = max(filter(None, others), key=lambda one: one.orders_per_second, default=None)
    faster = _ratio("orders_per_second", ours, best)
    best_of = "the same, compared with the best of Powertools, PynamoDB and atomic"
    yield _at_least(best_of, 1, faster, "times as many")
    units, conflicts, retries = (
        (ours.write_units, ours.conflict_rate, ours.retries) if ours else (None, None, None)
    )
    yield _at_most(f"{figure}: write units per order, no index", 2.5, units)
    yield _at_most(f"{figure}: conflict rate", 0.05, conflicts, percent=True)
    yield _at_most(f"{figure}: retries, average", 0.1, retries)


def _simulated_hot_product(found: Results) -> Iterator[Goal]:
    cells = found.all("simulated", "hot", OURS)
    if not cells or cells[-1].workers < 50:
        return
    figure = f"simulated hot product, 1 to {cells[-1].workers} workers"
    last = cells[-1].orders_per_second / max(cell.orders_per_second for cell in cells)
    throughput = f"{figure}: throughput at the end"
    yield Goal(throughput, "at least 80 % of its peak", f"{last:.0%}", last >= 0.8)
    units = max(cell.write_units for cell in cells)
    yield _at_most(f"{figure}: write units per order, no index", 3, units)
    # Little's law: orders in the system = throughput x mean time in it.
    spread = max(
        cell.p99_ms / (1000 * cell.workers * cell.batch / cell.orders_per_second) for cell in cells
    )
    yield _at_most(f"{figure}: p99, in means by Little's law", 3, spread)


def _real_orders(found: Results) -> Iterator[Goal]:
    for engine in ("embedded", "simulated"):
        theirs = found.get(engine, "real", "textbook", 8)
        ours = found.get(engine, "real", OURS, 8)
        if theirs is None or ours is None:
            continue
        figure = f"real orders, 8 workers, {engine}"
        faster = _ratio("orders_per_second", ours, theirs)
        yield _at_least(f"{figure}: orders/s", 5, faster, "times as many")
        for what, mine, other in (
            ("requests", ours.requests, theirs.requests),
            ("conflicts", ours.conflicts, theirs.conflicts),
        ):
            value = f"{mine:.3f} beside {other:.3f}"
            yield Goal(f"{figure}: {what} per order", "at most a tenth", value, mine <= other / 10)
        share = _ratio("write_units", ours, theirs)
        yield _at_most(f"{figure}: write units, share of the textbook's", 0.85, share, percent=True)


def _overhead(overhead: Overhead) -> Iterator[Goal]:
    cold = dict(overhead.cold_ms)
    usual = cold.pop(USUAL, None)
    yield _at_most(
        "cold start above the bare interpreter, the slowest handler, share of the usual one's",
        0.6,
        max(cold.values()) / usual if cold and usual else None,
        percent=True,
    )
    layer = overhead.layer_bytes
    yield _at_most("the layer, MB", 8, layer / _MEGABYTE if layer else None)
    ours, powertools = (overhead.warm_us.get(name) for name in (OURS, "powertools_batch"))
    yield _at_most(
        "warm CPU per order, share of Powertools'",
        0.25,
        ours / powertools if ours and powertools else None,
        percent=True,
    )


def _ratio(name: str, of: Figures | None, to: Figures | None) -> float | None:
    """Divide a figure of one cell by the same figure of another; None if one was not measured."""
    return getattr(of, name) / getattr(to, name) if of and to else None


def _at_least(figure: str, wanted: float, value: float | None, unit: str) -> Goal:
    goal = f"{wanted:g} {unit}"
    if value is None:
        return Goal(figure, goal, "", None)
    return Goal(figure, goal, f"{value:.1f}", value >= wanted)


def _at_most(figure: str, wanted: float, value: float | None, *, percent: bool = False) -> Goal:
    goal = f"at most {wanted:.0%}" if percent else f"at most {wanted:g}"
    if value is None:
        return Goal(figure, goal, "", None)
    return Goal(figure, goal, f"{value:.1%}" if percent else f"{value:.2f}", value <= wanted)
