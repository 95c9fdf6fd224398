"""Sample events: those that the service publishes, and those with which Lambda invokes its functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_DATA = _HERE / "data"
"""The samples in an installed package, copied there by infra/wheel.py."""
_PUBLISHED = (
    _DATA / "published" if _DATA.is_dir() else _HERE.parent / "docs" / "events" / "examples"
)
_INVOCATIONS = _DATA / "invocations" if _DATA.is_dir() else _HERE.parent / "events"


def published(name: str) -> dict[str, Any]:
    """An event as its consumers receive it, by its `detail-type`, such as `OrderPlaced`."""
    event: dict[str, Any] = _read(_PUBLISHED, name)
    return event


def invocation(name: str) -> Any:
    """An event of a function, such as `place_orders`. events/README.md lists all of them."""
    return _read(_INVOCATIONS, name)


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text("utf-8"))
