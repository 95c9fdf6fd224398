"""Programs that run underneath: their output goes to files, and is shown only when something fails."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from local import ROOT, STATE

LOGS = STATE / "logs"


class LocalError(Exception):
    """Something that a person can act upon; the message says how."""


def run_logged(name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a program from the project's root, with its output in `.local/logs/<name>.log`.

    Raises:
        LocalError: It failed; the message ends with the last lines of its output.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{name}.log"
    with path.open("wb") as log:
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except FileNotFoundError as error:
            raise LocalError(f"{command[0]} was not found; {_INSTALL}") from error
    if done.returncode != 0:
        raise LocalError(
            f"{name} failed (exit status {done.returncode}); the end of {path}:\n\n{tail(path)}"
        )


def tail(path: Path, lines: int = 25) -> str:
    """The last lines of a file."""
    if not path.is_file():
        return "(no output)"
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])


_INSTALL = "run `make setup`, and see Requirements in README.md"
