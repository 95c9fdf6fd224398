"""Lists, changes, discontinues and delists products: direct commands, and catalogue events from their queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from inventory_orders import direct, runtime
from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.errors import (
    CorruptItemError,
    LeaseHeldError,
    PoisonMessageError,
    ProductNotFoundError,
    RefusedError,
    StoreError,
)
from inventory_orders.intake import End, UnsupportedEventError, Verdict, unsupported
from inventory_orders.messages import catalogue_event, parse_catalogue_event, parse_command
from inventory_orders.products import CatalogueEvent, NewProduct, Products
from inventory_orders.telemetry import (
    STALE,
    logger,
    metrics,
    record_effort,
    record_messages,
    record_stale_delete,
    record_stale_event,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

LEAST_AGE_OF_A_PRICE_MINUTES = 60


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Carry out one command, or apply a batch of catalogue events.

    Returns:
        For a batch of SQS messages the partial batch response. For a direct invocation an answer with `result`
        and the product, or with what to do.
    """
    products = Products(runtime.store(runtime.Settings.from_environment()))
    if direct.is_queue_event(event):
        return _from_queue(event, context, products)
    result = direct.answer(lambda: _command(event, context, products))
    record_effort(products.effort, products.retries, products.exhausted)
    return result


def _from_queue(event: object, context: LambdaContext, products: Products) -> dict[str, Any]:
    now, deadline = SystemClock().now(), runtime.deadline(context)

    def parse(body: str, _group: str | None) -> CatalogueEvent:
        return parse_catalogue_event(body, now)

    def decide(events: Sequence[CatalogueEvent], _since: float | None) -> list[Verdict]:
        late = Verdict(End.RETURNED, cause="OUT_OF_TIME")
        return [_apply(products, e, deadline) if deadline.remaining() > 0 else late for e in events]

    try:
        batch = runtime.intake(runtime.Settings.from_environment()).process(
            event, parse, decide, runtime.time_left(context), frozenset({"UNKNOWN_PRODUCT"})
        )
    except UnsupportedEventError as error:
        return unsupported(error, event)
    record_messages(batch)
    record_effort(products.effort)
    return batch.response


def _apply(products: Products, event: CatalogueEvent, deadline: Deadline) -> Verdict:
    try:
        applied, _ = products.change_details(event, deadline)
    except ProductNotFoundError as error:
        return Verdict(
            End.DEAD_LETTERED,
            PoisonMessageError("UNKNOWN_PRODUCT", f"{error}; create it first", "productId"),
        )
    except LeaseHeldError as error:
        return Verdict(End.RETURNED, retry_after=error.seconds_left, cause="LEASED")
    except RefusedError as error:
        return Verdict(End.DEAD_LETTERED, PoisonMessageError(error.code, str(error), "eventId"))
    except CorruptItemError as error:
        return Verdict(End.RETURNED, cause="CORRUPT_PRODUCT", detail=str(error))
    except StoreError as error:
        return Verdict(End.RETURNED, cause=error.code, detail=str(error))
    return Verdict(End.APPLIED) if applied else Verdict(End.REPLAYED, cause=STALE)


def _command(event: object, context: LambdaContext, products: Products) -> direct.Answer:
    command = parse_command(event, "manage_products")
    return _COMMANDS[command["action"]](command, context, products)


def _create(command: dict[str, Any], context: LambdaContext, products: Products) -> direct.Answer:
    created, state = products.create(
        NewProduct(
            command["productId"],
            command["openingStock"],
            command.get("lowStockThreshold", 0),
            command.get("backorderLimit", 0),
            command.get("name"),
            command.get("price"),
        ),
        runtime.deadline(context),
    )
    if created:
        return {"result": "APPLIED"} | direct.of_product(state)
    message = f"{command['productId']} exists since {state['createdAt']}; nothing was changed"
    return direct.refused("PRODUCT_EXISTS", message) | direct.of_product(state)


def _change_details(
    command: dict[str, Any], context: LambdaContext, products: Products
) -> direct.Answer:
    event = catalogue_event(command, SystemClock().now())
    applied, state = products.change_details(event, runtime.deadline(context))
    if not applied:
        record_stale_event(event.product_id)
    return {"result": "APPLIED" if applied else "STALE"} | direct.of_product(state)


def _change_price(
    command: dict[str, Any], context: LambdaContext, products: Products
) -> direct.Answer:
    least_age = timedelta(minutes=command.get("leastAgeMinutes", LEAST_AGE_OF_A_PRICE_MINUTES))
    state = products.change_price(
        command["productId"], command["price"], least_age, runtime.deadline(context)
    )
    return {"result": "APPLIED"} | direct.of_product(state)


def _discontinue(
    command: dict[str, Any], context: LambdaContext, products: Products
) -> direct.Answer:
    updated = products.discontinue(command["productId"], runtime.deadline(context))
    result = "REPLAYED" if updated.before == updated.after else "APPLIED"
    return {"result": result} | direct.of_product(updated.after)


def _delist(command: dict[str, Any], context: LambdaContext, products: Products) -> direct.Answer:
    product_id, created_at = command["productId"], command["createdAt"]
    deleted = products.delist(product_id, created_at, runtime.deadline(context))
    if not deleted:
        record_stale_delete(product_id, created_at)
    return {
        "result": "APPLIED" if deleted else "STALE",
        "productId": product_id,
        "createdAt": created_at,
    }


_COMMANDS: dict[str, Callable[[dict[str, Any], LambdaContext, Products], direct.Answer]] = {
    "create": _create,
    "changeDetails": _change_details,
    "changePrice": _change_price,
    "discontinue": _discontinue,
    "delist": _delist,
}
