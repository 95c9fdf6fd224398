"""Answers requests to the HTTP API: identifies callers, checks routes, converts errors, and carries out operators' commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from inventory_orders.api.permissions import (
    AMEND,
    ANY_PERMISSION,
    EVERY_PERMISSION,
    FOR_CUSTOMERS,
    PERMISSIONS,
)
from inventory_orders.api.requests import (
    HttpAnswer,
    ProblemError,
    Request,
    check_path_can_name,
    is_request,
    malformed,
    problem_of,
)
from inventory_orders.clock import Deadline
from inventory_orders.domain.location import DEFAULT_LOCATION, DEFAULT_NAME
from inventory_orders.errors import InvalidMessageError, OutcomeError
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import logger
from inventory_orders.messages.commands import action_in, parse_command, validated_part
from inventory_orders.messages.documents import json_schema

_PATIENCE_SECONDS = 5.0
"""Longest wait for another owner's lease. A person is waiting, so a longer lease is reported immediately."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        customer: The customer's user id; None for operators and staff.
        sees_numbers: Whether rejections tell the caller how many units are available.
        name: The name under which the caller's commands are recorded: the claim in `roles.nameClaim` or the user id of a token, or the
            role and its session.
        permissions: The permissions of operators and staff.
        locations: The only locations whose orders and stock the caller may see and change; None for all.
    """

    customer: str | None
    sees_numbers: bool = True
    name: str = ""
    permissions: frozenset[str] = frozenset({EVERY_PERMISSION})
    locations: frozenset[str] | None = None

    @classmethod
    def of(cls, authorizer: Mapping[str, Any], process: runtime.Process) -> Caller:
        """Identify the caller by the claims or the signature that API Gateway has verified.

        Raises:
            ProblemError: The request has neither a signature nor a token that names a user.
        """
        if authorizer.get("iam"):
            arn = authorizer["iam"].get("userArn", "")
            # Within the account, the end of the ARN identifies the user, or the role and its session.
            return cls(None, name=(arn.partition("/")[2] or arn)[-_MAX_NAME:])
        # A claim that is not a string cannot name a user or a group. API Gateway passes all claims as strings.
        given = authorizer.get("jwt", {}).get("claims", {})
        claims = {name: value for name, value in given.items() if isinstance(value, str)}
        user_id = claims.get(process.user_id_claim)
        if not user_id:
            raise ProblemError(
                *(403, "NO_SUBJECT"),
                f"the token does not name its user; it needs the claim {process.user_id_claim}",
            )
        return _staff_in(claims, user_id, process) or cls(user_id, process.shows_numbers)

    def acts_for(self, user_id: str | None) -> bool:
        """Whether the caller may act for a user, and see the user's orders."""
        return self.customer in (None, user_id)

    def check_is(self, user_id: str, what: str) -> None:
        """Check that the caller may act for a user.

        Args:
            user_id: The user.
            what: The action that customers may only take for themselves, in words.

        Raises:
            ProblemError: The caller is another customer. The answer is the same whether or not the user exists.
        """
        if not self.acts_for(user_id):
            raise ProblemError(
                403, "OTHER_USER", f"userId: customers may only {what}; send your own id"
            )

    def check_may_call(self, route: str) -> None:
        """Check that the caller has the permission that a route requires.

        Raises:
            ProblemError: The caller lacks it. The answer names it.
        """
        permission = PERMISSIONS[route]
        is_any, may_amend = permission == ANY_PERMISSION, runtime.process().customers_may_amend
        may_call = (
            is_any or self.has_any(permission)
            if self.customer is None
            else route in FOR_CUSTOMERS or (route == AMEND and may_amend)
        )
        if not may_call:
            needed = (
                "any of the permissions that staff have"
                if is_any
                else f"the permission {permission}"
            )
            raise ProblemError(
                *(403, "NOT_PERMITTED", f"this requires {needed}", {"permission": permission})
            )

    def has_any(self, *permissions: str) -> bool:
        """Whether the caller, an operator or a member of staff, has one of these permissions."""
        return not self.permissions.isdisjoint({*permissions, EVERY_PERMISSION})

    def names_in(self, fields: Collection[str]) -> dict[str, str]:
        """The fields of a command in which the service names the caller: `actor`, and `holder` if the caller names none."""
        names = {
            "actor": self.name,
            # The holder of a count may have fewer characters.
            "holder": re.sub("[^A-Za-z0-9._:-]", "-", self.name)[:_MAX_HOLDER],
        }
        return {field: name for field, name in names.items() if name and field in fields}

    def works_at(self, location_id: str | None) -> bool:
        """Whether the caller may see and change stock at a location. None stands for all locations together."""
        return self.locations is None or location_id in self.locations

    def check_works_at(self, *location_ids: str | None) -> None:
        """Check that the caller may see and change stock at each of these locations.

        Raises:
            ProblemError: The caller may not. The answer names the caller's locations.
        """
        if not all(map(self.works_at, location_ids)):
            raise self.other_location()

    def other_location(self) -> ProblemError:
        """Build the error for a request that concerns a location that is not one of the caller's."""
        theirs = ", ".join(sorted(each or DEFAULT_NAME for each in self.locations or ())) or "none"
        return ProblemError(
            *(403, "OTHER_LOCATION"),
            f"this concerns a location that is not one of the token's ({theirs}); name only these, or items of an order that "
            "come from these",
        )


