"""Commands that show stock and orders, and export tables for reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cli.common import (
    PANEL,
    AsJson,
    OnAccount,
    aside,
    aws_of,
    print_json,
    print_problems,
    reading,
    screen,
    table_of,
)
from local import STATE
from operations.errors import UserError
from operations.words import counted, lane_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inventory_orders.lanes.levels import StockLevel
    from operations.aws import Aws
    from operations.orders import OrderList

app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def stock(
    product: Annotated[
        str | None,
        typer.Argument(help="Show this product alone, exactly, and where its units are."),
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
    as_json: AsJson = False,
    account: OnAccount = None,
) -> None:
    """Show how many units of each product are on hand, committed to open orders, and available.

    Products that are out or low come first. A list is an estimate, because units move while it is read. The figures of one
    product are exact, unless they say `about`.
    """
    aws = aws_of(account, aside if as_json else screen)
    if product is not None:
        _show_one(aws, product, as_json=as_json)
        return
    from inventory_orders.api.products import shown_level  # noqa: PLC0415 - the layer is slow to import
    from operations.stock import list_stock  # noqa: PLC0415

    with reading("the stock"), aside.status("Reading rows and lanes"):
        listed, unreadable = list_stock(aws)
    wanted = {"LOW_STOCK": low, "OUT_OF_STOCK": out}
    shown = [
        level
        for level in (_in_lanes(listed) if in_lanes else listed)
        if wanted.get(level.product.status) or not (low or out)
    ]
    print_problems("Left out", unreadable.values(), aside)
    if as_json:
        print_json(list(map(shown_level, shown)))
    else:
        _show_levels(shown, listed, in_lanes=in_lanes)


def _in_lanes(levels: Iterable[StockLevel]) -> list[StockLevel]:
    return [level for level in levels if level.in_lanes]


def _show_levels(
    shown: Sequence[StockLevel], listed: Sequence[StockLevel], *, in_lanes: bool
) -> None:
    # All columns together have no room on a terminal.
    numbers = ("on hand", "committed", "available", "in lanes" if in_lanes else "low at")
    rows = [
        (
            *(level.product.product_id, level.on_hand, level.committed, level.available),
            sum(level.in_lanes.values()) if in_lanes else level.product.low_stock_threshold,
            *(level.product.status, level.product.name or ""),
        )
        for level in shown
    ]
    if shown:
        screen.print(table_of(("product", *numbers, "status", "name"), rows, numbers))
    counts = Counter(level.product.status.value for level in listed)
    words = ", ".join(f"{counts[status]:,} {word}" for status, word in _COUNTED)
    screen.print(f"{counted(len(shown), 'product')} of {len(listed):,} ({words}).")


@app.command(rich_help_panel=PANEL)
def orders(
    order: Annotated[str | None, typer.Argument(help="Show this order alone.")] = None,
    to_ship: Annotated[
        bool, typer.Option("--to-ship", help="Show the orders that are paid and not shipped.")
    ] = False,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Show this user's orders.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most orders to show.")] = 50,
    as_json: AsJson = False,
    account: OnAccount = None,
) -> None:
    """Show an order, a user's orders (the newest first), or with `--to-ship` the orders to ship (the oldest first).

    A list comes from an index, which is a moment behind. The goods of an order to ship are `ready` if all units that it still
    wants are on hand, else `only 1 of 3 PRODUCT`. Each order is judged alone.
    """
    if sum([order is not None, to_ship, user is not None]) != 1:
        raise typer.BadParameter("name an order, or give one of --to-ship and --user")
    aws = aws_of(account, aside if as_json else screen)
    from inventory_orders.domain.events import to_json  # noqa: PLC0415 - the layer is slow to import

    with reading("the orders"):
        listed = _read_orders(aws, order, user, limit)
    found = listed.orders
    unreadable = (
        f"order {i} breaks the table's contract; repair the item" for i in listed.unreadable
    )
    print_problems("Left out", unreadable, aside)
    if as_json:
        print_json(found if order is None else found[0], to_json)
        return
    _show_orders(found, to_ship=to_ship)
    if listed.has_more:
        screen.print(f"[dim]The first {limit}; --limit shows more.[/]")
    if order is not None and "steps" in found[0]:
        _show_steps(found[0]["steps"])


def _read_orders(aws: Aws, order: str | None, user: str | None, limit: int) -> OrderList:
    """Read one order, a user's orders, or those to ship."""
    from operations.orders import OrderList, orders_of, orders_to_ship, read_order  # noqa: PLC0415

    if order is None:
        return orders_to_ship(aws, limit) if user is None else orders_of(aws, user, limit)
    one = read_order(aws, order)
    if one is None:
        raise UserError(f"there is no order {order}")
    return OrderList([one], has_more=False, unreadable=[])


