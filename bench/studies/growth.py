"""The cost of each page, list and search of shops that have had more and more orders.

Read units are counted from the sizes of the rows and index entries that are read, as DynamoDB bills them. `python -m
bench growth --compare BEFORE AFTER` prints the results of two checkouts (`.local/bench.jsonl`) side by side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path as File
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qsl, quote, urlsplit

from rich.console import Console
from typer.testing import CliRunner

from bench import report
from bench.cells import MeasuredCells, Result, ResultFile, Study, Value
from bench.grown.shop import NAMES, GrownShop
from inventory_orders.errors import InventoryOrdersError
from operations.aws import Aws
from operations.commands import target
from operations.commands.main import app
from operations.errors import UserError
from testing.world.world import silent

SIZES = {
    "tiny": (1_000, 4_000),
    "short": (1_000, 10_000, 100_000),
    "full": (1_000, 10_000, 100_000, 1_000_000),
}
"""Numbers of orders."""

LANES = ("empty", "in use")

FLAT = 1.1
"""How much more a page may cost in the shop where it costs most than in the one where it costs least, or one unit more."""

_FIGURES = ("requests", "units", "entries")
_LARGEST_READ_WHOLE = 100_000

Answer = Any
"""The JSON that a page answers with; None if it does not answer in JSON."""


class Page(NamedTuple):
    """A page, a list or a search.

    Attributes:
        call: A request to the API (`GET /...`), a command (`$ ...`), or a function (`invoke ...`). `{name}` stands for one of
            `NAMES`.
        entries: How many entries to read, from as many pages of the list as that takes; 0 for one page.
        grows: Why its cost may grow; empty if it must not.
    """

    call: str
    entries: int = 0
    grows: str = ""


_WHOLE, _OPEN = "reads whole tables", "reads open orders until some match"


PAGES = (
    Page("GET /about"),
    Page("GET /today"),
    Page("GET /changes?since=0"),
    Page("GET /orders/{order}"),
    Page("GET /orders?userId={regular}", 40),
    Page("GET /orders?userId={rare}"),
    Page("GET /orders?status=CONFIRMED", 40),
    Page("GET /orders?status=CONFIRMED&limit=100"),
    Page("GET /orders?status=CONFIRMED&locationId=berlin", 40, _OPEN),
    Page("GET /orders?status=CONFIRMED&locationId=lyon", 5, _OPEN),
    Page("GET /orders?status=PENDING", 40),
    Page("GET /orders?status=PENDING&limit=100"),
    Page("GET /orders?status=FULFILLED", 40),
    Page("GET /orders?status=FULFILLED&from=2026-01-01T00:00:00Z&to=2026-06-01T00:00:00Z", 40),
    Page("GET /orders?status=REJECTED", 40),
    Page("GET /orders?status=CANCELLED", 40),
    Page("GET /orders?status=EXPIRED", 40),
    Page("GET /orders?latePayment=true", 40),
    Page("GET /orders?userId={regular}&status=PENDING"),
    Page("GET /barcodes?scan={order}"),
    Page("GET /products?ids={usual},{hot},{slow},{lent}"),
    Page("GET /products?search={word}"),
    Page("GET /products?search={common}", 40),
    Page("GET /products?search=wool+{common}", 20),
    Page("GET /products?search=nothing"),
    Page("GET /products/{usual}"),
    Page("GET /products/{lent}"),
    Page("GET /products/{usual}/adjustments"),
    Page("GET /products/{hot}/adjustments", 40),
    Page("GET /products/{usual}/history"),
    Page("GET /products/{hot}/history", 40),
    Page("GET /products/{slow}/history", 20),
    Page("GET /counts", 40),
    Page("GET /counts?reference=nothing"),
    Page("GET /transfers"),
    Page("GET /stock", 40),
    Page("GET /stock?limit=100"),
    Page("GET /stock?status=LOW_STOCK&limit=50", 50),
    Page("GET /stock?status=OUT_OF_STOCK&limit=50", 50),
    Page("GET /stock?inLanes=true", 40),
    Page("GET /stock/{usual}"),
    Page("GET /stock/{lent}"),
    Page("$ orders {order} --json"),
    Page("$ orders --status CONFIRMED --json"),
    Page("$ orders --status CONFIRMED --location berlin --json", grows=_OPEN),
    Page("$ orders --status REJECTED --since 2025-03-01 --json"),
    Page("$ orders --late-payments --json"),
    Page("$ orders --user {regular} --json"),
    Page("$ stock {usual} --json"),
    Page("$ stock {lent} --json"),
    Page("$ stock --low --json"),
    Page("$ stock --out --json"),
    Page("$ lanes --json"),
    Page("$ load {counts} --check"),
    Page("$ stock --json", grows=_WHOLE),
    Page("$ audit --json", grows=_WHOLE),
    Page("$ audit {usual} --json", grows=_WHOLE),
    Page("invoke sweep"),
)


def cells(size: str) -> Iterator[dict[str, Value]]:
    """Shops of each size, with empty lanes and with lanes in use."""
    for orders in SIZES[size]:
        for lanes in LANES:
            yield {"engine": "simulated", "orders": orders, "lanes": lanes}


def measure(orders: int, lanes: str, **_: Value) -> Result:
    """Measure all pages of one shop: by page, its requests and read units, and the entries that it shows."""
    with (
        GrownShop(orders, in_use=lanes == "in use").open() as shop,
        silent(),
        _visitor(shop) as ask,
    ):
        return {
            page.call: _cost(shop, page, ask)
            for page in PAGES
            if page.grows != _WHOLE or orders <= _LARGEST_READ_WHOLE
        }


_Ask = Callable[[str], Answer]


def _cost(shop: GrownShop, page: Page, ask: _Ask) -> Result:
    """What one page costs and shows, or why the shop refuses the request."""
    requests, units = len(shop.requests), shop.read_units
    try:
        entries = _read(page, ask)
    except (InventoryOrdersError, UserError, KeyError) as error:
        return {"refused": str(error)}
    figures = len(shop.requests) - requests, shop.read_units - units, entries
    return dict(zip(_FIGURES, figures, strict=True))


def _read(page: Page, ask: _Ask) -> int:
    """Read a page, and further pages of its list until there are enough entries. Returns their number."""
    answer = ask(page.call)
    entries = _entries_in(answer)
    while entries < page.entries and "next" in answer:
        sign = "&" if "?" in page.call else "?"
        answer = ask(f"{page.call}{sign}cursor={answer['next']}")
        entries += _entries_in(answer)
    return entries


def _entries_in(answer: Answer) -> int:
    """Count the entries of the lists in an answer."""
    lists = answer.values() if isinstance(answer, dict) else [answer]
    return sum(len(each) for each in lists if isinstance(each, list))


@contextmanager
def _visitor(shop: GrownShop) -> Iterator[_Ask]:
    """Yield a function that reads a page of a shop."""
    stack = shop.stack_with(
        stack_id="arn:aws:cloudformation:us-east-1:1:stack/InventoryOrders-shop/1"
    )
    checkout: Any = SimpleNamespace(stack_name="", folder=File(), find=lambda: "http://127.0.0.1")
    with ExitStack() as on_exit:
        counts = File(on_exit.enter_context(TemporaryDirectory())) / "counts.csv"
        shop.write_counts(counts)
        on_exit.enter_context(patch.object(target, "checkout", checkout))
        on_exit.enter_context(patch.object(Aws, "of_stack", lambda *_: stack))
        names = {name: quote(text, safe="") for name, text in NAMES.items()} | {
            "counts": str(counts)
        }
        how: dict[str, _Ask] = {
            "GET": partial(_call, shop),
            "$": _run,
            "invoke": lambda function: shop.invoke(function, {"action": function}),
        }

        def ask(call: str) -> Answer:
            kind, rest = call.format(**names).split(" ", 1)
            return how[kind](rest)

        yield ask


def _call(shop: GrownShop, path: str) -> Answer:
    """Send an operator's request to the API."""
    url = urlsplit(path)
    for route in shop.handler("api")._ROUTES:
        method, template = route.split()
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", template), url.path)
        if method != "GET" or found is None:
            continue
        event = {
            "version": "2.0",
            "routeKey": route,
            "queryStringParameters": dict(parse_qsl(url.query)),
            "pathParameters": found.groupdict(),
            "requestContext": {"authorizer": {"iam": {"userArn": "operator"}}},
        }
        answer = shop.invoke("api", event)
        if answer["statusCode"] != 200:
            raise UserError(answer["body"])
        return json.loads(answer["body"])
    raise UserError(f"the API has no route {path}")


