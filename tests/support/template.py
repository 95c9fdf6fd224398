"""Synthesises the CloudFormation template for tests."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk.assertions import Template

from infra.settings import Settings
from infra.stack import InventoryOrdersStack
from local import ROOT
from local.embedded_aws import plain_alarm

CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]

EVERYTHING = {
    "tableKey": "arn:aws:kms:us-east-1:111122223333:key/k",
    "alarmEmail": "shop@example.com",
    "tracing": True,
    "jwt": {
        "issuer": "https://example.com/",
        "audience": ["shop"],
        "operatorsClaim": {"name": "groups", "value": "operators"},
    },
    "holdSeconds": 900,
    "desk": {
        "clientId": "shop",
        **{
            name: f"https://sign-in.example.com/{name}"
            for name in ("authorize", "token", "signOut")
        },
        "domain": {
            "name": "desk.example.com",
            "certificate": "arn:aws:acm:us-east-1:111122223333:certificate/c",
        },
    },
    "cors": ["https://shop.example"],
    "stockEvents": True,
    "currency": "EUR",
    "apiLimits": {"concurrentExecutions": 5},
    "warmThroughput": {"Orders": {"readUnitsPerSecond": 12_000, "writeUnitsPerSecond": 4_000}},
}
"""Every setting that adds a resource or a property."""

SMALL = {
    "monitoring": "basic",
    "fifoQueue": False,
    "jwt": {"issuer": "https://example.com/", "audience": ["shop"]},
    "holdSeconds": 900,
}
"""The settings of a small shop that pays for little."""

# The template names assets by their sources, so the layer need not be copied for each template.
_NO_COPIES = {"aws:cdk:disable-asset-staging": True}


def stack_of(
    stage: str, context: Mapping[str, Any] | None = None, **changes: Any
) -> InventoryOrdersStack:
    settings = Settings.from_context(stage, changes)
    app = cdk.App(context=CONTEXT | _NO_COPIES | dict(context or {}))
    return InventoryOrdersStack(app, settings.stack_name, settings=settings)


def assemble(folder: Path, stage: str, **changes: Any) -> None:
    """Synthesise an assembly for the embedded AWS."""
    app = cdk.App(outdir=str(folder), context=CONTEXT, analytics_reporting=False)
    settings = Settings.from_context(stage, changes)
    InventoryOrdersStack(app, settings.stack_name, settings=settings)
    app.synth()


def shared_stack_of(
    stage: str, context: Mapping[str, Any] | None = None, **changes: Any
) -> InventoryOrdersStack:
    """Make a stack, or return the cached one with the same settings. Callers must not change it."""
    return _stack_of(_key_of(stage, context, changes))


def synthesise(stage: str, context: Mapping[str, Any] | None = None, **changes: Any) -> Template:
    """Synthesise a template, or return the cached one with the same settings. Change only copies of it."""
    return _synthesised(_key_of(stage, context, changes))


def _key_of(stage: str, context: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> str:
    return json.dumps([stage, dict(context or {}), changes], sort_keys=True)


@cache
def _stack_of(settings: str) -> InventoryOrdersStack:
    stage, context, changes = json.loads(settings)
    return stack_of(stage, context, **changes)


@cache
def _synthesised(settings: str) -> Template:
    return Template.from_stack(_stack_of(settings))


def resources(template: Template, kind: str) -> Mapping[str, Mapping[str, Any]]:
    return template.find_resources(kind)


def resolve(value: Any) -> str:
    """Resolve a Fn::Join, with logical names for the values that CloudFormation inserts."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return str(value["Ref"]).replace("AWS::", "")
    if "Fn::GetAtt" in value:
        return str(value["Fn::GetAtt"][0])
    separator, parts = value["Fn::Join"]
    return str(separator).join(resolve(part) for part in parts)


def widgets_of(template: Template) -> list[dict[str, Any]]:
    """Return the widgets of the template's dashboard."""
    (dashboard,) = resources(template, "AWS::CloudWatch::Dashboard").values()
    widgets: list[dict[str, Any]] = json.loads(resolve(dashboard["Properties"]["DashboardBody"]))[
        "widgets"
    ]
    return widgets


def alarms_of(template: Template) -> dict[str, Any]:
    """Return the alarms without metric math, as the embedded AWS gets them."""
    return {
        logical_id: plain_alarm(alarm["Properties"])
        for logical_id, alarm in resources(template, "AWS::CloudWatch::Alarm").items()
    }
