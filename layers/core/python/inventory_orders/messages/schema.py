"""The schemas of messages and commands."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_SCHEMAS = Path(__file__).parent / "schemas"


@cache
def json_schema(name: str) -> dict[str, Any]:
    """A file of schemas, by name: a message (`order`), all `commands` by function and action, or the `types` of both."""

    def resolved(part: dict[str, Any]) -> Any:
        return json_schema("types")[part["$ref"].rpartition("/")[2]] if "$ref" in part else part

    text = (_SCHEMAS / f"{name}.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text, object_hook=resolved)
    return schema
