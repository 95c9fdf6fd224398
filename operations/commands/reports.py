"""Commands that show stock and orders, or export tables for reports."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.markup import escape

from inventory_orders.domain.location import (
    in_words,
    key_in,
    left_out,
    location_of,
    product_of,
    stock_key,
)

from ..errors import UserError
from ..prices import EXPORT_GIGABYTE
from ..words import counted, lane_name, location_name, without_full_stop
from .common import (
    AsJson,
    AtLocation,
    aside,
    print_cost,
    print_json,
    print_problems,
    reading,
    screen,
    table_of,
)
from .target import Target, aws_of, folder, on_stack

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from inventory_orders.domain.product import Product
    from inventory_orders.lanes.levels import StockLevel
    from inventory_orders.store.lists import OrderFilter

    from ..aws import Aws
    from ..orders import OrderList

app = typer.Typer()

_DEAD_LETTERS = 1000
"""The maximum number of dead letters to search for an order in each queue."""


@on_stack(app)
def stock(
    product: Annotated[
        str | None,
        typer.Argument(
            help="Show exact figures for the product with this id or barcode, and where its units are."
        ),
    ] = None,
    low: Annotated[
        bool, typer.Option("--low", help="Only products that are low in stock.")
    ] = False,
    out: Annotated[
        bool, typer.Option("--out", help="Only products that are out of stock.")
    ] = False,
    in_lanes: Annotated[
        bool, typer.Option("--in-lanes", help="Only products with units in lanes.")
    ] = False,
    location: AtLocation = None,
    limit: Annotated[
        int, typer.Option(min=1, help="With --low or --out: maximum number of lines.")
    ] = 100,
    as_json: AsJson = False,
    account: Target | None = None,
) -> None:
    """Show how many units of each product are on hand, committed to open orders, and available.

    Products that are out of stock or low at any location come first. A product with several locations has a line for
    the total and one for each location; filter options keep only the matching lines. If the setting `locations` leaves
    out the default location, `--out` does not list its empty rows of products that have other locations. `--low` and `--out` read an index,
    other lists read all products. A list is an estimate, because units move while it is read, and those of products in
    lanes are as of the last sweep. Figures for one product are exact unless marked `about`, and include the goods in
    transit between its locations. If a count of the product is open, you are told how to cancel it.
    """
    aws = aws_of(account, aside if as_json else screen)
    if product is not None:
        _show_one(aws, product, location, as_json=as_json)
        return
    from ..stock import without_unused  # noqa: PLC0415

    statuses = {"OUT_OF_STOCK": out, "LOW_STOCK": low}
    wanted = [each for each in statuses if statuses[each]]
    listed, unreadable, has_more = _list(aws, wanted, limit, location)
    print_problems("Left out", unreadable.values(), aside)
    unused = 0
    if out and location is None:
        used = without_unused(listed, aws.locations)
        listed, unused = used, len(listed) - len(used)
    shown = _chosen(listed, statuses, location, in_lanes=in_lanes)
    # A total over some of the locations could be mistaken for the total over all.
    has_totals = not any((low, out, in_lanes, location is not None))
    if as_json:
        print_json(_levels_as_json(shown, aws.locations, has_totals=has_totals))
    else:
        _show_levels(
            shown, listed, in_lanes=in_lanes, has_totals=has_totals, are_all=not (low or out)
        )
    _show_left_out(unused, limit if has_more else None)


def _show_left_out(unused: int, limit: int | None) -> None:
    """Say what is not listed: unused rows of the default location, and whatever is beyond a limit."""
    if limit is not None:
        aside.print(f"[dim]There are more. --limit {2 * limit} shows more of them.[/]")
    if unused:
        aside.print(
            f"[dim]Not listed: {counted(unused, 'empty row')} of the default location, which the setting `locations` leaves "
            'out. --location "" lists them.[/]'
        )


def _list(
    aws: Aws, statuses: Sequence[str], limit: int, location: str | None
) -> tuple[list[StockLevel], Mapping[str, str], bool]:
    """List the stock of products with these statuses at a location or at any, or of all products if there are no statuses."""
    from inventory_orders.store.tables import Table  # noqa: PLC0415

    from ..aws import size_of  # noqa: PLC0415
    from ..stock import list_by_status, list_stock  # noqa: PLC0415

    with reading("the stock"):
        if statuses:
            return list_by_status(aws, statuses, limit, location)
        print_cost(size_of(aws, Table.PRODUCTS))
        with aside.status("Reading rows and lanes"):
            return *list_stock(aws), False


def _chosen(
    levels: Iterable[StockLevel],
    statuses: Mapping[str, bool],
    location: str | None,
    *,
    in_lanes: bool,
) -> list[StockLevel]:
    """Filter levels by status, by location and by whether lanes hold units; an empty filter keeps all."""
    return [
        level
        for level in levels
        if location in (None, location_of(level.product.product_id))
        and (statuses.get(level.product.status) or not any(statuses.values()))
        and (level.in_lanes or not in_lanes)
    ]


def _levels_as_json(
    levels: Sequence[StockLevel], locations: Collection[str], *, has_totals: bool
) -> list[dict[str, Any]]:
    from inventory_orders.api.products import shown_level  # noqa: PLC0415

    from ..stock import by_product, shown_total  # noqa: PLC0415

    if not has_totals:
        return [shown_level(level, locations) for level in levels]
    return [
        shown_total(group, locations) if len(group) > 1 else shown_level(group[0], locations)
        for group in by_product(levels).values()
    ]


_Line = tuple[str | int, ...]


def _show_levels(
    shown: Sequence[StockLevel],
    listed: Sequence[StockLevel],
    *,
    in_lanes: bool,
    has_totals: bool,
    are_all: bool,
) -> None:
    from ..stock import by_product  # noqa: PLC0415

    # A terminal is too narrow for all columns.
    numbers = ("on hand", "committed", "available", "in lanes" if in_lanes else "low at")
    groups = by_product(shown)
    several = any(location_of(level.product.product_id) for level in listed)
    rows = [
        line
        for levels in groups.values()
        for line in _lines_of(levels, in_lanes=in_lanes, has_total=has_totals)
    ]
    headings: tuple[str, ...] = ("product", "location", *numbers, "status", "name")
    if not several:
        headings, rows = (headings[0], *headings[2:]), [(row[0], *row[2:]) for row in rows]
    if shown:
        screen.print(table_of(headings, rows, numbers))
    if not are_all:
        screen.print(f"{counted(len(groups), 'product')}.")
        return
    everywhere = f" in {len(listed):,} rows" if several else ""
    products = f"{counted(len(groups), 'product')} of {len(by_product(listed)):,}"
    screen.print(f"{products}{everywhere} ({_counts_in_words(listed)}).")


def _counts_in_words(levels: Iterable[StockLevel]) -> str:
    counts = Counter(level.product.status.value for level in levels)
    return ", ".join(f"{counts[status]:,} {word}" for status, word in _COUNTED)


def _lines_of(levels: Sequence[StockLevel], *, in_lanes: bool, has_total: bool) -> Iterator[_Line]:
    """Build the lines of a product: a total if it has several locations, and one line for each location."""
    from ..stock import shown_total  # noqa: PLC0415

    if has_total and len(levels) > 1:
        total = shown_total(levels, ())
        units = (total["onHand"], total["committed"], _available(total), "")
        yield (total["productId"], "(all)", *units, total["status"].value, total.get("name", ""))
        # The first line already has the name.
        yield from ((*_line_of(level, in_lanes=in_lanes)[:-1], "") for level in levels)
        return
    yield from (_line_of(level, in_lanes=in_lanes) for level in levels)


def _available(total: Mapping[str, Any]) -> str | int:
    """The available units of all locations, and the units left to sell if these are others."""
    available: int = total["available"]
    left = total["leftToSell"]
    return available if left == available else f"{available:,} ({left:,} left to sell)"


def _line_of(level: StockLevel, *, in_lanes: bool) -> _Line:
    row = level.product
    return (
        *(product_of(row.product_id), location_name(location_of(row.product_id))),
        *(level.on_hand, level.committed, level.available),
        sum(level.in_lanes.values()) if in_lanes else row.low_stock_threshold,
        *(row.status.value, row.name or ""),
    )


_Status = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Show orders with this status: PENDING (waiting for payment), CONFIRMED (to ship), FULFILLED, REJECTED, "
        "CANCELLED or EXPIRED.",
    ),
]
_Late = Annotated[
    bool, typer.Option("--late-payments", help="Show orders that were paid too late: refund them.")
]
_User = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="Show this user's orders.")
]
_Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="TEXT",
        help="Show orders with this tracking number or other reference.",
    ),
]
_Product = Annotated[
    str | None,
    typer.Option(
        "--product", metavar="PRODUCT", help="Show orders that took units of this product."
    ),
]
_Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only orders that entered their status (with --product, were placed; with --reference, got it) at this time, "
        "such as 2026-11-21T09:30 (UTC), or later.",
    ),
]
_Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only orders that did so before this time."),
]
_AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")]


@on_stack(app)
def orders(
    order: Annotated[str | None, typer.Argument(help="Show this order alone.")] = None,
    status: _Status = None,
    late_payments: _Late = False,
    user: _User = None,
    reference: _Reference = None,
    product: _Product = None,
    since: _Since = None,
    until: _Until = None,
    location: AtLocation = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum orders to show.")] = 50,
    as_csv: _AsCsv = False,
    as_json: AsJson = False,
    account: Target | None = None,
) -> None:
    """Show an order, or list orders by status, user, late payment, reference or product.

    `PENDING` and `CONFIRMED` orders are listed with the longest wait first, all others with the newest first. A list comes
    from an index, which is eventually consistent. The goods of a `CONFIRMED` order are `ready` if all its remaining units
    are on hand, otherwise `only 1 of 3 PRODUCT`. Each order is judged on its own. `--location` lists the orders that this
    location supplies; of `PENDING` and `CONFIRMED` orders, it lists those with open units there, and `CONFIRMED` orders
    with only these units, as a list for one warehouse. `--product` lists the orders that took units at `--location`, or
    else at the default location. Lists by reference and product need the setting `movements`. An order that does not exist
    is looked for among the dead letters.
    """
    from inventory_orders.store.lists import OrderFilter  # noqa: PLC0415 - the layer is slow to import

    from ..orders import restricted  # noqa: PLC0415
    from ..republish import moment  # noqa: PLC0415

    times = {
        name: moment(at) for name, at in (("since", since), ("until", until)) if at is not None
    }
    status = status and status.upper()
    wanted = OrderFilter(user, status, late_payments, reference=reference, **times)
    wanted = restricted(wanted, product, location)
    _check_which(order, wanted)
    aws = aws_of(account, aside if as_json or as_csv else screen)
    with reading("the orders"):
        listed = _read_orders(aws, order, wanted, limit)
    unreadable = (
        f"order {i} breaks the table's contract; repair its item" for i in listed.unreadable
    )
    print_problems("Left out", unreadable, aside)
    _print_orders(listed.orders, order, wanted, as_csv=as_csv, as_json=as_json)
    _print_end(listed, wanted, limit, aside if as_json or as_csv else screen)


def _print_end(listed: OrderList, wanted: OrderFilter, limit: int, where: Console) -> None:
    """Say whether a list continues, and up to which time a list of movements is complete."""
    if listed.has_more:
        where.print(f"[dim]The first {limit}; --limit shows more.[/]")
    if wanted.is_of_movements:
        until = listed.complete_until
        known = f"Complete up to {until[:16]}" if until else "Not all orders are recorded yet"
        where.print(f"[dim]{known}.[/]")


def _check_which(order: str | None, wanted: OrderFilter) -> None:
    """Check that the options of `orders` can be combined."""
    from inventory_orders.domain.record import OrderStatus  # noqa: PLC0415
    from inventory_orders.store.lists import OrderFilter  # noqa: PLC0415

    status, place = wanted.status, wanted.location_id
    moved = [wanted.reference is not None, wanted.product_key is not None]
    by_status = wanted.user_id is not None or (status is not None and not any(moved))
    if sum([order is not None, wanted.paid_late, by_status, *moved]) != 1:
        raise typer.BadParameter(
            "name an order, or use one of --status, --user, --late-payments, --reference and --product; only --status "
            "goes with --user, --reference and --product"
        )
    if status not in (None, *OrderStatus):
        raise typer.BadParameter(f"must be one of {', '.join(OrderStatus)}", param_hint="--status")
    if place is not None and (status == OrderStatus.REJECTED or not by_status):
        raise typer.BadParameter(
            "needs --user, --product, or --status other than REJECTED", param_hint="--location"
        )
    if order is not None and wanted != OrderFilter():
        raise typer.BadParameter("--since and --until do not apply to a single order")


def _read_orders(aws: Aws, order: str | None, wanted: OrderFilter, limit: int) -> OrderList:
    """Read one order, or a list."""
    from ..orders import OrderList, list_orders, read_order  # noqa: PLC0415

    if order is None:
        return list_orders(aws, wanted, limit)
    one = read_order(aws, order)
    if one is None:
        raise UserError(f"there is no order {order}{_among_dead_letters(aws, order)}")
    return OrderList([one], has_more=False, unreadable=[])


def _print_orders(
    found: Sequence[Mapping[str, Any]],
    order: str | None,
    wanted: OrderFilter,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Print orders in one of the three formats."""
    from inventory_orders.domain.events import to_json  # noqa: PLC0415

    from ..orders import orders_as_csv  # noqa: PLC0415

    if as_csv:
        print(orders_as_csv(found), end="")
    elif as_json:
        print_json(found if order is None else found[0], to_json)
    else:
        _show_orders(found, wanted)
        if order is not None:
            _show_one_order(found[0])


