"""Programs for this machine only: the embedded AWS, its demonstration and its dashboard."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The folder of all files that a run writes. Tests set another one, so that their embedded AWS is separate from the developer's.
# An empty value does not mean the current folder.
STATE = Path(os.environ.get("INVENTORY_ORDERS_STATE") or ROOT / ".local")
