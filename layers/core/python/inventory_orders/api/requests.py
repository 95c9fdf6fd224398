"""HTTP requests and answers: reads body, query and preferences, divides lists into pages, and describes problems (RFC 9457)."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeGuard, assert_never
from urllib.parse import quote

from inventory_orders.clock import Deadline
from inventory_orders.domain.events import to_json
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.engine.outcomes import outcome_of
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    InvalidMessageError,
    InventoryOrdersError,
    LeaseHeldError,
    Outcome,
    OutcomeError,
)
from inventory_orders.invocation import runtime
from inventory_orders.messages.documents import checked_id, shown_key, strict_json
from inventory_orders.sequences import in_portions
from inventory_orders.store.lists import ListPosition

Listed = tuple[dict[str, Any], ListPosition | None]
"""The fields of a page of a list, and the position where the next page starts; None at the end of the list."""

MAX_BODY_BYTES = 262_144
"""Maximum size of a body. It is also the limit of `OrderQueue` (`infra/queues.py`), which gets the body unchanged."""

MAX_LISTED = 100

# Lambda limits a response to 6 MB. The body is a string in it, with a backslash before each quotation mark:
# docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
_MAX_LISTED_BYTES = 4_000_000

_READ_SECONDS = 3.0

_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?:[;,]|$)', re.IGNORECASE)


class Request:
    """An HTTP request, read from an event in API Gateway's payload format 2.0.

    Args:
        event: The event of the HTTP API.
        context: The context of the invocation.

    Attributes:
        route: The route that API Gateway matched, such as `GET /orders/{orderId}`.
        path: The ids in the path by name, as decoded by API Gateway.
        headers: Headers by name in lower case.
        query: Query parameters by name. Repeated ones are joined by commas.
        authorizer: The caller's claims or signature, as verified by API Gateway.
        context: The context of the invocation.
    """

    def __init__(self, event: Mapping[str, Any], context: Any) -> None:
        self._event = event
        self.route: str = event["routeKey"]
        self.path: Mapping[str, str] = event.get("pathParameters") or {}
        self.headers = {n.lower(): value for n, value in (event.get("headers") or {}).items()}
        self.query: Mapping[str, str] = event.get("queryStringParameters") or {}
        self.authorizer = event.get("requestContext", {}).get("authorizer") or {}
        self.context = context

    def text(self) -> str:
        """The body as a string.

        Raises:
            ProblemError: The body is too long.
            InvalidMessageError: The body is not UTF-8.
        """
        body: str = self._event.get("body") or ""
        sent = (
            base64.b64decode(body)
            if self._event.get("isBase64Encoded")
            else body.encode(errors="replace")
        )
        if len(sent) > MAX_BODY_BYTES:
            raise ProblemError(
                413,
                "BODY_TOO_LARGE",
                f"the body may have at most {MAX_BODY_BYTES:,} bytes, but has {len(sent):,}",
            )
        try:
            return sent.decode()
        except UnicodeDecodeError:
            raise InvalidMessageError("INVALID_JSON", "the body is not UTF-8") from None

    def json(self) -> Any:
        """The body as JSON, parsed as strictly as a message.

        Raises:
            ProblemError: The body is too long, or its Content-Type is not JSON.
            InvalidMessageError: The body is not JSON in UTF-8.
        """
        text = self.text()
        if not _JSON.fullmatch(self.headers.get("content-type", "").strip()):
            raise ProblemError(
                415,
                "UNSUPPORTED_MEDIA_TYPE",
                "send the body as JSON in UTF-8, with the header Content-Type: application/json",
            )
        return strict_json(text)

    def check_parameters(self, known: Collection[str]) -> None:
        """Check that the route accepts every query parameter.

        Raises:
            InvalidMessageError: A parameter is unknown.
        """
        for name in self.query:
            if name not in known:
                others = f", or correct it to one of {', '.join(known)}" if known else ""
                raise malformed(shown_key(name), f"unknown query parameter; remove it{others}")

    def id_of(self, name: str) -> str:
        """Read an id from the path.

        Raises:
            InvalidMessageError: The id is not valid.
        """
        return checked_id(name, self.path[name])

    @property
    def wait_seconds(self) -> int | None:
        """How long the caller prefers to wait (RFC 7240); None if the request has no readable preference."""
        found = _WAIT.search(self.headers.get("prefer", ""))
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to an HTTP request.

    Attributes:
        status: The HTTP status.
        document: The body, which is a problem document if the status is 400 or above. An empty one is not sent.
        headers: The headers without Content-Type.
    """

    status: int
    document: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def for_gateway(self) -> dict[str, Any]:
        """Convert the answer to the format that API Gateway expects. Browsers must not keep what only the caller may see."""
        kind = "application/json" if self.status < 400 else "application/problem+json"
        of_body = {"Content-Type": kind} if self.document else {}
        return {
            "statusCode": self.status,
            "headers": {"Cache-Control": "no-store", **self.headers, **of_body},
            "body": json.dumps(self.document, default=to_json) if self.document else "",
        }

    @classmethod
    def of_state(cls, request: Request, document: Mapping[str, Any], etag: str) -> HttpAnswer:
        """Answer with a document, or with 304 if the caller already has this state of it (`If-None-Match`)."""
        given = request.headers.get("if-none-match", "").split(",")
        is_known = not {etag, "*"}.isdisjoint(tag.strip().removeprefix("W/") for tag in given)
        return cls(304 if is_known else 200, {} if is_known else document, {"ETag": etag})


