"""Brooker's simulation on this simulator's scheduler and rules, which have to reproduce his published results.

Each client wants to write one row once. All clients read its version at the same time and write on condition of that
version. A client that loses waits and reads again. A hop through the network takes a normally distributed time; the row
answers at once.

Source: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015, with its program (base 5 ms, cap
2,000 ms, network 10 ms with a standard deviation of 2):
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/,
https://github.com/aws-samples/aws-arch-backoff-simulator
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from random import Random

from rich.console import Console

from bench import report
from bench.cells import Found, Result, Study, Value
from simulated_aws import DynamoDB, ServiceError
from simulated_aws.contention import ContendedDynamoDB
from simulated_aws.latency import MILLISECOND
from simulated_aws.scheduler import Scheduler

BASE, CAP = 5.0, 2000.0
"""Milliseconds."""

_NETWORK_MEAN, _NETWORK_DEVIATION = 10.0, 2.0

Backoff = Callable[[Random, int, float], float]
"""Returns milliseconds to wait from: randomness, the number of failures so far, the last wait."""


def _exponential(failures: int) -> float:
    return min(CAP, BASE * 2.0**failures)


BACKOFFS: Mapping[str, Backoff] = {
    "none": lambda _chance, _failures, _last: 0.0,
    "exponential": lambda _chance, failures, _last: _exponential(failures),
    "full jitter": lambda chance, failures, _last: chance.uniform(0, _exponential(failures)),
    "decorrelated": lambda chance, _failures, last: min(CAP, chance.uniform(BASE, last * 3)),
}


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The average result for a number of clients.

    Attributes:
        writes: Attempts to write, per client.
        seconds: Time until the last client has finished.
    """

    writes: float
    seconds: float


PUBLISHED: Mapping[tuple[int, str], RaceResult] = {
    (clients, backoff): RaceResult(writes, seconds)
    for clients, row in {
        10: ((5.0, 0.37), (5.1, 3.5), (3.9, 0.46), (3.8, 0.42)),
        50: ((13.8, 1.1), (12.3, 35.0), (6.6, 3.0), (7.5, 2.3)),
        100: ((24.2, 2.0), (18.6, 65.0), (8.0, 4.9), (10.1, 4.6)),
        200: ((44.1, 3.7), (27.8, 103.0), (9.5, 7.7), (13.0, 8.0)),
    }.items()
    for backoff, (writes, seconds) in zip(BACKOFFS, row, strict=True)
}
"""The results of Brooker's program, by clients and backoff."""


class _Network:
    """A network with two hops of normally distributed time, and a row that answers at once."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def times(self, operation: str, items: int) -> tuple[float, float, float]:
        del operation, items
        return self._hop(), 0.0, self._hop()

    def _hop(self) -> float:
        return MILLISECOND * abs(self._chance.normalvariate(_NETWORK_MEAN, _NETWORK_DEVIATION))


class _Race:
    """One run: several clients, one row."""

    def __init__(self, clients: int, backoff: Backoff, seed: int) -> None:
        self._chance = Random(f"brooker {seed}")
        self._backoff = backoff
        self._scheduler = Scheduler()
        store = DynamoDB(lambda: self._scheduler.now)
        store.answer(
            "CreateTable",
            {
                "TableName": "Rows",
                "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            },
        )
        row = {"id": {"S": "row"}, "version": {"N": "0"}}
        store.answer("PutItem", {"TableName": "Rows", "Item": row})
        # Brooker's row has no capacity limit.
        self._row = ContendedDynamoDB(
            self._scheduler, store, _Network(self._chance), write_units=1e9, read_units=1e9
        )
        self.writes = 0
        for _ in range(clients):
            self._scheduler.start(self._client)

    def run(self) -> float:
        """Let all clients write. Returns the duration in seconds."""
        self._scheduler.run()
        return self._scheduler.now

    def _client(self) -> None:
        failures, wait = 0, BASE
        while not self._write(self._read()):
            failures += 1
            wait = self._backoff(self._chance, failures, wait)
            self._scheduler.sleep(MILLISECOND * wait)

    def _read(self) -> int:
        request = {"TableName": "Rows", "Key": {"id": {"S": "row"}}, "ConsistentRead": True}
        return int(self._row.answer("GetItem", request)["Item"]["version"]["N"])

    def _write(self, version: int) -> bool:
        self.writes += 1
        try:
            self._row.answer(
                "UpdateItem",
                {
                    "TableName": "Rows",
                    "Key": {"id": {"S": "row"}},
                    "UpdateExpression": "SET #version = :next",
                    "ConditionExpression": "#version = :version",
                    "ExpressionAttributeNames": {"#version": "version"},
                    "ExpressionAttributeValues": {
                        ":version": {"N": str(version)},
                        ":next": {"N": str(version + 1)},
                    },
                },
            )
        except ServiceError as error:
            if error.code != "ConditionalCheckFailedException":
                raise
            return False
        return True


def simulate(clients: int, backoff: str, runs: int = 20) -> RaceResult:
    """Run Brooker's experiment on this simulator.

    Args:
        clients: Number of clients.
        backoff: One of `BACKOFFS`.
        runs: Number of runs to average.
    """
    writes = seconds = 0.0
    for seed in range(runs):
        race = _Race(clients, BACKOFFS[backoff], seed)
        seconds += race.run()
        writes += race.writes
    return RaceResult(writes / clients / runs, seconds / runs)


def cells(_size: str) -> Iterator[dict[str, Value]]:
    """A cell for each published result."""
    for clients, backoff in PUBLISHED:
        yield {"engine": "simulated", "clients": clients, "backoff": backoff, "runs": 20}


def measure(engine: str, clients: int, backoff: str, runs: int) -> Result:
    """Run Brooker's experiment with a number of clients."""
    del engine
    return asdict(simulate(clients, backoff, runs))


def show(found: Found, screen: Console) -> bool:
    """Print simulated results beside the published ones."""
    table = report.table("Brooker's experiment, simulated and published", "backoff")
    for heading in ("clients", "writes", "published", "seconds", "published"):
        table.add_column(heading, justify="right")
    for parameters, result in found:
        published = PUBLISHED.get((parameters["clients"], parameters["backoff"]))
        table.add_row(
            parameters["backoff"],
            str(parameters["clients"]),
            *(f"{result['writes']:.1f}", f"{published.writes:.1f}" if published else ""),
            *(f"{result['seconds']:.2f}", f"{published.seconds:.2f}" if published else ""),
        )
    screen.print(table, "")
    return True


STUDY = Study("published results that the simulator has to reproduce", cells, measure, show)
