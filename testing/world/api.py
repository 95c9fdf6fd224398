"""The HTTP API of a world: requests reach the functions as API Gateway passes them on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testing.world.world import World

SIGNED: Mapping[str, Any] = {"iam": {"userArn": "arn:aws:iam::123456789012:user/shop"}}
"""The authorizer of a signed request."""


@dataclass(frozen=True)
class Target:
    """Where a request goes.

    Attributes:
        route: Method and template of the path.
        function: The function that serves it.
        ids: The ids in the path.
    """

    route: str
    function: str
    ids: Mapping[str, str]


class WorldApi:
    """Passes requests on to the functions of a world.

    Attributes:
        functions: The function of each route.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.functions: Mapping[str, str] = {
            route: name
            for name in ("api", "manage_products", "adjust_stock", "count_stock")
            for route in world.handler(name)._ROUTES
        }
        self._patterns = {
            route: re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]*)", route))
            for route in self.functions
        }

    def target(self, method: str, path: str) -> Target:
        """Find the route of a request. The function `api` answers those that have none."""
        request = f"{method} {path}"
        for route, pattern in self._patterns.items():
            if found := pattern.fullmatch(request):
                return Target(route, self.functions[route], found.groupdict())
        return Target(request, "api", {})

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        claims: Mapping[str, Any] | None = None,
        seconds: float = 30.0,
        **more: Any,
    ) -> dict[str, Any]:
        """Send a request.

        Args:
            method: HTTP method.
            path: Path without query, decoded.
            headers: Headers by name in lower case.
            body: The body.
            query: Query parameters.
            claims: The claims of the caller's token; None for a signed request.
            seconds: The time that the function has.
            more: Other parts of the event.

        Returns:
            The function's answer to API Gateway.
        """
        target = self.target(method, path)
        event = {
            "version": "2.0",
            "routeKey": target.route,
            "rawPath": path,
            "headers": headers,
            "requestContext": {
                "authorizer": SIGNED if claims is None else {"jwt": {"claims": claims}},
                "http": {"method": method, "path": path},
                "stage": "$default",
            },
            "body": body,
            "isBase64Encoded": False,
            **({"queryStringParameters": query} if query else {}),
            **({"pathParameters": target.ids} if target.ids else {}),
            **more,
        }
        answer: dict[str, Any] = self._world.invoke(target.function, event, seconds)
        return answer
