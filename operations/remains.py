"""Lists the resources that remain in an account after a stack has been deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from .errors import UserError
from .export import bucket_name

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackResourceSummaryTypeDef
    from mypy_boto3_dynamodb import DynamoDBClient

    from .account import AwsAccount


def stack_id(account: AwsAccount, stack_name: str) -> str:
    """Find the id of a stack, which stays valid after its deletion.

    Raises:
        UserError: The stack does not exist.
        ClientError: Access is denied.
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    try:
        return cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]["StackId"]
    except ClientError as error:
        if "does not exist" not in error.response["Error"]["Message"]:
            raise
        raise UserError(
            f"there is no stack {stack_name} in account {account.number()}, {account.region}: choose the stage that you "
            "deployed, and its region (AWS_REGION)"
        ) from error


def kept(account: AwsAccount, deleted: str) -> list[str]:
    """Name the resources that a deleted stack left behind, because of `DeletionPolicy: Retain`."""
    return [
        f"{resource['ResourceType']} {resource.get('PhysicalResourceId', '')}"
        for resource in _resources(account, deleted)
        if resource["ResourceStatus"] == "DELETE_SKIPPED"
        # Versions are deleted with their function.
        and resource["ResourceType"] != "AWS::Lambda::Version"
    ]


def copies(account: AwsAccount, deleted: str) -> list[str]:
    """Name the copies of a deleted stack's tables that `restore` created. Their names begin with the table's name."""
    tables = tuple(
        f"{resource['PhysicalResourceId']}-"
        for resource in _resources(account, deleted)
        if resource["ResourceType"] == "AWS::DynamoDB::GlobalTable"
        and "PhysicalResourceId" in resource
    )
    dynamodb: DynamoDBClient = account.client("dynamodb")
    names = (
        name
        for page in dynamodb.get_paginator("list_tables").paginate()
        for name in page["TableNames"]
    )
    return [
        f"the table {name}, which a restore created" for name in names if name.startswith(tables)
    ]


def exports(account: AwsAccount, deleted: str) -> list[str]:
    """Name the S3 location of a deleted stack's exports in the default bucket, if there is one."""
    _, _, _, region, number, stack = deleted.split(":")
    bucket, prefix = bucket_name(region, number), f"{stack.split('/')[1]}/"
    s3 = account.client("s3")
    try:
        found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except s3.exceptions.NoSuchBucket:
        return []
    return [f"s3://{bucket}/{prefix}: exports, with customers' ids"] if found["KeyCount"] else []


def _resources(account: AwsAccount, deleted: str) -> Iterator[StackResourceSummaryTypeDef]:
    """List the resources of a deleted stack.

    docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ListStackResources.html
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=deleted)
    return (resource for page in pages for resource in page["StackResourceSummaries"])
