"""The embedded AWS: one process of ministack on a free loopback port, with its own Python environment."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import re
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from local import ROOT, STATE
from local.endpoint import environment_without_aws, in_use, opener_of
from local.process import LOGS, Server, free_port, run_logged, start_server, tail
from operations.errors import UserError

_FOLDER = STATE / "emulator"
# All embedded AWS of this checkout share this folder.
VENV = ROOT / ".local" / "emulator-venv"
_TEMPORARY = _FOLDER / "tmp"
_STATE_FILE = _FOLDER / "state.json"
# The next start uses this port again if it is free, so that the settings of other tools stay valid.
_LAST_PORT = _FOLDER / "port"
# The embedded AWS writes its data here when it stops. Queue URLs contain its port, so the next start needs the same one.
_DATA = _FOLDER / "data"
_KEPT = _FOLDER / "kept.json"
_REQUIREMENTS = ROOT / "local" / "emulator-requirements.txt"
_PROGRAM = ROOT / "local" / "embedded_aws.py"
_LOG = LOGS / "emulator.log"
# This is long enough for a busy machine. If the process ends or refuses a connection, the command stops waiting.
_START_SECONDS = 120
# Another program may take the free port first, and only one of two emulators that start together gets port 443.
_ATTEMPTS = 3
_KEEP_SECONDS = 600
_NOT_KEPT = re.compile(r" ERROR \[\w+\] (.*persist.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Emulator(Server):
    """A running embedded AWS.

    Attributes:
        enforces_iam: Whether functions may do only what their roles allow, as on AWS. If so, the embedded AWS uses TLS with its own
            certificate (`local.endpoint.CERTIFICATE`).
    """

    enforces_iam: bool = False

    @property
    def endpoint(self) -> str:
        # The certificate is for `localhost`, not for the address.
        return f"https://localhost:{self.port}" if self.enforces_iam else super().endpoint

    def check(self) -> None:
        """Check that the embedded AWS is still running.

        Raises:
            UserError: The embedded AWS has stopped. The message ends with the last lines of its log.
        """
        if not self.is_alive():
            raise UserError(f"the embedded AWS has stopped; its last lines:\n\n{tail(_LOG)}")


def running() -> Emulator | None:
    """Return the running embedded AWS of this checkout, or None if there is none."""
    emulator = Emulator.read(_STATE_FILE)
    if emulator is None or not emulator.is_alive() or not _is_ready(emulator, _START_SECONDS):
        return None
    return emulator


def is_lost() -> bool:
    """Whether the embedded AWS that this process used is no longer running."""
    return bool(in_use) and getattr(running(), "endpoint", None) not in in_use


def start(*, enforce_iam: bool = False) -> Emulator:
    """Start an embedded AWS, either empty or with the kept data.

    Args:
        enforce_iam: Let functions do only what their roles allow, as on AWS. In this case, it keeps no data.

    Raises:
        UserError: The embedded AWS does not start, or its kept data is damaged or needs a port that is in use.
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
        # If allowed, the emulator also listens on port 443 of loopback.
        environment |= {"AUTH": "true", "USE_SSL": "1"}
    else:
        environment |= {
            "PERSIST_STATE": "1",
            "STATE_DIR": str(_DATA),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(_DATA / "s3"),
        }
    attempts, port = 1, kept or _usual_port()
    while (emulator := _try_to_start(port, environment, enforce_iam=enforce_iam)) is None:
        last = tail(_LOG)
        if attempts == _ATTEMPTS or "already in use" not in last:
            _clean()
            raise UserError(f"the embedded AWS did not start; its last lines:\n\n{last}")
        attempts, port = attempts + 1, kept or free_port()
    _LAST_PORT.write_text(str(port), "utf-8")
    if kept and (refused := _NOT_KEPT.search(_LOG.read_text("utf-8", "replace"))):
        emulator.stop(0)
        _clean()
        raise _unusable(refused[1])
    # Delete the files of an earlier stop: they would be out of date if this process is killed before it writes its own.
    _KEPT.unlink(missing_ok=True)
    for path in _DATA.glob("*.json"):
        path.unlink()
    return emulator


