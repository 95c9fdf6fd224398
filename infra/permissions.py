"""Permissions of functions, each for a single resource."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_


def allow(function: lambda_.Function, arn: str, *actions: str) -> None:
    """Let a function do something with a resource."""
    function.add_to_role_policy(iam.PolicyStatement(actions=[*actions], resources=[arn]))
