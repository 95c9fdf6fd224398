"""Benchmarks of the service and its alternatives: `python -m bench --help`."""

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

# The benchmarks have their own embedded AWS, separate from the developer's and the tests'.
if not os.environ.get("INVENTORY_ORDERS_STATE"):
    os.environ["INVENTORY_ORDERS_STATE"] = str(_ROOT / ".local" / "bench")

from local import ROOT  # noqa: E402 - reads that setting

RESULTS = ROOT / ".local" / "bench.jsonl"
