"""Writes the index of the sample events, which also shows the service's answer to each of them."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from local import ROOT
from local.invoke import Invocation
from local.sample_orders import catalogue
from testing.schedules.in_turn.shop import Shop, open_shop
from testing.world.handlers import function_names

PAGE = ROOT / "events" / "README.md"

SHOWS = {
    "manage_products_create": "a product is listed",
    "manage_products_create_place": "another product is listed at a location, with stock there",
    "manage_products": "two catalogue events, the older one last",
    "manage_products_price": "a price is changed",
    "manage_products_change": "a product gets a low-stock threshold, safety stock, and a limit of two for each customer",
    "manage_products_discontinue": "a product is discontinued",
    "manage_products_list_again": "the same product is listed again",
    "manage_products_delist_stale": "an earlier generation of a product is delisted",
    "manage_products_bad": "a negative price",
    "manage_products_invalid": "messages that can never be applied",
    "place_orders": "five messages: two orders, one for too many units, one for an unknown product, one sent twice",
    "place_orders_direct": "an order that holds its stock for 15 minutes, and names two keys of its buyer",
    "place_orders_locations": "an order that no single location can fill: each of two supplies one line",
    "place_orders_direct_bad": "an order for an unknown product",
    "place_orders_fifo": "orders in two groups of the FIFO queue",
    "place_orders_invalid": "an order, another order under its id, and messages that are not orders",
    "place_orders_fifo_invalid": "a message that is not JSON, between two orders of its group",
    "change_orders": "a cancellation that comes before its order, then a confirmation",
    "change_orders_extend": "the hold of the order in `place_orders_direct.json` is extended by the maximum",
    "change_orders_confirm": "the first order in `place_orders.json` is paid",
    "change_orders_part": "one of its units is handed over",
    "change_orders_lost": "a unit of the second order is lost: it is cancelled and does not go back on sale",
    "change_orders_direct_bad": "a payment for an unknown order",
    "change_orders_invalid": "messages that are not commands",
    "adjust_stock": "a receipt, sent twice, a correction and a return",
    "adjust_stock_direct": "a receipt with notes",
    "adjust_stock_decrement": "three units are taken with an atomic decrement, from the safety stock too",
    "adjust_stock_place": "a receipt at a location",
    "adjust_stock_transfer": "five units are moved from the default location to another",
    "adjust_stock_direct_bad": "a correction that takes more units than are available",
    "adjust_stock_invalid": "a receipt, another one under its id, and messages that can never be booked",
    "count_stock_acquire": "a lease of five minutes for a count",
    "count_stock_acquire_place": "the same for the stock at a location",
    "count_stock_commit_expired": "a count under an expired lease",
    "count_stock_begin": "a count as of the time at which it begins",
    "count_stock_bad": "a lease that is too long",
    "api": "an order over HTTP",
    "publish_events": "four row changes, as the streams deliver them",
    "publish_events_unreadable": "a row with a status that another program wrote",
    "record_movements": "changes to an order, as the stream delivers them",
    "record_movements_unreadable": "a row with a line that another program wrote",
    "sweep": "the event that the schedule sends each minute",
}
"""Descriptions of the samples, in the sequence of the index."""

_WORDS = {"INVALID": "dead-lettered", "RETURNED": "returned"}


def function_of(name: str) -> str:
    """Find the function that a sample event is for. The sample's name begins with the function's name."""
    (function,) = (function for function in function_names() if name.startswith(function))
    return function


def event_of(name: str) -> Any:
    """Read a sample event from its file."""
    return json.loads((ROOT / "events" / f"{name}.json").read_text("utf-8"))


def is_bad(name: str) -> bool:
    """Whether a sample, judging by its name, contains something that the service does not accept."""
    return name.endswith(("_bad", "_invalid", "_expired", "_unreadable"))


def opened() -> contextlib.AbstractContextManager[Shop]:
    """Set up a tea shop in simulated tables, for the samples."""
    return open_shop(catalogue())


def invoke(shop: Shop, function: str, event: Any) -> Invocation:
    """Invoke a function's handler with a sample, in the tea shop."""
    with contextlib.redirect_stdout(io.StringIO()) as logs:
        answer = shop.invoke(function, event)
    return Invocation(answer, logs.getvalue())


def said(done: Invocation) -> str:
    """Describe a handler's answer in a few words, for the index."""
    answer = done.answer
    if "statusCode" in answer:
        return f"status {answer['statusCode']}"
    logged = list(map(json.loads, done.logs.splitlines()))
    ends = next((line["ends"] for line in logged if "ends" in line), None)
    codes = list(dict.fromkeys(line["code"] for line in logged if "code" in line))
    if ends is not None:
        words = [f"{count} {_WORDS.get(end, end.lower())}" for end, count in ends.items()]
        return ", ".join(words) + (f": {_listed(codes)}" if codes else "")
    counts = [
        f"{answer[name]} {name}"
        for name in ("published", "undeliverable", "unreadable")
        if answer.get(name)
    ]
    result = _listed([answer["result"], *([answer["code"]] if "code" in answer else [])])
    return ", ".join([result, *counts])


def _listed(codes: list[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def text() -> str:
    """Return the content of the index, with the handlers' answers to the samples."""
    lines = [
        "# Sample events",
        "",
        "`make docs` generates this page from the handlers' answers.",
        "",
        "    make up",
        "    make invoke FUNCTION=place_orders EVENT=events/place_orders.json",
        "",
        "A new stack that gets the events in this sequence gives these answers. Without a running stack, each command has",
        "its own shop, so an event about an earlier order is refused. The exit status is the one of `.venv/bin/inventory-orders",
        "invoke FUNCTION EVENT`: 3 if anything was not accepted; `make invoke` shows it as `Error 3`, and exits with 2. The",
        "command does not send an event that is for another function.",
    ]
    function = ""
    with opened() as shop:
        for name, shows in SHOWS.items():
            if function != function_of(name):
                function = function_of(name)
                lines += ["", f"## {function}", ""]
                lines += ["| event | shows | answer | exit status |", "|---|---|---|---|"]
            done = invoke(shop, function, event_of(name))
            status = 0 if done.is_good else 3
            lines.append(f"| [{name}.json]({name}.json) | {shows} | {said(done)} | {status} |")
    lines += [
        "",
        "## Files",
        "",
        "`orders.csv` and `orders.jsonl` hold the same two orders, for `.venv/bin/inventory-orders send`. `catalogue.csv`,",
        "`catalogue.jsonl` and `locations.csv` (stock at several locations) are for `.venv/bin/inventory-orders load`.",
    ]
    return "".join(f"{line}\n" for line in lines)
