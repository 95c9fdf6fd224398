"""The route of the HTTP API that amends orders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inventory_orders.api.orders import (
    MAX_WAIT_SECONDS,
    Decided,
    accepted,
    await_decision,
    check_fields,
    check_lines,
    deadline_of,
    decide_now,
    hide_details,
    seconds_beyond_wait,
    send,
    unknown_order,
    words_for_customers,
)
from inventory_orders.api.requests import HttpAnswer, ProblemError, Request, reading
from inventory_orders.api.serving import Caller, command_of
from inventory_orders.clock import Deadline
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderRecord, OrderStatus, RejectedAmend, Step
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome, UnsuccessfulError, rejected
from inventory_orders.errors import CorruptItemError, Outcome, StoreError
from inventory_orders.invocation import direct, runtime
from inventory_orders.messages.commands import order_command

_SECONDS = 5
"""How long to try to decide an amend whose sender does not say how long to wait."""


def amend_order(request: Request, caller: Caller) -> HttpAnswer:
    """Amend an order. If it cannot be decided at once, it is sent to the queue for orders whose senders wait.

    Raises:
        InventoryOrdersError: The order was not amended.
    """
    document, process = command_of(request, caller, "change_orders", "amend"), runtime.process()
    terms, may_be_queued = process.terms, True
    if caller.customer is not None:
        order = _order_of_customer(document, caller)
        # A queue does not know who sent it, so the version ensures that the order is still unpaid.
        may_be_queued = order.status == OrderStatus.PENDING
        document.setdefault("ifVersion", order.version)
        terms = replace(terms, amends_paid=False)
    command = order_command(document, terms)
    if caller.locations is not None:
        _check_locations(command, document, caller)
    deadline = deadline_of(request, min(request.wait_seconds or _SECONDS, MAX_WAIT_SECONDS))
    report = decide_now(command, deadline)
    (outcome,) = report.outcomes
    if outcome.kind is Outcome.RETURNED and may_be_queued:
        body = json.dumps(document, separators=(",", ":"))
        send(process.express_queue, body, {}, command.order_id, request)
        left = seconds_beyond_wait(report)
        decided = None if left else _await(command, deadline)
        if decided is None:
            return accepted(command.order_id, left or 1)
        outcome = decided
    if outcome.rejection is not None:
        raise _problem(command, outcome.rejection, caller)
    if outcome.kind not in (Outcome.APPLIED, Outcome.REPLAYED):
        raise UnsuccessfulError(outcome)
    return HttpAnswer(200, direct.of_command(command, outcome, *reading()))


def _order_of_customer(document: Mapping[str, Any], caller: Caller) -> OrderRecord:
    """Read the order that a customer wants to amend.

    Raises:
        InventoryOrdersError: The customer may not send this amend, or the order is not the customer's.
    """
    if not runtime.process().customers_may_amend:
        detail = "this requires the permission orders.amend"
        raise ProblemError(403, "NOT_PERMITTED", detail, {"permission": "orders.amend"})
    reserved = ("attributes", "reference", "reason")
    check_fields({name: name for name in reserved if name in document}, document.get("items", ()))
    order = direct.read_order(document["orderId"], *reading())
    if order is None or order.user_id is None or not caller.acts_for(order.user_id):
        raise unknown_order(document["orderId"])
    return order


def _check_locations(command: OrderCommand, document: Mapping[str, Any], caller: Caller) -> None:
    """Check that an amend concerns only the caller's locations: those of its lines, and those that new units may come from.

    Raises:
        ProblemError: It concerns another location.
    """
    order = check_lines(command, caller)
    lines = {line.product_id for line in order.lines}
    default = runtime.process().locations if order.locations is None else order.locations
    for item in document.get("items", ()):
        if "locationId" in item:
            caller.check_works_at(item["locationId"])
        elif item["productId"] not in lines:
            caller.check_works_at(*default)


def _await(command: OrderCommand, deadline: Deadline) -> ChangeOutcome | None:
    """Wait for the outcome of an amend that was sent to a queue; None if that takes unusually long."""
    client = runtime.process().engine_for_callers.client

    def look() -> Decided:
        try:
            order = direct.read_order(command.order_id, client, deadline)
        except (StoreError, CorruptItemError):
            return None
        if order is None:
            return None
        ends: tuple[Step | RejectedAmend, ...] = (*order.steps, *order.rejected_amends)
        return next(((order, end.at) for end in ends if end.step_id == command.step_id), None)

    order = await_decision(look, client, deadline)
    meaning = None if order is None else command.match(order)
    if isinstance(meaning, Rejection):
        return rejected(meaning)
    return None if meaning is None else ChangeOutcome(Outcome.APPLIED)


def _problem(command: OrderCommand, rejection: Rejection, caller: Caller) -> Exception:
    """Build the answer to an amend that was rejected. The order is as it was before."""
    reason, details = rejection.reason, direct.of_details(rejection)
    hide_details(details, caller)
    if reason is RejectionReason.UNKNOWN_ORDER:
        return unknown_order(command.order_id)
    words = rejection.words
    if reason.for_customers:
        words = words_for_customers(
            *(reason, rejection.subject, rejection.shortages, rejection.limits)
        )
    status = 412 if reason is RejectionReason.VERSION_CHANGED else 409
    return ProblemError(status, reason, f"{words}. The order stays as it was", details)
