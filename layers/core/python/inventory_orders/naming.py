"""Names that derive from the name of a service: the stage of a stack of its own, or the argument of the construct."""

from __future__ import annotations

import re

STAGE = re.compile("[a-z0-9-]{1,20}")
"""Valid names of stages and services."""


def stack_name(stage: str) -> str:
    """Name the stack of a stage. The physical names of a service begin with it, in every stack."""
    return f"InventoryOrders-{stage}"


def service_name(stage: str) -> str:
    """Name the value of the metric dimension `service`."""
    return f"inventory-orders-{stage}"
