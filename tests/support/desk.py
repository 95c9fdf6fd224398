"""The desk of the tea shop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from local.desk.site import Site, serving
from local.desk.trial import Trial
from local.desk.work import Desk
from local.sample_orders import catalogue
from operations.aws import Aws
from testing.shop import Shop, open_shop

TOKEN = "a-secret"


@dataclass
class DeskOfShop:
    """A desk that is served.

    Attributes:
        shop: What it serves.
        aws: The stack of the shop.
        origin: Where the desk is.
    """

    shop: Shop
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


@contextmanager
def desk_of_shop(*, is_embedded: bool = True, is_production: bool = False) -> Iterator[DeskOfShop]:
    """Serve the desk of a new tea shop."""
    with open_shop(catalogue()) as shop:
        stack_id = "arn:aws:cloudformation:us-east-1:123456789012:stack/InventoryOrders-shop/1"
        aws = shop.stack_with(stack_id=stack_id, is_production=is_production)
        desk = Desk(lambda: aws, is_embedded=is_embedded)
        here: Any = (SimpleNamespace(), Trial(lambda: aws)) if is_embedded else ()
        with serving(Site(desk, TOKEN, *here)) as port:
            yield DeskOfShop(shop, aws, f"http://127.0.0.1:{port}")
