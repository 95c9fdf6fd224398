"""Serves requests to the HTTP API: authorization, an answer to every error, and operators' commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from inventory_orders.api.requests import (
    HttpAnswer,
    ProblemError,
    Request,
    check_path_can_name,
    is_request,
    problem_of,
)
from inventory_orders.clock import Deadline
from inventory_orders.errors import InvalidMessageError, OutcomeError
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger
from inventory_orders.messages.commands import action_in, parse_command, validated_part
from inventory_orders.messages.documents import json_schema

_PATIENCE_SECONDS = 5.0
"""Longest wait for a lease, because a person waits for the answer. A longer lease is reported immediately."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        customer: The customer's user id; None for an operator, which may call every route.
        sees_numbers: Whether rejections include how many units there are.
        name: The actor in the records of the caller's commands: the user id from the token, or the role and its session.
    """

    customer: str | None
    sees_numbers: bool = True
    name: str = ""

    @classmethod
    def of(cls, authorizer: Mapping[str, Any], process: runtime.Process) -> Caller:
        """Identify the caller from what API Gateway has verified.

        Raises:
            ProblemError: There is neither a signature nor a token that names a user.
        """
        if authorizer.get("iam"):
            arn = authorizer["iam"].get("userArn", "")
            # The end of the ARN identifies the user, or the session of a role, within the account.
            return cls(None, name=(arn.partition("/")[2] or arn)[-_MAX_NAME:])
        claims = authorizer.get("jwt", {}).get("claims", {})
        user_id = claims.get(process.user_id_claim)
        if process.operators_claim is not None:
            name, value = process.operators_claim
            if _says(claims.get(name), value):
                return cls(None, name=str(user_id or "")[:_MAX_NAME])
        if not isinstance(user_id, str) or not user_id:
            detail = f"the token does not name its user; it needs the claim {process.user_id_claim}"
            raise ProblemError(403, "NO_SUBJECT", detail)
        return cls(user_id, process.shows_numbers)

    def acts_for(self, user_id: str | None) -> bool:
        """Whether the caller may act for a user, and see the user's orders."""
        return self.customer in (None, user_id)

    def check_is(self, user_id: str, what: str) -> None:
        """Check that the caller may act for a user.

        Args:
            user_id: The user.
            what: What customers may only do for themselves, in words.

        Raises:
            ProblemError: The caller is another customer. The answer does not reveal whether the user exists.
        """
        if not self.acts_for(user_id):
            detail = f"userId: customers may only {what}; send your own id"
            raise ProblemError(403, "OTHER_USER", detail)


_MAX_NAME = 128


