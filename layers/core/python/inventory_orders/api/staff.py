"""The routes of the HTTP API for pages of staff: who the caller is, how many orders need attention, and what has changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inventory_orders.api.requests import HttpAnswer, Request, reading
from inventory_orders.api.serving import Caller
from inventory_orders.domain.location import public_key
from inventory_orders.invocation import runtime
from inventory_orders.store.recent_changes import Changed, read_recent_changes
from inventory_orders.store.sweep_rows import TODAY, read_swept
from inventory_orders.store.tables import Table


def get_about(_: Request, caller: Caller) -> HttpAnswer:
    """Show staff what their token allows, and what they need to know about the stage."""
    process, locations = runtime.process(), caller.locations
    return HttpAnswer(
        200,
        {
            "caller": {
                "name": caller.name,
                "permissions": sorted(caller.permissions),
                "locations": None if locations is None else sorted(locations),
            },
            **process.about,
            "locations": process.locations,
            "movements": process.has_movements,
        },
    )


def get_today(_: Request, caller: Caller) -> HttpAnswer:
    """Show how many orders needed attention when the last sweep counted them, and which products were missing.

    Raises:
        InventoryOrdersError: The caller does not work at all locations, or DynamoDB failed.
    """
    caller.check_works_at(None)
    client, deadline = reading()
    at, counts = client.ask(read_swept, deadline, [TODAY]).get(TODAY, (None, dict[str, Any]()))
    return HttpAnswer(200, {"asOf": at, **counts})


def list_changes(request: Request, caller: Caller) -> HttpAnswer:
    """List the orders and products that changed since a cursor, as far as the caller may see them.

    Raises:
        InventoryOrdersError: DynamoDB failed.
    """
    client, deadline = reading()
    recent = client.ask(read_recent_changes, deadline)
    since, following = request.query.get("since"), str(recent.version)
    if since is None:
        return HttpAnswer(200, {"next": following})
    changed = recent.since(since)
    if changed == {}:
        following = since  # which is later than the row's version if the read was stale
    orders, products = _seen_by(caller, changed or {})
    return HttpAnswer(
        200,
        {
            "orders": orders,
            "products": [*map(public_key, products)],
            "isAll": changed is not None,
            "next": following,
        },
    )


def _seen_by(caller: Caller, changed: Changed) -> Iterator[list[str]]:
    """Yield the ids of orders, and the keys of products, that a caller may see."""
    seen = [
        each
        for each, locations in changed.items()
        if caller.locations is None or not caller.locations.isdisjoint(locations)
    ]
    for table, permissions in _TO_SEE.items():
        yield [key for of, key in seen if of == table and caller.has_any(*permissions)]


_TO_SEE = {Table.ORDERS: ("orders.read",), Table.PRODUCTS: ("products.read", "stock.read")}
"""The permissions of which callers need one to see changes, by table."""
