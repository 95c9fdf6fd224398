"""Look at one contender: `python -m bench.simulator --contender ours_99 --workload hot --workers 1,10,50,100,200`."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console

from bench import workloads
from bench.simulator import engine
from bench.simulator.model import LATENCIES

MAKERS = {
    "hot": workloads.hot_product,
    "zipf": workloads.zipf,
    "sell-out": workloads.sell_out,
    "real": lambda count, _seed: workloads.real_orders(count),
}


def main(
    contender: Annotated[str, typer.Option(help="name of its module")] = "ours_99",
    workload: Annotated[str, typer.Option(help=f"one of {', '.join(MAKERS)}")] = "hot",
    workers: Annotated[str, typer.Option(help="so many, separated by commas")] = "1,10,50,100,200",
    latency: Annotated[str, typer.Option(help=f"one of {', '.join(LATENCIES)}")] = "published",
    rounds: Annotated[int, typer.Option(help="batches that each worker gets, about")] = 3,
    seed: Annotated[int, typer.Option(help="of all chance")] = 0,
) -> None:
    """Simulate one contender on so many workers each, and show the figures."""
    console = Console(soft_wrap=True)
    head = (
        "workers   orders/s  req/o   wu/o   ru/o  confl/o  rate  retries p95  "
        "p50 ms   p99 ms  mean ms  p99/mean  given up  clean  real s"
    )
    console.print(head, highlight=False)
    for count in map(int, workers.split(",")):
        began = perf_counter()
        enough, total = engine.sizes(contender, count, rounds)
        cell = engine.run(
            contender, MAKERS[workload](total, seed), count, seed, LATENCIES[latency], enough
        )
        mean = 1000 * count * cell.batch / cell.orders_per_second
        console.print(
            f"{count:7} {cell.orders_per_second:10,.0f} {cell.requests:6.3f} {cell.write_units:6.2f} "
            f"{cell.read_units:6.2f} {cell.conflicts:8.3f} {cell.conflict_rate:5.0%} "
            f"{cell.retries:8.2f} {cell.retries_p95:3} {cell.p50_ms:7,.0f} {cell.p99_ms:8,.0f} "
            f"{mean:8,.0f} {cell.p99_ms / mean:9.2f} {cell.given_up:9} {cell.clean!s:>6} "
            f"{perf_counter() - began:7.1f}",
            highlight=False,
        )


if __name__ == "__main__":
    typer.run(main)
