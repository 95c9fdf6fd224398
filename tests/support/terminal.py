"""A fake terminal."""

import pytest

from operations.commands import common


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> None:
    """Let commands print as on a terminal of this width, without colours."""
    for name, value in {"_force_terminal": True, "_width": width, "_color_system": None}.items():
        monkeypatch.setattr(common.screen, name, value)
