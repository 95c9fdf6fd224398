"""The embedded AWS and the developer's command line: `python -m local --help`."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Where a run leaves everything. The tests run an embedded AWS of their own beside the developer's.
STATE = Path(os.environ.get("INVENTORY_ORDERS_STATE", ROOT / ".local"))

# The domain code is a Lambda layer, not an installed package.
sys.path.insert(0, str(ROOT / "layers" / "core" / "python"))
