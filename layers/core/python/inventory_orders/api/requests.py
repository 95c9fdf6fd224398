"""Requests and their answers: checks of body, query and preferences, pages of lists, and problem documents (RFC 9457)."""

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
"""A page of a list: its parts by name, and where to go on; None at the end."""

MAX_BODY_BYTES = 262_144
"""Most bytes of a body: an order goes to `OrderQueue` as it came, and the queue takes as many (`infra/queues.py`)."""

MAX_LISTED = 100

# An answer of Lambda has at most 6 MB, and the body comes as a text in it, with a backslash before each quotation mark:
# docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
_MAX_LISTED_BYTES = 4_000_000

_READ_SECONDS = 3.0

_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_WAIT = re.compile(r'wait\s*=\s*"?([0-9]{1,9})"?\s*(;.*)?', re.IGNORECASE)


class Request:
    """A request as API Gateway hands it over: payload format 2.0.

    Args:
        event: Of an HTTP API.
        context: Of the invocation.

    Attributes:
        route: The route that API Gateway has found, such as `GET /orders/{orderId}`.
        path: The ids in its path, by name, as API Gateway has decoded them.
        headers: By name in lower case.
        query: By name; several of one name are joined by commas.
        authorizer: What API Gateway knows of the caller.
        context: As given.
    """

    def __init__(self, event: Mapping[str, Any], context: Any) -> None:
        self._event = event
        self.route: str = event["routeKey"]
        self.path: Mapping[str, str] = event.get("pathParameters") or {}
        self.headers = {n.lower(): value for n, value in (event.get("headers") or {}).items()}
        self.query: Mapping[str, str] = event.get("queryStringParameters") or {}
        self.authorizer = event.get("requestContext", {}).get("authorizer") or {}
        self.context = context

    def check_route(self, known: Collection[str]) -> None:
        """Check that the function answers the route, and that the ids in its path are those that the caller sent.

        Raises:
            ProblemError: It does not.
        InvalidMessageError: They may be others.
        """
        if self.route not in known:
            raise ProblemError(404, "UNKNOWN_ROUTE", "there is nothing here; see docs/api.md")
        for name, value in self.path.items():
            check_path_can_name(name, value)

    def text(self) -> str:
        """The body.

        Raises:
            ProblemError: It is too long.
            InvalidMessageError: It is not UTF-8.
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
                f"a body may have at most {MAX_BODY_BYTES:,} bytes, but has {len(sent):,}",
            )
        try:
            return sent.decode()
        except UnicodeDecodeError:
            raise InvalidMessageError("INVALID_JSON", "the body is not UTF-8") from None

    def json(self) -> Any:
        """The body as JSON, read as strictly as a message.

        Raises:
            ProblemError: It is too long, or says that it is something else.
            InvalidMessageError: It is not UTF-8, or not JSON.
        """
        text = self.text()
        if not _JSON.fullmatch(self.headers.get("content-type", "").strip()):
            raise ProblemError(
                415,
                "UNSUPPORTED_MEDIA_TYPE",
                "send the body as JSON in UTF-8, and say so: Content-Type: application/json",
            )
        return strict_json(text)

    def parameters(self, known: Collection[str]) -> Mapping[str, str]:
        """The query.

        Raises:
            InvalidMessageError: It holds something unknown.
        """
        for name in self.query:
            if name not in known:
                others = f", or correct it to one of {', '.join(known)}" if known else ""
                raise malformed(shown_key(name), f"unknown query parameter; remove it{others}")
        return self.query

    def id_of(self, name: str) -> str:
        """An id in the path.

        Raises:
            InvalidMessageError: It can be none.
        """
        return checked_id(name, self.path[name])

    @property
    def wait_seconds(self) -> int | None:
        """For how long the caller prefers to wait (RFC 7240); None if it did not say, or not in a way to understand."""
        for preference in self.headers.get("prefer", "").split(","):
            if found := _WAIT.fullmatch(preference.strip()):
                return int(found[1])
        return None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer.

    Attributes:
        status: Of HTTP.
        document: The body, from 400 on a problem document; None if there is none.
        headers: Beside the type of the body.
    """

    status: int
    document: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def for_gateway(self) -> dict[str, Any]:
        """The answer as API Gateway takes it."""
        if self.document is None:
            return {"statusCode": self.status, "headers": self.headers, "body": ""}
        kind = "application/json" if self.status < 400 else "application/problem+json"
        return {
            "statusCode": self.status,
            "headers": {**self.headers, "Content-Type": kind},
            "body": json.dumps(self.document, default=to_json),
        }

    @classmethod
    def of_state(cls, request: Request, document: Mapping[str, Any], etag: str) -> HttpAnswer:
        """The answer with a document, unless the caller has it already (`If-None-Match`)."""
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        given = request.headers.get("if-none-match", "")
        known = {tag.strip().removeprefix("W/") for tag in given.split(",")}
        if known & {etag, "*"}:
            return cls(304, headers=headers)
        return cls(200, document, headers)


