"""Operators' commands over HTTP: a request becomes the direct command that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from inventory_orders.api.access import Caller
from inventory_orders.api.problems import malformed, unknown_route
from inventory_orders.api.requests import (
    HttpAnswer,
    Request,
    check_path_can_name,
    is_request,
)
from inventory_orders.api.serving import serve
from inventory_orders.clock import Deadline
from inventory_orders.invocation import direct, runtime

_PATIENCE_SECONDS = 5.0
"""A person waits for the answer to a request: a lease that lasts longer is told at once."""


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
    soon = Deadline.after(_PATIENCE_SECONDS, deadline.clock)
    deadline = min(deadline, soon, key=Deadline.remaining)

    def work(request: Request, caller: Caller) -> HttpAnswer:
        caller.check_may_operate()
        if request.route not in routes:
            raise unknown_route()
        action = routes[request.route]
        query = request.parameters(("createdAt",) if action == "delist" else ())
        command = command_of(request, action, {**query, **request.path})
        if action == "create":
            check_path_can_name("productId", str(command.get("productId")))
        if command.get("action") in with_actor:
            command |= caller.as_actor(command)
        answer = carry_out(command, deadline)
        return HttpAnswer(201 if action == "create" else 200, answer)

    return serve(event, work).for_gateway()


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
