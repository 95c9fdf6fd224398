"""The desk of the tea shop: tables and queues in memory, and functions that run in this process."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from inventory_orders.store.tables import Table
from local.desk.site import Site, serving
from local.desk.trial import Trial
from local.desk.work import Desk
from operations.aws import Aws
from operations.queues import DEAD_LETTERS, QUEUES, UNDELIVERABLE_EVENTS
from testing.handlers import FakeContext, load_handler
from tests.support.tables_in_memory import session
from tests.support.tea_shop import tea_shop

TOKEN = "a-secret"


class Functions:
    """Lambda: carries out invocations at once."""

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        words = FunctionName.removesuffix(":live").split("-")
        answer = load_handler("_".join(words)).lambda_handler(
            json.loads(Payload), FakeContext(words[0])
        )
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}


@dataclass
class DeskOfShop:
    """A desk that is served.

    Attributes:
        aws: The stack of the shop.
        origin: Where the desk is.
    """

    aws: Aws
    origin: str

    def address(self, part: str = "") -> str:
        return f"{self.origin}/{part}#token={TOKEN}"

    def command(self, function: str, **command: Any) -> None:
        answer = self.aws.invoke(function, command)
        assert answer["result"] == "APPLIED", answer

    def place(self, order: dict[str, Any]) -> None:
        self.command("PlaceOrders", **order)

    def dead_letter(self, queue: str, body: str, code: str) -> str:
        """Put a dead letter into a queue of `DEAD_LETTERS`. Returns its id."""
        texts = {"errorCode": code, "errorMessage": f"why it is {code}", "originalMessageId": "m"}
        attributes: Any = {
            name: {"DataType": "String", "StringValue": text} for name, text in texts.items()
        }
        return self.aws.sqs.send_message(
            QueueUrl=self.aws.outputs[queue], MessageBody=body, MessageAttributes=attributes
        )["MessageId"]

    def waiting(self, queue: str) -> list[str]:
        """The bodies of the messages of a queue, which stay there."""
        found = self.aws.sqs.receive_message(
            QueueUrl=self.aws.outputs[queue], MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        return [message["Body"] for message in found.get("Messages", [])]

    def row(self, table: Table, key: str, value: str) -> dict[str, Any]:
        found = self.aws.dynamodb.get_item(TableName=table.value, Key={key: {"S": value}})
        return found["Item"]

    def stock(self, product_id: str) -> int:
        return int(self.row(Table.PRODUCTS, "productId", product_id)["stockCount"]["N"])


@contextmanager
def desk_of_shop(*, is_embedded: bool = True, is_production: bool = False) -> Iterator[DeskOfShop]:
    """Serve the desk of a new tea shop."""
    with tea_shop() as shop:
        of_shop = session("test", "test", region_name="us-east-1")
        every = (*QUEUES, *DEAD_LETTERS, UNDELIVERABLE_EVENTS)
        names = [name.removesuffix("Url") for name in every]
        functions = ("adjust-stock", "change-orders", "manage-products", "place-orders")
        outputs = {
            **{f"{table.value}TableName": table.value for table in Table},
            **{
                f"{name}Url": shop.aws.sqs.create(name + ".fifo" * ("Fifo" in name)).url
                for name in names
            },
            **{f"{name.title().replace('-', '')}FunctionName": name for name in functions},
        }
        aws = Aws(
            outputs,
            of_shop,
            of_shop.client("dynamodb"),
            of_shop.client("sqs"),
            logs=None,  # type: ignore[arg-type]  # nothing reads it
            functions=Functions(),  # type: ignore[arg-type]
            stack_id="arn:aws:cloudformation:us-east-1:123456789012:stack/InventoryOrders-shop/1",
            is_production=is_production,
        )
        desk = Desk(lambda: aws, is_embedded=is_embedded)
        here: Any = (SimpleNamespace(), Trial(lambda: aws)) if is_embedded else ()
        with serving(Site(desk, TOKEN, *here)) as port:
            yield DeskOfShop(aws, f"http://127.0.0.1:{port}")