class ProblemError(InventoryOrdersError):
    """An answer other than a success.

    Args:
        status: Of HTTP.
        code: Stable name of the cause, for machines.
        detail: What to do about it.
        more: Further members of the document, unless they are empty.
        retry_after: Whole seconds after which the same request may succeed; None if that is not the way.

    Attributes:
        answer: The answer.
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
        document = {
            "title": HTTPStatus(status).phrase,
            "status": status,
            "code": code,
            "detail": detail,
            **{name: value for name, value in (more or {}).items() if value},
        }
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        self.answer = HttpAnswer(status, document, headers)


def malformed(field: str, detail: str) -> InvalidMessageError:
    """A request that can never succeed, because of one of its fields."""
    return InvalidMessageError("SCHEMA_VIOLATION", f"{field}: {detail}", field)


_CAUSES = {LeaseHeldError.code: "a product is being counted"}


def problem_of(error: OutcomeError) -> ProblemError:
    """The answer to a request that an error ended."""
    outcome = outcome_of(error)
    code, detail = outcome.cause, outcome.detail
    more = {"field": outcome.field_path, "product": error.facts}
    match outcome.kind:
        case Outcome.INVALID if code.endswith("ID_REUSED"):
            return ProblemError(409, code, detail)
        case Outcome.INVALID if code == "REFUSED_BY_DYNAMODB":
            return ProblemError(400, code, "DynamoDB does not take the request as it is")
        case Outcome.INVALID:
            return ProblemError(400, code, detail, more)
        case Outcome.REJECTED:
            reason = RejectionReason.__members__.get(code)
            return ProblemError(reason.http_status if reason else 409, code, detail, more)
        case Outcome.RETURNED if code.startswith(("CORRUPT", "UNREADABLE")):
            detail = "what is stored cannot be read; an operator has to repair it"
            return ProblemError(500, code, detail, more)
        case Outcome.RETURNED:
            # DynamoDB's words are not for callers.
            why = _CAUSES.get(code, "the service could not answer in time")
            seconds = max(1, math.ceil(outcome.retry_after))
            return ProblemError(503, code, f"{why}; send the same again", more, seconds)
        case Outcome.UNAVAILABLE:
            detail = "the service cannot use its tables; an operator has to repair that"
            return ProblemError(500, "UNAVAILABLE", detail, more)
        case Outcome.APPLIED | Outcome.REPLAYED:
            raise ValueError(f"{outcome.kind} is a success")
        case unknown:
            assert_never(unknown)


def is_request(event: object) -> TypeGuard[dict[str, Any]]:
    """Whether an event is a request of an HTTP API, payload format 2.0."""
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
    """Check that a path can name what has this id, because API Gateway decodes a path before it looks for the route.

    Raises:
        InvalidMessageError: A path with this id may reach another id.
    """
    if value in (".", "..") or not {*"/?%"}.isdisjoint(value):
        raise malformed(
            name,
            "over HTTP an id cannot contain /, ? or %, or be . or ..; use another id, and encode it once in paths",
        )


def limit_of(query: Mapping[str, str]) -> int:
    """The most entries that a page of a list may have.

    Raises:
        InvalidMessageError: The query has another value.
    """
    given = query.get("limit", "20")
    if given.isascii() and given.isdecimal() and len(given) <= 3 and 1 <= int(given) <= MAX_LISTED:
        return int(given)
    raise malformed("limit", f"must be a whole number from 1 to {MAX_LISTED}")


def location_in(query: Mapping[str, str]) -> str | None:
    """The location that a query names; None if it names none.

    Raises:
        InvalidMessageError: It is not a location.
    """
    return checked_id("locationId", query["locationId"]) if "locationId" in query else None


def fitting(entries: Sequence[Mapping[str, Any]]) -> int:
    """How many of the entries of a page one answer can hold."""
    portions = in_portions(
        entries, len(entries), lambda one: len(json.dumps(one, default=to_json)), _MAX_LISTED_BYTES
    )
    return len(portions[0]) if portions else 0


# A cursor, the place in a list at which the next page begins, is no secret and opens nothing: what is listed is said by the
# request and checked there. The digest binds the cursor to its list, so that a changed one, or one of another list, is
# refused.
_DIGEST = 16


def encode_cursor(list_name: str, place: ListPosition) -> str:
    """The cursor for what comes after a place in a list; a list of a user's orders is named after its user."""
    content = f"{len(place.at)} {place.at}{place.id}".encode()
    digest = hashlib.sha256(list_name.encode() + b" " + content).digest()[:_DIGEST]
    return base64.urlsafe_b64encode(digest + content).rstrip(b"=").decode()


