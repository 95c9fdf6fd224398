"""The functions' handlers, as Lambda loads and invokes them."""

import importlib.util
import sys
import time
import uuid
from pathlib import Path
from types import ModuleType

from operations.errors import UserError

_ROOT = Path(__file__).resolve().parents[2]
# Next to the package `inventory_orders`, in which an installed package has this module.
_INSTALLED = _ROOT.parent / "inventory_orders_cdk" / "data" / "functions"
FUNCTIONS = _INSTALLED if _INSTALLED.is_dir() else _ROOT / "functions"
"""The folder with the functions."""


def function_names() -> list[str]:
    """List the functions of this project, except `serve_desk`, which needs neither tables nor queues."""
    names = {path.parent.name for path in FUNCTIONS.glob("*/handler.py")}
    return sorted(names - {"serve_desk"})


def load_handler(name: str) -> ModuleType:
    """Import a function's handler."""
    return load(f"functions.{name}.handler", FUNCTIONS / name / "handler.py")


def load(name: str, path: Path) -> ModuleType:
    """Import a new copy of a module from its file."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class FakeContext:
    """The context object that Lambda passes to a handler. Its remaining time follows the clock of the process."""

    def __init__(self, name: str, seconds: float = 30.0, request_id: str = "") -> None:
        self.function_name = name
        self.function_version = "$LATEST"
        self.memory_limit_in_mb = 1024
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
        self.aws_request_id = request_id or str(uuid.uuid4())
        self._ends = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds left until the invocation ends."""
        return round((self._ends - time.monotonic()) * 1000)
