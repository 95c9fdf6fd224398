"""A deployed stack: its AWS clients and its outputs."""

from __future__ import annotations

import ipaddress
import json
import math
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.naming import service_name, stack_name
from inventory_orders.store.dynamodb import ALWAYS_CONSISTENT, CLIENT_CONFIG, READ_LIMIT, Store
from inventory_orders.store.rows import Item
from inventory_orders.store.tables import Table

from .currency import Currency
from .errors import LostAnswerError, UserError
from .words import without_full_stop

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackTypeDef
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_sqs import SQSClient


def is_loopback(endpoint: str) -> bool:
    """Whether a URL points at this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    addresses = [ipaddress.ip_address(address.split("%")[0]) for address in found]
    return any(_is_here(address) for address in addresses)


def _is_here(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def refuse_loopback(environment: Mapping[str, str]) -> None:
    """Raise an error if the environment points at this machine instead of a real account."""
    for name, value in environment.items():
        if name.startswith("AWS_ENDPOINT_URL") and is_loopback(value):
            raise UserError(
                f"{name} points at this machine ({value}), but this command is for a real account: unset it, and run the command again"
            )


LIVE = "live"
"""The alias through which callers reach a function, as in infra/functions.py."""


_MAX_SEGMENTS = 8
_SEGMENT_BYTES = 32 << 20
"""A table of this size is read in two segments, because a request reads a megabyte."""

_CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"total_max_attempts": 5, "mode": "standard"},
    max_pool_connections=32,
)


@dataclass(frozen=True)
class Aws:
    """The stack that a command works on, with its clients and outputs.

    Attributes:
        outputs: The stack's outputs, by name.
        session: Credentials and region; creates further clients.
        stack_id: The stack's ARN.
        is_production: Whether the stack is protected against deletion, as production stages are.
        prefix: Prefix of the service's outputs in the stack; `outputs` has the names without it.
    """

    outputs: Mapping[str, str]
    session: boto3.Session
    dynamodb: DynamoDBClient
    sqs: SQSClient
    logs: CloudWatchLogsClient
    functions: LambdaClient
    stack_id: str = ""
    is_production: bool = False
    prefix: str = ""

    @classmethod
    def of_stack(
        cls, stack_name: str, session: boto3.Session | None = None, prefix: str = ""
    ) -> Aws:
        """Look up a stack.

        Args:
            stack_name: Its name in CloudFormation.
            session: Credentials and region; by default from the environment.
            prefix: Prefix of the service's outputs.

        Raises:
            UserError: The stack does not exist, access is denied, or it has no outputs with this prefix.
        """
        try:
            session = session or boto3.Session()
            cloudformation: CloudFormationClient = session.client("cloudformation", config=_CONFIG)
            stack = cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]
            return cls(
                outputs=_outputs(stack, prefix),
                session=session,
                dynamodb=session.client("dynamodb", config=_CONFIG),
                sqs=session.client("sqs", config=_CONFIG),
                logs=session.client("logs", config=_CONFIG),
                functions=session.client("lambda", config=_CONFIG),
                stack_id=stack["StackId"],
                is_production=stack.get("EnableTerminationProtection", False),
                prefix=prefix,
            )
        except (BotoCoreError, ClientError, KeyError, IndexError) as error:
            raise UserError(
                f"the stack {stack_name} cannot be read: {without_full_stop(error)}. Deploy it "
                "first: in a checkout, run `make up`, or `make deploy STAGE=...` to deploy it to an account"
            ) from error

    @property
    def stack_name(self) -> str:
        """The name of the CloudFormation stack."""
        return self.stack_id.split("/")[1]

    @property
    def name(self) -> str:
        """The service's name: the stage, or the argument of the construct."""
        return self.outputs["EventBusName"].removeprefix(stack_name(""))

    @property
    def service_name(self) -> str:
        """The value of the metric dimension `service`."""
        return service_name(self.name)

    @property
    def place(self) -> str:
        """The account, region and stage, as text."""
        _, _, _, region, account, _ = self.stack_id.split(":")
        which = f", outputs {self.prefix}..." if self.prefix else ""
        return f"account {account}, {region}, stack {self.stack_name}{which}"

    @property
    def tables(self) -> dict[Table, str]:
        """The names of the stack's tables. The table of movements is left out if the stage lacks it."""
        outputs = {table: f"{table.value}TableName" for table in Table}
        if not self.has_movements:
            del outputs[Table.MOVEMENTS]
        return {table: self.outputs[output] for table, output in outputs.items()}

    @property
    def has_movements(self) -> bool:
        """Whether the stage records movements."""
        return "MovementsTableName" in self.outputs

    def check_movements(self) -> None:
        """Check that the stage records movements.

        Raises:
            UserError: It does not.
        """
        if not self.has_movements:
            raise UserError(
                "this stage records no movements; set movements to true in cdk.json, and deploy"
            )

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations that serve an order without `locations`, in order of preference."""
        return tuple(json.loads(self.outputs["OrderLocations"]))

    @property
    def currency(self) -> Currency:
        """The setting `currency`."""
        return Currency(**json.loads(self.outputs.get("Currency", "{}")))

    def live(self, function: str) -> str:
        """Return the ARN of a function's alias. The function is named as in the outputs, such as `CountStock`."""
        return f"{self.outputs[f'{function}FunctionName']}:{LIVE}"

    def invoke(self, function: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Invoke a function with a command, and return its answer. The function is named as in the outputs.

        Raises:
            LostAnswerError: The function raised an exception, timed out or died. The command may have been carried out.
        """
        done = self.functions.invoke(
            FunctionName=self.live(function), Payload=json.dumps(command).encode()
        )
        answer = json.loads(done["Payload"].read() or b"null")
        if "FunctionError" in done or not isinstance(answer, dict):
            raise LostAnswerError(f"{function} failed: {answer}")
        return answer

    def client(self, service: str) -> Any:
        """Create a client for another service, with the same timeouts and retries."""
        # The type stubs need the service's name as a literal.
        return self.session.client(service, config=_CONFIG)  # type: ignore[call-overload]

    def store(self, consistent: Collection[Table] = ALWAYS_CONSISTENT) -> Store:
        """Create a store for the stack's tables. Its client leaves retries to the engine.

        Args:
            consistent: The tables that are read with strong consistency, as in `Store`.
        """
        client = self.session.client("dynamodb", config=CLIENT_CONFIG)
        return Store(client, self.tables, consistent)


def _outputs(stack: StackTypeDef, prefix: str) -> dict[str, str]:
    """Read the service's outputs, without their prefix."""
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
    one = "OrdersTableName"
    if prefix + one in outputs:
        return {key[len(prefix) :]: outputs[key] for key in outputs if key.startswith(prefix)}
    prefixes = sorted(key.removesuffix(one) for key in outputs if key.endswith(one))
    if not prefixes:
        raise UserError(
            f"the stack {stack['StackName']} has none of the service's outputs: call the construct's `add_outputs()`, and "
            "deploy it"
        )
    choice = ", ".join(f'"{each}"' for each in prefixes)
    raise UserError(
        f'the stack {stack["StackName"]} has no outputs with the prefix "{prefix}"; choose one with --prefix: {choice}'
    )


class TableSize(NamedTuple):
    """The size of a table or of several. On AWS, it may be up to six hours old.

    Attributes:
        rows: Number of items.
        bytes: Size of all items.
    """

    rows: int
    bytes: int

    @property
    def read_units(self) -> int:
        """The read units that it takes to read everything with strong consistency."""
        return math.ceil(self.bytes / 4096)


def size_of(aws: Aws, *tables: Table) -> TableSize:
    """Look up the size of tables."""
    found = [aws.dynamodb.describe_table(TableName=aws.tables[each])["Table"] for each in tables]
    rows, sizes = zip(*((each["ItemCount"], each["TableSizeBytes"]) for each in found), strict=True)
    return TableSize(sum(rows), sum(sizes))


def scan(aws: Aws, table: Table, **parameters: Any) -> Iterator[Item]:
    """Yield all items of a table, read with strong consistency. Segments of a large table are read in parallel.

    Args:
        aws: The stack.
        table: The table.
        parameters: Further parameters for DynamoDB.
    """
    segments = min(_MAX_SEGMENTS, 1 + size_of(aws, table).bytes // _SEGMENT_BYTES)

    def read(segment: int, start: Item | None) -> tuple[int, Any]:
        request: dict[str, Any] = {"TableName": aws.tables[table], "ConsistentRead": True}
        if segments > 1:
            request |= {"Segment": segment, "TotalSegments": segments}
        if start is not None:
            request["ExclusiveStartKey"] = start
        return segment, aws.dynamodb.scan(**request, **parameters)

    with ThreadPoolExecutor(segments) as pool:
        reads = {pool.submit(read, segment, None) for segment in range(segments)}
        while reads:
            done, reads = wait(reads, return_when=FIRST_COMPLETED)
            for segment, page in (each.result() for each in done):
                if "LastEvaluatedKey" in page:
                    reads.add(pool.submit(read, segment, page["LastEvaluatedKey"]))
                yield from page["Items"]


def query(aws: Aws, table: Table, attribute: str, value: str, index: str = "") -> Iterator[Item]:
    """Yield the items of one partition of a table (read with strong consistency) or of an index."""
    place: Any = {"IndexName": index} if index else {"ConsistentRead": True}
    pages = aws.dynamodb.get_paginator("query").paginate(
        TableName=aws.tables[table],
        KeyConditionExpression="#attribute = :value",
        ExpressionAttributeNames={"#attribute": attribute},
        ExpressionAttributeValues={":value": {"S": value}},
        **place,
    )
    return (item for page in pages for item in page["Items"])


def get_items(aws: Aws, table: Table, keys: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    """Yield the items with these keys that exist, read with strong consistency. The keys must be distinct."""
    name = aws.tables[table]
    left = list(keys)
    while left:
        now, left = left[:READ_LIMIT], left[READ_LIMIT:]
        answer: Any = aws.dynamodb.batch_get_item(
            RequestItems={name: {"Keys": now, "ConsistentRead": True}}
        )
        yield from answer["Responses"].get(name, [])
        left += answer.get("UnprocessedKeys", {}).get(name, {}).get("Keys", [])