def place_after(list_name: str, query: Mapping[str, str]) -> ListPosition | None:
    """Where to go on in a list; None: at its beginning.

    Raises:
        InvalidMessageError: The query has a cursor of another list.
    """
    if "cursor" not in query:
        return None
    cursor = query["cursor"]
    with suppress(ValueError):
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        length, _, both = raw[_DIGEST:].decode().partition(" ")
        place = ListPosition(both[: int(length)], both[int(length) :])
        # Written again it must be the same: two texts for one place would be one too many.
        if encode_cursor(list_name, place) == cursor:
            return place
    raise InvalidMessageError(
        "INVALID_CURSOR",
        "cursor: was not given out for this list; take `next` as it was answered, or leave it out",
        "cursor",
    )


def answer_with_page(
    list_name: str,
    query: Mapping[str, str],
    read: Callable[[ListPosition | None], Listed],
    deadline: Deadline,
) -> HttpAnswer:
    """Answer with a page of a list that shows something, if there is time to find it.

    Args:
        list_name: As for `encode_cursor`.
        query: It may name where to begin.
        read: Reads a page.
        deadline: Of all reads.

    Raises:
        InvalidMessageError: The query has a cursor of another list.
    """
    shown, after = filled_page(place_after(list_name, query), read, deadline)
    following = {} if after is None else {"next": encode_cursor(list_name, after)}
    return HttpAnswer(200, shown | following)


def filled_page(
    after: ListPosition | None,
    read: Callable[[ListPosition | None], Listed],
    deadline: Deadline,
) -> Listed:
    """Read a page that shows something: half of the time is for that, so it may still show nothing."""
    while True:
        shown, after = read(after)
        if after is None or any(shown.values()) or deadline.remaining() < _READ_SECONDS / 2:
            return shown, after


def reading() -> tuple[RetryingClient, Deadline]:
    """The client for a read, and its deadline: after a few seconds a caller had better ask again."""
    client = runtime.process().engine.client
    return client, Deadline.after(_READ_SECONDS, client.clock)
