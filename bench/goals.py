"""Goals of the service as it is deployed, compared with the figures of one run.

They are ratios to the textbook contender on the same engine, unless the goal says otherwise.
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
        figure: The figure that it sets a limit for.
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
    found = Results(cells)
    goals = [
        *_requests(found),
        *_throughput(found),
        *_waste(found),
        *_simulated(found),
        *_real_orders(found),
        *_overhead(overhead),
    ]
    ours = [cell for cell in cells if cell.contender.startswith("ours")]
    wrong = sum(not cell.clean for cell in ours)
    value = f"{len(ours) - wrong} of {len(ours)} cells clean"
    goals.append(
        Goal(
            "never oversold, lost or applied twice",
            "ours, in every cell",
            value,
            not wrong if ours else None,
        )
    )
    return goals


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


def _requests(found: Results) -> Iterator[Goal]:
    for workers, wanted, rivals in ((1, 150, "no rivals"), (8, 60, "8 workers")):
        theirs = found.get("embedded", "hot", "textbook", workers)
        ours = found.get("embedded", "hot", OURS, workers)
        yield _ratio(
            f"hot product, requests per order, {rivals}",
            wanted,
            theirs.requests / ours.requests if theirs and ours else None,
            "times fewer",
        )


def _throughput(found: Results) -> Iterator[Goal]:
    theirs = found.get("embedded", "hot", "textbook", 8)
    ours = found.get("embedded", "hot", OURS, 8)
    yield _ratio(
        "hot product, 8 workers, orders/s",
        60,
        ours.orders_per_second / theirs.orders_per_second if theirs and ours else None,
        "times as many",
    )
    others = [
        cell
        for other in ("powertools_batch", "pynamodb_transaction", "atomic")
        if (cell := found.get("embedded", "hot", other, 8))
    ]
    best = max((cell.orders_per_second for cell in others), default=None)
    yield _ratio(
        "the same, beside the best of Powertools, PynamoDB and atomic",
        1,
        ours.orders_per_second / best if ours and best else None,
        "times as many",
    )


def _waste(found: Results) -> Iterator[Goal]:
    ours = found.get("embedded", "hot", OURS, 8)
    figure = "hot product, 8 workers"
    yield _at_most(
        f"{figure}: write units per order, no index", 2.5, ours.write_units if ours else None
    )
    yield _at_most(
        f"{figure}: conflict rate", 0.05, ours.conflict_rate if ours else None, percent=True
    )
    yield _at_most(f"{figure}: retries, average", 0.1, ours.retries if ours else None)


def _simulated(found: Results) -> Iterator[Goal]:
    cells = found.all("simulated", "hot", OURS)
    most = cells[-1].workers if cells else 0
    figure = f"simulated hot product, 1 to {most} workers"
    complete = most >= 50
    peak = max((cell.orders_per_second for cell in cells), default=0.0)
    last = cells[-1].orders_per_second / peak if complete else None
    yield Goal(
        f"{figure}: throughput at the end",
        "at least 80 % of its peak",
        "not measured" if last is None else f"{last:.0%}",
        None if last is None else last >= 0.8,
    )
    units = max(cell.write_units for cell in cells) if complete else None
    yield _at_most(f"{figure}: write units per order, no index", 3, units)
    # Little's law: orders in the system = throughput x mean time in it.
    spread = (
        max(
            cell.p99_ms / (1000 * cell.workers * cell.batch / cell.orders_per_second)
            for cell in cells
        )
        if complete
        else None
    )
    yield _at_most(f"{figure}: p99, in means by Little's law", 3, spread)


def _real_orders(found: Results) -> Iterator[Goal]:
    for engine in ("embedded", "simulated"):
        theirs = found.get(engine, "real", "textbook", 8)
        ours = found.get(engine, "real", OURS, 8)
        figure = f"real orders, 8 workers, {engine}"
        both = (theirs, ours) if theirs and ours else None
        yield _ratio(
            f"{figure}: orders/s",
            5,
            both and both[1].orders_per_second / both[0].orders_per_second,
            "times as many",
        )
        for what in ("requests", "conflicts"):
            pair = both and (getattr(both[0], what), getattr(both[1], what))
            yield Goal(
                f"{figure}: {what} per order",
                "at most a tenth",
                f"{pair[1]:.3f} beside {pair[0]:.3f}" if pair else "not measured",
                pair[1] <= pair[0] / 10 if pair else None,
            )
        yield _at_most(
            f"{figure}: write units, share of the textbook's",
            0.85,
            both and both[1].write_units / both[0].write_units,
            percent=True,
        )


def _overhead(overhead: Overhead | None) -> Iterator[Goal]:
    cold = dict(overhead.cold_ms) if overhead else {}
    usual = cold.pop(USUAL, None)
    yield _at_most(
        "cold start above the bare interpreter, the slowest handler, share of the usual one's",
        0.6,
        max(cold.values()) / usual if cold and usual else None,
        percent=True,
    )
    layer = overhead and overhead.layer_bytes
    yield _at_most("the layer, MB", 8, layer / _MEGABYTE if layer else None)
    warm = overhead.warm_us if overhead else {}
    ours, powertools = (warm.get(name) for name in (OURS, "powertools_batch"))
    yield _at_most(
        "warm CPU per order, share of Powertools'",
        0.25,
        ours / powertools if ours and powertools else None,
        percent=True,
    )


def _ratio(figure: str, wanted: float, value: float | None, what: str) -> Goal:
    if value is None:
        return Goal(figure, f"{wanted:g} {what}", "not measured", None)
    return Goal(figure, f"{wanted:g} {what}", f"{value:.1f}", value >= wanted)


def _at_most(figure: str, wanted: float, value: float | None, *, percent: bool = False) -> Goal:
    goal = f"at most {wanted:.0%}" if percent else f"at most {wanted:g}"
    if value is None:
        return Goal(figure, goal, "not measured", None)
    return Goal(figure, goal, f"{value:.1%}" if percent else f"{value:.2f}", value <= wanted)
