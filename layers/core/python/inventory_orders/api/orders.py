"""The routes of the HTTP API that place, show, list and change orders."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from math import ceil
from operator import or_
from typing import Any

from inventory_orders.api.requests import (
    HttpAnswer,
    Listed,
    ProblemError,
    Request,
    answer_with_page,
    check_path_can_name,
    fitting,
    limit_of,
    location_in,
    malformed,
    path_of_order,
    reading,
    times_in,
)
from inventory_orders.api.serving import Caller, command_of
from inventory_orders.clock import Deadline
from inventory_orders.domain.amendment import Amend
from inventory_orders.domain.change import Change, IdempotencyMatch, OtherRequest
from inventory_orders.domain.events import public_order
from inventory_orders.domain.location import DEFAULT_LOCATION, location_of, product_of, stock_key
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.domain.rejection import (
    REASONS_OF_ORDERS,
    CustomerWords,
    Rejection,
    RejectionReason,
)
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport, UnsuccessfulError
from inventory_orders.engine.retrying_client import RetryingClient, read_orders
from inventory_orders.errors import (
    CorruptItemError,
    Outcome,
    RejectedError,
    StoreError,
    id_reused_error,
)
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs import Queue, SqsCalls, attributes
from inventory_orders.invocation.telemetry import emit_orders, emit_wait, log_queue_errors, logger
from inventory_orders.lanes.levels import is_listed, mark_shippable
from inventory_orders.messages.commands import order_command, order_in
from inventory_orders.messages.documents import checked_id
from inventory_orders.store import lists, movements
from inventory_orders.store.dynamodb import WORST_CASE_SECONDS_OF_ONE_CALL
from inventory_orders.store.rows import drop_none, order_row

MAX_WAIT_SECONDS = 25
"""API Gateway ends a request after 30 s: docs.aws.amazon.com/apigateway/latest/developerguide/http-api-quotas.html."""

_MOST_PRODUCTS = 300
"""Maximum number of products on a page of orders to ship. Four requests read their rows and the outbound pages."""

# When to read the row of an order that was sent to a queue: after these multiples of the time that recent orders took, but not
# before this number of seconds, and at the latest at the end of the wait. Whatever takes longer than that is unusual, and a
# caller who knows so can decide what to do.
_LOOKS = ((1.1, 0.0), (2.6, 0.0), (5.0, 0.7), (10.0, 1.8))

# Seconds for a read at the end of the wait, and what is at most expected of an order.
_READ_SECONDS, _LONGEST_USUAL = 0.1, 10.0

# How what is expected of an order changes after one that took longer, or shorter. So most orders take about as long as expected,
# even if a few take much longer.
_LONGER, _SHORTER = 1.2, 0.87

# A row bears the time at which its transaction was sent, which is about this long before it can be read.
_COMMIT_SECONDS = 0.03

_SECONDS_OF_REPAIR = 60
"""When to ask again for an order that has no outcome before an operator has repaired something."""


def place_order(request: Request, caller: Caller) -> HttpAnswer:
    """Send an order to its queue. If the caller prefers to wait, first try to place it immediately.

    Raises:
        InventoryOrdersError: The order was neither placed nor sent.
    """
    document = request.json()
    process = runtime.process()
    order = order_in(
        *(document, None, process.hold_seconds, process.locations),
        request_id="" if request.wait_seconds is None else request.context.aws_request_id,
        # Customers have no name.
        placed_by=caller.name,
        whole="the body",
        counts_users=process.counts_users,
    )
    check_path_can_name("orderId", order.order_id)
    caller.check_is(order.user_id, "place orders for themselves")
    caller.check_works_at(*map(location_of, order.product_ids))
    if caller.customer is not None:
        _check_fields_of_customer(document)
    body = json.dumps(document, separators=(",", ":"))
    if request.wait_seconds is None:
        _send(process.order_queue, body, _sender(order), order.user_id, request)
        return _accepted(order.order_id)
    seconds = min(request.wait_seconds, MAX_WAIT_SECONDS)
    clock = process.engine_for_callers.client.clock
    began = clock.monotonic()
    answer = _place_now(order, body, seconds, caller, request)
    emit_wait(clock.monotonic() - began)
    return replace(answer, headers={**answer.headers, "Preference-Applied": f"wait={seconds}"})


def _check_fields_of_customer(document: dict[str, Any]) -> None:
    """Check that an order, or an amend, has only fields that the shop lets its customers set, and no longer hold than the shop's.

    A longer hold is not shortened, because the repeated order would differ from the stored one.

    Raises:
        ProblemError: A field is reserved for operators.
    """
    process = runtime.process()
    hold, longest = document.get("holdSeconds"), process.hold_seconds
    if hold is not None and longest is not None and hold > longest:
        raise _for_operators(
            "holdSeconds",
            f"customers may hold stock for at most {longest} seconds; lower it, or leave it out",
        )
    reserved = ("attributes", "locations", "split", "buyers", "reference", "reason")
    given = {name: name for name in document if name in reserved}
    given |= {
        f"items[{number}].locationId": "locations"
        for number, line in enumerate(document.get("items", ()))
        if "locationId" in line
    }
    for field, name in given.items():
        if name not in process.customers_may_set:
            raise _for_operators(field, "only operators may set this field; leave it out")


def _for_operators(field: str, detail: str) -> ProblemError:
    return ProblemError(403, "OPERATORS_ONLY", f"{field}: {detail}", {"field": field})


def _place_now(
    order: Order, body: str, seconds: int, caller: Caller, request: Request
) -> HttpAnswer:
    """Try once to place an order. If concurrent writers get in the way, send it to its queue and wait for its row."""
    engine = runtime.process().engine_for_callers
    left = runtime.end_of(request.context).remaining() - WORST_CASE_SECONDS_OF_ONE_CALL
    deadline = Deadline.after(min(seconds, left), engine.client.clock)
    report = _decide(order, deadline)
    (outcome,) = report.outcomes
    if outcome.kind is Outcome.INVALID:
        raise UnsuccessfulError(outcome)
    if outcome.applied is order:
        # The row was just written, so there is no need to read it.
        return _answer_of(order, order.record(None, outcome.after, outcome.at), caller)
    if outcome.kind is Outcome.RETURNED:
        _send(runtime.process().express_queue, body, _sender(order), order.user_id, request)
        if seconds_left := _seconds_beyond_wait(report):
            return _accepted(order.order_id, seconds_left)
        stored = _await(order, engine.client, deadline)
    else:
        stored = _stored(order, engine.client, deadline) or _await(order, engine.client, deadline)
    if stored is None:
        return _accepted(order.order_id)
    if stored.status == OrderStatus.REJECTED:
        # Nothing competes for what is sold out, so the next order may be rejected directly.
        engine.client.rivals.clear()
    if not caller.acts_for(stored.user_id):
        # The stored order's user was pseudonymised, so the two orders cannot be compared.
        raise id_reused_error("ORDER_ID_REUSED", ["userId"])
    return _answer_of(order, stored, caller, outcome.rejection)


def _decide(change: Change, deadline: Deadline) -> CommitReport:
    """Try once to place or amend an order."""
    report = runtime.process().engine_for_callers.apply([change], deadline)
    # A queue continues with it, so no retries were exhausted.
    report.stats.measured["RetriesExhausted"].clear()
    emit_orders(report, [change], "OrdersDirect")
    return report


def _seconds_beyond_wait(report: CommitReport) -> int:
    """After how many seconds an order may have an outcome, if that is certainly too late for the caller; otherwise 0."""
    (outcome,) = report.outcomes
    if report.failure is not None or outcome.cause.startswith("CORRUPT"):
        return _SECONDS_OF_REPAIR
    # The engine gives this time only if a lease outlasts the deadline.
    return ceil(outcome.retry_after)


def _await(order: Order, client: RetryingClient, deadline: Deadline) -> OrderRecord | None:
    """Wait for the row of an order that was sent to a queue; None if that takes unusually long.

    The row shows when the order was decided. So the process learns when to read the row of the next order.
    """
    process, sent = runtime.process(), client.clock.now()
    ends = deadline.remaining() - _READ_SECONDS
    looks = (max(process.express_seconds * times, least) for times, least in _LOOKS)
    for moment in dict.fromkeys(min(look, ends) for look in looks):
        waited = (client.clock.now() - sent).total_seconds()
        if not client.pause(max(0.0, moment - waited), deadline):
            break
        if (stored := _stored(order, client, deadline)) is not None:
            took = (datetime.fromisoformat(stored.created_at) - sent).total_seconds()
            is_longer = took + _COMMIT_SECONDS > process.express_seconds
            process.express_seconds *= _LONGER if is_longer else _SHORTER
            return stored
    process.express_seconds = min(2 * process.express_seconds, _LONGEST_USUAL)
    return None


def _sender(order: Order) -> dict[str, str]:
    """The attributes of an order's message."""
    return drop_none({"requestId": order.request_id, "placedBy": order.placed_by})


