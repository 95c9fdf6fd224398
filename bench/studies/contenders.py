"""The service compared with its alternatives: orders per second, and costs per order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from bench import contenders, embedded, report, workloads
from bench.cells import MeasuredCells, Result, Study, Value
from bench.figures import Figures
from bench.simulator import engine
from bench.simulator.engine import Conditions

_WORKERS = (1, 2, 4, 8, 16)
_SIMULATED_WORKERS = (1, 10, 50, 100, 200)
_THREE_OF_WORKERS = (1, 4, 8)
# These contenders run on all workloads; the others only on the hot product.
_ON_ALL_WORKLOADS = ("textbook", "ours_99", "ours_lanes")
# 200 concurrent writers with small batches take a minute of CPU or more.
_SIMULATED_IN_SHORT = (1, 10, 50)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run.

    Attributes:
        orders: Orders in the queue of the embedded engine, by workload. The simulated sell-out has the same number.
        window: Seconds after which no worker of the embedded engine takes another batch, by workload; None to answer
            all orders.
        rounds: Batches that each simulated worker handles before the window ends. Fewer than 40 workers count as 40.
        virtual_seconds: Longest simulated window for contenders that place one order at a time. Concurrent writers with
            whole batches need a longer window for a steady state.
    """

    orders: Mapping[str, int]
    window: Mapping[str, float | None]
    rounds: int
    virtual_seconds: float


SIZES = {
    "tiny": Size(
        orders={"hot": 200, "real": 20, "sell-out": 40},
        window={"hot": 0.2, "real": 0.2, "sell-out": None},
        rounds=1,
        virtual_seconds=0.02,
    ),
    "short": Size(
        orders={
            "hot": 25_000,
            "zipf": 5_000,
            "real": 20_000,
            "real-scarce": 2_000,
            "sell-out": 300,
        },
        window={"hot": 2.5, "zipf": 2.5, "real": 6.0, "real-scarce": 6.0, "sell-out": None},
        rounds=3,
        virtual_seconds=3.0,
    ),
    "full": Size(
        orders={
            "hot": 100_000,
            "zipf": 20_000,
            "real": 20_000,
            "real-scarce": 2_000,
            "sell-out": 1_000,
        },
        window=dict.fromkeys(("hot", "zipf", "real", "real-scarce"), 12.0) | {"sell-out": None},
        rounds=5,
        virtual_seconds=12.0,
    ),
}


def cells(size: str) -> Iterator[dict[str, Value]]:
    """All contenders on one hot product, and some of them on other workloads, on both engines."""
    for engine_name in ("embedded", "simulated"):
        for workload in workloads.NAMES:
            for contender in contenders.NAMES:
                for workers in _workers(engine_name, workload, contender, size):
                    yield {
                        "engine": engine_name,
                        "workload": workload,
                        "contender": contender,
                        "workers": workers,
                        "size": size,
                        "orders": workloads.REAL_ORDERS,
                        "seed": 1,
                    }


def _workers(engine_name: str, workload: str, contender: str, size: str) -> Sequence[int]:
    if size == "tiny":
        few = {"hot": ("textbook", "ours_lanes"), "sell-out": ("ours_99",)}
        # The simulator has at least 40 workers, and takes seconds for their batches of real orders.
        if engine_name == "embedded":
            few["real"] = ("ours_99",)
        return (2,) if contender in few.get(workload, ()) else ()
    if workload == "real-scarce":
        # These cells show the effect of lanes when most products are too scarce for them.
        chosen = engine_name == "embedded" and contender in ("textbook", "ours_lanes")
        return (8,) if chosen else ()
    if workload != "hot" and contender not in _ON_ALL_WORKLOADS:
        return ()
    full = size == "full"
    if engine_name == "embedded":
        return _WORKERS if workload == "hot" or full else _THREE_OF_WORKERS
    if workload != "hot":
        return _THREE_OF_WORKERS
    return _SIMULATED_WORKERS if full else _SIMULATED_IN_SHORT


def measure(**parameters: Any) -> Result:
    """Measure one contender with one workload and a number of workers."""
    figures = _simulated if parameters.pop("engine") == "simulated" else _embedded
    size = SIZES[parameters.pop("size")]
    return asdict(figures(size=size, **parameters))


def _embedded(
    workload: str, contender: str, workers: int, size: Size, orders: str, seed: int
) -> Figures:
    made = workloads.make(workload, size.orders[workload], seed, orders)
    window = _window(workload, contender, size)
    return embedded.engine().run(contender, made, workers, seed, window)


def _simulated(
    workload: str, contender: str, workers: int, size: Size, orders: str, seed: int
) -> Figures:
    count = _supply(contender, workers, size.rounds)
    if workload == "sell-out":
        count = size.orders["sell-out"]
    made = workloads.make(workload, count, seed, orders)
    window = _virtual_window(workload, contender, size)
    return engine.run(contender, made, workers, seed, Conditions(window=window))


def _window(workload: str, contender: str, size: Size) -> float | None:
    """Choose the window of an embedded cell, in seconds; None to answer all orders.

    Concurrent writers with whole batches need a longer window for a steady state: each of them loses once at the start,
    and a batch for many products takes seconds.
    """
    seconds = size.window[workload]
    longer = workload in ("hot", "real", "real-scarce") and contender in ("ours_99", "ours_lanes")
    return seconds * 2 if seconds and longer else seconds


def _virtual_window(workload: str, contender: str, size: Size) -> float | None:
    """Choose the longest simulated window of a cell, in virtual seconds; None to answer all orders."""
    if workload == "sell-out":
        # A sell-out must run to the end.
        return None
    if not contender.startswith("ours"):
        return size.virtual_seconds
    return size.virtual_seconds * (25 if workload == "hot" else 4)


def _supply(contender: str, workers: int, rounds: int) -> int:
    """Compute how many orders a steady state needs: `rounds` batches per worker. Fewer than 40 workers count as 40.

    When the window ends, two batches per worker are left.
    """
    return contenders.describe(contender).batch * (rounds * max(40, workers) + 2 * workers)


def figures_of(found: MeasuredCells) -> list[Figures]:
    """The figures of measured cells."""
    return [Figures(**result) for _, result in found]


def show(found: MeasuredCells, screen: Console) -> bool:
    """Print a table for each engine and workload."""
    figures = figures_of(found)
    report.show_contenders(figures, screen)
    return all(one.clean for one in figures if one.contender.startswith("ours"))


STUDY = Study("the service compared with its alternatives", cells, measure, show)