_MAX_NAME, _MAX_HOLDER = 128, 64


def _staff_in(claims: Mapping[str, str], user_id: str, process: runtime.Process) -> Caller | None:
    """The operator or member of staff whom a token identifies; None if it is a customer's."""
    roles = process.roles
    name = (claims.get(roles.get("nameClaim", "")) or user_id)[:_MAX_NAME]
    claim, value = process.operators_claim
    if claim and value and _says(claims.get(claim, ""), value):
        return Caller(None, name=name)
    held = claims.get(roles["claim"], "")
    permissions = frozenset[str]().union(
        *(granted for role, granted in roles["grants"].items() if _says(held, role))
    )
    if not permissions:
        return None
    named = roles.get("locationsClaim")
    locations = None if named is None else _locations_in(claims.get(named, ""))
    return Caller(None, name=name, permissions=permissions, locations=locations)


def _says(claim: str, value: str) -> bool:
    """Whether a claim equals or contains a value. API Gateway passes lists as strings such as `[staff operators]`."""
    in_list = re.fullmatch(r"\[(.*)\]", claim, re.DOTALL)
    return value in re.split(r"[\s,]+", in_list[1]) if in_list else claim == value


_EVERYWHERE = "*"
"""What claims call all locations."""


def _locations_in(claim: str) -> frozenset[str] | None:
    """The locations in a claim: a list, or names separated by spaces. A claim without a name allows none."""
    named = re.findall(r"[^\s,\[\]]+", claim)
    if _EVERYWHERE in named:
        return None
    return frozenset(DEFAULT_LOCATION if each == DEFAULT_NAME else each for each in named)


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the HTTP API.

    Attributes:
        answer: Answers a request. If it raises an `OutcomeError`, the caller gets a problem document.
        query: The names of its query parameters.
    """

    answer: Callable[[Request, Caller], HttpAnswer]
    query: tuple[str, ...] = ()


def serve(event: Mapping[str, Any], context: Any, routes: Mapping[str, Route]) -> dict[str, Any]:
    """Answer an HTTP request. Errors become problem documents.

    Args:
        event: The event of the HTTP API.
        context: The context of the invocation.
        routes: The routes that the function serves, by their names in API Gateway.

    Returns:
        The answer in the format that API Gateway expects.

    Raises:
        ConfigurationError: A setting is missing.
    """
    try:
        answer = _answer(Request(event, context), routes)
        logger.info("request answered", extra={"status": answer.status})
    except (ProblemError, OutcomeError) as error:
        answer = (error if isinstance(error, ProblemError) else problem_of(error)).answer
        # The message for an invalid request quotes the body, so only the field is logged.
        fields = {n: v for n, v in answer.document.items() if n in ("status", "code", "field")}
        if answer.status >= 500:
            logger.error("request failed", extra=fields | {"error": str(error)})
        else:
            logger.info("request refused", extra=fields)
    return answer.for_gateway()


def _answer(request: Request, routes: Mapping[str, Route]) -> HttpAnswer:
    """Check that the route exists and that the caller may use it, then answer the request."""
    caller = Caller.of(request.authorizer, runtime.process())
    route = routes.get(request.route)
    if route is None:
        raise ProblemError(404, "UNKNOWN_ROUTE", "the API has no such route; see docs/api.md")
    for name, value in request.path.items():
        check_path_can_name(name, value)
    caller.check_may_call(request.route)
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
    """Answer a command, which comes from a direct invocation or over HTTP.

    Args:
        event: The event of the invocation.
        context: The context of the invocation.
        function: The function whose commands are accepted.
        routes: The action of each route; None if the body names the action.
        carry_out: Carries out a command before a deadline. If it raises an `OutcomeError`, the caller gets an answer that
            explains it.
        default: The action of a direct command without `action`.
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
        caller.check_works_at(*_locations_of(command))
        return HttpAnswer(201 if is_new else 200, carry_out(command, deadline))

    return serve(
        *(event, context),
        {
            name: Route(partial(work, action), _QUERIES.get(action, ()))
            for name, action in routes.items()
        },
    )


