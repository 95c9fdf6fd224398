"""Answers one request of the HTTP API, whatever is wrong with it, and logs how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inventory_orders.api.access import Caller
from inventory_orders.api.problems import ProblemError, problem_of_error
from inventory_orders.api.requests import HttpAnswer, Request
from inventory_orders.api.settings import ApiSettings
from inventory_orders.errors import PoisonMessageError, VerdictError
from inventory_orders.invocation.telemetry import logger


def serve(event: Mapping[str, Any], work: Callable[[Request, Caller], HttpAnswer]) -> HttpAnswer:
    """Answer a request; an error becomes a problem document.

    Raises:
        ConfigurationError: A setting is missing.
    """
    request = Request.of_event(event)
    settings = ApiSettings.from_environment()
    try:
        answer = work(request, Caller.of(request.authorizer, settings))
    except (ProblemError, VerdictError) as error:
        problem = problem_of_error(error)
        fields: dict[str, object] = {"status": problem.status.value, "code": problem.code}
        if problem.status >= 500:
            logger.error("request failed", extra=fields | {"error": str(error)})
        elif isinstance(error, PoisonMessageError):
            # The error's own message quotes the body, so it stays out of the log.
            logger.info("request refused", extra=fields | {"field": error.field})
        else:
            logger.info("request refused", extra=fields)
        return HttpAnswer.of_problem(problem)
    logger.info("request answered", extra={"status": answer.status})
    return answer
