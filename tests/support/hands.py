"""Two ways to use a page, by keyboard and by touch, both of which find controls by their accessible names."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

Name = str | re.Pattern[str]

# The number of Tab presses from the current focus after which a control counts as unreachable.
MOST_TABS = 60


# From key to key. A scanner acts as a keyboard, and is faster than a person.
SCANNER_SECONDS, PERSON_MILLISECONDS = 0.008, 160


def scan(page: Any, text: str, *ends: str) -> None:
    """Press the keys of a scan, with Enter or Tab at its `ends`. The events have a scanner's times even on a busy machine."""
    session = page.context.new_cdp_session(page)
    now = page.evaluate("Date.now() / 1000")
    for key in (*text, *ends):
        now += SCANNER_SECONDS
        typed = {"Enter": "\r", "Tab": ""}.get(key, key)
        keys: dict[str, Any] = {"key": key, "code": key, "timestamp": now}
        keys["windowsVirtualKeyCode"] = {"Enter": 13, "Tab": 9}.get(key, ord(key[0].upper()))
        session.send("Input.dispatchKeyEvent", {"type": "keyDown", "text": typed, **keys})
        session.send("Input.dispatchKeyEvent", {"type": "keyUp", **keys})
    session.detach()


class Hands(ABC):
    """A way to use a page.

    Args:
        page: Playwright's page.
    """

    OPTIONS: Mapping[str, Any]
    """Options for the browser's context."""

    def __init__(self, page: Any) -> None:
        self.page = page

    @abstractmethod
    def _act_on(self, control: Any) -> None:
        """Press a button, follow a link, or tick a box."""

    @abstractmethod
    def _write_into(self, field: Any, text: str) -> None:
        """Replace the text of a field."""

    @abstractmethod
    def _choose_in(self, field: Any, option: str) -> None:
        """Choose an option of a list."""

    @abstractmethod
    def _send(self, button: Any) -> None:
        """Submit the form whose field was last changed."""

    @abstractmethod
    def search(self, text: str) -> None:
        """Search for an order, a customer or a product."""

    def _labelled(self, label: str) -> Any:
        roles = ("textbox", "spinbutton", "combobox")
        first, *others = (self.page.get_by_role(role, name=label, exact=True) for role in roles)
        return reduce(lambda found, other: found.or_(other), others, first)

    def press(self, name: Name, role: str = "button") -> None:
        self._act_on(self.page.get_by_role(role, name=name, exact=True))

    def follow(self, name: Name) -> None:
        self.press(name, "link")

    def tick(self, name: Name) -> None:
        self.press(name, "checkbox")

    def unfold(self, text: str) -> None:
        self._act_on(self.page.locator("summary").filter(has_text=text))

    def go(self, part: str) -> None:
        """Open a part of the desk."""
        self._act_on(
            self.page.get_by_role("navigation", name="Pages").get_by_role(
                "link", name=part, exact=True
            )
        )

    def write(self, label: str, text: str) -> None:
        self._write_into(self._labelled(label), text)

    def choose(self, label: str, option: str) -> None:
        self._choose_in(self._labelled(label), option)

    def send(self, name: Name) -> None:
        self._send(self.page.get_by_role("button", name=name, exact=True))

    @abstractmethod
    def check(self) -> None:
        """Check that the page can be used in this way."""


class Keyboard(Hands):
    """Moves with the Tab key, and never touches a mouse."""

    OPTIONS = MappingProxyType({"viewport": {"width": 1280, "height": 900}})

    def _key(self, key: str) -> None:
        self.page.keyboard.press(key)

    def _reach(self, control: Any) -> None:
        control.wait_for()
        wanted = control.element_handle()
        for _ in range(MOST_TABS):
            if wanted.evaluate("wanted => wanted === document.activeElement"):
                return
            self._key("Tab")
        raise AssertionError(f"{MOST_TABS} tabs do not lead to {control}")

    def _act_on(self, control: Any) -> None:
        self._reach(control)
        self._key("Space" if control.get_attribute("type") == "checkbox" else "Enter")

    def _type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def _write_into(self, field: Any, text: str) -> None:
        self._reach(field)
        self._key("ControlOrMeta+a")
        self._type(text)
        # With the next key, it would be a scan.
        self.page.wait_for_timeout(PERSON_MILLISECONDS)

    def _choose_in(self, field: Any, option: str) -> None:
        self._reach(field)
        self.page.keyboard.type(option, delay=PERSON_MILLISECONDS / 3)

    def _send(self, button: Any) -> None:
        button.wait_for()
        self._key("Enter")

    def search(self, text: str) -> None:
        if self.page.locator(":is(input, select, textarea):focus").count():
            self._key("Escape")
        self._key("/")
        self.page.wait_for_timeout(PERSON_MILLISECONDS)
        self._type(text)
        self._key("Enter")

    def check(self) -> None:
        """Do nothing: `_reach` fails if Tab does not lead to a control."""


class Touch(Hands):
    """Taps on a phone with a width of 390 pixels."""

    OPTIONS = MappingProxyType(
        {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    )

    def _act_on(self, control: Any) -> None:
        control.tap()

    def _write_into(self, field: Any, text: str) -> None:
        self._act_on(field)
        field.fill(text)

    def _choose_in(self, field: Any, option: str) -> None:
        # The phone's own list shows the options.
        field.select_option(option)

    def _send(self, button: Any) -> None:
        self._act_on(button)

    def search(self, text: str) -> None:
        self._write_into(self.page.get_by_role("searchbox"), text)
        self.press("Find")

    def check(self) -> None:
        assert self.page.evaluate("document.documentElement.scrollWidth") == 390
        assert self.page.evaluate("scrollX") == 0
