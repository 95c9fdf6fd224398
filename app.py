"""The CDK app for `cdk synth` and `cdk deploy`: settings from cdk.json, and `-c stage=prod` chooses the stage."""

import aws_cdk as cdk

from infra.settings import Settings
from infra.stack import InventoryOrdersStack

app = cdk.App()
settings = Settings.from_context(
    app.node.try_get_context("stage"), app.node.try_get_context("settings")
)
InventoryOrdersStack(app, settings.stack_name, settings=settings)
app.synth()