def _run(command: str) -> Answer:
    """Run a command of the command line."""
    done = CliRunner().invoke(app, command.split(), catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in (0, 1):
        raise UserError(done.output)
    return json.loads(done.stdout) if "--json" in command else None


def growing(found: MeasuredCells) -> list[str]:
    """List the pages that cost more in one shop than in another, or show another number of entries."""
    wrong = []
    for lanes in _lanes_of(found):
        results = [result for what, result in found if what["lanes"] == lanes]
        for page in PAGES:
            costs = [result[page.call] for result in results if page.call in result]
            if not page.grows and not is_flat(costs):
                wrong.append(f"{page.call} (lanes {lanes})")
    return wrong


def _lanes_of(found: MeasuredCells) -> list[str]:
    return list(dict.fromkeys(what["lanes"] for what, _ in found))


def is_flat(costs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a page costs about the same, and shows as many entries, in all shops."""
    if any("refused" in cost for cost in costs):
        return False
    figures = [[cost[name] for cost in costs] for name in _FIGURES]
    return all(max(few) <= max(FLAT * min(few), min(few) + 1) for few in figures)


def show(found: MeasuredCells, screen: Console) -> bool:
    """Print requests and read units of each page by number of orders. Returns whether all pages cost the same in all shops."""
    wrong = growing(found)
    for lanes in _lanes_of(found):
        results = {what["orders"]: result for what, result in found if what["lanes"] == lanes}
        table = report.table(f"Requests and read units by orders, lanes {lanes}", "page")
        for orders in results:
            table.add_column(f"{orders:,}", justify="right")
        table.add_column("entries", justify="right")
        table.add_column("")
        for page in PAGES:
            costs = [result.get(page.call) for result in results.values()]
            entries = dict.fromkeys(str(cost.get("entries", "")) for cost in costs if cost)
            note = "grows" if f"{page.call} (lanes {lanes})" in wrong else page.grows
            table.add_row(page.call, *map(_in_words, costs), ", ".join(entries), note)
        screen.print(table, "")
    return not wrong


def _in_words(cost: Mapping[str, Any] | None) -> str:
    if cost is None or "refused" in cost:
        return "" if cost is None else "refused"
    return f"{cost['requests']:,}; {cost['units']:,.1f}"


def compare(before: File, after: File, screen: Console) -> None:
    """Print what each page costs in two checkouts, from the newest results of each."""
    was, now = _newest(before), _newest(after)
    both = [key for key in was if key in now]
    for lanes in LANES:
        table = report.table(f"Requests and read units: before and after, lanes {lanes}", "page")
        sizes = [orders for orders, in_use in both if in_use == lanes]
        for orders in sizes:
            table.add_column(f"{orders:,}: before", justify="right")
            table.add_column("after", justify="right")
        pages = dict.fromkeys(page for key in both for page in (*was[key], *now[key]))
        for page in pages:
            costs = [file[orders, lanes].get(page) for orders in sizes for file in (was, now)]
            table.add_row(page, *map(_in_words, costs))
        screen.print(table, "")


def _newest(path: File) -> dict[tuple[int, str], Result]:
    return {
        (cell.values["orders"], cell.values["lanes"]): result
        for cell, result in ResultFile(path).newest()
        if cell.study == "growth"
    }


STUDY = Study("cost of pages by number of orders", cells, measure, show)
