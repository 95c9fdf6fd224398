"""Applies stock changes from the stock queue, direct invocations and the HTTP API."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from inventory_orders.api.serving import answer_command
from inventory_orders.clock import Deadline
from inventory_orders.domain.adjustment import Adjustment, Decrement, Transfer
from inventory_orders.domain.location import named_key
from inventory_orders.domain.product import Product
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome, UnsuccessfulError
from inventory_orders.errors import Outcome
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs_batch import QueueRules, SqsBatch, read_messages
from inventory_orders.invocation.telemetry import emit_messages, emit_stats, logger, metrics
from inventory_orders.messages.commands import parse_adjustment, stock_command

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.products.catalogue import AtomicDecrement

runtime.prepare("store", "queue", "engine")

_ROUTES = {
    "POST /products/{productId}/adjustments": "adjust",
    "POST /products/{productId}/transfers": "transfer",
}
"""The action of each route of the HTTP API."""

RULES = QueueRules(
    # The receipt or product that the adjustment needs may still be on its way.
    may_be_early=frozenset({RejectionReason.UNKNOWN_PRODUCT, RejectionReason.BELOW_FLOOR}),
)


@logger.inject_lambda_context
@metrics.log_metrics
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Apply adjustments, each exactly once.

    Returns:
        For a batch of SQS messages, the partial batch response. For a command, an answer with `result` and the product's new
        `stockCount`, `version` and `status`; after a failure, it says what to do. An atomic decrement does not read the
        product, so its answer leaves them out.
    """
    messages = read_messages(event)
    if messages is None:
        return answer_command(event, context, "adjust_stock", _ROUTES, _command, "adjust")
    batch: SqsBatch[Adjustment] = SqsBatch(
        messages, runtime.process().queue, runtime.end_of(context)
    )
    adjustments = batch.parse(lambda message: parse_adjustment(message.body))
    report = runtime.process().engine.apply(adjustments, runtime.deadline(context), batch.age)
    response = batch.settle(report.outcomes, RULES)
    emit_messages(batch)
    emit_stats(report.stats, report.failure)
    return response


def _command(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    change = stock_command(command)
    if command.get("mode") == "atomic" and isinstance(change, Decrement):
        report = _atomic_decrement(runtime.process()).apply(change, deadline)
    else:
        report = runtime.process().engine.apply([change], deadline)
    emit_stats(report.stats, report.failure)
    outcome = report.outcome_of_one()
    if outcome.kind is Outcome.INVALID:
        raise UnsuccessfulError(outcome)
    facts = _facts(command, change)
    if outcome.kind is Outcome.APPLIED and outcome.applied is None:
        return {"result": "APPLIED", **facts, "path": "atomic"}
    if outcome.kind in (Outcome.APPLIED, Outcome.REPLAYED):
        return direct.of_outcome(outcome) | facts | _stock_after(change, outcome, deadline)
    is_final = outcome.rejection is not None and outcome.rejection.is_final
    if is_final and command["action"] == "decrement":
        outcome = replace(outcome, detail=f"{outcome.detail}; {_STAYS}")
    # The answer shows the stock at the time of the refusal, which may have changed since.
    raise UnsuccessfulError(outcome, facts | direct.of_details(outcome.rejection))


@lru_cache
def _atomic_decrement(process: runtime.Process) -> AtomicDecrement:
    """The object that decrements stock without a read, relying on what the process remembers about the products."""
    from inventory_orders.products.catalogue import AtomicDecrement  # noqa: PLC0415 - few calls need it

    return AtomicDecrement(process.engine)


def _facts(command: dict[str, Any], change: Adjustment | Transfer) -> direct.Answer:
    """The fields of the answer that identify the product and the change."""
    if isinstance(change, Transfer):
        return {"productId": command["productId"], "transferId": change.transfer_id}
    path = {"path": "optimistic"} if command["action"] == "decrement" else {}
    return {**named_key(change.product_id), **path}


_STAYS = "this refusal is final, so another attempt needs a new adjustmentId"


def _stock_after(
    change: Adjustment | Transfer, outcome: ChangeOutcome, deadline: Deadline
) -> direct.Answer:
    """Show the product after the change; after a transfer, at both locations."""
    left = [_product_after(outcome, product_id, deadline) for product_id in change.product_ids]
    return dict(zip(("from", "to"), left, strict=True)) if isinstance(change, Transfer) else left[0]


def _product_after(outcome: ChangeOutcome, product_id: str, deadline: Deadline) -> direct.Answer:
    product = outcome.after.get(product_id)
    if isinstance(product, Product):
        return {
            **named_key(product_id),
            "stockCount": product.stock_count,
            "version": product.version,
            "status": product.status.value,
        }
    client = runtime.process().engine.client
    stored = client.call(lambda: client.store.get(product_id), deadline)
    return (direct.of_product(stored) if stored is not None else {}) | named_key(product_id)
