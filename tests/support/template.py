"""The synthesised template, for tests."""

import json
import os
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
os.environ["CDK_VALIDATION"] = "false"

import aws_cdk as cdk
from aws_cdk.assertions import Template

from infra.settings import Settings
from infra.stack import InventoryOrdersStack
from local import ROOT

CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]
SETTINGS = CONTEXT["settings"]


def stack_of(
    stage: str, context: Mapping[str, Any] | None = None, **changes: Any
) -> InventoryOrdersStack:
    settings = Settings.from_context(stage, SETTINGS | changes)
    app = cdk.App(context=CONTEXT | dict(context or {}))
    return InventoryOrdersStack(app, settings.stack_name, settings=settings)


def synthesise(stage: str, context: Mapping[str, Any] | None = None, **changes: Any) -> Template:
    return Template.from_stack(stack_of(stage, context, **changes))


def resources(template: Template, kind: str) -> Mapping[str, Mapping[str, Any]]:
    return template.find_resources(kind)


def alarms_of(template: Template) -> dict[str, Any]:
    return {
        logical_id: alarm["Properties"]
        for logical_id, alarm in resources(template, "AWS::CloudWatch::Alarm").items()
    }
