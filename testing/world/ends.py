"""Reads the outcomes of messages and orders from rows, without the service's own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

LONGEST_HOLD = timedelta(days=7)
OVER = {"REJECTED", "CANCELLED", "EXPIRED"}
"""Statuses in which an order accepts no more commands."""

Row = Mapping[str, Any]


def key_of(place: Row) -> str:
    """Return the key of the product's row that a line, a command or a lease is about."""
    location = place.get("locationId", "")
    return f"{place['productId']}#{location}" if location else str(place["productId"])


def units_of(order: Row) -> tuple[Counter[str], Counter[str]]:
    """Count an order's units by product: units neither handed over nor cancelled, and units with the customer."""
    open_, delivered = named(order), Counter[str]()
    for step, moved in steps_of(order):
        if step["action"] == "return":
            delivered -= moved
        else:
            open_ -= moved
        if step["action"] == "fulfil":
            delivered += moved
    return open_, delivered


def steps_of(order: Row) -> Iterator[tuple[Mapping[str, Any], Counter[str]]]:
    """Yield the steps of an order, each with the units that it moves. A fulfilment without items moves all open units."""
    open_ = named(order)
    for step in order.get("steps", ()):
        is_whole = step["action"] == "fulfil" and "items" not in step
        moved = Counter(open_) if is_whole else named(step)
        if step["action"] != "return":
            open_ -= moved
        yield step, moved


def named(step: Row) -> Counter[str]:
    """Count the units that a step or a command names, by product."""
    units = Counter[str]()
    for item in step.get("items", ()):
        units[item["productId"]] += item["quantity"]
    return units


def is_order(row: Row | None, body: Row) -> bool:
    """Whether a row belongs to the order in a message."""
    if row is None or (row.get("userId"), named(row)) != (body["userId"], named(body)):
        return False
    asked = {i["productId"]: i["locationId"] for i in body["items"] if "locationId" in i}
    kept = {i["productId"]: i["askedLocationId"] for i in row["items"] if "askedLocationId" in i}
    names = {"locations": None, "split": False, "buyers": None}
    wanted = asked, *(body.get(name, absent) for name, absent in names.items())
    return (kept, *(row.get(name, absent) for name, absent in names.items())) == wanted


def is_adjustment(row: Row, asked: Row) -> bool:
    """Whether a row belongs to the adjustment in a message or in a direct command."""
    delta = asked.get("delta", -asked.get("quantity", 0))
    return (row["delta"], row["reason"]) == (delta, asked.get("reason", "DECREMENT"))


def is_carried_out(row: Row | None, command: Row) -> bool:
    """Whether an order's row shows that a command was carried out, or that it was a late payment."""
    if row is None:
        return False
    if "stepId" in command:
        # Units of a cancellation are restocked by default.
        is_default = command["action"] == "cancel" and command.get("restock")
        restock = None if is_default else command.get("restock")
        wanted = command["action"], restock, named(command)
        return any(
            (step["action"], step.get("restock"), named(step)) == wanted
            for step in row.get("steps", ())
            if step.get("stepId") == command["stepId"]
        )
    match command["action"]:
        case "confirm":
            return "confirmedAt" in row or "confirmationRejected" in row
        case "fulfil":
            return "fulfilledAt" in row
        case "cancel":
            ends = (s for s in row.get("steps", ()) if s["action"] == "cancel")
            return row["status"] == "CANCELLED" or any("stepId" not in step for step in ends)
        case "extend":
            latest = _moment(row["createdAt"]) + LONGEST_HOLD
            until = min(_moment(command["until"]), latest)
            return "expiresAt" in row and _moment(row["expiresAt"]) >= until
        case _:
            return bool(row["status"] == "EXPIRED")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.upper())


def is_answered_with_no(row: Row | None, command: Row) -> bool:
    """Whether an order's row shows that a command was refused."""
    action = command["action"]
    if row is None:
        return bool(action == "expire")
    status = row["status"]
    open_, delivered = units_of(row)
    ids = {step.get("stepId") for step in row.get("steps", ())}
    is_new = command.get("stepId") not in ids
    match action:
        case "fulfil":
            is_too_much = (
                status in {"CONFIRMED", "FULFILLED"} and is_new and not named(command) <= open_
            )
            return status in OVER or is_too_much
        case "cancel":
            is_too_much = "stepId" in command and is_new and not named(command) <= open_
            return status in {"FULFILLED", *OVER} or is_too_much
        case "expire":
            # An early expiry is acknowledged, because the sweep finds the order again.
            return True
        case "extend":
            return status != "PENDING" or "expiresAt" not in row
        case "return":
            return status in OVER or (is_new and not named(command) <= open_ + delivered)
    return False


def is_done(row_of: Callable[..., Row | None], function: str, asked: dict[str, Any]) -> bool:
    """Whether the rows show that a message or a direct command was carried out.

    Args:
        row_of: Finds a row by its table and key.
        function: The function that was asked.
        asked: The message or the command.
    """
    match function:
        case "place_orders":
            return is_order(row_of("Orders", asked["orderId"]), asked)
        case "change_orders":
            return is_carried_out(row_of("Orders", asked["orderId"]), asked)
        case "adjust_stock" if asked.get("action") == "transfer":
            # The check of each write covers the other side.
            source = key_of(asked | {"locationId": asked["from"]})
            row = row_of("StockAdjustments", source, asked["transferId"])
            return row is not None and row["delta"] == -asked["quantity"]
        case "adjust_stock":
            row = row_of("StockAdjustments", key_of(asked), asked["adjustmentId"])
            return row is not None and is_adjustment(row, asked)
        case "count_stock":
            key = key_of(asked.get("lease", asked))
            row = row_of("StockAdjustments", key, asked["adjustmentId"])
            return row is not None and row.get("counted") == asked["counted"]
        case _:
            return _is_managed(row_of("Products", key_of(asked)), asked)


def _is_managed(row: Row | None, command: dict[str, Any]) -> bool:
    """Whether a product's row shows that a command or a catalogue event was carried out, and not undone later."""
    if "eventTime" in command:
        newest = (row or {}).get("detailsEventTime")
        return newest is not None and _moment(newest) >= _moment(command["eventTime"])
    if command["action"] == "delist":
        return row is None or bool(row["createdAt"] != command["createdAt"])
    given = command.keys() - {"action", "openingStock"}
    # A limit of 0 is not stored.
    wanted = {name: command[name] for name in given if command[name] != 0}
    wanted["productId"] = key_of(command)
    if command["action"] == "discontinue":
        wanted["status"] = "DISCONTINUED"
    if "barcodes" in wanted:
        codes = {each["code"] for each in wanted.pop("barcodes")}
        if row is None or codes != {*row.get("barcodes", ())}:
            return False
    return row is not None and wanted.items() <= row.items()
