"""Simulates one contender: `python -m bench.simulator --contender ours_99 --workload hot --workers 1,10,50,100,200`."""

from __future__ import annotations

from time import process_time
from typing import Annotated

import typer

from bench import plan
from bench.simulator import engine
from bench.simulator.engine import Conditions
from simulated_aws.latency import LATENCIES

HEAD = (
    "workers orders/s  req/o   wu/o   ru/o confl/o  rate refused retries  p95  p50 ms   p99 ms  mean ms "
    "p99/mean given up unfinished  clean  cpu s"
)


def main(
    contender: Annotated[str, typer.Option(help="name of its module")] = "ours_99",
    workload: Annotated[str, typer.Option(help=f"one of {', '.join(plan.WORKLOADS)}")] = "hot",
    workers: Annotated[str, typer.Option(help="numbers, separated by commas")] = "1,10,50,100,200",
    latency: Annotated[str, typer.Option(help=f"one of {', '.join(LATENCIES)}")] = "published",
    rounds: Annotated[
        int, typer.Option(help="batches per worker, counting at least 40 workers")
    ] = 2,
    window: Annotated[float, typer.Option(help="most virtual seconds")] = 30.0,
    lanes: Annotated[
        int | None,
        typer.Option(help="lanes at the most; as many as the contender has if not given"),
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of all randomness")] = 0,
) -> None:
    """Simulate one contender with each number of workers, and print the figures."""
    typer.echo(HEAD)
    for count in map(int, workers.split(",")):
        began = process_time()
        made = plan.named(workload, engine.supply(contender, count, rounds), seed)
        conditions = Conditions(LATENCIES[latency], window, lanes)
        cell = engine.run(contender, made, count, seed, conditions)
        mean = 1000 * count * cell.batch / cell.orders_per_second
        typer.echo(
            f"{count:7} {cell.orders_per_second:8,.0f} {cell.requests:6.3f} {cell.write_units:6.2f} "
            f"{cell.read_units:6.2f} {cell.conflicts:7.3f} {cell.conflict_rate:5.0%} {cell.claims_refused:7.3f} "
            f"{cell.retries:7.2f} {cell.retries_p95:4} {cell.p50_ms:7,.0f} {cell.p99_ms:8,.0f} "
            f"{mean:8,.0f} {cell.p99_ms / mean:8.2f} {cell.given_up:8} {cell.unfinished:10} "
            f"{cell.clean!s:>6} {process_time() - began:6.1f}"
        )


if __name__ == "__main__":
    typer.run(main)
