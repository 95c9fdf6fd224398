"""Measures the cost of a handler by itself: its cold start, the size of its layer, and its CPU time per order.

CPU times are the lowest of several new processes, because other load on the machine can only add to them (as the
documentation of `timeit` explains). The cold start is the CPU time until the handler is imported and its clients are
created, minus that of a bare interpreter; the layer's bytecode is compiled as in the deployment. The warm figure is the
CPU time of handler and SDK with a stub instead of the network, minus the time of the stub.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.httpsession import URLLib3Session
from rich.console import Console

from bench import contenders, report, workloads
from bench.cells import MeasuredCells, Result, Study, Value
from bench.workloads import WARM_UP_PRODUCT
from infra import assets
from inventory_orders.store.tables import Table
from local import ROOT
from local.endpoint import embedded_settings
from testing.world.handlers import FakeContext, function_names

USUAL = "usual"

_RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
_ORDERS = 500
"""Orders of a warm run, in batches of the contender's size."""
_WARM_UP_INVOCATIONS = 3

# Nothing listens there: cold starts only create clients, and the warm runs use a stub.
_ENVIRONMENT = {
    **embedded_settings("http://127.0.0.1:9"),
    **{f"{table.name}_TABLE_NAME": table.value for table in Table},
    "IDEMPOTENCY_TABLE_NAME": "Idempotency",
    "QUEUE_URL": "http://127.0.0.1:9/000000000000/bench",
    "DEAD_LETTER_QUEUE_URL": "http://127.0.0.1:9/000000000000/bench-dead",
    "LANES": "1",
    "POWERTOOLS_SERVICE_NAME": "inventory-orders-bench",
}

# This function has no queue, so it creates no SQS client.
_WITHOUT_QUEUE = {"count_stock": "import os; del os.environ['QUEUE_URL']; "}


@dataclass(frozen=True, slots=True)
class Overhead:
    """The results so far.

    Attributes:
        cold_ms: CPU time in milliseconds until a handler is ready, minus that of a bare interpreter, by function;
            `usual` is the handler in `contenders/usual.py`.
        layer_bytes: Size of the unpacked layer.
        warm_us: CPU per order in a warm handler, in microseconds, by contender and for `usual`.
    """

    cold_ms: Mapping[str, float]
    layer_bytes: int | None
    warm_us: Mapping[str, float]

    @classmethod
    def of(cls, found: MeasuredCells) -> Overhead:
        """Collect the results of measured cells."""
        values = {(what["figure"], what["handler"]): result["value"] for what, result in found}
        cold, warm = (
            {handler: value for (figure, handler), value in values.items() if figure == name}
            for name in ("cold ms", "warm us")
        )
        return cls(cold, values.get(("bytes", "layer")), warm)


