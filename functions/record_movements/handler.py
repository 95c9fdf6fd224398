"""Records the units that orders move, by product and by reference: reads the stream of orders, writes the table Movements."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import InventoryOrdersError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.invocation.telemetry import log_queue_errors, logger
from inventory_orders.publishing.movements import Recorder
from inventory_orders.publishing.streams import records_of

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("store", "unrecorded_movements")

# Other changes of the same orders wait, and only a repeated batch is noted as late.
_SECONDS = 20.0


class NotAllParkedError(InventoryOrdersError):
    """Some unreadable changes are not in the queue for them, so Lambda has to repeat the batch."""


@logger.inject_lambda_context
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Record the movements of a batch of changes to orders.

    Returns:
        The numbers of rows written and of changes parked, for people who invoke the function. Lambda itself only checks whether
        the function raises an error.

    Raises:
        NotAllParkedError: An unreadable change could not be parked.
        StoreError: DynamoDB failed, or time ran out.
    """
    records, process = records_of(event), runtime.process()
    calls = SqsCalls(process.unrecorded_movements, runtime.end_of(context))
    soon = Deadline.after(min(_SECONDS, runtime.deadline(context).remaining()), SystemClock())
    rows, unreadable = _recorder(process).record(records, soon)
    for each in unreadable:
        logger.error("change parked", extra={"eventId": each.id, "code": each.code})
    left = sum(not calls.park(each) for each in unreadable)
    log_queue_errors(calls.errors)
    if left:
        raise NotAllParkedError(f"{left} unreadable changes have not been parked")
    logger.info("movements recorded", extra={"rows": rows})
    return {"result": "RECORDED", "rows": rows, "unreadable": len(unreadable)}


@lru_cache
def _recorder(process: runtime.Process) -> Recorder:
    """The process's recorder, which remembers the months that it has listed."""
    return Recorder(RetryingClient(process.store, executor=runtime.executor()))
