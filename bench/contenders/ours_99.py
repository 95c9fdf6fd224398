"""This service's handler without lanes, and with batches of 99 orders, which fill a transaction for one product.

Deployed stacks always have lanes. This contender shows how much they help.
"""

from __future__ import annotations

from testing.world.handlers import load_handler

TITLE = "ours, batches of 99"
BATCH = 99

lambda_handler = load_handler("place_orders").lambda_handler