def _among_dead_letters(aws: Aws, order_id: str) -> str:
    """Say what the dead letters know of an order that does not exist."""
    from ..dead_letters import dead_letters_of  # noqa: PLC0415

    try:
        found, are_all = dead_letters_of(aws, order_id, _DEAD_LETTERS)
    except (BotoCoreError, ClientError) as error:
        return f"; the dead letters could not be searched for it: {without_full_stop(error)}"
    if found:
        listed = "; ".join(dict.fromkeys(found))
        return f", but it is a dead letter: {listed}. `.venv/bin/inventory-orders redrive` shows whether it can be sent back"
    return (
        ""
        if are_all
        else f"; not all dead letters were searched for it, only {_DEAD_LETTERS:,} of each queue"
    )


def _show_orders(found: Iterable[Mapping[str, Any]], wanted: OrderFilter) -> None:
    is_to_ship = wanted.status == "CONFIRMED"
    rows = []
    for one in found:
        since = one["createdAt"] if wanted.status is None else one["statusAt"]
        if wanted.paid_late:
            since = one["confirmationRejected"]["at"]
        lines = _still_open(one, wanted.location_id) if is_to_ship else one["items"]
        state = _goods(one) if is_to_ship else _status(one)
        rows.append((one["orderId"], state, since[:16], one["userId"], _units(lines)))
    headings = ("order", "goods" if is_to_ship else "status", "since", "user", "items")
    screen.print(table_of(headings, rows) if rows else "No orders.")


