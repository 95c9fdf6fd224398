"""A build hook for Hatchling that adds to the wheel what another CDK app needs to deploy and operate the service.

These are the construct, the functions, the layer, operators' commands, the client and the test kit, and the layer's
dependencies, which are copied in their pinned versions from the environment that builds the wheel: `.venv`, or the one
that `pip wheel .` makes. So a deployment does not need pip, and the dependencies do not clash with the packages of the
app.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "inventory_orders_cdk"
_OPERATIONS = "inventory_orders_operations"
_RENAMED = {
    "operations": _OPERATIONS,
    "client": "inventory_orders.client",
    "testing": "inventory_orders.testing",
}
"""Folders of the checkout, and the packages that they become."""
_IMPORT = re.compile(rf"^( *from )({'|'.join(_RENAMED)})(?=[. ])", re.MULTILINE)
_KIT = (
    *("__init__.py", "fixtures.py", "samples.py", "shop.py", "aws"),
    *("schedules/__init__.py", "schedules/in_turn/__init__.py", "schedules/in_turn/shop.py"),
    *(f"world/{name}.py" for name in ("__init__", "api", "clock", "events", "faults")),
    *(f"world/{name}.py" for name in ("handlers", "tables", "world")),
)
"""The files of `testing` that make up the test kit."""
_SAMPLES = "inventory_orders/testing/data"
# The dependencies are the same for every runtime.
_RUNTIME = "python3.14"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the files to the wheel, unless the package is installed in editable mode from a checkout."""

    def dependencies(self) -> list[str]:
        """List the packages to copy. `pip wheel .` installs them before it builds, without checking their hashes."""
        assets = self._assets()
        pinned = assets.pinned(assets.REQUIREMENTS, _RUNTIME)
        return [f"{name}=={pin}" for name, pin in pinned.items()]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Tell Hatchling which files to add to the wheel, and under which paths."""
        if version == "editable":
            return
        # Without the commands that need a checkout.
        self.metadata.core.scripts["inventory-orders"] = f"{_OPERATIONS}.commands.main:main"
        root, assets = Path(self.root), self._assets()
        layer = root / "layers" / "core" / "python" / "inventory_orders"
        files = {
            **assets.sources(root / "functions", f"{_PACKAGE}/data/functions/"),
            **assets.sources(layer, "inventory_orders/"),
            **self._renamed(assets),
            **assets.sources(root / "docs" / "events" / "examples", f"{_SAMPLES}/published/"),
            **assets.sources(root / "events", f"{_SAMPLES}/invocations/"),
            **assets.dependencies(_RUNTIME, f"{_PACKAGE}/data/vendored/"),
            **assets.sources(self._desk(), f"{_PACKAGE}/data/desk/"),
        }
        infra = [p for p in (root / "infra").iterdir() if p.suffix in (".py", ".json")]
        build_data["force_include"] |= {
            **{str(p): f"{_PACKAGE}/{p.name}" for p in infra if p.name != Path(__file__).name},
            **{str(file): place for place, file in files.items()},
        }

    def _renamed(self, assets: ModuleType) -> dict[str, Path]:
        """Copy the folders that become packages with other names, and rename their imports. Lists the copies by path."""
        root = Path(self.root)
        copies = root / ".local" / "renamed"
        shutil.rmtree(copies, ignore_errors=True)
        files = {}
        for folder, package in _RENAMED.items():
            for name, file in assets.sources(root / folder).items():
                if folder == "testing" and not name.startswith(_KIT):
                    continue
                place = f"{package.replace('.', '/')}/{name}"
                files[place] = copies / place
                files[place].parent.mkdir(parents=True, exist_ok=True)
                text = file.read_text("utf-8")
                renamed = _IMPORT.sub(lambda found: found[1] + _RENAMED[found[2]], text)
                files[place].write_text(renamed, "utf-8")
        return files

    def _desk(self) -> Path:
        """Write the files of the desk to a folder. Without esbuild, as in `pip wheel .`, it is empty, and the setting is refused."""
        from infra import desk_files  # noqa: PLC0415 - found only now

        folder = Path(self.root) / ".local" / "desk"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, content in (desk_files.built() if desk_files.can_build() else {}).items():
            (folder / name).write_bytes(content)
        return folder

    def _assets(self) -> ModuleType:
        root = Path(self.root)
        sys.path[:0] = [str(root), str(root / "layers" / "core" / "python")]
        from infra import assets  # noqa: PLC0415 - found only now

        return assets
