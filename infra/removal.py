"""Removal policies: whether queues and logs outlive the stack."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from .settings import Settings


def kept_in_production(settings: Settings) -> RemovalPolicy:
    """Keep a production stage's resource when the stack is deleted.

    If the deployment that creates the resource fails, the resource is deleted, because it is still empty.

    docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html
    """
    if settings.is_production:
        return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    return RemovalPolicy.DESTROY
