"""The environment of all tests, set when this is imported: before anything of ours is.

Tests never use a real account, because AWS settings of the caller are dropped. Each process that runs tests has its own
embedded AWS, separate from the developer's.
"""

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent

_PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ["INVENTORY_ORDERS_STATE"] = str(_ROOT / ".local" / "test" / _PROCESS)
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ.update(
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="test",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
    POWERTOOLS_SERVICE_NAME="inventory-orders-test",
)
