"""A Chromium of this machine, without a window: for pictures of the dashboard, and for its tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from operations.errors import UserError

_NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_ARGUMENTS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
_WIDTH = 1360
_WAIT_MILLISECONDS = 20_000


def find() -> str:
    """The path of a Chromium, or of a browser made from it.

    Raises:
        UserError: There is none; says what to install.
    """
    for name in _NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise UserError(
        "there is no Chromium or Chrome on this machine to draw the page with. Install one: "
        "`apt-get install chromium` on Debian, `brew install --cask chromium` on macOS"
    )


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser of our own, with an empty profile; ended on the way out.

    Raises:
        UserError: There is none, or it does not start.
    """
    path = find()
    # Chromium's sandbox refuses to run as root, as in a container.
    as_root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=path, args=[*_ARGUMENTS, *as_root], headless=True
            )
        except PlaywrightError as error:
            raise UserError(f"{path} does not start: {error}") from error
        try:
            yield browser
        finally:
            browser.close()


def take_picture(url: str, file: Path, height: int | None) -> None:
    """Write the page as a PNG, as soon as it shows data.

    Args:
        url: The dashboard's address.
        file: What to write.
        height: How much of it, from the top, in pixels; None for all.

    Raises:
        UserError: There is no browser, or the page does not come up.
    """
    with launched() as browser:
        page = browser.new_page(viewport={"width": _WIDTH, "height": height or 1000})
        try:
            page.goto(url)
            page.wait_for_selector("body[data-now]", timeout=_WAIT_MILLISECONDS)
            page.screenshot(path=file, full_page=height is None)
        except PlaywrightError as error:
            raise UserError(f"the page at {url} could not be drawn: {error}") from error


if __name__ == "__main__":
    try:
        find()
    except UserError as missing:
        print(f"No browser: {missing}", file=sys.stderr)
        sys.exit(1)
