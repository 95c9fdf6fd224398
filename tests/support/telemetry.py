"""Gives a test the telemetry of a new process."""

import importlib.util
from typing import Any

from inventory_orders.invocation import telemetry


def new_telemetry() -> Any:
    """Import the module again, so that it reads its settings again and its counters are empty."""
    spec = importlib.util.spec_from_file_location("telemetry_of_a_new_process", telemetry.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
