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

_PATIENCE_SECONDS = 5.0
"""A person waits for the answer to a request: a lease that lasts longer is told at once."""


def serve(
    event: Mapping[str, Any],
    routes: Collection[str],
    work: Callable[[Request, Caller], HttpAnswer],
) -> dict[str, Any]:
    """Answer a request; an error becomes a problem document.

    Args:
        event: Of the HTTP API.
        routes: Those that there are.
        work: Answers a request on one of them. A `VerdictError` becomes a problem document.

    Returns:
        The answer, for API Gateway.

    Raises:
        ConfigurationError: A setting is missing.
    """
    request = Request.of_event(event)
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
    routes: Mapping[str, str | None],
    carry_out: Callable[[Any, Deadline], direct.Answer],
    with_actor: Collection[str] = (),
) -> dict[str, Any]:
    """Answer a command that came directly, or as a request of the HTTP API.

    Args:
        event: What Lambda was invoked with.
        context: Of the invocation.
        routes: The action that each route stands for; None: the body says it.
        carry_out: Carries out a command until a deadline. A `VerdictError` becomes an answer, or a problem document.
        with_actor: The actions that are booked with the caller as their actor.
    """
    deadline = runtime.deadline(context)
    if not is_request(event):
        return direct.answer(lambda: carry_out(event, deadline))
    seconds = min(_PATIENCE_SECONDS, deadline.remaining())
    deadline = Deadline.after(seconds, deadline.clock)

    def work(request: Request, caller: Caller) -> HttpAnswer:
        caller.check_may_operate()
        action = routes[request.route]
        query = request.parameters(("createdAt",) if action == "delist" else ())
        command = command_of(request, action, {**query, **request.path})
        if action == "create":
            check_path_can_name("productId", str(command.get("productId")))
        if command.get("action") in with_actor:
            command |= caller.as_actor(command)
        answer = carry_out(command, deadline)
        return HttpAnswer(201 if action == "create" else 200, answer)

    return serve(event, routes, work)


def command_of(request: Request, action: str | None, said: Mapping[str, str]) -> dict[str, Any]:
    """The direct command that a request stands for.

    Args:
        request: With what its path does not say in its body, if there is any.
        action: The action; None: the body says it.
        said: What path and query say.

    Raises:
        ProblemError: The body is no object, or says again what the path says.
        PoisonMessageError: It is no JSON.
    """
    body = request.json() if request.text().strip() else {}
    if not isinstance(body, dict):
        raise malformed("the body must be an object, such as docs/openapi.yaml shows")
    given = dict(said) if action is None else {"action": action, **said}
    for name in given.keys() & body.keys():
        raise malformed(f"{name}: is said by the path; remove it", name)
    return body | given
