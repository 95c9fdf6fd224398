"""Real processes and threads against the embedded AWS."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest

from inventory_orders.committer import Committer
from inventory_orders.model import Table
from inventory_orders.products import NewProduct, Products
from inventory_orders.retry import RetryPolicy
from inventory_orders.store import CLIENT_CONFIG, Store


class Shop:
    """The deployed tables, and the handlers' environment."""

    def __init__(self, aws: Any) -> None:
        self.aws = aws
        outputs = aws.outputs
        self.tables = {
            Table.PRODUCTS: outputs["ProductsTableName"],
            Table.ORDERS: outputs["OrdersTableName"],
            Table.STOCK_ADJUSTMENTS: outputs["StockAdjustmentsTableName"],
        }
        function = aws.functions.get_function_configuration(
            FunctionName=outputs["PlaceOrdersFunctionName"]
        )
        self.environment = function["Environment"]["Variables"]
        self.store = self.new_store()

    def new_store(self) -> Store:
        return Store(boto3.client("dynamodb", config=CLIENT_CONFIG), self.tables)

    def new_committer(self, **options: Any) -> Committer:
        return Committer(self.new_store(), RetryPolicy(1000), **options)

    def create(self, product_id: str, stock: int, **more: Any) -> None:
        created, _ = Products(self.store).create(NewProduct(product_id, stock, **more))
        assert created

    def product(self, product_id: str) -> Any:
        return self.store.read([product_id]).products[product_id]


@pytest.fixture(scope="session")
def shop(embedded_aws: Any) -> Shop:
    return Shop(embedded_aws[0])


def _call(barrier: Any, results: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    barrier.wait()
    results.put(work(*arguments))


def in_processes(work: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Run a function in as many processes as there are tuples of arguments, all from the same moment."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=_call, args=(barrier, results, work, a)) for a in arguments]
    for process in processes:
        process.start()
    answers = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=30)
        assert process.exitcode == 0
    return answers


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    """Run a function in threads."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def set_environment(environment: dict[str, str]) -> None:
    os.environ.update(environment)
