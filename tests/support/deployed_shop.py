"""The deployed tables, for tests of the engine and the handlers."""

from typing import Any

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store


class DeployedShop:
    """The deployed tables, and the handlers' environment."""

    def __init__(self, aws: Any) -> None:
        self.aws = aws
        outputs = aws.outputs
        self.tables = aws.tables
        function = aws.functions.get_function_configuration(
            FunctionName=outputs["PlaceOrdersFunctionName"]
        )
        self.environment = function["Environment"]["Variables"]
        self.store = Store(boto3.client("dynamodb", config=CLIENT_CONFIG), self.tables)

    def create(self, product_id: str, stock: int, **more: Any) -> None:
        created, _ = ProductCatalogue(RetryingClient(self.store)).create(
            NewProduct(product_id, stock, **more), Deadline.after(10, SystemClock())
        )
        assert created

    def product(self, product_id: str) -> Any:
        return self.store.read([product_id]).products[product_id]
