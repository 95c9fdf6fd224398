"""Names that derive from the name of a service: the stage of a stack of its own, or the argument of the construct."""

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
