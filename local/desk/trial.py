"""Sends requests to the HTTP API and lists products, for the desk's pages Try it and API."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inventory_orders.domain.location import product_of
from inventory_orders.store.dynamodb import READ_LIMIT
from inventory_orders.store.tables import Table
from local import tokens
from local.sample_orders import catalogue
from operations.aws import Aws
from operations.errors import UserError
from operations.http_api import HttpApi, Reply

_TOKENS = {"operator": tokens.operator_token, "customer": tokens.customer_token}


class Trial:
    """Calls the API of the stack that `stack` returns. The stack may be deployed again at any time."""

    def __init__(self, stack: Callable[[], Aws]) -> None:
        self._stack = stack

    def call(
        self, caller: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """Send a request to the customers' API with a `customer` or `operator` token."""
        if caller not in _TOKENS:
            raise UserError(f"{caller} is not a caller; use {' or '.join(_TOKENS)}")
        aws = self._stack()
        bearer = {"Authorization": f"Bearer {_TOKENS[caller](aws)}"}
        api = HttpApi.of(aws, "CustomerApiUrl")
        return api.send(method, path, {**headers, **bearer}, body, signed=False)

    def shelf(self) -> list[str]:
        """Return at most `READ_LIMIT` product ids: first the sample products, even if they do not exist."""
        aws = self._stack()
        found = aws.dynamodb.scan(
            TableName=aws.tables[Table.PRODUCTS],
            ProjectionExpression="productId",
            Limit=READ_LIMIT,
        )["Items"]
        others = sorted(product_of(item["productId"]["S"]) for item in found)
        samples = (product.product_id for product in catalogue())
        return [*dict.fromkeys([*samples, *others])][:READ_LIMIT]
