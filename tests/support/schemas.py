"""Checks JSON Schemas, and makes them strict."""

from __future__ import annotations

from typing import Any


def closed(schema: Any) -> Any:
    """Make a schema strict, so that it rejects unknown fields: the service must not send undocumented ones."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(inner) for name, inner in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        return {"additionalProperties": False, **found}
    return found


def is_open(schema: Any) -> bool:
    """Whether every part of a schema allows unknown fields."""
    if isinstance(schema, list):
        return all(is_open(each) for each in schema)
    if not isinstance(schema, dict):
        return True
    return schema.get("additionalProperties") is not False and is_open([*schema.values()])
