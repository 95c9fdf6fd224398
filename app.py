"""The CDK app for `cdk synth` and `cdk deploy`.

`-c stage=NAME` chooses the stage, whose settings are in cdk.json.
`-c overrides=JSON` replaces settings for one deployment, for example to shorten the grace period on the embedded AWS.
"""

import json
import sys
from pathlib import Path

try:
    import aws_cdk as cdk
except ModuleNotFoundError:
    sys.exit(
        f"{sys.executable} has no aws_cdk: run `make setup`, or "
        "`pip install --require-hashes -r requirements.txt` in the environment that runs the CDK"
    )

# The stack uses the service's own lists of tables and reasons, which need only the standard library.
sys.path.append(str(Path(__file__).parent / "layers" / "core" / "python"))

from infra.assets import AssetError
from infra.cdk_json import read_cdk_json
from infra.settings import Settings, SettingsError, check_names
from infra.stack import InventoryOrdersStack

app = cdk.App()
try:
    check_names(
        read_cdk_json(Path(__file__).with_name("cdk.json")),
        app.node.get_all_context(),
    )
    settings = Settings.from_context(
        app.node.try_get_context("stage"),
        app.node.try_get_context("settings"),
        app.node.try_get_context("stages"),
        json.loads(app.node.try_get_context("overrides") or "{}"),
    )
    InventoryOrdersStack(app, settings.stack_name, settings=settings)
except (SettingsError, AssetError) as error:
    sys.exit(f"Error: {error}")
app.synth()
