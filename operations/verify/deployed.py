"""The deployed template of a stack, with resolved references, which the checks compare with AWS's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..errors import UserError

Properties = Mapping[str, Any]

_ARNS = {
    "AWS::SQS::Queue": "arn:{partition}:sqs:{region}:{account}:{name}",
    "AWS::DynamoDB::GlobalTable": "arn:{partition}:dynamodb:{region}:{account}:table/{name}",
    "AWS::Lambda::EventSourceMapping": "arn:{partition}:lambda:{region}:{account}:event-source-mapping:{name}",
    "AWS::Lambda::Function": "arn:{partition}:lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "arn:{partition}:logs:{region}:{account}:log-group:{name}:*",
    "AWS::CloudWatch::Alarm": "arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}",
    "AWS::Events::EventBus": "arn:{partition}:events:{region}:{account}:event-bus/{name}",
    "AWS::IAM::Role": "arn:{partition}:iam::{account}:role/{name}",
}


@dataclass(frozen=True)
class Deployed:
    """A deployed stack, with its template.

    Attributes:
        stack: CloudFormation's description of it.
        resources: Resources of its template, by logical id.
        physical: Physical ids of its resources, by logical id.
        streams: ARNs of its tables' streams, by logical id of the table. They cannot be derived from the template.
    """

    stack: Mapping[str, Any]
    resources: Mapping[str, Mapping[str, Any]]
    physical: Mapping[str, str]
    streams: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cloudformation: Any, dynamodb: Any, name: str, orders: str = "") -> Deployed:
        """Read a stack through clients of CloudFormation and DynamoDB.

        Given the name of a service's Orders table, it leaves out all other resources: the stack of an app may have several
        services.

        Raises:
            UserError: A resource of the stack is being created, its creation failed, or the stack of the service was deployed
                without the paths of its constructs.
        """
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        body = cloudformation.get_template(StackName=name)["TemplateBody"]
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
        resources = (json.loads(body) if isinstance(body, str) else body)["Resources"]
        made = [resource for page in pages for resource in page["StackResourceSummaries"]]
        # API_StackResourceSummary requires no physical id: a resource being created may have none yet.
        if any("PhysicalResourceId" not in resource for resource in made):
            raise UserError(
                f"{name} is {stack['StackStatus']}: wait until it is done, or deploy it again"
            )
        physical = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in made}
        streams = {
            logical: dynamodb.describe_table(TableName=table)["Table"].get("LatestStreamArn", "")
            for logical, table in physical.items()
            if resources.get(logical, {}).get("Type") == "AWS::DynamoDB::GlobalTable"
        }
        whole = cls(stack, resources, physical, streams)
        return whole._service_with(orders) if orders else whole

    def _service_with(self, orders: str) -> Deployed:
        table = next(logical for logical, name in self.physical.items() if name == orders)
        # Logical ids are ambiguous: the resources of a service `TeaApi` begin like those of the API of a service `Tea`.
        path = self._path(table)
        if path == table:
            raise UserError(
                f"{self.stack['StackName']} was deployed by an older version, without the paths of its constructs: deploy it again"
            )
        service = path.removesuffix("Tables/Orders/Resource")
        own = {
            name: each
            for name, each in self.resources.items()
            if self._path(name).startswith(service)
        }
        return replace(self, resources=own)

    @cached_property
    def place(self) -> dict[str, str]:
        """The partition, region and account of the stack."""
        _, partition, _, region, account, *_ = self.stack["StackId"].split(":")
        return {"partition": partition, "region": region, "account": account}

    @property
    def protected(self) -> bool:
        """Whether the stack is protected against deletion, as production stages are."""
        return bool(self.stack.get("EnableTerminationProtection"))

    def of_type(self, kind: str) -> dict[str, Properties]:
        """Return the properties of all resources of a type, with resolved references, by logical id."""
        return {
            logical: self.fill_in(resource.get("Properties", {}))
            for logical, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def variables(self) -> list[Mapping[str, Any]]:
        """Return the environment variables of each function that has any."""
        functions = self.of_type("AWS::Lambda::Function").values()
        return [each["Environment"]["Variables"] for each in functions if "Environment" in each]

    def each(self, kind: str) -> list[tuple[str, str, Properties]]:
        """Yield the title, physical id and properties of each resource of a type."""
        found = self.of_type(kind).items()
        return [(self.title(logical), self.physical[logical], each) for logical, each in found]

    @property
    def batching_window(self) -> float:
        """The longest batching window of the stack's mappings, in seconds."""
        mappings = self.of_type("AWS::Lambda::EventSourceMapping").values()
        windows = (each.get("MaximumBatchingWindowInSeconds", 0) for each in mappings)
        return max(map(float, windows), default=0.0)

    @property
    def dashboards(self) -> dict[str, Properties]:
        """The properties of the dashboards, by logical id; empty if the handlers emit only the metrics for alarms."""
        return self.of_type("AWS::CloudWatch::Dashboard")

    def title(self, logical: str) -> str:
        """Return a resource's name in the CDK's code, or its logical id if that name is unknown."""
        return self._path(logical).removesuffix("/Resource").split("/")[-1]

    def _path(self, logical: str) -> str:
        """Return the path of the CDK's construct that made a resource, or the logical id if the path is unknown."""
        return str(self.resources[logical].get("Metadata", {}).get("aws:cdk:path", logical))

    def arn(self, logical: str) -> str:
        """Return the ARN of a resource."""
        kind, physical = self.resources[logical]["Type"], self.physical[logical]
        if physical.startswith("arn:"):
            return physical
        # A queue's physical id is its URL.
        name = physical.rsplit("/", 1)[-1] if kind == "AWS::SQS::Queue" else physical
        return _ARNS.get(kind, "{name}").format(**self.place, name=name)

    def fill_in(self, value: Any) -> Any:
        """Replace references with their values."""
        if isinstance(value, list):
            return [self.fill_in(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        for name, function in _FUNCTIONS.items():
            if value.keys() == {name}:
                return function(self, value[name])
        return {name: self.fill_in(item) for name, item in value.items()}

    def _ref(self, name: str) -> str:
        if name == "AWS::StackId":
            return str(self.stack["StackId"])
        pseudo = {
            "AWS::Partition": "partition",
            "AWS::Region": "region",
            "AWS::AccountId": "account",
        }
        return self.place[pseudo[name]] if name in pseudo else self.physical.get(name, name)

    def _join(self, argument: Any) -> str:
        separator, parts = argument
        return str(separator).join(str(self.fill_in(part)) for part in parts)

    def _select(self, argument: Any) -> Any:
        index, parts = argument
        return self.fill_in(parts)[int(index)]

    def _split(self, argument: Any) -> list[str]:
        separator, text = argument
        return str(self.fill_in(text)).split(separator)

    def _attribute(self, argument: Any) -> str:
        logical, attribute = argument
        match attribute:
            case "Arn" | "EventSourceMappingArn":
                return self.arn(logical)
            case "QueueName":
                return self.physical[logical].rsplit("/", 1)[-1]
            case "StreamArn":
                return self.streams.get(logical, "")
            case "Version":
                return self.physical[logical].rsplit(":", 1)[-1]
        return f"{logical}.{attribute}"


_FUNCTIONS: Mapping[str, Callable[[Deployed, Any], Any]] = {
    "Ref": Deployed._ref,
    "Fn::Join": Deployed._join,
    "Fn::Select": Deployed._select,
    "Fn::Split": Deployed._split,
    "Fn::GetAtt": Deployed._attribute,
}
"""CloudFormation's functions, which templates write as objects with this single key."""


def differences(what: str, deployed: Any, found: Any) -> list[str]:
    """List the values that differ from the deployed ones. Values that the template does not set are not compared."""
    if isinstance(deployed, Mapping):
        found = found if isinstance(found, Mapping) else {}
        return [
            difference
            for name, value in deployed.items()
            for difference in differences(f"{what} {name}", value, found.get(name))
        ]
    if _plain(deployed) == _plain(found):
        return []
    return [f"{what} is {_shown(found)}, but was deployed as {_shown(deployed)}"]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    """Convert a value to a string, because some APIs return numbers and booleans as strings."""
    if isinstance(value, list):
        return sorted(json.dumps(_plain(item), sort_keys=True) for item in value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(float(value))
    try:
        return str(float(value))
    except (TypeError, ValueError):
        return value
