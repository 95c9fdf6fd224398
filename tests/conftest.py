"""What all tests share. Nothing here ever talks to a real account: AWS settings of the caller are dropped first."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Before anything of ours is imported: the tests' embedded AWS runs beside the developer's.
os.environ["INVENTORY_ORDERS_STATE"] = str(ROOT / ".local" / "test")
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ.update(
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="test",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
    POWERTOOLS_SERVICE_NAME="inventory-orders-test",
)

import json  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402

from local import stack as local_stack  # noqa: E402
from local.aws import Aws, use_embedded  # noqa: E402
from local.emulator import Emulator  # noqa: E402
from tests.roles import name_batches_as_the_embedded_aws_does  # noqa: E402


@pytest.fixture(scope="session")
def embedded_aws() -> Any:
    """An embedded AWS of the tests' own, with the stack deployed by the real CDK; stopped at the end.

    It enforces IAM: what a test sees a function do, the function's role allows.
    """
    local_stack.down()
    try:
        running: Emulator = local_stack.up(lambda _: None, enforce_iam=True)
        before = dict(os.environ)
        use_embedded(running.endpoint)
        aws = Aws.of_stack(local_stack.STACK_NAME)
        name_batches_as_the_embedded_aws_does(aws)
        yield aws, running
        os.environ.clear()
        os.environ.update(before)
    finally:
        local_stack.down()


def sqs_event(*bodies: Any, group: str | None = None, receive_count: int = 1) -> dict[str, Any]:
    """An SQS event as Lambda makes it; bodies that are no strings are written as JSON."""
    fifo = ".fifo" if group is not None else ""
    attributes = {"ApproximateReceiveCount": str(receive_count)}
    if group is not None:
        attributes["MessageGroupId"] = group
    return {
        "Records": [
            {
                "messageId": f"m-{number}",
                "receiptHandle": f"r-{number}",
                "body": body if isinstance(body, str) else json.dumps(body),
                "attributes": dict(attributes),
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:queue{fifo}",
            }
            for number, body in enumerate(bodies)
        ]
    }


def order_body(order_id: str, lines: dict[str, int], user_id: str = "u-1") -> dict[str, Any]:
    """An order message."""
    items = [
        {"productId": product_id, "quantity": quantity} for product_id, quantity in lines.items()
    ]
    return {"orderId": order_id, "userId": user_id, "items": items}
