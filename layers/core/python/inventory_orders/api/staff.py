"""The routes of the HTTP API that pages for staff begin with: who the caller is, and how many orders need attention."""

from __future__ import annotations

from functools import partial

from inventory_orders.api.requests import HttpAnswer, Request, reading
from inventory_orders.api.serving import Caller
from inventory_orders.invocation import runtime
from inventory_orders.store.sweep_rows import TODAY, read_swept


def get_about(_: Request, caller: Caller) -> HttpAnswer:
    """Show staff what their token allows, and what they need to know about the stage."""
    process, locations = runtime.process(), caller.locations
    shown = {
        "name": caller.name,
        "permissions": sorted(caller.permissions),
        "locations": None if locations is None else sorted(locations),
    }
    stage = {**process.about, "locations": process.locations, "movements": process.has_movements}
    return HttpAnswer(200, {"caller": shown, **stage})


def get_today(_: Request, caller: Caller) -> HttpAnswer:
    """Show how many orders needed attention when the last sweep counted them, and which products were missing.

    Raises:
        InventoryOrdersError: The caller does not work at all locations, or DynamoDB failed.
    """
    caller.check_works_at(None)
    client, deadline = reading()
    found = client.call(partial(read_swept, client.store, [TODAY]), deadline)
    if TODAY not in found:
        return HttpAnswer(200, {"asOf": None})
    at, counts = found[TODAY]
    return HttpAnswer(200, {"asOf": at, **counts})