def _says(claim: object, value: str) -> bool:
    """Whether a claim equals or contains a value. API Gateway passes lists as strings such as `[staff operators]`."""
    if isinstance(claim, list):
        return value in claim
    text = str(claim).lower() if isinstance(claim, bool) else str(claim)
    in_list = re.fullmatch(r"\[(.*)\]", text, re.DOTALL)
    return value in re.split(r"[\s,]+", in_list[1]) if in_list else text == value


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the HTTP API.

    Attributes:
        answer: Answers a request. An `OutcomeError` becomes a problem document.
        query: Its query parameters.
        for_operators: Whether only operators may call it.
    """

    answer: Callable[[Request, Caller], HttpAnswer]
    query: tuple[str, ...] = ()
    for_operators: bool = False


def serve(event: Mapping[str, Any], context: Any, routes: Mapping[str, Route]) -> dict[str, Any]:
    """Answer a request; an error becomes a problem document.

    Args:
        event: The event of the HTTP API.
        context: The context of the invocation.
        routes: The routes that the function serves, by API Gateway's names for them.

    Returns:
        The answer, for API Gateway.

    Raises:
        ConfigurationError: A setting is missing.
    """
    request = Request(event, context)
    try:
        answer = _answer(request, routes)
        logger.info("request answered", extra={"status": answer.status})
    except (ProblemError, OutcomeError) as error:
        problem = error if isinstance(error, ProblemError) else problem_of(error)
        answer = problem.answer
        document = answer.document or {}
        # The error of an invalid message quotes the body, so it is not logged, but the field is.
        fields = {n: document[n] for n in ("status", "code", "field") if n in document}
        if answer.status >= 500:
            logger.error("request failed", extra=fields | {"error": str(error)})
        else:
            logger.info("request refused", extra=fields)
    return answer.for_gateway()


def _answer(request: Request, routes: Mapping[str, Route]) -> HttpAnswer:
    """Answer a request, once it is clear that the route exists and its caller may use it."""
    caller = Caller.of(request.authorizer, runtime.process())
    route = routes.get(request.route)
    if route is None:
        raise ProblemError(404, "UNKNOWN_ROUTE", "the API has no such route; see docs/api.md")
    for name, value in request.path.items():
        check_path_can_name(name, value)
    if route.for_operators and caller.customer is not None:
        raise ProblemError(403, "OPERATORS_ONLY", "only operators may do this")
    request.check_parameters(route.query)
    return route.answer(request, caller)


def answer_command(
    event: Any,
    context: Any,
    function: str,
    routes: Mapping[str, str | None],
    carry_out: Callable[[dict[str, Any], Deadline], direct.Answer],
    default: str | None = None,
) -> dict[str, Any]:
    """Answer a command from a direct invocation or from a request of the HTTP API.

    Args:
        event: The event of the invocation.
        context: The context of the invocation.
        function: The function whose commands are accepted.
        routes: The action of each route; None if the body names it.
        carry_out: Carries out a command until a deadline. An `OutcomeError` becomes an answer, or a problem document.
        default: The action of a direct command that names none.
    """
    deadline = runtime.deadline(context)
    if not is_request(event):
        return direct.answer(lambda: carry_out(parse_command(event, function, default), deadline))
    deadline = Deadline.after(min(_PATIENCE_SECONDS, deadline.remaining()), deadline.clock)

    def work(action: str | None, request: Request, caller: Caller) -> HttpAnswer:
        command = command_of(request, caller, function, action)
        is_new = command["action"] == "create"
        if is_new:
            check_path_can_name("productId", command["productId"])
        return HttpAnswer(201 if is_new else 200, carry_out(command, deadline))

    served = {
        name: Route(partial(work, action), _QUERIES.get(action, ()), for_operators=True)
        for name, action in routes.items()
    }
    return serve(event, context, served)


_QUERIES: Mapping[str | None, tuple[str, ...]] = {"delist": ("createdAt", "locationId")}
"""The fields of a command that its query contains, by action."""


def command_of(
    request: Request, caller: Caller, function: str, action: str | None
) -> dict[str, Any]:
    """Convert a request into a direct command.

    Args:
        request: Its path, query and body each contain a part of the command.
        caller: Its sender, who is the command's actor.
        function: The function whose commands are accepted.
        action: The action; None if the body names it.

    Raises:
        InvalidMessageError: A part of the request is wrong.
    """
    in_query = _QUERIES.get(action, ())
    body = request.json() if request.text().strip() else {}
    if not isinstance(body, dict):
        detail = "the body must be a JSON object; see docs/openapi.yaml"
        raise InvalidMessageError("SCHEMA_VIOLATION", detail)
    elsewhere = {"actor", *request.path, *in_query}
    if action is None:
        action = action_in(body, function)
    else:
        elsewhere.add("action")
    fields = json_schema("commands")[function][action]["properties"].keys()
    named = {name: request.id_of(name) for name in request.path}
    command: dict[str, Any] = {"action": action, **named}
    command |= validated_part(body, function, action, fields - elsewhere, "the body")
    if in_query:
        command |= validated_part({**request.query}, function, action, in_query, "the query")
    if "actor" in fields and caller.name:
        command["actor"] = caller.name
    if "outliveInvocation" in fields:
        # Over HTTP, a lease is always held beyond the invocation that acquired it.
        command.setdefault("outliveInvocation", True)
    return command
