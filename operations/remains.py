"""What stays on an account after its stack is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from operations.account import AwsAccount


def stack_id(account: AwsAccount, stack_name: str) -> str:
    """The id of a stack, by which it is found after its deletion too.

    Raises:
        ClientError: It does not exist, or access is denied.
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    return cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]["StackId"]


def kept(account: AwsAccount, deleted: str) -> list[str]:
    """Name what the deletion of a stack has left: its resources with `DeletionPolicy: Retain`.

    docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ListStackResources.html

    Args:
        account: Where the stack was.
        deleted: Its id.
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=deleted)
    return [
        f"{resource['ResourceType']} {resource.get('PhysicalResourceId', '')}"
        for page in pages
        for resource in page["StackResourceSummaries"]
        if resource["ResourceStatus"] == "DELETE_SKIPPED"
        # Versions go with their function.
        and resource["ResourceType"] != "AWS::Lambda::Version"
    ]