def _locations_of(command: Mapping[str, Any]) -> list[str | None]:
    """The locations that a command on a product or its stock concerns. None stands for all locations of the product."""
    if "from" in command:
        return [command["from"], command["to"]]
    is_everywhere = command["action"] in ("discontinue", "listAgain")
    return [
        command.get("lease", command).get("locationId", None if is_everywhere else DEFAULT_LOCATION)
    ]


_QUERIES: Mapping[str | None, tuple[str, ...]] = {"delist": ("createdAt", "locationId")}
"""The fields of a command that come from the query, by action. All others come from path and body."""


_ETAG = re.compile(r'(?:W/)?"([1-9][0-9]{0,14})(?:-[0-9a-f]+)?"')


def _version_in(etag: str) -> int:
    """Read an order's version from the ETag of its answers. Whatever else the tag depends on, amends do not."""
    if found := _ETAG.fullmatch(etag.strip()):
        return int(found[1])
    raise malformed("If-Match", "must be one ETag of the order, unchanged, or *")


def command_of(
    request: Request, caller: Caller, function: str, action: str | None
) -> dict[str, Any]:
    """Convert an HTTP request into the command that a direct invocation would contain.

    Args:
        request: The request. Path, query and body each contain a part of the command.
        caller: The sender, who is recorded as the command's actor.
        function: The function whose commands are accepted.
        action: The action; None if the body names the action.

    Raises:
        InvalidMessageError: A part of the request is wrong.
    """
    in_query = _QUERIES.get(action, ())
    body = request.json() if request.text().strip() else {}
    if not isinstance(body, dict):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", "the body must be a JSON object; see docs/openapi.yaml"
        )
    elsewhere = {"actor", *request.path, *in_query, *(["action"] if action else [])}
    action = action or action_in(body, function)
    fields = json_schema("commands")[function][action]["properties"].keys()
    command: dict[str, Any] = {
        **caller.names_in(fields),
        "action": action,
        **{name: request.id_of(name) for name in request.path},
    }
    command |= validated_part(body, function, action, fields - elsewhere, "the body")
    if "ifVersion" in fields and (given := request.headers.get("if-match", "*")) != "*":
        command["ifVersion"] = _version_in(given)
    if in_query:
        command |= validated_part({**request.query}, function, action, in_query, "the query")
    if "outliveInvocation" in fields:
        # Over HTTP, each request is another invocation, so a lease has to outlive the one that acquired it.
        command.setdefault("outliveInvocation", True)
    return command
