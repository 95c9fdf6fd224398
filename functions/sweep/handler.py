"""The sweep, once a minute: units that nobody uses go home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.engine.sweep import sweep
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger
from inventory_orders.messages.parse import parse_command

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


runtime.prepare()


@logger.inject_lambda_context
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Empty the lanes that nobody uses into the depot, and a depot that nobody uses into the rows of its products.

    Returns:
        An answer with `result` and what was moved.

    Raises:
        SweepError: Something has to be repaired. The alarm on errors of this function is meant for it.
    """
    return direct.answer(lambda: _command(event, context))


def _command(event: object, context: LambdaContext) -> direct.Answer:
    parse_command(event, "sweep")
    report = sweep(runtime.store(), runtime.deadline(context))
    done: direct.Answer = {"lanes": report.lanes, "products": report.products}
    if report.unfinished:
        done["unfinished"] = report.unfinished
    logger.info("swept", extra=done)
    return {"result": "SWEPT"} | done
