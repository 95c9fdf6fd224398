"""Fixtures that all tests share, and the distribution of tests to several processes (`pytest -n 2`)."""

import gc
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePath
from typing import Any
from unittest.mock import patch
from zlib import crc32

import botocore.session
import pytest
from botocore.useragent import UserAgentString
from xdist.scheduler import LoadScopeScheduling

import tests.support.environment  # noqa: F401 - drops the caller's AWS settings first

# isort: split
import inventory_orders
from local import ROOT
from operations import dead_letters
from operations.errors import UserError
from tests.support import dynoxide as second_engine


@pytest.fixture(scope="session", autouse=True)
def quick_clients() -> Iterator[None]:
    """Cache AWS's service descriptions, and the header `User-Agent` of each client.

    Otherwise, every boto3 session would read the descriptions again, which takes most of a short test's time, and every
    request would compose the header again, which takes a quarter of the client's time.
    """
    with (
        patch.object(botocore.session, "create_loader", cache(botocore.session.create_loader)),
        patch.object(UserAgentString, "to_string", cache(UserAgentString.to_string)),
    ):
        yield


@pytest.fixture(scope="module", autouse=True)
def no_long_polling(request: Any) -> Iterator[None]:
    """Turn off long polling: the embedded AWS is a single server, so an empty answer means an empty queue."""
    with pytest.MonkeyPatch.context() as patched:
        if folder_of(request.path) in ON_THE_EMBEDDED_AWS:
            patched.setattr(dead_letters, "POLL_SECONDS", 0)
        yield


@pytest.fixture(scope="session")
def dynoxide() -> Any:
    """Start Dynoxide with no tables for the tests of one process, and stop it at the end."""
    if not second_engine.is_installed():
        pytest.skip(second_engine.MISSING)
    with second_engine.running() as server:
        yield server


@pytest.fixture(scope="module")
def away_from_the_embedded_aws() -> Iterator[None]:
    """Hide the embedded AWS, which this process may have started, because moto only answers for AWS's own addresses."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("AWS_ENDPOINT_URL", "AWS_REGION"):
            patched.delenv(name, raising=False)
        yield


# By default, each desk gets a new renderer, which takes CPU to start and compiles the pages' scripts again. Tests are
# too short to make up for the CPU that optimizing the scripts takes.
ARGUMENTS = (
    *("--renderer-process-limit=1", "--disable-site-isolation-trials"),
    "--js-flags=--no-opt,--single-threaded-gc,--min-semi-space-size=32",
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    # Playwright is slow to import, and most folders do not test pages.
    from local.dashboard import browser

    try:
        browser.find()
    except UserError as error:
        pytest.skip(f"THE PAGES OF THE DESK ARE NOT TESTED: {error}")
    with browser.launched(*ARGUMENTS) as launched:
        yield launched


@pytest.fixture(scope="session")
def context(chromium: Any) -> Iterator[Any]:
    """Open a context for the pages of most tests. Its empty page keeps the renderer running between tests."""
    with chromium.new_context() as context:
        context.new_page()
        yield context


@pytest.fixture(scope="session")
def forget(context: Any) -> Callable[[], None]:
    """Return a function that closes the context's pages, and removes what they have stored.

    The next test's desk may have the same port, so the same origin.
    """

    def closed() -> None:
        empty, *opened = context.pages
        for each in opened:
            each.close()
        storage = context.new_cdp_session(empty)
        storage.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
        storage.detach()

    return closed


@pytest.fixture
def failing(context: Any, forget: Callable[[], None]) -> Iterator[Any]:
    """Open a page whose requests may fail, so its console may report errors."""
    yield context.new_page()
    forget()


@pytest.fixture
def page(context: Any, forget: Callable[[], None]) -> Iterator[Any]:
    """Open a page, and fail if its console reports an error."""
    opened = context.new_page()
    opened.set_viewport_size({"width": 1360, "height": 1000})
    complaints: list[str] = []
    # The browser reports each refusal by the stack's API, and the page shows it too.
    opened.on(
        "console",
        lambda said: (
            "/api/" in said.location["url"] or complaints.append(f"{said.type}: {said.text}")
        ),
    )
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    # Leaving a page aborts its pending requests.
    opened.on(
        "requestfailed",
        lambda request: (
            request.failure == "net::ERR_ABORTED" or complaints.append(f"failed: {request.url}")
        ),
    )
    yield opened
    opened.unroute_all(behavior="wait")
    forget()
    assert complaints == []


ON_THE_EMBEDDED_AWS = ("e2e", "integration")
# Run each of these folders in few processes: its tests share an embedded AWS, templates or a browser. With a single browser,
# the tests of pages would take longest.
PROCESSES = {**dict.fromkeys(ON_THE_EMBEDDED_AWS, 1), "infra": 1, "pages": 2}
LONGEST_FIRST = (*ON_THE_EMBEDDED_AWS, "pages", "infra", "explore", "world", "unit")
# The first file of its folder, because an upgrade replaces all functions, so later tests start every worker again.
UPGRADE = "test_upgrade.py"


class FewProcessesForTheEmbeddedAws(LoadScopeScheduling):
    """Distributes tests to processes by file, but keeps each folder in `PROCESSES` in so many processes.

    A process starts its embedded AWS once, and all tests of the folder share the stack.
    """

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        # The slowest folders come first, not the ones with the most tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = folder_of(file)
        if folder in PROCESSES:
            return f"{folder} {crc32(file.encode()) % PROCESSES[folder]}"
        return file


def folder_of(path: str | PurePath) -> str:
    """Return the folder below `tests/` that contains a test file."""
    return PurePath(path).parent.name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> FewProcessesForTheEmbeddedAws:
    return FewProcessesForTheEmbeddedAws(config, log)


def pytest_collection_finish() -> None:
    # Imported objects stay. Without this, the garbage collector would scan them again and again.
    gc.freeze()


def pytest_configure(config: Any) -> None:
    # The virtual environment of another checkout would test the other checkout's code.
    found = Path(inventory_orders.__file__)
    if not found.is_relative_to(ROOT):
        raise pytest.UsageError(
            f"the tests would test {found}: remove .venv, and make sets it up for this checkout"
        )
    # With Python's default thresholds, the garbage collector takes a tenth of the unit tests' CPU.
    gc.set_threshold(20_000, 20)
    # Extension modules would report frozen objects as leaked. Pytest runs this last, after its own garbage collection.
    config.add_cleanup(gc.unfreeze)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    if hasattr(config, "workerinput"):
        place = {folder: number for number, folder in enumerate(LONGEST_FIRST)}
        size = cache(lambda path: path.stat().st_size)

        def order(item: Any) -> tuple[int, bool, int]:
            # A long file that begins last would keep one process busy while the others wait.
            is_shared = folder_of(item.path) in PROCESSES
            return (
                place.get(folder_of(item.path), 0),
                item.path.name != UPGRADE,
                0 if is_shared else -size(item.path),
            )

        items.sort(key=order)
