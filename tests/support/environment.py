"""Sets the environment of all tests when it is imported, which must happen before any module of the project.

Tests never use a real account: they drop the caller's AWS settings, and variables that change where requests go, what
is logged, and the width and colours of output. The CDK library starts the project's own Node, without a validation that
takes seconds. Each process that runs tests has its own embedded AWS, separate from the developer's.
"""

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent

_PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ["INVENTORY_ORDERS_STATE"] = str(_ROOT / ".local" / "test" / _PROCESS)
_DROPPED = ("AWS_", "POWERTOOLS_")
_DROPPED_TOO = {"LOG_LEVEL", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "LINES"}
_PROXIES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
for name in list(os.environ):
    if name.startswith(_DROPPED) or name in _DROPPED_TOO or name.upper() in _PROXIES:
        del os.environ[name]
os.environ.update(
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="test",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
    COLUMNS="80",
    POWERTOOLS_SERVICE_NAME="inventory-orders-test",
)

# This import comes after the state folder has been set, because `local` reads it.
from local.node import NODE  # noqa: E402

# The CDK library reads these when it is first imported.
os.environ.update(JSII_NODE=str(NODE), CDK_VALIDATION="false")
