"""This service's handler as deployed, with a lane for each worker, and batches that fill one transaction."""

from __future__ import annotations

from testing.world.handlers import load_handler

TITLE = "ours, with lanes"
BATCH = 96
LANES = True

lambda_handler = load_handler("place_orders").lambda_handler