def _status(order: Mapping[str, Any]) -> str:
    """Describe the status of an order: why it was rejected, and whether a payment came too late."""
    late = ", paid too late" if "confirmationRejected" in order else ""
    return " ".join(order[name] for name in ("status", "reason") if name in order) + late


def _goods(order: Mapping[str, Any]) -> str:
    """Describe whether the goods of an order to ship are on hand."""
    if "shippable" not in order:
        return "unknown"
    missing = (
        f"{max(0, one['onHand'])} of {one['wanted']} {_name_in(one)}"
        for one in order.get("missing", ())
    )
    return "ready" if order["shippable"] else f"only {', '.join(missing)}"


def _show_one_order(order: Mapping[str, Any]) -> None:
    """Show the steps of an order, why it was rejected, its buyers, and whether a late payment has to be refunded."""
    if "steps" in order:
        _show_steps(order["steps"])
    if "shortages" in order:
        rows = [
            (
                *(short["productId"], location_name(short.get("locationId", ""))),
                *(short["wanted"], short["available"]),
            )
            for short in order["shortages"]
        ]
        numbers = ("wanted", "available")
        screen.print("", table_of(("short of", "location", *numbers), rows, numbers))
    if "limits" in order:
        _show_limits(order["limits"])
    if "buyers" in order:
        screen.print(f"Buyers: {escape(', '.join(order['buyers']))}.")
    if "locationsAsked" in order:
        asked = ", ".join(map(location_name, order["locationsAsked"]))
        screen.print(f"Looked for at: {escape(asked)}.")
    if "confirmationRejected" in order:
        late = order["confirmationRejected"]
        screen.print(
            f"\n[bold]Refund it[/]: the payment of {late['at'][:16]} came too late ({escape(late['reason'])})."
        )


