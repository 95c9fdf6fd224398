"""The CDK app: `cdk synth`, `cdk deploy`. Settings are in cdk.json; `-c stage=prod` chooses the stage."""

import aws_cdk as cdk

from infra.settings import Settings
from infra.stack import InventoryOrdersStack

app = cdk.App()
settings = Settings.from_context(
    app.node.try_get_context("stage"), app.node.try_get_context("settings")
)
InventoryOrdersStack(app, settings.stack_name, settings=settings)
app.synth()
