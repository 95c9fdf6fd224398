"""Operators' commands over HTTP: a request becomes the direct command that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inventory_orders.api.access import Caller
from inventory_orders.api.problems import ProblemError, malformed
from inventory_orders.api.requests import HttpAnswer, Request, is_request
from inventory_orders.api.serving import serve
from inventory_orders.invocation import direct


def answer_command(
    event: Any,
    routes: Mapping[str, str | None],
    carry_out: Callable[[Any], direct.Answer],
) -> dict[str, Any]:
    """Answer a command that came directly, or as a request of the HTTP API.

    Args:
        event: What Lambda was invoked with.
        routes: The action that each route stands for; None: the body says it.
        carry_out: Carries out a command. A `VerdictError` becomes an answer, or a problem document.
    """
    if not is_request(event):
        return direct.answer(lambda: carry_out(event))
    route, named = event.get("routeKey", ""), event.get("pathParameters") or {}

    def work(request: Request, caller: Caller) -> HttpAnswer:
        caller.check_may_operate()
        if route not in routes:
            raise ProblemError(404, "UNKNOWN_ROUTE", "there is nothing here; see docs/api.md")
        action = routes[route]
        command = _body(request) | dict(
            request.parameters(("createdAt",) if action == "delist" else ())
        )
        said = named if action is None else {"action": action, **named}
        for name in said.keys() & command.keys():
            raise malformed(f"{name}: is said by the path; remove it", name)
        answer = carry_out(command | said)
        is_new = action == "create"
        return HttpAnswer(201 if is_new else 200, answer)

    return serve(event, work).for_gateway()


def _body(request: Request) -> dict[str, Any]:
    if not request.text().strip():
        return {}
    document = request.json()
    if not isinstance(document, dict):
        raise malformed("the body must be an object, such as docs/openapi.yaml shows")
    return document