def _show_limits(limits: Iterable[Mapping[str, Any]]) -> None:
    numbers = ("limit", "wanted", "bought")
    rows = [(one["group"], *(one[name] for name in numbers)) for one in limits]
    screen.print("", table_of(("over the limit of", *numbers), rows, numbers))


def _show_steps(steps: Iterable[Mapping[str, Any]]) -> None:
    rows = [
        (
            step["at"][:16],
            " ".join(filter(None, [step["action"], step.get("stepId")])),
            _units(step.get("items", ())),
            step.get("actor", ""),
            ", ".join(step[note] for note in ("reference", "reason") if note in step),
        )
        for step in steps
    ]
    screen.print("", table_of(("when", "step", "units", "by", "for"), rows))


def _still_open(order: Mapping[str, Any], location: str | None) -> list[dict[str, Any]]:
    """List the units of an order that are neither handed over nor cancelled, by line, optionally for one location."""
    left = (
        line | {"quantity": line["quantity"] - line.get("fulfilled", 0) - line.get("cancelled", 0)}
        for line in order["items"]
    )
    return [
        line for line in left if line["quantity"] and location in (None, line.get("locationId", ""))
    ]


def _units(lines: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{line['quantity']} {_name_in(line)}" for line in lines)


def _name_in(line: Mapping[str, Any]) -> str:
    return in_words(key_in(line))


@on_stack(app)
def export(
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="BUCKET",
            help="The S3 bucket to export to. Default: inventory-orders-exports-ACCOUNT-REGION, created if missing.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all data is in S3.")] = False,
    account: Target | None = None,
) -> None:
    """Export products, orders and adjustments to S3, and write SQL for Athena: table definitions and reports.

    DynamoDB exports all three tables as they were at one point in time, a few minutes ago. This needs an account.
    """
    if account is None:
        raise UserError(
            "the embedded AWS cannot export tables; name a stage in your account: --stage dev"
        )
    from .. import export as exporting  # noqa: PLC0415 - the layer is slow to import
    from ..aws import size_of  # noqa: PLC0415

    aws = aws_of(account)
    size = size_of(aws, *exporting.REPORTED)
    screen.print(
        f"[dim]Exporting about {counted(size.rows, 'row')}: no read units, and ${size.bytes / 1e9 * EXPORT_GIGABYTE:.2f}.[/]"
    )
    exports = exporting.start(aws, bucket)
    for each in exports:
        screen.print(f"{each.table.value}: {each.place}")
    file = folder() / f"reports-{aws.name}.sql"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(exporting.reports(exports, aws.name), "utf-8")
    screen.print(f"Athena's tables and six reports are in {file}.")
    if wait:
        with aside.status("Exporting") as spinner:
            exporting.wait(aws, exports, spinner.update)
        screen.print("[green]All data is in S3.[/]")
        return
    query = "ExportSummaries[].[ExportArn,ExportStatus]"
    screen.print(
        f"[dim]It takes minutes. Check its progress with: aws dynamodb list-exports --output text --query "
        f"'{escape(query)}'[/]"
    )


