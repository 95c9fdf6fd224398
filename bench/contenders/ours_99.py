"""This service's handler with batches of 99 and without lanes: one full transaction if all orders are for one product.

Deployed stacks always sell from lanes; this contender shows what lanes gain.
"""

from __future__ import annotations

from testing.handlers import load_handler

TITLE = "ours, batches of 99"
BATCH = 99

lambda_handler = load_handler("place_orders").lambda_handler
