"""The mutants: bugs that are injected by replacing a piece of code, and that the explorer must catch."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from local import ROOT
from tests.explore.planting import Edit, plant

CODE = "layers/core/python"
FOLDERS = (CODE, "functions")


@dataclass(frozen=True)
class Mutant:
    """An injected bug.

    Attributes:
        name: The bug, in a few words.
        edits: Replacements in the code.
        scenarios: The scenarios that reveal it.
        kind: The kind of fault that reveals it; empty if it needs no fault, or if any kind will do.
        handler: The file in `naive` that replaces the handler that places orders, if any.
        by_chance: Whether a few seeds of `by_chance` catch it too.
    """

    name: str
    edits: tuple[Edit, ...]
    scenarios: tuple[str, ...]
    kind: str = ""
    handler: str = ""
    by_chance: bool = False

    def changes(self) -> dict[Path, str]:
        """Return the new text of each file that the bug changes, by its path relative to the root.

        Raises:
            ValueError: The code to replace is missing, or occurs several times.
        """
        sources = {
            path.relative_to(ROOT): path.read_text("utf-8")
            for folder in FOLDERS
            for path in (ROOT / folder).rglob("*.py")
        }
        changed: dict[Path, str] = {}
        if self.handler:
            naive = Path(__file__).with_name("naive") / self.handler
            changed[Path("functions/place_orders/handler.py")] = naive.read_text("utf-8")
        for edit in self.edits:
            path, text = plant(sources | changed, edit)
            changed[path] = text
        return changed


def tree(folder: Path, mutant: Mutant) -> None:
    """Copy the code into a folder and inject the bug.

    Raises:
        ValueError: The code to replace is missing, or occurs several times.
    """
    for name in FOLDERS:
        # The copy includes bytecode. Otherwise, most of a mutant's time would be spent compiling unchanged modules.
        shutil.copytree(ROOT / name, folder / name)
    for file, text in mutant.changes().items():
        path = folder / file
        path.write_text(text, "utf-8")
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _read() -> tuple[Mutant, ...]:
    """Read the mutants from their file."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["mutants"]
    return tuple(
        Mutant(
            **entry
            | {
                "edits": tuple(Edit(**edit) for edit in entry.get("edits", ())),
                "scenarios": tuple(entry["scenarios"]),
            }
        )
        for entry in entries
    )


MUTANTS = _read()


def of(name: str) -> Mutant:
    """Find a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)
