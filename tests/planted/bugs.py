"""Bugs that the tests of operations, API, publishing and desk must catch; each replaces one piece of code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from local import ROOT
from tests.explore.planting import Edit, plant

FOLDERS = ("functions", "layers/core/python/inventory_orders", "local", "operations")
PAGE = Path("local/desk/page")


@dataclass(frozen=True)
class Bug:
    """A bug in the code.

    Attributes:
        name: The bug, in a few words.
        tests: The test files that must catch it.
        edit: The replacement. A script of the desk is named in its `within`, and must have the exact text.
    """

    name: str
    tests: tuple[str, ...]
    edit: Edit

    def change(self) -> tuple[Path, str]:
        """Return the path of the changed file, relative to the root, and its new text.

        Raises:
            ValueError: The code to replace is missing, or occurs several times.
        """
        old, new, within = self.edit
        if not within.endswith(".js"):
            files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
            sources = {path.relative_to(ROOT): path.read_text("utf-8") for path in files}
            return plant(sources, self.edit)
        text = (ROOT / PAGE / within).read_text("utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{within} has {old!r} {text.count(old)} times, not once")
        return PAGE / within, text.replace(old, new)

    def failing_test(self) -> str:
        """Run the tests with the bug until one fails. Returns its name; empty if all pass."""
        with TemporaryDirectory() as name:
            folder = Path(name) / "copy"
            shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "node_modules"))
            (folder / "node_modules").symlink_to(ROOT / "node_modules")
            path, text = self.change()
            (folder / path).write_text(text, "utf-8")
            done = subprocess.run(
                [sys.executable, *("-m", "pytest", "-x", "-rfE", "-p", "no:xdist"), *self.tests],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": f"{folder}:{folder}/layers/core/python"},
                capture_output=True,
                text=True,
                check=False,
            )
        failed = re.search(r"^(?:FAILED|ERROR) \S+?::(\w+)", done.stdout, re.MULTILINE)
        return failed[1] if failed else ""


def _read() -> tuple[Bug, ...]:
    """Read the bugs from their file."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["bugs"]
    return tuple(
        Bug(
            entry["name"],
            tuple(entry["tests"]),
            Edit(entry["old"], entry["new"], entry.get("within", "")),
        )
        for entry in entries
    )


BUGS = _read()
