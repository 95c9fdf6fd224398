"""What an account already has that decides whether a deployment can go well, asked before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

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
        outputs = _stack(account.client("cloudformation"), stack_name).get("Outputs", ())
        names = {output["OutputKey"]: output["OutputValue"] for output in outputs}
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


def _stack(cloudformation: CloudFormationClient, stack_name: str) -> Mapping[str, Any]:
    """Describe a stack; an empty answer if it does not exist."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if "does not exist" in error.response["Error"]["Message"]:
            return {}
        raise
    return cast("Mapping[str, Any]", stack)


def release_failed_creation(account: AwsAccount, stack_name: str) -> str | None:
    """Remove the protection of a stack whose creation failed: the CDK sets it first, and cannot delete the stack then.

    Args:
        account: Where the stack is.
        stack_name: Its name.

    Returns:
        What was done and what is left, or why it could not be done; None if there is no such stack.
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    try:
        stack = _stack(cloudformation, stack_name)
        failed = stack.get("StackStatus") in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
        if not failed or not stack.get("EnableTerminationProtection"):
            return None
        resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
        cloudformation.update_termination_protection(
            StackName=stack_name, EnableTerminationProtection=False
        )
    except (BotoCoreError, ClientError) as error:
        return (
            f"whether an earlier first deployment of {stack_name} failed and is in the way cannot be checked or mended "
            f"({error}). If so: aws cloudformation update-termination-protection --stack-name {stack_name} "
            "--no-enable-termination-protection"
        )
    kept = [r["PhysicalResourceId"] for r in resources if r["ResourceStatus"] == "DELETE_SKIPPED"]
    left = f" Its tables stay, empty and protected, until you delete them: {', '.join(kept)}"
    return (
        f"the first deployment of {stack_name} failed and was rolled back. Its protection is removed, so that the CDK "
        f"can delete it and begin again.{left if kept else ''}"
    )


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
