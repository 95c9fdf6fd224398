"""Lists the resources that stay on an account after the deletion of a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from operations.account import AwsAccount


def stack_id(account: AwsAccount, stack_name: str) -> str:
    """Find the id of a stack, which names it after its deletion too.

    Raises:
        ClientError: The stack does not exist, or access is denied.
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    return cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]["StackId"]


def kept(account: AwsAccount, deleted: str) -> list[str]:
    """Name the resources that the deletion of a stack left: those with `DeletionPolicy: Retain`.

    docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ListStackResources.html

    Args:
        account: The account and region of the stack.
        deleted: The stack's id.
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
