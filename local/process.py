"""Runs child processes, and shows their output only if they fail."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from local import ROOT, STATE
from operations.errors import UserError

LOGS = STATE / "logs"


@dataclass(frozen=True)
class Server:
    """A server process on this machine. A file in `.local/` describes it for later commands.

    Attributes:
        pid: The process id.
        started: Creation time of the process, to detect another process with the same id.
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
        """Read the file that describes a server. The server may have ended since it was written."""
        try:
            return cls(**json.loads(note.read_text("utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, note: Path) -> None:
        """Write the server's file atomically, readable only by its owner."""
        draft = note.with_suffix(".draft")
        draft.touch(0o600)
        draft.write_text(json.dumps(asdict(self)), "utf-8")
        draft.replace(note)

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def is_alive(self) -> bool:
        """Whether the process is still running. Another process may have the same id by now."""
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.started and not _has_ended(process)
        except psutil.NoSuchProcess:
            return False

    def freeze_children(self) -> None:
        """Suspend all children until `stop` kills them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            _children_of(psutil.Process(self.pid), freeze=True)

    def stop(
        self,
        seconds: float,
        *,
        freeze: bool = False,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> bool:
        """End the process: terminate it, kill it if it is still running after a few seconds, and kill its children.

        Args:
            seconds: How long it may take to end. With 0 it is killed immediately.
            freeze: Suspend its children first, so that they do nothing while it ends.
            while_waiting: Called several times a second.

        Returns:
            Whether it ended without being killed.
        """
        try:
            process = psutil.Process(self.pid)
        except psutil.NoSuchProcess:
            return True
        if not seconds:
            # Suspend the process first, so that it does not start a child that would outlive it.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        children = _children_of(process, freeze=freeze)
        give_up_at = time.monotonic() + seconds
        try:
            with contextlib.suppress(psutil.NoSuchProcess):
                (process.terminate if seconds else process.kill)()
            while not (ended := _has_ended(process)) and time.monotonic() < give_up_at:
                while_waiting()
                time.sleep(0.05)
                children |= _children_of(process, freeze=freeze)
        finally:
            family = [process, *children]
            for survivor in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    survivor.kill()
            # The ports of a process are free only when its last thread has ended.
            psutil.wait_procs([process], timeout=1)
            # In a container, no process may reap the children, which then stay zombies.
            give_up_at = time.monotonic() + 1
            while not all(map(_has_ended, children)) and time.monotonic() < give_up_at:
                time.sleep(0.01)
            _STARTED[:] = [started for started in _STARTED if started.poll() is None]
        return ended


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _children_of(process: psutil.Process, *, freeze: bool) -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        found = set(process.children(recursive=True))
    for child in found if freeze else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.suspend()
    return found


def free_port() -> int:
    """Find a port on 127.0.0.1 that is currently free."""
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


def tail(path: Path) -> str:
    """Return the last 25 lines of a file."""
    if not path.is_file():
        return "(no output)"
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-25:])


_INSTALL = "run `make setup`, and see Requirements in README.md"
