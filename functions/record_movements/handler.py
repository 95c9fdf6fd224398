"""Reads the streams of orders and products: records the units that orders move, and notes which orders and products changed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import InventoryOrdersError, OutcomeError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.invocation.telemetry import log_queue_errors, logger
from inventory_orders.publishing.movements import Recorder
from inventory_orders.publishing.recent_changes import Noter
from inventory_orders.publishing.streams import is_of_products, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("store", "unrecorded_movements")

# Other changes of the same orders wait, and only a repeated batch is noted as late.
_SECONDS = 20.0

# Pages for staff can wait, but the next batch should not.
_SECONDS_FOR_NOTES = 3.0


class NotAllParkedError(InventoryOrdersError):
    """Some unreadable changes are not in the queue for them, so Lambda has to repeat the batch."""


@logger.inject_lambda_context
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Record the movements of a batch of changes to orders, and note which orders or products changed.

    Returns:
        The numbers of rows written and of changes parked, for people who invoke the function. Lambda itself only checks whether
        the function raises an error.

    Raises:
        NotAllParkedError: An unreadable change could not be parked.
        StoreError: Movements were not recorded, because DynamoDB failed, or time ran out.
    """
    records, process = records_of(event), runtime.process()
    recorder = _recorder(process)
    try:
        rows, unreadable = _record(recorder, records, context) if process.has_movements else (0, 0)
    finally:
        if process.notes_changes:
            _note(records, context)
    return {"result": "RECORDED", "rows": rows, "unreadable": unreadable}


def _record(recorder: Recorder, records: Sequence[Any], context: LambdaContext) -> tuple[int, int]:
    """Record the movements of orders. Returns the numbers of rows written and of changes parked."""
    calls = SqsCalls(runtime.process().unrecorded_movements, runtime.end_of(context))
    soon = Deadline.after(min(_SECONDS, runtime.deadline(context).remaining()), SystemClock())
    of_orders = [record for record in records if not is_of_products(record)]
    rows, unreadable = recorder.record(of_orders, soon)
    for each in unreadable:
        logger.error("change parked", extra={"eventId": each.id, "code": each.code})
    left = sum(not calls.park(each) for each in unreadable)
    log_queue_errors(calls.errors)
    if left:
        raise NotAllParkedError(f"{left} unreadable changes have not been parked")
    logger.info("movements recorded", extra={"rows": rows})
    return rows, len(unreadable)


def _note(records: Sequence[Any], context: LambdaContext) -> None:
    """Note which orders and products changed. A failure is only logged, because it must not repeat the batch."""
    try:
        left = runtime.deadline(context).remaining()
        soon = Deadline.after(min(_SECONDS_FOR_NOTES, left), SystemClock())
        _noter(runtime.process()).note(records, soon)
    except OutcomeError as error:
        logger.error("changes not noted", extra={"error": str(error)})


@lru_cache
def _recorder(process: runtime.Process) -> Recorder:
    """The process's recorder, which remembers the months that it has listed."""
    return Recorder(RetryingClient(process.store, executor=runtime.executor()))


@lru_cache
def _noter(process: runtime.Process) -> Noter:
    """The process's noter, which remembers whether it has failed to note a change."""
    return Noter(RetryingClient(process.store))
