"""Chooses the cells to measure: a selection that takes minutes, or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from bench import contenders, workloads
from bench.workloads import Workload

WORKLOADS = ("hot", "zipf", "real", "real-scarce", "sell-out")
WORKERS = (1, 2, 4, 8, 16)
SIMULATED_WORKERS = (1, 10, 50, 100, 200)

# These contenders run on all workloads in a short run; the others only on the hot product.
_ON_ALL_WORKLOADS = ("textbook", "ours_10", "ours_99", "ours_lanes")
_THREE_OF_WORKERS = (1, 4, 8)
# 200 rivals with small batches take a minute of CPU or more.
_SIMULATED_IN_SHORT = (1, 10, 50)
_OUR_SIMULATED_IN_SHORT = (1, 10, 50, 200)


@dataclass(frozen=True, slots=True)
class Step:
    """A cell to measure.

    Attributes:
        engine: `embedded` or `simulated`.
        contender: Name of its module.
        workload: Name of the workload.
        workers: Number of concurrent workers.
    """

    engine: str
    contender: str
    workload: str
    workers: int


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run.

    Attributes:
        orders: Orders in the queue of the embedded engine, by workload. The simulated sell-out has the same number.
        window: Seconds after which no worker of the embedded engine takes another batch, by workload; None to answer
            all orders.
        rounds: Batches per simulated worker before the window ends, counting at least 40 workers.
        virtual_seconds: Longest simulated window for contenders that place one order at a time. Rivals with whole
            batches need a longer window for a steady state.
        repeats: New processes per cold start; a quarter as many per warm handler.
    """

    orders: dict[str, int]
    window: dict[str, float | None]
    rounds: int
    virtual_seconds: float
    repeats: int


QUICK = Size(
    orders={"hot": 25_000, "zipf": 5_000, "real": 20_000, "real-scarce": 2_000, "sell-out": 300},
    window={"hot": 2.5, "zipf": 2.5, "real": 6.0, "real-scarce": 6.0, "sell-out": None},
    rounds=3,
    virtual_seconds=3.0,
    repeats=8,
)
FULL = Size(
    orders={
        "hot": 100_000,
        "zipf": 20_000,
        "real": 20_000,
        "real-scarce": 2_000,
        "sell-out": 1_000,
    },
    window={"hot": 12.0, "zipf": 12.0, "real": 12.0, "real-scarce": 12.0, "sell-out": None},
    rounds=5,
    virtual_seconds=12.0,
    repeats=16,
)


def steps(
    *,
    full: bool,
    engines: Sequence[str],
    only_contenders: Sequence[str] = (),
    only_workloads: Sequence[str] = (),
    only_workers: Sequence[int] = (),
) -> Iterator[Step]:
    """List the cells to measure.

    Args:
        full: Whether all workloads run with as many numbers of workers as the hot product, or with three of them.
        engines: The engines to use.
        only_contenders: Use only these, on every workload.
        only_workloads: Use only these.
        only_workers: Use exactly these numbers of workers.
    """
    for engine in engines:
        for workload in only_workloads or WORKLOADS:
            for contender in only_contenders or contenders.NAMES:
                if workload != "hot" and not only_contenders and contender not in _ON_ALL_WORKLOADS:
                    continue
                for workers in only_workers or _workers(engine, workload, contender, full=full):
                    yield Step(engine, contender, workload, workers)


def _workers(engine: str, workload: str, contender: str, *, full: bool) -> Sequence[int]:
    if workload == "real-scarce":
        # It shows what is left of lanes where nearly all is too scarce for them.
        return (8,) if engine == "embedded" and contender in ("textbook", "ours_lanes") else ()
    if engine == "simulated":
        if workload != "hot":
            return _THREE_OF_WORKERS
        if full:
            return SIMULATED_WORKERS
        return _OUR_SIMULATED_IN_SHORT if contender == "ours_99" else _SIMULATED_IN_SHORT
    return WORKERS if workload == "hot" or full else _THREE_OF_WORKERS


def window(step: Step, size: Size) -> float | None:
    """Choose the window of an embedded cell, in seconds; None to answer all orders.

    Rivals with whole batches need a longer window for a steady state: all of them lose once at the start, and a batch
    for many products takes seconds.
    """
    seconds = size.window[step.workload]
    longer = step.workload in ("hot", "real", "real-scarce") and step.contender in (
        "ours_99",
        "ours_lanes",
    )
    return seconds * 2 if seconds and longer else seconds


def virtual_window(step: Step, size: Size) -> float | None:
    """Choose the longest simulated window of a cell, in virtual seconds; None to answer all orders."""
    if step.workload == "sell-out":
        # A sell-out must run to its end.
        return None
    if not step.contender.startswith("ours"):
        return size.virtual_seconds
    return size.virtual_seconds * (25 if step.workload == "hot" else 4)


def make(name: str, count: int, seed: int, orders: Path) -> Workload | None:
    """Make a workload by its name; None if its file does not exist."""
    if name in ("real", "real-scarce"):
        return workloads.real_orders(count, orders, scarce=name == "real-scarce")
    makers = {
        "hot": workloads.hot_product,
        "zipf": workloads.zipf,
        "sell-out": workloads.sell_out,
    }
    return makers[name](count, seed)


def named(name: str, count: int, seed: int) -> Workload:
    """Make the workload that somebody has named on a command line, real orders from their usual file.

    Raises:
        BadParameter: There is none of that name, or no such file.
    """
    if name not in WORKLOADS:
        raise typer.BadParameter(f"{name} is no workload; there are {', '.join(WORKLOADS)}")
    made = make(name, count, seed, workloads.REAL_ORDERS)
    if made is None:
        raise typer.BadParameter(f"{workloads.REAL_ORDERS} does not exist")
    return made