class ProblemError(InventoryOrdersError):
    """A request failed. The error contains the answer to it.

    Args:
        status: The HTTP status.
        code: The cause, as a stable name for machines.
        detail: What is wrong, and what to do about it.
        more: Further members of the problem document. Empty ones are left out.
        retry_after: Whole seconds after which the same request may succeed; None if a retry does not help.

    Attributes:
        answer: The answer to the request.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        more: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {code}")
        self.answer = HttpAnswer(
            status,
            {
                "title": HTTPStatus(status).phrase,
                "status": status,
                "code": code,
                "detail": detail,
                **{name: value for name, value in (more or {}).items() if value},
            },
            {} if retry_after is None else {"Retry-After": str(retry_after)},
        )


def malformed(field: str, detail: str) -> InvalidMessageError:
    """Build the error for a request that has to be corrected in one of its fields."""
    return InvalidMessageError("SCHEMA_VIOLATION", f"{field}: {detail}", field)


_CAUSES = {LeaseHeldError.code: "a product is being counted"}


def problem_of(error: OutcomeError) -> ProblemError:
    """Convert an error into the answer to the request that raised it."""
    outcome = outcome_of(error)
    code, detail = outcome.cause, outcome.detail
    more = {"field": outcome.field_path, "product": error.facts}
    match outcome.kind:
        case Outcome.INVALID if code.endswith("ID_REUSED"):
            return ProblemError(409, code, detail)
        case Outcome.INVALID if code == "REFUSED_BY_DYNAMODB":
            return ProblemError(400, code, "DynamoDB does not accept this request; correct it")
        case Outcome.INVALID:
            return ProblemError(400, code, detail, more)
        case Outcome.REJECTED:
            reason = RejectionReason.__members__.get(code)
            return ProblemError(reason.http_status if reason else 409, code, detail, more)
        case Outcome.RETURNED if code.startswith(("CORRUPT", "UNREADABLE")):
            return ProblemError(
                *(500, code, "a stored item is unreadable; an operator has to repair it", more)
            )
        case Outcome.RETURNED:
            # Callers do not need to see DynamoDB's messages.
            why = _CAUSES.get(code, "the service could not answer in time")
            seconds = max(1, math.ceil(outcome.retry_after))
            return ProblemError(503, code, f"{why}; send the same request again", more, seconds)
        case Outcome.UNAVAILABLE:
            return ProblemError(
                *(500, "UNAVAILABLE"),
                "the service cannot use its tables; an operator has to repair this",
                more,
            )
        case Outcome.APPLIED | Outcome.REPLAYED:
            raise ValueError(f"{outcome.kind} is a success, not an error")
        case unknown:
            assert_never(unknown)


def is_request(event: object) -> TypeGuard[dict[str, Any]]:
    """Whether an event is an HTTP request in API Gateway's payload format 2.0."""
    return (
        isinstance(event, dict)
        and event.get("version") == "2.0"
        and isinstance(event.get("routeKey"), str)
        and isinstance(event.get("requestContext"), dict)
    )


def path_of_order(order_id: str) -> str:
    """The path of an order."""
    return f"/orders/{quote(order_id, safe='')}"


