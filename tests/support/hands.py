"""Uses a page by keyboard alone; controls are found by their accessible names."""

from __future__ import annotations

from typing import Any

# The number of Tab presses from the current focus after which a control counts as unreachable.
MOST_TABS = 60


# From key to key. A scanner acts as a keyboard, and is faster than a person.
SCANNER_SECONDS, PERSON_MILLISECONDS = 0.008, 160
# Scanners send FNC1 as Ctrl and ].
FNC1 = "\x1d"
_CTRL = 2
# Later than the second Enter of a scanner.
_LATER_MILLISECONDS = 600


def scan(page: Any, text: str, *ends: str) -> None:
    """Press the keys of a scan, with Enter or Tab at its `ends`. The events have a scanner's times even on a busy machine."""
    session = page.context.new_cdp_session(page)
    now = page.evaluate("Date.now() / 1000")
    for key in (*text, *ends):
        now += SCANNER_SECONDS
        typed = {"Enter": "\r", "Tab": "", FNC1: ""}.get(key, key)
        keys: dict[str, Any] = {"key": key, "code": key, "timestamp": now}
        if key == FNC1:
            keys |= {"key": "]", "modifiers": _CTRL}
        keys["windowsVirtualKeyCode"] = {"Enter": 13, "Tab": 9}.get(key, ord(key[0].upper()))
        session.send("Input.dispatchKeyEvent", {"type": "keyDown", "text": typed, **keys})
        session.send("Input.dispatchKeyEvent", {"type": "keyUp", **keys})
    session.detach()


def enter(page: Any) -> None:
    """Press Enter as late as a person who has just scanned something."""
    page.wait_for_timeout(_LATER_MILLISECONDS)
    page.keyboard.press("Enter")


class Keyboard:
    """Moves with the Tab key, and never touches a mouse.

    Args:
        page: Playwright's page.
    """

    def __init__(self, page: Any) -> None:
        self.page = page

    def press(self, name: str, role: str = "button") -> None:
        """Press a button, follow a link, or tick a box."""
        self._act_on(self.page.get_by_role(role, name=name, exact=True))

    def unfold(self, text: str) -> None:
        self._act_on(self.page.locator("summary").filter(has_text=text))

    def go(self, part: str) -> None:
        """Open a part of the desk."""
        pages = self.page.get_by_role("navigation", name="Pages")
        self._act_on(pages.get_by_role("link", name=part, exact=True))

    def write(self, label: str, text: str) -> None:
        """Replace the text of a field."""
        texts, numbers = (
            self.page.get_by_role(role, name=label, exact=True)
            for role in ("textbox", "spinbutton")
        )
        self._reach(texts.or_(numbers))
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)
        # With the next key, it would be a scan.
        self.page.wait_for_timeout(PERSON_MILLISECONDS)

    def send(self) -> None:
        """Submit the form whose field was last changed."""
        self.page.keyboard.press("Enter")

    def search(self, text: str) -> None:
        """Search for an order, a customer or a product."""
        if self.page.locator(":is(input, select, textarea):focus").count():
            self.page.keyboard.press("Escape")
        self.page.keyboard.press("/")
        self.page.wait_for_timeout(PERSON_MILLISECONDS)
        self.page.keyboard.type(text)
        self.send()

    def _act_on(self, control: Any) -> None:
        self._reach(control)
        is_box = control.get_attribute("type") == "checkbox"
        self.page.keyboard.press("Space" if is_box else "Enter")

    def _reach(self, control: Any) -> None:
        for _ in range(MOST_TABS):
            # A page that is read again may replace the control, so it is looked up each time.
            if control.evaluate("wanted => wanted === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{MOST_TABS} tabs do not lead to {control}")
