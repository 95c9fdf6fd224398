"""Answers requests of the HTTP API, whatever is wrong with them, and operators' commands over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from inventory_orders.api.access import ApiSettings, Caller
from inventory_orders.api.requests import (
    HttpAnswer,
    ProblemError,
    Request,
    check_path_can_name,
    is_request,
    malformed,
    problem_of_error,
)
from inventory_orders.clock import Deadline
from inventory_orders.errors import VerdictError
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger
from inventory_orders.messages.commands import action_in, parse_command, validated_part
from inventory_orders.messages.documents import json_schema

_PATIENCE_SECONDS = 5.0
"""A person waits for the answer to a request: a lease that lasts longer is told at once."""


def serve(
    event: Mapping[str, Any],
    context: Any,
    routes: Collection[str],
    work: Callable[[Request, Caller], HttpAnswer],
) -> dict[str, Any]:
    """Answer a request; an error becomes a problem document.

    Args:
        event: Of the HTTP API.
        context: Of the invocation.
        routes: Those that there are.
        work: Answers a request on one of them. A `VerdictError` becomes a problem document.

    Returns:
        The answer, for API Gateway.

    Raises:
        ConfigurationError: A setting is missing.
    """
    request = Request.of_event(event, context)
    settings = ApiSettings.from_environment()
    try:
        caller = Caller.of(request.authorizer, settings)
        request.check_route(routes)
        answer = work(request, caller)
        logger.info("request answered", extra={"status": answer.status})
    except (ProblemError, VerdictError) as error:
        problem = problem_of_error(error)
        answer = problem.answer
        # The error of poison quotes the body, so it stays out of the log; the field does not.
        names = ("status", "code", "field")
        fields = {name: problem.document[name] for name in names if name in problem.document}
        if answer.status >= 500:
            logger.error("request failed", extra=fields | {"error": str(error)})
        else:
            logger.info("request refused", extra=fields)
    return answer.for_gateway()


def answer_command(
    event: Any,
    context: Any,
    function: str,
    routes: Mapping[str, str | None],
    carry_out: Callable[[dict[str, Any], Deadline], direct.Answer],
    default: str | None = None,
) -> dict[str, Any]:
    """Answer a command that came directly, or as a request of the HTTP API.

    Args:
        event: What Lambda was invoked with.
        context: Of the invocation.
        function: The function whose commands are understood.
        routes: The action of each route; None: the body names it.
        carry_out: Carries out a command until a deadline. A `VerdictError` becomes an answer, or a problem document.
        default: The action of a direct command that names none.
    """
    deadline = runtime.deadline(context)
    if not is_request(event):
        return direct.answer(lambda: carry_out(parse_command(event, function, default), deadline))
    seconds = min(_PATIENCE_SECONDS, deadline.remaining())
    deadline = Deadline.after(seconds, deadline.clock)

    def work(request: Request, caller: Caller) -> HttpAnswer:
        caller.check_may_operate()
        command = command_of(request, caller, function, routes[request.route])
        is_new = command["action"] == "create"
        if is_new:
            check_path_can_name("productId", command["productId"])
        return HttpAnswer(201 if is_new else 200, carry_out(command, deadline))

    return serve(event, context, routes, work)


def command_of(
    request: Request, caller: Caller, function: str, action: str | None
) -> dict[str, Any]:
    """The direct command that a request asks for.

    Args:
        request: Its path, query and body each hold a part of the command.
        caller: Its sender, who is the command's actor.
        function: The function whose commands are understood.
        action: The action; None: the body names it.

    Raises:
        ProblemError: The request has an unknown parameter, or its body is not an object.
        PoisonMessageError: A part of it is wrong.
    """
    in_query = ("createdAt",) if action == "delist" else ()
    query = dict(request.parameters(in_query))
    body = request.json() if request.text().strip() else {}
    if not isinstance(body, dict):
        raise malformed("the body must be an object, such as docs/openapi.yaml shows")
    elsewhere = {"actor", *request.path, *in_query}
    if action is None:
        action = action_in(body, function)
    else:
        elsewhere.add("action")
    fields = json_schema("commands")[function][action]["properties"].keys()
    command = {"action": action, **{name: request.id_of(name) for name in request.path}}
    command |= validated_part(body, function, action, fields - elsewhere, "the body")
    if in_query:
        command |= validated_part(query, function, action, in_query, "the query")
    if "actor" in fields and caller.name:
        command["actor"] = caller.name
    return command