def _send(queue: Queue, body: str, sender: Mapping[str, str], group: str, request: Request) -> None:
    """Send an order or an amend to a queue. Its group is the customer or the order, so that a flood delays no other one."""
    calls = SqsCalls(queue, runtime.end_of(request.context))
    if not calls.send_one(body, attributes(**sender), group):
        log_queue_errors(calls.errors)
        raise ProblemError(
            *(503, "QUEUE_UNAVAILABLE"),
            "the request was not accepted; send the same request again",
            retry_after=1,
        )


def _stored(order: Order, client: RetryingClient, deadline: Deadline) -> OrderRecord | None:
    """Read the order's row; None if it does not exist yet or cannot be read."""
    try:
        record = direct.read_order(order.order_id, client, deadline)
    except (StoreError, CorruptItemError):
        # The order reaches its queue even if its row cannot be read.
        return None
    meaning = order.match(record) if record is not None else None
    if isinstance(meaning, OtherRequest):
        raise id_reused_error("ORDER_ID_REUSED", meaning.differences)
    # A tombstone is left by a cancellation that came first; the order has not replaced it yet.
    return record if meaning is IdempotencyMatch.SAME_REQUEST else None


def _accepted(order_id: str, retry_after: int = 1) -> HttpAnswer:
    where = path_of_order(order_id)
    return HttpAnswer(
        202,
        {"orderId": order_id, "status": "ACCEPTED", "location": where},
        {"Location": where, "Retry-After": str(retry_after)},
    )


