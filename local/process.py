"""Child processes: their output goes to files, and is shown only if they fail."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from local import ROOT, STATE
from operations.errors import UserError

LOGS = STATE / "logs"


@dataclass(frozen=True)
class Server:
    """A server process on this machine. A note file in `.local/` tells later commands about it.

    Attributes:
        pid: The process id.
        started: When the process was created, to recognise a later process with the same id.
        port: The port on 127.0.0.1 that it listens on.
    """

    pid: int
    started: float
    port: int

    @classmethod
    def of_process(cls, pid: int, port: int) -> Self:
        """Describe a running process as a server.

        Raises:
            psutil.NoSuchProcess: The process has ended.
        """
        return cls(pid, psutil.Process(pid).create_time(), port)

    @classmethod
    def read(cls, note: Path) -> Self | None:
        """Read a note file. The server may have ended since."""
        try:
            return cls(**json.loads(note.read_text("utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, note: Path) -> None:
        """Write a note file atomically."""
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self)), "utf-8")
        draft.replace(note)

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def is_alive(self) -> bool:
        """Whether the process is still running, and is the same one."""
        try:
            process = psutil.Process(self.pid)
            return (
                process.create_time() == self.started
                and process.is_running()
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    def stop(self, seconds: float) -> None:
        """End the process and its children: terminate first, and kill those that remain after some seconds."""
        try:
            process = psutil.Process(self.pid)
            family = [process, *process.children(recursive=True)]
            process.terminate()
        except psutil.NoSuchProcess:
            return
        _, left = psutil.wait_procs(family, timeout=seconds)
        if process in left:
            # It may have started more meanwhile.
            left = list({*left, *process.children(recursive=True)})
        for survivor in left:
            survivor.kill()
        psutil.wait_procs(left, timeout=seconds)
        _STARTED[:] = [started for started in _STARTED if started.poll() is None]


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Python warns about a running child that is no longer referenced, and servers outlive the command that starts them.
_STARTED: list[subprocess.Popen[bytes]] = []


def start_server(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a program that outlives this command and does not receive its Ctrl-C.

    Args:
        command: The program and its arguments.
        folder: Its working directory.
        environment: Its environment.
        log: File for its output.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _STARTED.append(process)
    return process


def run_logged(name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a program from the project's root, with its output in `.local/logs/<name>.log`.

    Raises:
        UserError: It failed; the message ends with the last lines of its output.
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
            raise UserError(f"{command[0]} was not found; {_INSTALL}") from error
    if done.returncode != 0:
        raise UserError(
            f"{name} failed (exit status {done.returncode}); the end of {path}:\n\n{tail(path)}"
        )


def tail(path: Path, lines: int = 25) -> str:
    """The last lines of a file."""
    if not path.is_file():
        return "(no output)"
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])


_INSTALL = "run `make setup`, and see Requirements in README.md"
