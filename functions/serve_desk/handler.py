"""Serves the files of the desk, and logs what browsers report about its content security policy."""

from __future__ import annotations

import base64
import json
import logging
from functools import cache
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

REPORTS = "POST /desk/reports"
"""The route for reports."""

_ANSWERS = Path(__file__).with_name("answers.json")
_MAX_REPORT_BYTES = 8_000
_MAX_LOGGED_CHARACTERS = 100


def lambda_handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer one request for a file, or log one report.

    Args:
        event: The event of the HTTP API, in payload format 2.0.

    Returns:
        The answer in the format that API Gateway expects.
    """
    if event["routeKey"] == REPORTS:
        body = event.get("body") or ""
        is_encoded = event.get("isBase64Encoded", False)
        return _log(base64.b64decode(body) if is_encoded else body.encode())
    answers = _answers()
    name = (event.get("pathParameters") or {}).get("file", "")
    if not name:
        # Relative, because the embedded AWS serves the API below a path.
        page = "page.html" if event["rawPath"].endswith("/") else "desk/page.html"
        return {"statusCode": HTTPStatus.FOUND, "headers": {"Location": page}}
    return answers.get(name) or {"statusCode": HTTPStatus.NOT_FOUND}


@cache
def _answers() -> dict[str, dict[str, Any]]:
    """Read the answers for all files. A deployment creates them (infra/desk.py)."""
    answers: dict[str, dict[str, Any]] = json.loads(_ANSWERS.read_text("utf-8"))
    return answers


def _log(body: bytes) -> dict[str, Any]:
    """Log a report. Anyone may send one, so only a few short values are logged, and no address, which may contain a code."""
    try:
        report = json.loads(body[:_MAX_REPORT_BYTES])["csp-report"]
        blocked, source = urlsplit(report["blocked-uri"]), urlsplit(report.get("source-file", ""))
        facts = {
            "directive": report["effective-directive"],
            "blocked": blocked.hostname or blocked.path,
            "file": PurePosixPath(source.path).name,
            "line": report.get("line-number", ""),
        }
        facts = {name: str(value)[:_MAX_LOGGED_CHARACTERS] for name, value in facts.items()}
    # Deep nesting raises a RecursionError.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"statusCode": HTTPStatus.BAD_REQUEST}
    logging.getLogger().warning("content security policy violated: %s", json.dumps(facts))
    return {"statusCode": HTTPStatus.NO_CONTENT}
