"""Creates, changes, discontinues and delists products by command, and applies catalogue events from a queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from inventory_orders.api.serving import answer_command
from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.barcode import all_written, shown_barcodes
from inventory_orders.domain.change import Update
from inventory_orders.domain.location import in_words, key_in, public_key
from inventory_orders.domain.product import CatalogueEvent, Product
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    UnsuccessfulError,
    outcome_of,
    rejected,
    returned,
)
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    Outcome,
    OutcomeError,
    ProductNotFoundError,
    RejectedError,
    StoreError,
)
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs_batch import QueueRules, SqsBatch, read_messages
from inventory_orders.invocation.telemetry import (
    STALE,
    emit_messages,
    emit_stale,
    emit_stats,
    logger,
    metrics,
)
from inventory_orders.lanes.levels import read_committed
from inventory_orders.messages.commands import (
    catalogue_event,
    new_product,
    parse_catalogue_event,
    product_changes,
)
from inventory_orders.products.catalogue import ProductCatalogue

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("store", "queue")

_ROUTES = {
    "POST /products": "create",
    "PATCH /products/{productId}": "change",
    "DELETE /products/{productId}": "delist",
    "POST /products/{productId}/discontinue": "discontinue",
    "POST /products/{productId}/list-again": "listAgain",
}
"""The action of each route of the HTTP API."""

RULES = QueueRules(
    # The product may still be on its way.
    may_be_early=frozenset({RejectionReason.UNKNOWN_PRODUCT}),
    invalid=frozenset({"EVENT_ID_REUSED"}),
)

MIN_AGE_OF_A_PRICE_MINUTES = 60


@logger.inject_lambda_context
@metrics.log_metrics
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Carry out one command from a direct invocation or over HTTP, or apply a batch of catalogue events.

    Returns:
        For a batch of SQS messages, the partial batch response. For a command, an answer with `result` and the product; after
        a failure, it says what to do.
    """
    products = ProductCatalogue(RetryingClient(runtime.process().store))
    messages = read_messages(event)
    if messages is None:
        result = answer_command(
            event,
            context,
            "manage_products",
            _ROUTES,
            lambda command, deadline: _COMMANDS[command["action"]](
                command, deadline, products.of(command.get("actor"))
            ),
        )
        emit_stats(products.stats)
        return result
    deadline = runtime.deadline(context)
    batch: SqsBatch[CatalogueEvent] = SqsBatch(
        messages, runtime.process().queue, runtime.end_of(context)
    )
    events = batch.parse(lambda message: parse_catalogue_event(message.body, SystemClock().now()))
    outcomes = [_apply(products, event, deadline) for event in events]
    response = batch.settle(outcomes, RULES)
    emit_messages(batch)
    emit_stats(products.stats)
    return response


def _apply(products: ProductCatalogue, event: CatalogueEvent, deadline: Deadline) -> ChangeOutcome:
    if deadline.remaining() <= 0:
        return returned("OUT_OF_TIME")
    try:
        applied, _ = products.change_details(event, deadline)
    except ProductNotFoundError:
        return rejected(Rejection(RejectionReason.UNKNOWN_PRODUCT, event.product_id))
    except StoreError as error:
        if error.kind is Outcome.UNAVAILABLE:
            logger.critical("the tables cannot be used", extra={"error": str(error)})
        # DynamoDB may refuse the row because another program has made it too large. An operator can repair that.
        return returned(error.code, str(error))
    except OutcomeError as error:
        return outcome_of(error)
    return (
        ChangeOutcome(Outcome.APPLIED) if applied else ChangeOutcome(Outcome.REPLAYED, cause=STALE)
    )


def _create(
    command: dict[str, Any], deadline: Deadline, products: ProductCatalogue
) -> direct.Answer:
    created, product = products.create(new_product(command), deadline)
    if created:
        return {"result": "APPLIED"} | direct.of_new_product(product)
    exists = RejectedError(
        f"{in_words(product.product_id)} has existed since {product.created_at}; nothing was changed",
        "PRODUCT_EXISTS",
    )
    raise UnsuccessfulError(outcome_of(exists), direct.of_product(product))


def _change_details(
    command: dict[str, Any], deadline: Deadline, products: ProductCatalogue
) -> direct.Answer:
    event = catalogue_event(command, SystemClock().now())
    applied, product = products.change_details(event, deadline)
    if not applied:
        emit_stale("event", productId=event.product_id)
    return {"result": "APPLIED" if applied else "STALE"} | direct.of_product(product)


def _change_price(
    command: dict[str, Any], deadline: Deadline, products: ProductCatalogue
) -> direct.Answer:
    least_age = timedelta(minutes=command.get("leastAgeMinutes", MIN_AGE_OF_A_PRICE_MINUTES))
    product = products.change_price(command["productId"], command["price"], least_age, deadline)
    return {"result": "APPLIED"} | direct.of_product(product)


def _change(
    command: dict[str, Any], deadline: Deadline, products: ProductCatalogue
) -> direct.Answer:
    return _updated(
        *products.change(
            *(key_in(command), product_changes(command), deadline),
            everywhere="locationId" not in command,
            if_barcodes=all_written(command["ifBarcodes"]) if "ifBarcodes" in command else None,
        )
    )


def _updated(*updates: Update[Product]) -> direct.Answer:
    is_news = any(update.before != update.after for update in updates)
    product = updates[0].after
    return {
        "result": "APPLIED" if is_news else "REPLAYED",
        **direct.of_product(product),
        **({"barcodes": shown_barcodes(product.barcodes)} if product.barcodes else {}),
    }


def _discontinue(
    command: dict[str, Any], deadline: Deadline, products: ProductCatalogue
) -> direct.Answer:
    updates = products.discontinue(
        key_in(command), deadline, everywhere="locationId" not in command
    )
    keys = [update.after.product_id for update in updates]
    return _updated(*updates) | read_committed(products.client, keys, deadline, products.stats)


def _delist(
    command: dict[str, Any], deadline: Deadline, products: ProductCatalogue
) -> direct.Answer:
    key, created_at = key_in(command), command["createdAt"]
    # This has to be read first, because delisting deletes the row.
    committed = read_committed(products.client, [key], deadline, products.stats)
    if not products.delist(key, created_at, deadline):
        emit_stale("delete", **public_key(key), productCreatedAt=created_at)
        return {"result": "STALE", **public_key(key), "createdAt": created_at}
    return {
        "result": "APPLIED",
        **public_key(key),
        "createdAt": created_at,
        **committed,
        "message": "open orders keep its units: they can still be fulfilled, but a cancellation or return does not restock "
        "them",
    }


_COMMANDS: dict[str, Callable[[dict[str, Any], Deadline, ProductCatalogue], direct.Answer]] = {
    "create": _create,
    "changeDetails": _change_details,
    "changePrice": _change_price,
    "change": _change,
    "discontinue": _discontinue,
    "listAgain": lambda command, deadline, products: _updated(
        *products.list_again(key_in(command), deadline, everywhere="locationId" not in command)
    ),
    "delist": _delist,
}