_COUNTED = (
    ("OUT_OF_STOCK", "out of stock"),
    ("LOW_STOCK", "low"),
    ("DISCONTINUED", "discontinued"),
)


def _show_one(aws: Aws, product: str, location: str | None, *, as_json: bool) -> None:
    from inventory_orders.api.products import shown_level  # noqa: PLC0415 - the layer is slow to import

    from ..stock import on_the_way, product_with, shown_total  # noqa: PLC0415

    with reading("its barcode"):
        product = product_with(aws, product)
    levels = _read_one(aws, product, location)
    if len(levels) > 1:
        lots = [lot for lot in on_the_way(aws) if lot["productId"] == product]
        total = shown_total(levels, aws.locations) | {"onTheWay": lots}
        if as_json:
            print_json(total)
        else:
            _show_total(total, levels)
    elif as_json:
        print_json(shown_level(levels[0], aws.locations))
    else:
        _show_level(levels[0], aws.locations)
    if not as_json:
        for level in levels:
            _show_count(aws, level.product)


@on_stack(app)
def transfers(
    location: AtLocation = None, as_json: AsJson = False, account: Target | None = None
) -> None:
    """List the transfers in transit, the oldest first: units that have left a location, and neither arrived nor been lost.

    With a location, only transfers from or to it.
    """
    from ..stock import on_the_way  # noqa: PLC0415 - the layer is slow to import

    aws = aws_of(account, aside if as_json else screen)
    with reading("the transfers"):
        listed = on_the_way(aws)
    lots = [lot for lot in listed if location is None or location in lot["from"] + lot["to"]]
    if as_json:
        print_json(lots)
        return
    if lots:
        screen.print(_transfers_of(lots), "")
    references = counted(len({lot["reference"] for lot in lots}), "reference")
    units = counted(sum(lot["units"] for lot in lots), "unit")
    screen.print(f"[bold]{units}[/] on the way, under {references}.")


