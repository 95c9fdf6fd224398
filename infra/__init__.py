"""The CDK part of the project: the service as a construct and as a stack."""

from .settings import SettingsError
from .stack import InventoryOrders, InventoryOrdersStack

__all__ = ["InventoryOrders", "InventoryOrdersStack", "SettingsError"]
