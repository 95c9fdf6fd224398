"""What runs on this machine only: the embedded AWS, its demonstration and its dashboard."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Where a run leaves everything. The tests run an embedded AWS of their own beside the developer's.
STATE = Path(os.environ.get("INVENTORY_ORDERS_STATE", ROOT / ".local"))