def cells(size: str) -> Iterator[dict[str, Value]]:
    """The cells: the cold start of each function, the CPU time of each contender, and the size of the layer."""
    cold, warm = [*function_names(), USUAL], [*contenders.NAMES, USUAL]
    if size == "tiny":
        cold, warm = ["place_orders"], ["ours_lanes"]
    rounds = {"tiny": 1, "short": 8, "full": 16}[size]
    for handler in cold:
        yield {"figure": "cold ms", "handler": handler, "rounds": rounds}
    for handler in warm:
        yield {"figure": "warm us", "handler": handler, "rounds": max(1, rounds // 4)}
    yield {"figure": "bytes", "handler": "layer", "rounds": 1}


def measure(figure: str, handler: str, rounds: int) -> Result:
    """Measure one figure of one handler: the lowest of several rounds, each in a new process."""
    if figure == "bytes":
        files = assets.layer(_RUNTIME).path.rglob("*")
        return {"value": sum(path.stat().st_size for path in files if path.is_file())}
    if figure == "warm us":
        return {"value": min(_warm(handler) for _ in range(rounds))}
    program = _WITHOUT_QUEUE.get(handler, "") + "import handler"
    path = [assets.layer(_RUNTIME).path / "python"]
    if handler == USUAL:
        program, path = f"import {USUAL}", [ROOT / "bench" / "contenders"]
    else:
        path.insert(0, assets.function(handler, _RUNTIME).path)
    # The first round does not count: it writes the bytecode of modules outside the layer.
    _cpu_of_process(program, path)
    turns = [(_cpu_of_process("", []), _cpu_of_process(program, path)) for _ in range(rounds)]
    bare, ready = map(min, zip(*turns, strict=True))
    return {"value": 1000 * (ready - bare)}


def show(found: MeasuredCells, screen: Console) -> bool:
    """Print cold start, size and CPU."""
    overhead = Overhead.of(found)
    cold = report.table("Cold start: CPU above a bare interpreter", "handler")
    cold.add_column("ms", justify="right")
    cold.add_column("of the usual", justify="right")
    for name, value in overhead.cold_ms.items():
        share = f"{value / overhead.cold_ms[USUAL]:.0%}" if USUAL in overhead.cold_ms else ""
        cold.add_row(_title(name), f"{value:.0f}", share)
    if overhead.cold_ms:
        screen.print(cold)
    if overhead.layer_bytes is not None:
        screen.print(f"The layer: {overhead.layer_bytes / 1e6:.1f} MB unpacked")
    warm = report.table("Warm: CPU per order, network stubbed", "handler")
    warm.add_column("µs", justify="right")
    for name, value in overhead.warm_us.items():
        warm.add_row(_title(name), f"{value:,.0f}")
    if overhead.warm_us:
        screen.print(warm)
    screen.print()
    return True


def _title(handler: str) -> str:
    if handler == USUAL:
        return "the usual handler"
    return contenders.describe(handler).title if handler in contenders.NAMES else handler


def _cpu_of_process(program: str, path: list[Path]) -> float:
    """Measure the CPU seconds, user and system, of a new interpreter that runs a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", program],
        env=_plain_environment() | {"PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=ROOT / ".local",
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _warm(name: str) -> float:
    """Measure one contender's CPU per order in a new process, in microseconds."""
    has_lanes = name in contenders.NAMES and contenders.describe(name).has_lanes
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import print_warm; print_warm({name!r})"],
        env=_plain_environment() | {"LANES": str(int(has_lanes))},
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return float(done.stdout)


def _plain_environment() -> dict[str, str]:
    """Copy the environment without AWS and Python settings."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))
    }
    return kept | _ENVIRONMENT


class _Stub:
    """A stand-in for DynamoDB: every product exists with plenty of stock, and every write succeeds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def send(self, request: Any) -> AWSResponse:
        """Answer a request."""
        began = time.thread_time()
        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]
        answer: dict[str, Any] = {}
        if operation == "GetItem":
            answer = {"Item": _product(json.loads(request.body)["Key"])}
        elif operation == "BatchGetItem":
            answer = {
                "Responses": {
                    table: [_product(key) for key in wanted["Keys"] if "productId" in key]
                    for table, wanted in json.loads(request.body)["RequestItems"].items()
                },
                "UnprocessedKeys": {},
            }
        response = AWSResponse(request.url, 200, HTTPHeaders(), _Body(json.dumps(answer).encode()))
        self.seconds += time.thread_time() - began
        return response


class _Body:
    """A response body, as botocore expects it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> list[bytes]:
        """The content, in chunks."""
        return [self._content]


def _product(key: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **key,
        "stockCount": {"N": "1000000000"},
        "onHand": {"N": "1000000000"},
        "_version": {"N": "1"},
        "status": {"S": "ACTIVE"},
        "lowStockThreshold": {"N": "0"},
        "createdAt": {"S": workloads.CREATED_AT},
        "lastUpdatedAt": {"S": workloads.CREATED_AT},
    }


def print_warm(name: str) -> None:
    """Measure one contender's CPU per order in this process, and print it."""
    # Handlers log to standard output, which should contain only the figure.
    figure_output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.write(figure_output, f"{_run_warm(name):.1f}".encode())


def _run_warm(name: str) -> float:
    """Measure CPU per order in this process, in microseconds."""
    stub = _Stub()
    URLLib3Session.send = lambda _session, request: stub.send(request)  # type: ignore[method-assign, assignment]
    contender = contenders.load(name)
    batch, orders = contender.BATCH, 0
    total = _ORDERS // batch
    began = 0.0
    for invocation in range(-_WARM_UP_INVOCATIONS, total):
        bodies = [
            json.dumps(
                {
                    "orderId": f"warm-{invocation}-{position}",
                    "userId": f"user-{position}",
                    "items": [{"productId": WARM_UP_PRODUCT, "quantity": 1}],
                }
            )
            for position in range(batch)
        ]
        event = workloads.sqs_event([(body, 1, time.time()) for body in bodies])
        if invocation == 0:
            stub.seconds, began = 0.0, time.process_time()
        answer = contender.lambda_handler(event, FakeContext("place_orders"))
        if answer["batchItemFailures"]:
            raise AssertionError(f"{name} returned {answer}")
        orders += batch if invocation >= 0 else 0
    return (time.process_time() - began - stub.seconds) / orders * 1_000_000


STUDY = Study("cold start, CPU of an order, size of the layer", cells, measure, show)
