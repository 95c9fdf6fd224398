"""The policy of CloudFormation's deployment role allows exactly the actions needed to deploy the stack."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import boto3

from local import ROOT
from operations import preflight, queues
from tests.support.template import EVERYTHING, synthesise

POLICY = json.loads((ROOT / "infra" / "deployment-policy.json").read_text("utf-8"))
STATEMENTS = {statement["Sid"]: statement for statement in POLICY["Statement"]}
ALLOWED = {action for statement in STATEMENTS.values() for action in statement["Action"]}

ONLY_WITH = {
    ("AWS::ApiGatewayV2::Api", "BodyS3Location"): ("s3:getObject",),
    ("AWS::DynamoDB::GlobalTable", "KinesisStreamSpecification"): ("kinesis:PutRecords",),
    ("AWS::Events::EventBus", "KmsKeyIdentifier"): ("kms:*",),
    ("AWS::IAM::Policy", "Groups"): ("iam:*GroupPolicy",),
    ("AWS::IAM::Policy", "Users"): ("iam:*UserPolicy",),
    ("AWS::Lambda::Alias", "CodeDeployLambdaAliasUpdate"): ("codedeploy:*",),
    ("AWS::Lambda::EventSourceMapping", "KmsKeyArn"): ("kms:*",),
    ("AWS::Lambda::Function", "FileSystemConfigs"): ("elasticfilesystem:*", "s3files:*"),
    ("AWS::Lambda::Function", "KmsKeyArn"): ("kms:*",),
    ("AWS::Lambda::Function", "VpcConfig"): ("ec2:*",),
    ("AWS::Logs::LogGroup", "DataProtectionPolicy"): ("firehose:*", "s3:REST.PUT.OBJECT"),
}
"""For each unused property of a resource type, the actions that its handlers call only for that property."""


def handlers_of(kind: str) -> dict[str, list[str]]:
    """Return the actions that CloudFormation's handlers for a resource type need, except those of the handler `list`.

    CloudFormation never calls `list` itself.
    """
    # cfn-lint is slow to import, and most processes run other tests.
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
    return {
        name: handler["permissions"]
        for name, handler in schema["handlers"].items()
        if name != "list"
    }


def resources() -> Iterator[dict]:
    yield from synthesise("prod", **EVERYTHING).to_json()["Resources"].values()


def properties_of(value: object) -> Iterator[str]:
    """Find the names of all properties at any depth."""
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from properties_of(inner)


def matches(action: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(action, pattern) for pattern in patterns)


def test_the_policy_allows_what_the_handlers_of_the_stacks_resources_call():
    by_kind: dict[str, set[str]] = {}
    for resource in resources():
        by_kind.setdefault(resource["Type"], set()).update(properties_of(resource))
    assert {"AWS::DynamoDB::GlobalTable", "AWS::SNS::Subscription"} < by_kind.keys()
    missing = {
        f"{kind} {handler}: {action}"
        for kind, properties in by_kind.items()
        for handler, actions in handlers_of(kind).items()
        for action in actions
        if not matches(action, ALLOWED)
        and not any(
            matches(action, only)
            for (of, name), only in ONLY_WITH.items()
            if of == kind and name not in properties
        )
    }
    assert missing == set()


def test_every_action_of_the_policy_is_called_by_a_handler():
    called = {
        action
        for kind in {resource["Type"] for resource in resources()}
        for actions in handlers_of(kind).values()
        for action in actions
    }
    # CloudFormation reads the version of the bootstrap, which is a parameter of the template, not a resource.
    unused = {action for action in ALLOWED if not any(fnmatchcase(one, action) for one in called)}
    assert unused == {"ssm:GetParameters"}


def test_only_the_tables_of_a_stage_with_tablekey_need_the_key():
    needed = {
        action
        for actions in handlers_of("AWS::DynamoDB::GlobalTable").values()
        for action in actions
        if action.startswith("kms:")
    }
    assert set(STATEMENTS["TableKey"]["Action"]) == needed


def test_it_covers_the_stacks_roles_only_and_fits_into_a_managed_policy():
    assert STATEMENTS["Roles"]["Resource"] == "arn:aws:iam::*:role/InventoryOrders-*"
    named = [
        r for r in resources() if r["Type"] == "AWS::IAM::Role" and "RoleName" in r["Properties"]
    ]
    assert named == [], "CloudFormation must name roles after the stack"
    assert len(json.dumps(POLICY, separators=(",", ":"))) <= 6_144


def test_the_ci_role_may_call_everything_that_make_deploy_calls():
    source = inspect.getsource(preflight) + inspect.getsource(queues.depth_of)
    names = {*re.findall(r"\.(\w+)\(", source), *re.findall(r"get_paginator\(\"(\w+)\"", source)}
    services = set(re.findall(r"\.client\(\"([\w-]+)\"[,)]", source))
    prefixes = {"service-quotas": "servicequotas"}
    needed = {
        f"{prefixes.get(service, service)}:{action}"
        for service in services
        for name, action in boto3.client(service).meta.method_to_api_mapping.items()
        if name in names
    }
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (policy,) = [
        json.loads(block)
        for block in re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
        if "cdk-hnb659fds" in block
    ]
    roles, itself = policy["Statement"]
    assert roles["Action"] == "sts:AssumeRole"
    assert set(itself["Action"]) == needed
    assert len(needed) > 5
