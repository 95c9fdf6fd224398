"""This service's handler as it is deployed: lanes for all workers, and batches that they fill one transaction with."""

from __future__ import annotations

from testing.handlers import load_handler

TITLE = "ours, with lanes"
BATCH = 96
LANES = True

lambda_handler = load_handler("place_orders").lambda_handler
