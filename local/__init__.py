"""What runs on this machine only: the embedded AWS, its demonstration and its dashboard."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Everything that a run writes. Tests set another folder, so that their embedded AWS runs beside the developer's.
STATE = Path(os.environ.get("INVENTORY_ORDERS_STATE", ROOT / ".local"))