def _try_to_start(
    port: int, environment: Mapping[str, str], *, enforce_iam: bool
) -> Emulator | None:
    """Start the emulator on this port. Return None if the process ends, or is not ready in time."""
    process = start_server(
        # `-P` keeps the modules of this folder off its path.
        [str(VENV / "bin" / "python"), "-P", str(_PROGRAM)],
        _FOLDER,
        {**environment, "GATEWAY_PORT": str(port)},
        _LOG,
    )
    emulator = replace(Emulator.of_process(process.pid, port), enforces_iam=enforce_iam)
    emulator.write(_STATE_FILE)
    give_up_at = time.monotonic() + _START_SECONDS
    while not _is_ready(emulator, seconds=2):
        if process.poll() is not None or time.monotonic() > give_up_at:
            # Kill it immediately, because it must not overwrite the kept data.
            emulator.stop(0)
            return None
        time.sleep(0.05)
    return emulator


def stop(*, keep: bool = False, report: Callable[[str], None] = lambda _: None) -> bool:
    """Stop the embedded AWS of this checkout and its workers. Returns whether it was running.

    Args:
        keep: Keep its data for the next start; otherwise all data is deleted, including data kept earlier.
        report: Called with the name of each step.

    Raises:
        UserError: The embedded AWS could not write all of the data to keep. All data is deleted.
    """
    emulator = Emulator.read(_STATE_FILE)
    was_running = emulator is not None and emulator.is_alive()
    missing: list[str] = []
    if emulator is not None and was_running:
        if keep:
            missing = _stop_and_keep(emulator, report)
        else:
            # Kill it immediately, because otherwise it waits for its clients to close their connections.
            emulator.stop(0)
    # Each worker leaves the code of its function there, which has thousands of files.
    report("Removing its temporary files")
    _clean()
    if missing or not keep:
        forget()
    if missing:
        raise UserError(
            f"the embedded AWS has stopped, but its data could not be kept and was deleted: {'; '.join(missing)}. Its log is {_LOG}"
        )
    return was_running


def _stop_and_keep(emulator: Emulator, report: Callable[[str], None]) -> list[str]:
    """Stop the embedded AWS after it has written its data. Return a description of each missing part."""
    # Running functions would change the data while it is counted and written.
    emulator.freeze_children()
    try:
        held = _held(emulator)
    except OSError as error:
        emulator.stop(0)
        return [f"its data cannot be counted ({error})"]
    began = time.monotonic()

    def waiting() -> None:
        size = sum(path.stat().st_size for path in _DATA.glob("*.json"))
        report(f"Writing its data: {time.monotonic() - began:.0f} s, {size / 1e6:.1f} MB")

    if not emulator.stop(_KEEP_SECONDS, freeze=True, while_waiting=waiting):
        return [f"it did not write all data in {_KEEP_SECONDS} s"]
    errors = _NOT_KEPT.findall(_LOG.read_text("utf-8", "replace"))
    written = _written()
    missing = [
        f"{written.get(name, 0):,} of {count:,} {name} were written"
        for name, count in held.items()
        if written.get(name, 0) < count
    ]
    if not errors and not missing:
        _forget_stream_positions()
        _KEPT.write_text(json.dumps({"port": emulator.port, "files": _files()}), "utf-8")
    return errors + missing


def _held(emulator: Emulator) -> dict[str, int]:
    """Count the items in each table, and the messages in all queues."""

    def ask(target: str, **parameters: Any) -> Any:
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
        body = json.dumps(parameters).encode()
        request = urllib.request.Request(emulator.endpoint, body, headers)  # noqa: S310 - on this machine
        with opener_of(emulator.endpoint).open(request, timeout=_START_SECONDS) as answer:
            return json.load(answer)

    dynamodb, sqs = "DynamoDB_20120810", "AmazonSQS"
    held = {
        _items_of(name): ask(f"{dynamodb}.DescribeTable", TableName=name)["Table"]["ItemCount"]
        for name in ask(f"{dynamodb}.ListTables")["TableNames"]
    }
    queues = [
        ask(f"{sqs}.GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
        for url in ask(f"{sqs}.ListQueues").get("QueueUrls", ())
    ]
    depths = ("", "NotVisible", "Delayed")
    held[_MESSAGES] = sum(
        int(queue[f"ApproximateNumberOfMessages{depth}"]) for queue in queues for depth in depths
    )
    return held


def _written() -> dict[str, int]:
    """Count the items and messages in the written files, as `_held` does in the running process."""

    def entries(service: str, part: str) -> dict[str, Any]:
        path = _DATA / f"{service}.json"
        if not path.is_file():
            return {}
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))["payload"][part]["data"]
        return found

    written = {
        # A table's key has account, region and name. Its items are grouped by partition key, and then by sort key.
        _items_of(ast.literal_eval(key.split("\0")[2])): sum(map(len, table["items"].values()))
        for key, table in entries("dynamodb", "tables").items()
    }
    queues = entries("sqs", "queues").values()
    return {**written, _MESSAGES: sum(len(queue["messages"]) for queue in queues)}


