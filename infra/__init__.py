"""The CDK part of the project: the service as a construct, and as a stack."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .settings import SettingsError
    from .stack import InventoryOrders, InventoryOrdersStack

__all__ = ["InventoryOrders", "InventoryOrdersStack", "SettingsError"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and no more: the settings alone need no CDK, which takes seconds to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{'settings' if name == 'SettingsError' else 'stack'}")
    return getattr(module, name)