def _answer_of(
    order: Order, record: OrderRecord, caller: Caller, rejection: Rejection | None = None
) -> HttpAnswer:
    """Answer with an order that was placed or rejected.

    Args:
        order: The order as requested.
        record: The order as stored.
        caller: The sender of the request.
        rejection: Why the order was rejected, if this request decided it.
    """
    shown = _shown(record, caller)
    if record.status == OrderStatus.REJECTED:
        return ProblemError(
            *(409, str(record.reason)),
            f"{_why(record, rejection)}. This is final: place another order under a new orderId",
            {"order": shown},
        ).answer
    # An equal request may have come at the same time, so the row says which one placed the order.
    is_new = record.request_id == order.request_id and record.status == OrderStatus.PENDING
    return HttpAnswer(
        201 if is_new else 200,
        shown,
        {"Location": path_of_order(record.order_id), "ETag": _etag(record, caller, shown)},
    )


_OTHER_REASON = CustomerWords("the order was rejected", "the order was rejected")


def _why(rejected: OrderRecord | Rejection, rejection: Rejection | None) -> str:
    """Explain a rejection to the customer. A stored order names products only if stock was short, and limits if it exceeds them."""
    products = list(dict.fromkeys(product_of(short.product_id) for short in rejected.shortages))
    if rejection is not None and not products:
        products = [product_of(rejection.subject)]
    reasons = {str(reason): reason.for_customers for reason in REASONS_OF_ORDERS}
    words = reasons.get(str(rejected.reason)) or _OTHER_REASON
    named = {
        "products": ", ".join(products),
        "limits": " or ".join(dict.fromkeys(f"{each.limit:,}" for each in rejected.limits)),
    }
    return words.named.format(**named) if any(named.values()) else words.unnamed


