"""Faults between a client and AWS."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ReadTimeoutError


def lose_responses(client: Any, operation: str = "", times: int = 1) -> None:
    """Lose the responses to a client's next requests, after the requests have been executed.

    This happens below the SDK's own retries, and works with moto too.

    Args:
        client: A boto3 client.
        operation: Name of the operation, such as `TransactWriteItems`; all operations by default.
        times: How many responses to lose.
    """
    # This patches a layer above the network, because moto answers before a request reaches the network.
    endpoint = client._endpoint
    send, left = endpoint._do_get_response, [times]

    def lossy(request: Any, model: Any, context: Any) -> tuple[Any, Exception | None]:
        answer, error = send(request, model, context)
        if not left[0] or operation not in ("", model.name):
            return answer, error
        left[0] -= 1
        return None, ReadTimeoutError(endpoint_url=request.url)

    endpoint._do_get_response = lossy
