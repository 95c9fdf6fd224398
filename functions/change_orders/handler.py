"""Takes orders through their life. Until it does, it returns every message to its queue."""

from __future__ import annotations

from typing import Any

from inventory_orders.invocation import runtime

runtime.prepare()


def lambda_handler(event: Any, _context: object) -> dict[str, Any]:
    """Return every message."""
    failures = [{"itemIdentifier": record["messageId"]} for record in event["Records"]]
    return {"batchItemFailures": failures}