def _transfers_of(lots: Iterable[Mapping[str, Any]]) -> Table:
    headings = ("on the way", "product", "from", "to", "reference", "since")
    rows = [
        (
            *(lot["units"], lot["productId"]),
            *(", ".join(map(location_name, lot[side])) for side in ("from", "to")),
            *(lot["reference"], lot["since"][:16]),
        )
        for lot in lots
    ]
    return table_of(headings, rows, {"on the way"})


def _read_one(aws: Aws, product: str, location: str | None) -> list[StockLevel]:
    """Read the stock of one product, at one location or at all of them."""
    from ..stock import read_everywhere, read_stock  # noqa: PLC0415 - the layer is slow to import

    key = stock_key(product, location or "")
    with reading(f"the stock of {in_words(key)}"):
        if location is None:
            levels = read_everywhere(aws, product)
        else:
            levels = [level for level in [read_stock(aws, key)] if level is not None]
    if not levels:
        raise UserError(f"there is no product {in_words(key)}")
    return levels


def _show_count(aws: Aws, row: Product) -> None:
    """If a count of this row is open, show it, with the command that ends it."""
    from ..stock import open_count  # noqa: PLC0415 - the layer is slow to import

    count = open_count(row)
    if count is None:
        return
    end = datetime.fromtimestamp(float(count["lease"]["expiresAt"]), UTC)
    screen.print(
        f"\n[bold]A count of {escape(in_words(row.product_id))} is open[/]: {escape(count['holder'])} began or extended it at "
        f"{count['since'][:19]}. Orders for it wait until {end:%H:%M:%S} (UTC). Cancel the count at the desk, or with:"
    )
    release = json.dumps({"action": "release", "lease": count["lease"]})
    command = ("aws", "lambda", "invoke", "--function-name", aws.live("CountStock"))
    payload = ("--cli-binary-format", "raw-in-base64-out", "--payload", release, "/dev/stdout")
    screen.print(escape(shlex.join((*command, *payload))))


def _show_level(level: StockLevel, locations: Collection[str]) -> None:
    row = level.product
    if level.in_lanes:
        lanes = ((lane_name(lane), units) for lane, units in level.in_lanes.items())
        places = [("its row", row.stock_count), *lanes]
        screen.print(table_of(("place", "available"), places, {"available"}))
    about = "" if level.is_exact else "about "
    limits = f"low at {row.low_stock_threshold:,}, backorders to {row.backorder_limit:,}"
    if row.safety_stock:
        limits += f", safety stock {row.safety_stock:,}"
    if row.purchase_limit:
        group = f" of {row.limit_group}" if row.limit_group else ""
        limits += f", at most {row.purchase_limit:,}{group} per buyer"
    screen.print(
        f"[bold]{escape(in_words(row.product_id))}[/]: {about}{level.on_hand:,} on hand, {level.committed:,} committed, "
        f"{level.available:,} available, {row.status.value} ({escape(limits)})."
    )
    product_id, location_id = product_of(row.product_id), location_of(row.product_id)
    if level.left_to_sell and location_id not in locations:
        screen.print(escape(f"Note: {left_out(product_id, location_id)}."))


def _show_total(total: Mapping[str, Any], levels: Sequence[StockLevel]) -> None:
    numbers = ("on hand", "committed", "available", "low at")
    rows = [_line_of(level, in_lanes=False)[1:-1] for level in levels]
    screen.print(table_of(("location", *numbers, "status"), rows, numbers))
    lots = total["onTheWay"]
    if lots:
        screen.print("", _transfers_of(lots), "")
    about = "" if total["isExact"] else "about "
    on_the_way = f", and {sum(lot['units'] for lot in lots):,} on the way" if lots else ""
    screen.print(
        f"[bold]{escape(total['productId'])}[/]: {about}{total['onHand']:,} on hand, {total['committed']:,} committed, "
        f"{total['available']:,} available at {counted(len(levels), 'location')}{on_the_way}. "
        f"Left to sell: {total['leftToSell']:,}, and {total['leftByDefault']:,} to orders that name no locations."
    )