def get_order(request: Request, caller: Caller) -> HttpAnswer:
    """Show an order, read with strong consistency. If it is to ship, operators see whether its stock is on hand.

    Raises:
        InventoryOrdersError: The order does not exist, belongs to another customer, or cannot be read.
    """
    order_id, (client, deadline) = request.id_of("orderId"), reading()
    record = direct.read_order(order_id, client, deadline)
    # A tombstone is not an order yet, and another customer's order must look as if it did not exist.
    if record is None or record.user_id is None or not caller.acts_for(record.user_id):
        raise _unknown_order(order_id)
    if not sees(caller, record):
        raise caller.other_location()
    shown = _shown(record, caller)
    if caller.customer is None and record.status == OrderStatus.CONFIRMED:
        mark_shippable(client, [(record, shown)], deadline)
    return HttpAnswer.of_state(request, shown, _etag(record, caller, shown))


def _unknown_order(order_id: str) -> RejectedError:
    """Build the error for an unknown order. Another customer's order gets the same one, so that its id stays secret."""
    return RejectedError(f"there is no order {order_id}", RejectionReason.UNKNOWN_ORDER)


def sees(caller: Caller, order: OrderRecord) -> bool:
    """Whether the caller may see an order: all of it, if any of its units came from one of the caller's locations."""
    supplied = (line.location_id for line in order.lines if line.product_created_at)
    return caller.locations is None or not caller.locations.isdisjoint(supplied)


def list_orders(request: Request, caller: Caller) -> HttpAnswer:
    """List orders by user, status, late payment, reference or product. Customers are shown their own orders.

    Lists come from indexes and movements, which are eventually consistent. Each order to ship shows whether its stock is on
    hand. The list of a reference or product says up to which time it is complete.

    Raises:
        InventoryOrdersError: The query is invalid, or the orders cannot be read.
    """
    query, limit = request.query, limit_of(request.query)
    wanted = _filter_in(query, caller)
    is_to_ship = wanted.user_id is None and wanted.status == OrderStatus.CONFIRMED
    client, deadline = reading()
    complete = (
        {"completeUntil": client.ask(movements.complete_until, deadline)}
        if wanted.is_of_movements
        else {}
    )

    def read_page(after: lists.ListPosition | None) -> Listed:
        places, following = (
            client.ask(movements.list_orders, deadline, wanted, limit, after)
            if wanted.is_of_movements
            else client.ask(lists.list_orders, deadline, wanted, limit, after, client.side_by_side)
        )
        orders, unreadable = read_orders(
            client, places, deadline, lambda order: (order, _shown(order, caller))
        )
        if unreadable:
            logger.error("orders cannot be read", extra={"orders": unreadable})
        if caller.locations is not None:
            unreadable = []  # Their locations are unknown.
        # The index may still list orders as they were a moment ago, and at locations that have handed over their units.
        orders = [o for o in orders if is_listed(wanted, *o) and sees(caller, o[0])]
        found = len(orders)
        if is_to_ship:
            orders = orders[: _with_few_products(order for order, _ in orders)]
            mark_shippable(client, orders, deadline, wanted.location_id)
        orders = orders[: fitting([shown for _, shown in orders])]
        if len(orders) < found:
            following = next(place for place in places if place.id == orders[-1][0].order_id)
        return {"orders": [shown for _, shown in orders], "unreadable": unreadable}, following

    # No user id begins with #.
    answer = answer_with_page(wanted.user_id or f"#{wanted}", query, read_page, deadline)
    return replace(answer, document={**answer.document, **complete})


