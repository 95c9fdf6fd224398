"""A headless Chromium: for pictures of the desk, and for its tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from operations.errors import UserError

# The first one has no windows, and needs half the CPU time to draw the same pages.
_NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome", "google-chrome-stable", "microsoft-edge"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_ARGUMENTS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


def find() -> str:
    """Find the path of Chromium or a browser based on it.

    Raises:
        UserError: There is no such browser; the message says what to install.
    """
    for name in _NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise UserError(
        "this machine has no Chromium or Chrome to draw the page. Install one: "
        "`apt-get install chromium` on Debian, `brew install --cask chromium` on macOS"
    )


@contextmanager
def launched(*arguments: str) -> Iterator[Browser]:
    """Start a browser with an empty profile and these further arguments, and stop it on exit.

    Raises:
        UserError: There is no browser, or it does not start.
    """
    path = find()
    # Chromium's sandbox does not work for root, who is the usual user in a container.
    as_root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=path, args=[*_ARGUMENTS, *as_root, *arguments], headless=True
            )
        except PlaywrightError as error:
            raise UserError(f"{path} does not start: {error}") from error
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    try:
        find()
    except UserError as missing:
        print(f"No browser: {missing}", file=sys.stderr)
        sys.exit(1)
