"""Reads the sections of the runbook, and finds the alarms that each section is about."""

from __future__ import annotations

import re

from local import ROOT

RUNBOOK = ROOT / "docs" / "runbook.md"


def sections() -> dict[str, str]:
    """Read the sections of the runbook, by heading."""
    _, *parts = re.split(r"^## (.+)$", RUNBOOK.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def families() -> dict[str, str]:
    """Map the last part of each alarm's name to the heading of the section about it."""
    return {suffix: heading for heading in sections() for suffix in heading.split(", ")}