def _filter_in(query: Mapping[str, str], caller: Caller) -> lists.OrderFilter:
    """Read from a query which orders to list.

    Raises:
        InvalidMessageError: The query is not valid.
        ProblemError: It lists orders that the caller may not see.
    """
    user_id, location_id = query.get("userId", caller.customer), location_in(query)
    if user_id is not None:
        checked_id("userId", user_id)
        caller.check_is(user_id, "list their own orders")
    if location_id is not None:
        caller.check_works_at(location_id)
    _check_filters(query, user_id)
    note, product_id = query.get("reference"), query.get("productId")
    if product_id is not None:
        product_id = stock_key(checked_id("productId", product_id), location_id or DEFAULT_LOCATION)
    # The index of late payments does not contain locations.
    sees_all = caller.locations is None or "latePayment" in query
    return lists.OrderFilter(
        user_id,
        query.get("status"),
        "latePayment" in query,
        location_id=location_id if product_id is None else None,
        seen_at=None if sees_all else tuple(sorted(caller.locations or ())),
        reference=None if note is None else checked_id("reference", note, "note"),
        product_key=product_id,
        **times_in(query),
    )


_SELECTING = ("userId", "status", "latePayment", "reference", "productId")
"""The parameters that select orders. Each list needs one of them."""

# The parameters for operators, and `locationId`, with what they do not go with.
_NOT_WITH = {
    "latePayment": ("userId", "status", "locationId", "reference", "productId"),
    "reference": ("userId", "locationId", "productId", "status=REJECTED"),
    "productId": ("userId", "status=REJECTED"),
    "locationId": ("status=REJECTED",),
}


def _check_filters(query: Mapping[str, str], user_id: str | None) -> None:
    """Check that a query selects orders, and that its parameters go together.

    Raises:
        InvalidMessageError: They do not, or the stage does not record what is asked for.
    """
    status = query.get("status")
    if status not in (None, *OrderStatus):
        raise malformed("status", f"must be one of {', '.join(OrderStatus)}")
    given = {*query, f"status={status}", *(() if user_id is None else ("userId",))}
    if given.isdisjoint(_SELECTING):
        raise malformed("userId", f"is missing; send one of {', '.join(_SELECTING)}")
    for name in (each for each in _NOT_WITH if each in given):
        _check_goes_with(name, given)
    if query.get("latePayment", "true") != "true":
        raise malformed("latePayment", "must be true, or left out")


def _check_goes_with(name: str, given: Set[str]) -> None:
    if not given.isdisjoint(_NOT_WITH[name]):
        operators = "" if name == "locationId" else "is for operators, and "
        raise malformed(name, f"{operators}does not go with {', '.join(_NOT_WITH[name])}")
    if name in ("reference", "productId") and not runtime.process().has_movements:
        raise malformed(name, "does not work while the setting movements is off; leave it out")


def _with_few_products(orders: Iterable[OrderRecord]) -> int:
    """Count how many orders fit on a page with at most `_MOST_PRODUCTS` different products. The first one always fits."""
    so_far = accumulate(({line.key for line in order.lines} for order in orders), or_)
    return max(1, sum(len(ids) <= _MOST_PRODUCTS for ids in so_far))


def change_order(action: str, request: Request, caller: Caller) -> HttpAnswer:
    """Change an order: `confirm`, `extend`, `fulfil`, `unfulfil`, `cancel` or `return`.

    Raises:
        InventoryOrdersError: The order was not changed.
    """
    command = order_command(
        command_of(request, caller, "change_orders", action), runtime.process().terms
    )
    if caller.locations is not None:
        _check_lines(command, caller)
    return _answer_to(command, direct.carry_out(command, request.context), caller)


def _answer_to(command: OrderCommand, outcome: ChangeOutcome, caller: Caller) -> HttpAnswer:
    """Answer a command on an order.

    Raises:
        InventoryOrdersError: The order was not changed. Customers are not told how many units there are, nor who changed it.
    """
    if outcome.cause == RejectionReason.UNKNOWN_ORDER:
        raise _unknown_order(command.order_id)
    if outcome.kind not in (Outcome.APPLIED, Outcome.REPLAYED, Outcome.REJECTED):
        raise UnsuccessfulError(outcome)
    answer = direct.of_command(command, outcome, *reading())
    if (rejection := outcome.rejection) is None:
        return HttpAnswer(200, answer)
    reason, words, details = rejection.reason, rejection.words, direct.of_details(rejection)
    _hide_details(details, caller)
    if reason.for_customers:
        words = f"{_why(rejection, rejection)}. This is final: send another amend with a new stepId"
    elif caller.customer is None:
        words, details = answer["message"], {"earlierStep": answer.get("earlierStep")}
    status = 409 if reason.for_customers else reason.http_status
    raise ProblemError(status, reason, words, details)


