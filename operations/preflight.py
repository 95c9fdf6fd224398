"""What an account already has that decides whether a deployment can go well, asked before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from operations.errors import UserError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient

    from operations.account import AwsAccount

_UNITS = ("readUnitsPerSecond", "writeUnitsPerSecond")


def check_warm_throughput(
    account: AwsAccount, stack_name: str, wanted: Mapping[str, Mapping[str, int]]
) -> str | None:
    """Check that no table would have to give up warm throughput: DynamoDB refuses that, and the deployment rolls back.

    Args:
        account: Where the stack is, or will be.
        stack_name: Its name; there is nothing to check where it does not exist yet.
        wanted: `warmThroughput` of the settings, by table.

    Returns:
        Why it could not be checked; None if it was, or if nothing is wanted.

    Raises:
        UserError: A table or an index has more than the settings want.
    """
    if not wanted:
        return None
    try:
        names = _outputs(account, stack_name)
        tables = {name: names.get(f"{name}TableName") for name in wanted}
        dynamodb: DynamoDBClient = account.client("dynamodb")
        described = {
            name: dynamodb.describe_table(TableName=physical)["Table"]
            for name, physical in tables.items()
            if physical
        }
    except (BotoCoreError, ClientError) as error:
        return f"whether warmThroughput fits the tables cannot be checked: {error}"
    lowered = [
        f"warmThroughput.{name}.{unit} is {wanted[name][unit]:,} in cdk.json, but {place} has {has:,}"
        for name, table in described.items()
        for place, unit, has in _warm(table)
        if wanted[name][unit] < has
    ]
    if lowered:
        raise UserError(
            f"{'; '.join(lowered)}. DynamoDB never lowers it: set it to that or more, or remove it from cdk.json, "
            "and the table keeps what it has"
        )
    return None


def _warm(table: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """What a table and its indexes have: where, which unit, and how many."""
    places = {f"the table {table['TableName']}": table}
    for index in table.get("GlobalSecondaryIndexes", ()):
        places[f"the index {index['IndexName']} of {table['TableName']}"] = index
    for place, description in places.items():
        for unit in _UNITS:
            yield (
                place,
                unit,
                description.get("WarmThroughput", {}).get(unit[0].upper() + unit[1:], 0),
            )


def _outputs(account: AwsAccount, stack_name: str) -> Mapping[str, str]:
    """The outputs of a stack; none if it does not exist."""
    cloudformation: CloudFormationClient = account.client("cloudformation")
    try:
        (stack,) = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if "does not exist" in error.response["Error"]["Message"]:
            return {}
        raise
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def check_concurrency(account: AwsAccount, wanted: Mapping[str, int]) -> str | None:
    """Compare the account's limit of concurrent executions with what the queues' functions may use.

    Args:
        account: Where the stack will be.
        wanted: `maximumConcurrency` by queue.

    Returns:
        What is too little and what to do, or why it could not be checked; None if there is enough.
    """
    total = sum(wanted.values())
    functions: LambdaClient = account.client("lambda")
    try:
        limits = functions.get_account_settings()["AccountLimit"]
    except (BotoCoreError, ClientError) as error:
        return (
            f"whether the account has room for {total} concurrent executions of Lambda (the sum of "
            f"maximumConcurrency in cdk.json) cannot be checked: {error}"
        )
    limit, free = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
    if total <= free:
        return None
    each = ", ".join(f"{queue} {count}" for queue, count in wanted.items())
    return (
        f"the account allows {limit} concurrent executions of Lambda in {account.region}, {free} of them unreserved, "
        f"but the queues may use {total} ({each}). Under load Lambda then throttles every function without reserved "
        "concurrency, this stack's and others': messages wait longer, and nothing is lost. Ask for more (Service Quotas, "
        "AWS Lambda, Concurrent executions: L-B99A9384), or lower maximumConcurrency in cdk.json"
    )
