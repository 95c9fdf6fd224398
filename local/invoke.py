"""Invoke one handler with one event: on the running stack, or in this process with moto."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3

from local import ROOT
from local.endpoint import embedded_settings, environment_without_aws
from local.sample_orders import stocked
from operations import emf
from operations.aws import Aws
from operations.dead_letters import peek_dead_letters
from operations.errors import UserError
from testing.world.handlers import FakeContext, function_names, load_handler
from testing.world.tables import FEEDS, UNDELIVERABLE, make_stack, queue_settings, settings

FED_BY = {feed.queue.removesuffix(".fifo"): feed.function for feed in FEEDS.values()}
"""For each queue of the stack, the function that reads it."""


@dataclass(frozen=True)
class Invocation:
    """The result of an invocation.

    Attributes:
        answer: The handler's return value.
        logs: The log lines, in the form that CloudWatch Logs stores.
        dead_letters: One line for each dead-lettered message, with the cause; empty on a stack.
        failed: Whether the handler raised an exception.
    """

    answer: Any
    logs: str
    dead_letters: Sequence[str] = ()
    failed: bool = False

    @property
    def dead_lettered(self) -> int:
        """Return the number of dead-lettered messages in a batch, from the metrics in its log."""
        metrics = emf.parse(self.logs.splitlines())
        return int(sum(emf.values_of(metrics, "MessagesDeadLettered")))

    @property
    def is_good(self) -> bool:
        """Whether the answer has no errors, and every message of a batch was accepted."""
        return is_good(self.answer) and not self.dead_lettered


def is_good(answer: Any) -> bool:
    """Whether an answer has no refusals, errors, returned messages or unpublishable events."""
    if not isinstance(answer, dict):
        return False
    if "statusCode" in answer:
        return int(answer["statusCode"]) < 400
    if "batchItemFailures" in answer:
        return not answer["batchItemFailures"]
    return "code" not in answer and not (answer.get("undeliverable") or answer.get("unreadable"))


def addressee(path: Path, event: Any) -> str | None:
    """Find the function that an event is for, by its queue or stream, or by the sample's name. Return None if unknown."""
    records = event.get("Records") if isinstance(event, dict) else None
    if records and isinstance(records, list) and isinstance(records[0], dict):
        source, arn = records[0].get("eventSource"), str(records[0].get("eventSourceARN", ""))
        # Two functions read the stream of orders, so a sample's name decides.
        if source == "aws:dynamodb" and not path.name.startswith("record_movements"):
            return "publish_events"
        # The name of a deployed queue contains its name in the stack, separated by hyphens.
        named = [queue for queue in FED_BY if queue in arn.rpartition(":")[2]]
        if source == "aws:sqs" and named:
            return FED_BY[max(named, key=len)]
    if path.resolve().parent == ROOT / "events":
        return next((name for name in function_names() if path.name.startswith(name)), None)
    return None


def read_event(path: Path, function: str) -> Any:
    """Read an event file for a function.

    Raises:
        UserError: The file does not exist, cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        samples = sorted((ROOT / "events").glob(f"{function}*.json"))
        shown = "".join(f"\n  {sample.relative_to(ROOT)}" for sample in samples)
        raise UserError(f"{path} does not exist; samples for {function}:{shown}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8; save the file as UTF-8") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    except OSError as error:
        what = error.strerror or str(error)
        raise UserError(f"{path} cannot be read ({what.lower()}); choose a JSON file") from error


def invoke_deployed(aws: Aws, name: str, event: Any) -> Invocation:
    """Invoke a function of the stack."""
    output = "".join(part.capitalize() for part in name.split("_"))
    answer = aws.functions.invoke(
        FunctionName=aws.live(output),
        Payload=json.dumps(event).encode(),
        LogType="Tail",
    )
    return Invocation(
        json.loads(answer["Payload"].read() or b"null"),
        _whole_lines(
            base64.b64decode(answer.get("LogResult", "")), aws.outputs[f"{output}LogGroupName"]
        ),
        failed="FunctionError" in answer,
    )


# Lambda returns the last 4 KB of an invocation's log, which may begin in the middle of a line.
# https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
_TAIL_BYTES = 4096


def _whole_lines(tail: bytes, log_group: str) -> str:
    """Return the complete lines at the end of a log. If the first line may be incomplete, a note replaces it."""
    if len(tail) < _TAIL_BYTES:
        return tail.decode("utf-8", "replace")
    _, _, whole = tail.partition(b"\n")
    return f"(earlier lines are in the log group {log_group})\n" + whole.decode("utf-8", "replace")


def invoke_in_process(name: str, event: Any) -> Invocation:
    """Run a handler in this process with moto. Its tables contain the sample catalogue. This is not thread-safe."""
    from moto import mock_aws  # noqa: PLC0415 - slow to import, and needed here only

    environment = environment_without_aws() | embedded_settings("http://127.0.0.1")
    # moto intercepts requests to AWS.
    del environment["AWS_ENDPOINT_URL"]
    with (
        patch.dict(os.environ, environment, clear=True),
        mock_aws(),
        contextlib.redirect_stdout(io.StringIO()) as logs,
    ):
        urls = make_stack(stocked())
        os.environ.update(settings(urls) | queue_settings(name, urls))
        handler = load_handler(name)
        answer = handler.lambda_handler(event, FakeContext(name))
        dead_letters = [
            f"{dead_letter.code}: {dead_letter.message}"
            for queue in (*(feed.dead_letters for feed in FEEDS.values()), UNDELIVERABLE)
            for dead_letter in peek_dead_letters(boto3.client("sqs"), urls[queue], 100)
        ]
    return Invocation(answer, logs.getvalue(), dead_letters)


def readable(logs: str) -> list[str]:
    """Format structured log lines for the user: level, message and ids."""
    lines = []
    for line in logs.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            lines.append(line)
            continue
        if "_aws" in entry:
            metrics = {
                metric["Name"]: entry[metric["Name"]]
                for directive in entry["_aws"]["CloudWatchMetrics"]
                for metric in directive["Metrics"]
            }
            shown = " ".join(
                f"{name}={','.join(f'{value:g}' for value in values)}"
                for name, values in metrics.items()
            )
            lines.append(f"METRICS {shown}")
        else:
            extra = " ".join(
                f"{name}={json.dumps(value)}" if isinstance(value, dict) else f"{name}={value}"
                for name, value in entry.items()
                if name not in _LOG_BOILERPLATE and value != ""
            )
            lines.append(f"{entry.get('level', '')} {entry.get('message', '')}  {extra}")
    return lines


_LOG_BOILERPLATE = {
    *("level", "message", "location", "timestamp", "service", "cold_start"),
    "correlation_ids",
    *("function_name", "function_memory_size", "function_arn", "function_request_id"),
}
