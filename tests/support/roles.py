"""Reads the permissions of the functions' roles on the embedded AWS, and replaces them for a test."""

import json
from typing import Any

import boto3

from operations.aws import Aws
from testing.world.handlers import function_names

EMBEDDED_NAMES = {
    "sqs:SendMessage": "sqs:SendMessageBatch",
    "sqs:ChangeMessageVisibility": "sqs:ChangeMessageVisibilityBatch",
    "lambda:GetEventSourceMapping": "lambda:ListEventSourceMappings",
}
"""For some actions of AWS, the names under which the embedded AWS requires them, too or instead.

docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html, .../list_awslambda.html
"""

Permission = tuple[str, str]
"""An action and the ARN of its resource."""


_policies: dict[str, Any] = {}


def _policy_of(aws: Aws, function: str) -> Any:
    """Find the only policy of a function's role.

    It does not change while the function exists, so it is looked up once.
    """
    output = "".join(part.capitalize() for part in function.split("_")) + "FunctionName"
    name = aws.outputs[output]
    if name not in _policies:
        configuration = aws.functions.get_function_configuration(FunctionName=name)
        role = boto3.resource("iam").Role(configuration["Role"].rsplit("/", 1)[-1])
        assert list(role.attached_policies.all()) == []
        (_policies[name],) = role.policies.all()
    return _policies[name]


def permissions(aws: Aws, function: str) -> set[Permission]:
    """List a function's permissions: one pair for each action on each resource."""
    found = set()
    policy = _policy_of(aws, function)
    policy.reload()
    for statement in policy.policy_document["Statement"]:
        assert statement["Effect"] == "Allow"
        actions, resources = (
            [value] if isinstance(value, str) else value
            for value in (statement["Action"], statement["Resource"])
        )
        found |= {(action, resource) for action in actions for resource in resources}
    return {(action, arn) for action, arn in found if action not in EMBEDDED_NAMES.values()}


def allow(aws: Aws, function: str, granted: set[Permission]) -> None:
    """Replace a function's permissions. The new ones apply from its next request on."""
    statements = [
        {
            "Effect": "Allow",
            "Action": [action, EMBEDDED_NAMES.get(action, action)],
            "Resource": resource,
        }
        for action, resource in sorted(granted)
    ]
    document = {"Version": "2012-10-17", "Statement": statements}
    _policy_of(aws, function).put(PolicyDocument=json.dumps(document))


def name_actions_as_the_embedded_aws_does(aws: Aws) -> None:
    """Add the embedded AWS's own names for actions to every role."""
    for function in function_names():
        allow(aws, function, permissions(aws, function))


def name_of(aws: Aws, arn: str) -> str:
    """Return the name of the stack output for a resource, without its ending.

    For an index, it is the table's name followed by the index's own; for an event source mapping, it consists of the
    names of the source and the function.
    """
    if ":event-source-mapping:" in arn:
        mapping = aws.functions.get_event_source_mapping(UUID=arn.rsplit(":", 1)[1])
        table, _ = mapping["EventSourceArn"].split("/stream/")
        (function,) = (
            output.removesuffix("FunctionName")
            for output, value in aws.outputs.items()
            if output.endswith("FunctionName") and f":{value}:" in mapping["FunctionArn"]
        )
        return f"mapping of {name_of(aws, table)} to {function}"
    arn, _, index = arn.partition("/index/")
    (name,) = {
        output
        for output, value in aws.outputs.items()
        if ("Queue" in output or output.endswith(("TableName", "LogGroupName", "BusName")))
        and arn.removesuffix(":*").endswith(
            (f":{value}", f"/{value}", f":{value.rsplit('/', 1)[-1]}")
        )
    }
    return name.removesuffix("Name").removesuffix("Url") + (f"/{index}" if index else "")