def check_path_can_name(name: str, value: str) -> None:
    """Check that an id can be used in a path. API Gateway decodes the path first, so some characters would change the id.

    Raises:
        InvalidMessageError: A path with this id could lead to another resource.
    """
    if value in (".", "..") or not {*"/?%"}.isdisjoint(value):
        raise malformed(
            name,
            "over HTTP, an id must not contain '/', '?' or '%', and must not be '.' or '..'; use another id, and encode it "
            "once in paths",
        )


def limit_of(query: Mapping[str, str]) -> int:
    """Read from a query how many entries a page may have.

    Raises:
        InvalidMessageError: The limit is not a whole number in the allowed range.
    """
    given = query.get("limit", "20")
    if given.isascii() and given.isdecimal() and len(given) <= 3 and 1 <= int(given) <= MAX_LISTED:
        return int(given)
    raise malformed("limit", f"must be a whole number from 1 to {MAX_LISTED}")


def location_in(query: Mapping[str, str]) -> str | None:
    """Read the location from a query; None if the query does not name a location.

    Raises:
        InvalidMessageError: The name is not valid for a location.
    """
    return checked_id("locationId", query["locationId"]) if "locationId" in query else None


def times_in(query: Mapping[str, str]) -> dict[str, str]:
    """Read the times `since` and `until` from a query's `from` and `to`, as they are stored. Missing ones are left out.

    Raises:
        InvalidMessageError: A time is not valid.
    """
    return {
        field: checked_id(name, query[name], "time")
        for field, name in (("since", "from"), ("until", "to"))
        if name in query
    }


def fitting(entries: Sequence[Mapping[str, Any]]) -> int:
    """Count how many entries from the start of a page fit into one answer."""
    portions = in_portions(
        entries, len(entries), lambda one: len(json.dumps(one, default=to_json)), _MAX_LISTED_BYTES
    )
    return len(portions[0]) if portions else 0


# A cursor is the position in a list where the next page begins. It is not a secret: the request names the list, and the caller's
# access to that list is checked. The cursor contains a digest of both, so that a changed cursor or one of another list is refused.
_DIGEST = 16


def encode_cursor(list_name: str, place: ListPosition) -> str:
    """Build the cursor for the page after a position in a list. For a user's orders, `list_name` is the user's id."""
    content = f"{len(place.at)} {place.at}{place.id}".encode()
    digest = hashlib.sha256(list_name.encode() + b" " + content).digest()[:_DIGEST]
    return base64.urlsafe_b64encode(digest + content).rstrip(b"=").decode()


def place_after(list_name: str, query: Mapping[str, str]) -> ListPosition | None:
    """Read where a page starts, from the query's cursor. Without a cursor, this returns None, for the first page.

    Raises:
        InvalidMessageError: The cursor does not belong to this list.
    """
    if (cursor := query.get("cursor")) is None:
        return None
    with suppress(ValueError):
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        length, _, both = raw[_DIGEST:].decode().partition(" ")
        place = ListPosition(both[: int(length)], both[int(length) :])
        # Encoding the position again must give the same cursor, so that each position has exactly one.
        if encode_cursor(list_name, place) == cursor:
            return place
    raise InvalidMessageError(
        "INVALID_CURSOR",
        "cursor: does not belong to this list; pass `next` unchanged, or leave out the cursor",
        "cursor",
    )


def answer_with_page(
    list_name: str,
    query: Mapping[str, str],
    read: Callable[[ListPosition | None], Listed],
    deadline: Deadline,
) -> HttpAnswer:
    """Answer with the next page of a list that has entries. It may be empty although more follow, if there was too little time.

    Args:
        list_name: The name of the list, as for `encode_cursor`.
        query: The query, with a cursor unless the first page is requested.
        read: Reads the page after a position.
        deadline: The end of the time for reading. A page is only skipped in its first half.

    Raises:
        InvalidMessageError: The cursor does not belong to this list.
    """
    shown, after = read(place_after(list_name, query))
    while after and not any(shown.values()) and deadline.remaining() >= _READ_SECONDS / 2:
        shown, after = read(after)
    return HttpAnswer(200, shown | ({"next": encode_cursor(list_name, after)} if after else {}))


def reading() -> tuple[RetryingClient, Deadline]:
    """The client for a read, and the read's deadline, a few seconds from now. After that, callers should try again."""
    client = runtime.process().engine.client
    return client, Deadline.after(_READ_SECONDS, client.clock)
