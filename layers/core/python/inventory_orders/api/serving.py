"""Serves requests of the HTTP API: who may ask for what, the answer whatever goes wrong, and operators' commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
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
from inventory_orders.errors import ConfigurationError, InvalidMessageError, OutcomeError
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger
from inventory_orders.messages.commands import action_in, parse_command, validated_part
from inventory_orders.messages.documents import json_schema

_PATIENCE_SECONDS = 5.0
"""A person waits for the answer to a request: a lease that lasts longer is told at once."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The environment variables of the API's function, in addition to those that all functions have.

    Attributes:
        user_id_claim: `USER_ID_CLAIM`: the claim of a token that says whose it is; None where no token is taken.
        operators_claim: `OPERATORS_CLAIM_NAME` and `OPERATORS_CLAIM_VALUE`: the claim of a token that may call
            every route; None where no token may.
        shows_numbers: `SHOW_STOCK`: whether products are shown with their units (`numbers`), and not only whether
            they are to be had (`availability`).
    """

    user_id_claim: str | None
    operators_claim: tuple[str, str] | None
    shows_numbers: bool

    @classmethod
    @cache
    def from_environment(cls) -> ApiSettings:
        """Read the settings, once.

        Raises:
            ConfigurationError: One is missing or wrong.
        """
        shown = os.environ.get("SHOW_STOCK")
        if shown not in ("numbers", "availability"):
            what = "not set" if shown is None else repr(shown)
            raise ConfigurationError(
                f"the environment variable SHOW_STOCK is {what}; it must be numbers or availability"
            )
        name, value = (os.environ.get(f"OPERATORS_CLAIM_{part}", "") for part in ("NAME", "VALUE"))
        return cls(
            user_id_claim=os.environ.get("USER_ID_CLAIM"),
            operators_claim=(name, value) if name and value else None,
            shows_numbers=shown == "numbers",
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        customer: The customer's user id; None for an operator, which may call every route.
        sees_numbers: Whether a rejection says how many units there are.
        name: The actor in the records of the caller's commands: the user id that the token names, or the role and its
            session.
    """

    customer: str | None
    sees_numbers: bool = True
    name: str = ""

    @classmethod
    def of(cls, authorizer: Mapping[str, Any], settings: ApiSettings) -> Caller:
        """The caller, from what API Gateway has verified.

        Raises:
            ProblemError: There is neither a signature nor a token that names a user.
        """
        if authorizer.get("iam"):
            arn = authorizer["iam"].get("userArn", "")
            # Its end identifies the user, or the session of a role, within the account.
            return cls(None, name=(arn.partition("/")[2] or arn)[-_MAX_NAME:])
        claims = authorizer.get("jwt", {}).get("claims", {})
        if settings.operators_claim is not None:
            name, value = settings.operators_claim
            if _says(claims.get(name), value):
                return cls(None, name=str(claims.get(settings.user_id_claim, ""))[:_MAX_NAME])
        user_id = claims.get(settings.user_id_claim)
        if not isinstance(user_id, str) or not user_id:
            detail = f"the token does not say whose it is ({settings.user_id_claim})"
            raise ProblemError(403, "NO_SUBJECT", detail)
        return cls(user_id, settings.shows_numbers)

    def acts_for(self, user_id: str | None) -> bool:
        """Whether the caller may act for a user, and see the user's orders."""
        return self.customer in (None, user_id)

    def check_is(self, user_id: str, what: str) -> None:
        """Check that the caller may act for a user.

        Args:
            user_id: The user.
            what: What customers do for themselves alone, in words.

        Raises:
            ProblemError: The caller is another customer. The answer does not reveal whether the user exists.
        """
        if not self.acts_for(user_id):
            detail = f"userId: customers {what}; it must be your own id"
            raise ProblemError(403, "OTHER_USER", detail)

    def check_may_operate(self) -> None:
        """Check that the caller may do what operators do.

        Raises:
            ProblemError: The caller is a customer.
        """
        if self.customer is not None:
            raise ProblemError(403, "OPERATORS_ONLY", "only operators may do this")


_MAX_NAME = 128


def _says(claim: object, value: str) -> bool:
    """Whether a claim is a value, or holds it: API Gateway hands a list over as a text such as `[staff operators]`."""
    if isinstance(claim, list):
        return value in claim
    text = str(claim).lower() if isinstance(claim, bool) else str(claim)
    in_list = re.fullmatch(r"\[(.*)\]", text, re.DOTALL)
    return value in re.split(r"[\s,]+", in_list[1]) if in_list else text == value


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
        work: Answers a request on one of them. A `OutcomeError` becomes a problem document.

    Returns:
        The answer, for API Gateway.

    Raises:
        ConfigurationError: A setting is missing.
    """
    request = Request(event, context)
    settings = ApiSettings.from_environment()
    try:
        caller = Caller.of(request.authorizer, settings)
        request.check_route(routes)
        answer = work(request, caller)
        logger.info("request answered", extra={"status": answer.status})
    except (ProblemError, OutcomeError) as error:
        problem = error if isinstance(error, ProblemError) else problem_of(error)
        answer = problem.answer
        document = answer.document or {}
        # The error of an invalid message quotes the body, so it stays out of the log; the field does not.
        fields = {n: document[n] for n in ("status", "code", "field") if n in document}
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
        carry_out: Carries out a command until a deadline. A `OutcomeError` becomes an answer, or a problem document.
        default: The action of a direct command that names none.
    """
    deadline = runtime.deadline(context)
    if not is_request(event):
        return direct.answer(lambda: carry_out(parse_command(event, function, default), deadline))
    deadline = Deadline.after(min(_PATIENCE_SECONDS, deadline.remaining()), deadline.clock)

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
        InvalidMessageError: A part of the request is wrong.
    """
    in_query = ("createdAt", "locationId") if action == "delist" else ()
    query = dict(request.parameters(in_query))
    body = request.json() if request.text().strip() else {}
    if not isinstance(body, dict):
        detail = "the body must be an object, such as docs/openapi.yaml shows"
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
        command |= validated_part(query, function, action, in_query, "the query")
    if "actor" in fields and caller.name:
        command["actor"] = caller.name
    if "outliveInvocation" in fields:
        # Who holds a lease over HTTP is never within the invocation that took it.
        command.setdefault("outliveInvocation", True)
    return command
