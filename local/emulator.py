"""The embedded AWS: one ministack process on a free loopback port, with its own Python environment."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import socket
import sys
import time
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from local import ROOT, STATE
from local.endpoint import environment_without_aws, opener_of
from local.process import LOGS, Server, free_port, run_logged, start_server, tail
from operations.errors import UserError

_FOLDER = STATE / "emulator"
# Shared by every embedded AWS of this checkout.
VENV = ROOT / ".local" / "emulator-venv"
_TEMPORARY = _FOLDER / "tmp"
_STATE_FILE = _FOLDER / "state.json"
# What it held, written when it stops. Its queues' URLs have its port, so the next one needs the same.
_DATA = _FOLDER / "data"
_KEPT = _FOLDER / "kept.json"
_REQUIREMENTS = ROOT / "local" / "emulator-requirements.txt"
_LOG = LOGS / "emulator.log"
_START_SECONDS = 30
# Another program can take a free port before it does, and of two that start at once one fails to get port 443.
_ATTEMPTS = 3
# It keeps nothing, so it need not end by itself: it would wait for its clients to hang up.
_STOP_SECONDS = 1


@dataclass(frozen=True)
class Emulator(Server):
    """A running embedded AWS.

    Attributes:
        enforces_iam: Whether functions may do only what their roles allow, as on AWS. It then uses TLS with its own
            certificate (`local.endpoint.CERTIFICATE`).
    """

    enforces_iam: bool = False

    @property
    def endpoint(self) -> str:
        # The certificate is for `localhost`, not for the address.
        return f"https://localhost:{self.port}" if self.enforces_iam else super().endpoint

    def check(self) -> None:
        """Check that it is still running.

        Raises:
            UserError: It has stopped; the message ends with the last lines of its log.
        """
        if not self.is_alive():
            raise UserError(f"the embedded AWS has stopped; its last lines:\n\n{tail(_LOG)}")


def running() -> Emulator | None:
    """Find the running embedded AWS of this checkout; None if there is none."""
    emulator = Emulator.read(_STATE_FILE)
    if emulator is None or not emulator.is_alive() or not _is_ready(emulator):
        return None
    return emulator


def start(*, enforce_iam: bool = False) -> Emulator:
    """Start an embedded AWS: empty, or with the data that the last one kept.

    Args:
        enforce_iam: Let functions do only what their roles allow, as on AWS. It then keeps no data.

    Raises:
        UserError: It does not start, or the kept data needs a port that is taken.
    """
    install()
    _clean()
    _TEMPORARY.mkdir(parents=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    kept = _kept_port()
    environment = environment_without_aws() | {
        "BIND_HOST": "127.0.0.1",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "TMPDIR": str(_TEMPORARY),
    }
    if enforce_iam:
        # Where it is permitted to, it also listens on port 443 of loopback.
        environment |= {"AUTH": "true", "USE_SSL": "1"}
    else:
        environment |= {
            "PERSIST_STATE": "1",
            "STATE_DIR": str(_DATA),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(_DATA / "s3"),
        }
    attempts = 1
    while (
        emulator := _try_to_start(kept or free_port(), environment, enforce_iam=enforce_iam)
    ) is None:
        last = tail(_LOG)
        if attempts == _ATTEMPTS or "already in use" not in last:
            stop(keep=is_kept())
            raise UserError(f"the embedded AWS did not start; its last lines:\n\n{last}")
        attempts += 1
    # If it ends without notice, what it wrote last is not what it held.
    _KEPT.unlink(missing_ok=True)
    return emulator


def _try_to_start(
    port: int, environment: Mapping[str, str], *, enforce_iam: bool
) -> Emulator | None:
    """Start it on this port; None if it ends, or is not ready in time."""
    process = start_server(
        [str(VENV / "bin" / "python"), "-m", "ministack"],
        _FOLDER,
        {**environment, "GATEWAY_PORT": str(port)},
        _LOG,
    )
    emulator = replace(Emulator.of_process(process.pid, port), enforces_iam=enforce_iam)
    emulator.write(_STATE_FILE)
    give_up_at = time.monotonic() + _START_SECONDS
    while not _is_ready(emulator):
        if process.poll() is not None or time.monotonic() > give_up_at:
            emulator.stop(_STOP_SECONDS)
            return None
        time.sleep(0.05)
    return emulator


def stop(*, keep: bool = False) -> bool:
    """Stop the embedded AWS of this checkout and its workers. Returns whether it was running.

    Args:
        keep: Keep its data for the next start; otherwise all data is forgotten, that of an earlier stop too.

    Raises:
        UserError: It was to keep its data, and has not written it.
    """
    emulator = Emulator.read(_STATE_FILE)
    was_running = emulator is not None and emulator.is_alive()
    if emulator is not None and was_running:
        began = time.time()
        emulator.stop(_STOP_SECONDS)
        if keep and any(f.stat().st_mtime >= began - 1 for f in _DATA.glob("*.json")):
            _KEPT.write_text(json.dumps({"port": emulator.port}), "utf-8")
    _clean()
    if not keep or (was_running and not is_kept()):
        forget()
    if keep and was_running and not is_kept():
        raise UserError("it has stopped, but its data could not be kept: it has not written it")
    return was_running


def is_kept() -> bool:
    """Whether the next start finds the data of the last one."""
    return _KEPT.is_file()


def forget() -> None:
    """Delete the data that was kept."""
    _KEPT.unlink(missing_ok=True)
    shutil.rmtree(_DATA, ignore_errors=True)


@contextmanager
def exclusive() -> Iterator[None]:
    """Let only one command of a checkout start, deploy or stop at a time; others wait."""
    STATE.mkdir(parents=True, exist_ok=True)
    with locked(STATE / "lock"):
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let only one process at a time hold the lock that this file stands for; others wait."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install() -> None:
    """Create the emulator's environment: its own dependencies and those of the Lambda runtime, nothing else.

    Several that run beside one another share it, so only one makes it.
    """
    VENV.parent.mkdir(parents=True, exist_ok=True)
    with locked(VENV.with_suffix(".lock")):
        _install()


def _install() -> None:
    # Handlers run in its interpreter: another one for `.venv` means another one here.
    python = f"{sys.base_prefix} {sys.version}".encode()
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes() + python).hexdigest()
    stamp = VENV / "installed"
    if stamp.is_file() and stamp.read_text("utf-8") == digest:
        return
    environment = environment_without_aws() | {"UV_PYTHON_DOWNLOADS": "never"}
    uv = str(ROOT / ".venv" / "bin" / "uv")
    run_logged(
        "emulator-venv",
        [uv, "venv", "--clear", "--python", str(ROOT / ".venv" / "bin" / "python"), str(VENV)],
        environment,
    )
    run_logged(
        "emulator-install",
        [uv, "pip", "sync", "--require-hashes", "--python", str(VENV), str(_REQUIREMENTS)],
        environment,
    )
    stamp.write_text(digest, "utf-8")


def _clean() -> None:
    _STATE_FILE.unlink(missing_ok=True)
    shutil.rmtree(_TEMPORARY, ignore_errors=True)


def _kept_port() -> int | None:
    if not is_kept():
        forget()
        return None
    port: int = json.loads(_KEPT.read_text("utf-8"))["port"]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UserError(
                f"the kept data needs port {port}, which another program uses; stop that one, or forget the data "
                "with `make down`"
            ) from None
    return port


def _is_ready(emulator: Emulator) -> bool:
    try:
        address = f"{emulator.endpoint}/_ministack/ready"
        with opener_of(emulator.endpoint).open(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
