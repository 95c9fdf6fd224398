"""Derives the AsyncAPI document from the JSON Schemas of the events on the bus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inventory_orders.domain.events import SCHEMA_VERSION, EventType
from inventory_orders.publishing.publisher import PROBE

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "events"
PAGE = FOLDER / "asyncapi.json"

EVENTS = (*EventType, PROBE)
"""All events on the bus, by `detail-type`."""

_ENDING = ".schema.json"


def schemas() -> dict[str, Any]:
    """Read the JSON Schemas of all events, and of the parts that events share, by name."""
    return {
        path.name.removesuffix(_ENDING): json.loads(path.read_text("utf-8"))
        for path in sorted(FOLDER.glob(f"*{_ENDING}"))
    }


def example(event: str) -> dict[str, Any]:
    """Read an example of an event, in the form in which a consumer receives it."""
    found: dict[str, Any] = json.loads((FOLDER / "examples" / f"{event}.json").read_text("utf-8"))
    return found


def document() -> dict[str, Any]:
    """Build the AsyncAPI document."""
    parts = schemas()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Inventory and orders: outcomes",
            "version": str(SCHEMA_VERSION),
            "description": "Events of orders and products on an EventBridge bus, delivered at least once. A repeated event has the same "
            "detail.metadata.eventId; an event that is published again from the rows mostly has another. Remember facts: an orderId, "
            "a stepId. The events of an order reach the bus in sequence, but a bus does not guarantee a sequence to its targets: compare "
            "detail.data.version.",
            "license": {"name": "MIT-0"},
        },
        "defaultContentType": "application/json",
        "channels": {
            "outcomes": {
                "address": "InventoryOrders-{stage}",
                "description": "The event bus. Your own rule sends the events that you choose to a target.",
                "parameters": {"stage": {"description": "Name of the stage."}},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in EVENTS},
            }
        },
        "operations": {
            "publish": {
                "action": "send",
                "channel": {"$ref": "#/channels/outcomes"},
                "summary": "Publish an event for each change of the tables.",
                "messages": [{"$ref": f"#/channels/outcomes/messages/{name}"} for name in EVENTS],
            }
        },
        "components": {
            "messages": {name: _message(name, parts) for name in EVENTS},
            "schemas": {name: _within(schema) for name, schema in parts.items()},
        },
    }


def _message(name: str, parts: dict[str, Any]) -> dict[str, Any]:
    whole = {
        "properties": {
            "detail-type": {"const": name},
            "detail": {"$ref": f"#/components/schemas/{name}"},
        }
    }
    return {
        "name": name,
        "title": name,
        "summary": parts[name]["description"],
        "payload": {"allOf": [{"$ref": "#/components/schemas/envelope"}, whole]},
        "examples": [{"name": name, "payload": example(name)}],
    }


def _within(schema: Any) -> Any:
    """Turn a schema's references to other files into references within the document."""
    if isinstance(schema, list):
        return [_within(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: f"#/components/schemas/{value.removesuffix(_ENDING)}"
        if name == "$ref"
        else _within(value)
        for name, value in schema.items()
        if name != "$schema"
    }


def text() -> str:
    """Return the content of the file `asyncapi.json`."""
    return json.dumps(document(), indent=2) + "\n"
