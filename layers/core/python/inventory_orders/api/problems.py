"""Problem documents (RFC 9457), with the codes of dead letters and direct answers."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

from inventory_orders.engine.outcomes import ChangeOutcome, UnsuccessfulError, outcome_of
from inventory_orders.errors import InventoryOrdersError, Verdict, VerdictError

SHORT_WAIT_SECONDS = 1
"""After which to ask again, where nothing better is known."""

UNREADABLE = "what is stored cannot be read; an operator has to repair it"
"""Says so of a row that breaks its table's contract."""


class ProblemError(InventoryOrdersError):
    """An answer other than a success.

    Attributes:
        status: Of HTTP.
        code: Stable name of the cause, for machines.
        detail: What to do about it.
        more: Further members of the document.
        retry_after: Whole seconds after which the same request may succeed; None if that is not the way.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        more: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status = HTTPStatus(status)
        self.code = code
        self.detail = detail
        self.more = more or {}
        self.retry_after = retry_after

    @property
    def document(self) -> dict[str, Any]:
        """The body."""
        return {
            "title": self.status.phrase,
            "status": self.status.value,
            "code": self.code,
            "detail": self.detail,
        } | self.more


def malformed(detail: str, field: str = "", code: str = "SCHEMA_VIOLATION") -> ProblemError:
    """A request that can never succeed as it is."""
    return ProblemError(400, code, detail, {"field": field} if field else None)


def unknown_route() -> ProblemError:
    """No function answers this route."""
    return ProblemError(404, "UNKNOWN_ROUTE", "there is nothing here; see docs/api.md")


def unknown_order(order_id: str) -> ProblemError:
    """There is none, or it is not the caller's: both look the same."""
    return ProblemError(404, "UNKNOWN_ORDER", f"there is no order {order_id}")


def retry_later(code: str, detail: str, seconds: float = 0.0) -> ProblemError:
    """Nothing is decided, and the same request may succeed later."""
    return ProblemError(503, code, detail, retry_after=math.ceil(seconds) or SHORT_WAIT_SECONDS)


_NOT_THERE = ("UNKNOWN_ORDER", "UNKNOWN_PRODUCT")


def problem_of(outcome: ChangeOutcome) -> ProblemError:
    """The answer to a request that does not succeed."""
    code, detail = outcome.cause, outcome.detail
    match outcome.verdict:
        case Verdict.POISON if code.endswith("ID_REUSED"):
            return ProblemError(409, code, detail)
        case Verdict.POISON if code == "REFUSED_BY_DYNAMODB":
            return malformed("DynamoDB does not take the request as it is", code=code)
        case Verdict.POISON:
            return malformed(detail, outcome.field_path, code)
        case Verdict.REJECTED:
            return ProblemError(404 if code in _NOT_THERE else 409, code, detail)
        case Verdict.RETURNED if code.startswith(("CORRUPT", "UNREADABLE")):
            return ProblemError(500, code, UNREADABLE)
        case Verdict.RETURNED:
            # DynamoDB's words are not for callers.
            detail = "the service could not answer in time; send the same again"
            return retry_later(code, detail, outcome.retry_after)
    return ProblemError(
        500, "UNAVAILABLE", "the service cannot use its tables; an operator has to repair that"
    )


def problem_of_error(error: ProblemError | VerdictError) -> ProblemError:
    """The answer to a request that an error ended."""
    if isinstance(error, ProblemError):
        return error
    problem = problem_of(outcome_of(error))
    if isinstance(error, UnsuccessfulError) and error.facts:
        problem.more["product"] = error.facts
    return problem
