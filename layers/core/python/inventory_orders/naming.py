"""Names that are derived from a service's name, which is its stage or the `name` passed to the construct."""

from __future__ import annotations

import re

STAGE = re.compile("[a-z0-9-]{1,20}")
"""Valid names of stages and services."""


def stack_name(stage: str) -> str:
    """Return the name of a stage's stack. In every stack, the physical names of the service's resources begin with it."""
    return f"InventoryOrders-{stage}"


def service_name(stage: str) -> str:
    """Return the value of the metric dimension `service`."""
    return f"inventory-orders-{stage}"
