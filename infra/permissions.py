"""Grants functions permissions on individual resources."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_


def allow(function: lambda_.Function, arn: str, *actions: str) -> None:
    """Add a statement to the function's role that allows the actions on this one resource."""
    function.add_to_role_policy(iam.PolicyStatement(actions=[*actions], resources=[arn]))