def _show_orders(found: Iterable[Mapping[str, Any]], *, to_ship: bool) -> None:
    rows = []
    for one in found:
        since = one.get("confirmedAt", one["createdAt"]) if to_ship else one["createdAt"]
        lines = _still_open(one) if to_ship else one["items"]
        state = _goods(one) if to_ship else one["status"]
        rows.append((one["orderId"], state, since[:16], one["userId"], _units(lines)))
    table = table_of(("order", "goods" if to_ship else "status", "since", "user", "items"), rows)
    screen.print(table if rows else "No orders.")


def _goods(order: Mapping[str, Any]) -> str:
    """Whether the goods of an order to ship are on hand, in words."""
    if "shippable" not in order:
        return "not known"
    missing = (
        f"{max(0, one['onHand'])} of {one['wanted']} {one['productId']}"
        for one in order.get("missing", ())
    )
    return "ready" if order["shippable"] else f"only {', '.join(missing)}"


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


def _still_open(order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The units of an order that are neither handed over nor cancelled, line by line."""
    left = (
        line | {"quantity": line["quantity"] - line.get("fulfilled", 0) - line.get("cancelled", 0)}
        for line in order["items"]
    )
    return [line for line in left if line["quantity"]]


def _units(lines: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{line['quantity']} {line['productId']}" for line in lines)


@app.command(rich_help_panel=PANEL)
def export(
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="BUCKET",
            help="The S3 bucket to export to. Default: inventory-orders-exports-ACCOUNT-REGION, made if it is not there.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all data are in S3.")] = False,
    account: OnAccount = None,
) -> None:
    """Export products, orders and adjustments to S3, and write SQL for Athena: tables over the export, and reports.

    DynamoDB exports all three as they were at one moment, some minutes ago. Only on an account.
    """
    if account is None:
        raise UserError(
            "the embedded AWS cannot export tables; name a stage of your account: --stage dev"
        )
    from inventory_orders.clock import SystemClock  # noqa: PLC0415 - the layer is slow to import
    from operations import export as exporting  # noqa: PLC0415

    aws = aws_of(account)
    exports = exporting.start(aws, bucket)
    for each in exports:
        screen.print(f"{each.table.value}: {each.place}")
    file = STATE / f"reports-{account}.sql"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(exporting.reports(exports, account), "utf-8")
    screen.print(f"Athena's tables and six reports are in {file}.")
    if wait:
        with aside.status("Exporting") as spinner:
            exporting.wait(aws, exports, SystemClock(), spinner.update)
        screen.print("[green]All data are in S3.[/]")
        return
    query = "ExportSummaries[].[ExportArn,ExportStatus]"
    screen.print(
        f"[dim]It takes minutes. See how far it is: aws dynamodb list-exports --output text --query "
        f"'{escape(query)}'[/]"
    )


_COUNTED = (
    ("OUT_OF_STOCK", "out of stock"),
    ("LOW_STOCK", "low"),
    ("DISCONTINUED", "discontinued"),
)


def _show_one(aws: Aws, product: str, *, as_json: bool) -> None:
    from inventory_orders.api.products import shown_level  # noqa: PLC0415 - the layer is slow to import
    from operations.stock import read_stock  # noqa: PLC0415

    with reading(f"the stock of {product}"):
        level = read_stock(aws, product)
    if level is None:
        raise UserError(f"there is no product {product}")
    row = level.product
    if as_json:
        print_json(shown_level(level))
        return
    if level.in_lanes:
        lanes = ((lane_name(lane), units) for lane, units in level.in_lanes.items())
        places = [("its row", row.stock_count), *lanes]
        screen.print(table_of(("place", "available"), places, {"available"}))
    about = "" if level.is_exact else "about "
    limits = f"low at {row.low_stock_threshold:,}, backorders to {row.backorder_limit:,}"
    screen.print(
        f"[bold]{escape(row.product_id)}[/]: {about}{level.on_hand:,} on hand, {level.committed:,} committed, "
        f"{level.available:,} available, {row.status.value} ({limits})."
    )
