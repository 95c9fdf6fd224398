"""Reads the logs of the deployed functions, without the project's own log readers."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from local import emulator
from local.invoke import invoke_deployed
from operations.aws import LIVE, Aws

Values = dict[tuple[str, str | None], list[float]]


def values_in_logs(aws: Aws) -> tuple[Values, dict[str, list[float]], Counter[str]]:
    """Read all logs: the handlers' metrics by name and reason, the durations of invocations, and tracebacks."""
    metrics: Values = defaultdict(list)
    durations: dict[str, list[float]] = defaultdict(list)
    errors: Counter[str] = Counter()
    for output, group in aws.outputs.items():
        if not output.endswith("LogGroupName"):
            continue
        function = output.removesuffix("LogGroupName")
        pages = aws.logs.get_paginator("describe_log_streams").paginate(logGroupName=group)
        for stream in (s["logStreamName"] for p in pages for s in p["logStreams"]):
            events = aws.logs.get_log_events(
                logGroupName=group, logStreamName=stream, startFromHead=True
            )["events"]
            assert len(events) < 10_000, "the embedded AWS cuts off longer answers"
            for event in events:
                line = event["message"]
                if line.startswith("REPORT"):
                    duration = float(line.split("\tDuration: ")[1].split(" ms")[0])
                    durations[function].append(duration)
                elif line.startswith("Traceback (most recent call last)"):
                    errors[function] += 1
                elif '"_aws"' in line:
                    fields: dict[str, Any] = json.loads(line)
                    for directive in fields["_aws"]["CloudWatchMetrics"]:
                        for metric in directive["Metrics"]:
                            key = metric["Name"], fields.get("reason")
                            metrics[key] += fields[metric["Name"]]
    return metrics, durations, errors


def give_every_worker_nothing_to_do(aws: Aws) -> None:
    """Invoke every worker of the function once more.

    On a busy machine, the embedded AWS only delivers a worker's last log lines during its next invocation.
    """
    function, running = aws.outputs["PlaceOrdersFunctionName"], emulator.running()
    assert running is not None
    processes = psutil.Process(running.pid).children()
    # More concurrent invocations than workers would start needless workers.
    live = aws.functions.get_alias(FunctionName=function, Name=LIVE)["FunctionVersion"]
    workers = max(1, sum(_serves(process, function, live) for process in processes))
    with ThreadPoolExecutor(workers) as pool:
        invoked = pool.map(
            lambda _: invoke_deployed(aws, "place_orders", {"Records": []}), range(2 * workers)
        )
        list(invoked)


def _serves(process: psutil.Process, function: str, version: str) -> bool:
    with contextlib.suppress(psutil.Error):
        environment = process.environ()
        served = [environment.get(f"AWS_LAMBDA_FUNCTION_{part}") for part in ("NAME", "VERSION")]
        return served == [function, version]
    return False
