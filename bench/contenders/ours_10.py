"""This service's handler with batches of 10, the default of Lambda's event source mappings, and without lanes.

No stack sells without lanes: this shows what they are for.
"""

from __future__ import annotations

from local.invoke import load_handler

TITLE = "ours, batches of 10"
BATCH = 10

lambda_handler = load_handler("place_orders").lambda_handler
