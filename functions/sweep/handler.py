"""Sweeps once a minute by default: queues holds that end soon, folds outbound pages, reclaims idle units, checks streams."""

from __future__ import annotations

import json
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import CorruptItemError, Outcome, OutcomeError, RepairNeededError
from inventory_orders.holds.ending import MAX_REMEMBERED, POLICY, EndingHolds, SentHolds
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.invocation.telemetry import log_queue_errors, logger
from inventory_orders.lanes.idle import return_idle_units
from inventory_orders.messages.commands import parse_command
from inventory_orders.overview import store_overview
from inventory_orders.products.fold import Fold
from inventory_orders.publishing import movements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.holds.ending import DueHold
    from inventory_orders.publishing.publisher import Bus
    from inventory_orders.publishing.stock import StockWatch


runtime.prepare("store", "expiry_queue")

# How much of the remaining time each step may use. Holds come first because they have to be on time, but leave some for lanes.
_SHARE_OF_HOLDS = 0.6
_SHARE_OF_FOLDS = 0.5

# This many messages keep the expiry of holds busy until the next sweep. With more, the process could forget that it has sent one
# before it is processed, and send it again.
_MAX_WAITING = 20_000

_ERRORS_SHOWN = 10


@logger.inject_lambda_context
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Send holds to the expiry queue shortly before they end. Then fold outbound pages, and return idle units to rows.

    The sweep also checks that Lambda reads the streams, because no metric shows that a mapping is disabled. With the setting
    `stockEvents`, it publishes changed stock levels.

    Returns:
        An answer with `result`, and with the numbers of holds sent, units moved and products published.

    Raises:
        RepairNeededError: An operator has to repair something. Such an error triggers the function's alarm.
    """
    return direct.answer(lambda: _command(event, context))


def _command(event: object, context: LambdaContext) -> direct.Answer:
    parse_command(event, "sweep")
    process, deadline = runtime.process(), runtime.deadline(context)
    holds = _send_holds(deadline, context)
    fold = Fold(
        RetryingClient(process.store, POLICY),
        Deadline.after(deadline.remaining() * _SHARE_OF_FOLDS, SystemClock()),
    ).run()
    report, functions = return_idle_units(process.store, deadline), runtime.client("lambda")
    overview = store_overview(
        RetryingClient(process.store, POLICY, executor=runtime.executor()), deadline
    )
    behind = movements.follow_movements(process.store, functions, process.movement_mapping)
    unread = [
        movements.unread_streams(process.store, functions, mappings, what)
        for what, mappings in process.stream_mappings.items()
    ]
    parts = (holds, fold, report, overview, behind, *unread)
    problems = [*dict.fromkeys(problem for part in parts for problem in part.problems)]
    published, not_published = _publish_stock(deadline, problems)
    if problems:
        raise RepairNeededError("; ".join(problems))
    done: direct.Answer = {
        "holds": holds.sent,
        "folded": fold.folded,
        "lanes": report.lanes,
        "products": report.products,
    }
    if published is not None:
        done["published"] = published
    if left := "; ".join(filter(None, [*(part.unfinished for part in parts), not_published])):
        done["unfinished"] = left
    logger.info("swept", extra=done)
    return {"result": "SWEPT"} | done


@lru_cache
def _sent_holds(_: runtime.Process) -> SentHolds:
    """The holds that this process has recently sent to the queue."""
    return SentHolds(MAX_REMEMBERED)


@lru_cache
def _stock_watch(process: runtime.Process, bus: Bus) -> StockWatch:
    """The publisher of stock levels, which remembers where its last call stopped."""
    from inventory_orders.publishing.stock import StockWatch  # noqa: PLC0415 - only with `stockEvents`

    return StockWatch(RetryingClient(process.store), bus)


def _send_holds(deadline: Deadline, context: LambdaContext) -> EndingHolds:
    """Send the holds that are about to end, unless many are already waiting to expire."""
    calls = SqsCalls(runtime.process().expiry_queue, runtime.end_of(context))

    def send(some: Sequence[DueHold]) -> set[int]:
        return calls.send([(json.dumps({"orderId": hold.id}), at) for hold, at in some])

    process = runtime.process()
    client = RetryingClient(process.store, POLICY, executor=runtime.executor())
    is_full = _MAX_WAITING < calls.count_waiting("NotVisible") < inf
    holds = EndingHolds(
        client,
        send,
        _sent_holds(process),
        process.sweep_seconds,
        process.hold_grace_seconds,
        Deadline.after(deadline.remaining() * _SHARE_OF_HOLDS, SystemClock()),
    )
    # If SQS does not answer, the sweep tries to send. Otherwise a failure of SQS would look like a sweep without holds.
    if is_full:
        holds.unfinished = "many holds that have ended are already waiting to expire"
        return holds
    holds.send_all()
    errors = list(dict.fromkeys(calls.errors))[:_ERRORS_SHOWN]
    log_queue_errors(errors, holds=holds.refused)
    if holds.refused and not holds.sent:
        holds.problems[f"none of {holds.refused} holds was sent: {'; '.join(errors)}"] = None
    return holds


def _publish_stock(deadline: Deadline, problems: list[str]) -> tuple[int | None, str]:
    """Publish changed stock levels, if the setting `stockEvents` is on. Problems that need a repair are added to `problems`.

    Returns:
        The number of published levels, if known, and why the others are left for the next sweep.
    """
    process = runtime.process()
    if process.stock_bus is None:
        return None, ""
    try:
        return _stock_watch(process, process.stock_bus).publish(deadline), ""
    except OutcomeError as error:
        if error.kind is Outcome.RETURNED and not isinstance(error, CorruptItemError):
            return None, str(error)
        problems.append(str(error))
        return None, ""
