"""Puts into the wheel what another CDK app needs: the construct, the functions, the layer, and the layer's dependencies.

Hatchling runs it. The dependencies come from the environment that builds the wheel, at the versions that are pinned for
the layer: a deployment needs no pip, and nothing clashes with the packages of the app.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "inventory_orders_cdk"
# The dependencies are the same for every runtime.
_RUNTIME = "python3.14"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files to a wheel, unless it is the editable one of a checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Choose the files."""
        if version == "editable":
            return
        # The command needs the checkout.
        self.metadata.core.scripts.clear()
        root = Path(self.root)
        sys.path[:0] = [str(root), str(root / "layers" / "core" / "python")]
        from infra import assets  # noqa: PLC0415 - found only now

        infra = [p for p in (root / "infra").iterdir() if p.suffix in (".py", ".json")]
        build_data["force_include"] |= {
            **{str(p): f"{_PACKAGE}/{p.name}" for p in infra if p.name != Path(__file__).name},
            **_below(root / "functions", f"{_PACKAGE}/data/functions"),
            **_below(root / "layers" / "core" / "python" / "inventory_orders", "inventory_orders"),
            **{
                str(file): f"{_PACKAGE}/data/vendored/{place}"
                for place, file in assets.dependencies(_RUNTIME).items()
            },
        }


def _below(folder: Path, place: str) -> dict[str, str]:
    return {
        str(path): f"{place}/{path.relative_to(folder).as_posix()}"
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