def amend_order(request: Request, caller: Caller) -> HttpAnswer:
    """Amend an order. If it cannot be decided at once, send it to the queue for orders whose callers wait.

    Raises:
        InventoryOrdersError: The order was not amended.
    """
    document, process = command_of(request, caller, "change_orders", "amend"), runtime.process()
    terms, may_be_sent = process.terms, True
    if caller.customer is not None:
        terms = replace(terms, amends_paid=False)
        may_be_sent = _prepare_for_customer(document, caller)
    command = order_command(document, terms)
    if caller.locations is not None:
        _check_lines(command, caller)
    report = _decide(command, runtime.deadline(request.context))
    (outcome,) = report.outcomes
    if outcome.kind is Outcome.RETURNED and may_be_sent:
        _send(process.express_queue, json.dumps(document), {}, command.order_id, request)
        return _accepted(command.order_id, _seconds_beyond_wait(report) or 1)
    return _answer_to(command, outcome, caller)


def _prepare_for_customer(document: dict[str, Any], caller: Caller) -> bool:
    """Check that a customer may send an amend. Returns whether it may go to a queue.

    A queue does not know who sent it, so the version ensures that the order is unpaid when it is amended.

    Raises:
        InventoryOrdersError: The customer may not, or the order is not the customer's.
    """
    _check_fields_of_customer(document)
    order = direct.read_order(document["orderId"], *reading())
    if order is None or order.user_id is None or not caller.acts_for(order.user_id):
        raise _unknown_order(document["orderId"])
    is_known = document.setdefault("ifVersion", order.version) <= order.version
    return is_known and order.status == OrderStatus.PENDING


def _check_lines(command: OrderCommand, caller: Caller) -> None:
    """Check that a command concerns only lines from the caller's locations. One without items concerns the whole order.

    Only amends change the locations of lines, to some that are checked here. So the check is still valid when the command
    is carried out.
    """
    order = direct.read_order(command.order_id, *reading())
    if order is None:
        raise _unknown_order(command.order_id)
    if not sees(caller, order):
        raise caller.other_location()
    lines = {line.product_id: line.location_id for line in order.lines}
    named = command.quantities or lines
    caller.check_works_at(*(lines[product_id] for product_id in named if product_id in lines))
    if isinstance(command, Amend):
        is_free = bool(named.keys() - lines.keys() - command.locations.keys())
        offers = (order.locations or command.terms.locations) if is_free else ()
        caller.check_works_at(*command.locations.values(), *offers)


def _shown(record: OrderRecord, caller: Caller) -> dict[str, Any]:
    shown = public_order(order_row(record), with_notes=caller.customer is None)
    shown["statusAt"] = record.status_at
    for rejected in (shown, *shown.get("rejectedAmends", ())):
        _hide_details(rejected, caller)
    return shown


def _hide_details(rejected: Mapping[str, Any], caller: Caller) -> None:
    """Remove what the caller may not know about the reason for rejecting an order or an amend."""
    if not caller.sees_numbers:
        for shortage in rejected.get("shortages", ()):
            del shortage["available"]
    for limit in rejected.get("limits", ()) if caller.customer is not None else ():
        # Another user with one of the same keys may have bought them.
        del limit["bought"]


def _etag(record: OrderRecord, caller: Caller, shown: Mapping[str, Any]) -> str:
    """The ETag of an order as shown. Operators and customers see different fields, and missing units change without the order."""
    sees = "" if caller.customer is None else f"-{int(caller.sees_numbers)}"
    if "shippable" in shown:
        sees = f"-{zlib.crc32(json.dumps(shown.get('missing')).encode()):x}"
    return f'"{record.version}{sees}"'
