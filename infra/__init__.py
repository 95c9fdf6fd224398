"""The service as a CDK construct and as a CDK stack."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .settings import SettingsError
    from .stack import InventoryOrders, InventoryOrdersStack

__all__ = ["InventoryOrders", "InventoryOrdersStack", "SettingsError"]


def __getattr__(name: str) -> Any:
    """Import each name only when it is first used: the CDK takes seconds to import, and the settings do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{'settings' if name == 'SettingsError' else 'stack'}")
    return getattr(module, name)