_MESSAGES = "messages"


def _items_of(table: str) -> str:
    return f"items of {table}"


def _forget_stream_positions() -> None:
    """Let functions read the streams from the start: the kept data contains their positions, but not the streams."""
    path = _DATA / "lambda.json"
    if path.is_file():
        state = json.loads(path.read_text("utf-8"))
        state["payload"]["dynamodb_stream_positions"] = {}
        path.write_text(json.dumps(state), "utf-8")


def _files() -> dict[str, int]:
    """Return the size in bytes of each file that the embedded AWS has written."""
    files = (path for path in _DATA.rglob("*") if path.is_file())
    return {str(path.relative_to(_DATA)): path.stat().st_size for path in files}


def is_kept() -> bool:
    """Whether there is kept data for the next start."""
    return _KEPT.is_file()


def forget() -> None:
    """Delete the kept data."""
    _KEPT.unlink(missing_ok=True)
    shutil.rmtree(_DATA, ignore_errors=True)


@contextmanager
def exclusive() -> Iterator[None]:
    """Let only one command of a checkout start, deploy or stop the embedded AWS at a time. Others wait."""
    STATE.mkdir(parents=True, exist_ok=True)
    with locked(STATE / "lock"):
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let only one process at a time hold the lock of this file. Others wait."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install() -> None:
    """Create the emulator's environment: its own dependencies and the packages of the Lambda runtime.

    Several emulators share it, so only one command creates it.
    """
    VENV.parent.mkdir(parents=True, exist_ok=True)
    with locked(VENV.with_suffix(".lock")):
        _install()


def _install() -> None:
    # Handlers run in its interpreter, so it depends on the interpreter of `.venv`.
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
    # If Python may not write bytecode, each Lambda worker would compile its imports.
    sync = [uv, "pip", "sync", "--require-hashes", "--compile-bytecode", "--python", str(VENV)]
    try:
        run_logged("emulator-install", [*sync, str(_REQUIREMENTS)], environment)
    except UserError as error:
        raise UserError(
            f"{error}\n\nThe first start of the embedded AWS downloads its packages from PyPI. If PyPI is unreachable, "
            "connect to the network, or set UV_DEFAULT_INDEX to a mirror"
        ) from None
    stamp.write_text(digest, "utf-8")


def _clean() -> None:
    _STATE_FILE.unlink(missing_ok=True)
    # Do this in parallel, because the disk is slow with one file, but can handle several at once.
    with ThreadPoolExecutor(8) as pool:
        for path in _TEMPORARY.glob("*"):
            pool.submit(shutil.rmtree, path, ignore_errors=True)
    shutil.rmtree(_TEMPORARY, ignore_errors=True)


def _unusable(why: str) -> UserError:
    return UserError(f"the kept data cannot be used ({why}); delete it with `make down`")


def _kept_port() -> int | None:
    """Return the port that the kept data needs, or None if no data is kept.

    Raises:
        UserError: Another program uses the port, or the kept data is damaged.
    """
    if not is_kept():
        forget()
        return None
    try:
        kept = json.loads(_KEPT.read_text("utf-8"))
        port, files = int(kept["port"]), kept["files"]
    except (ValueError, TypeError, KeyError):
        raise _unusable(f"{_KEPT} is damaged") from None
    if changed := sorted(name for name, _ in files.items() ^ _files().items()):
        raise _unusable(f"{changed[0]} was changed after the last stop")
    if not _is_free(port):
        raise UserError(
            f"the kept data needs port {port}, which another program uses; stop that program, or delete the data "
            "with `make down`"
        )
    return port


def _usual_port() -> int:
    """Return the port of the last start if it is free, otherwise another free port."""
    try:
        port = int(_LAST_PORT.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return free_port()
    return port if _is_free(port) else free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _is_ready(emulator: Emulator, seconds: float) -> bool:
    try:
        address = f"{emulator.endpoint}/_ministack/ready"
        with opener_of(emulator.endpoint).open(address, timeout=seconds) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
