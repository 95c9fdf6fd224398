"""Commands that show stock and orders, and export tables for reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cli.common import PANEL, AsJson, OnAccount, aside, aws_of, print_json, screen, table_of
from local import STATE
from operations.errors import UserError
from operations.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from operations.aws import Aws

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
    """Show how many units of each product there are, in its row and in lanes. Products that are out or low come first.

    A list is an estimate, because units move while it is read. The figure of one product is exact, unless it says `about`.
    """
    aws = aws_of(account, aside if as_json else screen)
    if product is not None:
        _show_one(aws, product, as_json=as_json)
        return
    from inventory_orders.api.products import shown_level  # noqa: PLC0415 - the layer is slow to import
    from inventory_orders.errors import InventoryOrdersError  # noqa: PLC0415
    from operations.stock import list_stock  # noqa: PLC0415

    try:
        with aside.status("Reading rows and lanes"):
            listed, unreadable = list_stock(aws)
    except InventoryOrdersError as error:
        raise UserError(f"the stock cannot be read: {error}") from error
    wanted = {"LOW_STOCK": low, "OUT_OF_STOCK": out}
    shown = [
        level
        for level in listed
        if (wanted.get(level.product.status) or not (low or out))
        and (level.in_lanes or not in_lanes)
    ]
    for problem in unreadable.values():
        aside.print(f"[bold red]Left out:[/] {escape(problem)}")
    if as_json:
        print_json(list(map(shown_level, shown)))
        return
    numbers = ("on hand", "in lanes", "low at")
    table = table_of("product", *numbers, "status", "name", right=numbers)
    for level in shown:
        row, units = level.product, sum(level.in_lanes.values())
        table.add_row(
            *(escape(row.product_id), f"{level.on_hand:,}", f"{units:,}" if units else ""),
            *(f"{row.low_stock_threshold:,}", row.status, escape(row.name or "")),
        )
    if shown:
        screen.print(table)
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

    A list comes from an index, which is a moment behind.
    """
    if sum([order is not None, to_ship, user is not None]) != 1:
        raise typer.BadParameter("name an order, or give one of --to-ship and --user")
    aws = aws_of(account, aside if as_json else screen)
    from inventory_orders.domain.events import in_json  # noqa: PLC0415 - the layer is slow to import
    from inventory_orders.errors import InventoryOrdersError  # noqa: PLC0415
    from operations.orders import (  # noqa: PLC0415
        OrderList,
        orders_of,
        orders_to_ship,
        read_order,
    )

    try:
        if order is not None:
            one = read_order(aws, order)
            if one is None:
                raise UserError(f"there is no order {order}")
            listed = OrderList([one], has_more=False, unreadable=[])
        else:
            listed = orders_to_ship(aws, limit) if user is None else orders_of(aws, user, limit)
    except InventoryOrdersError as error:
        raise UserError(f"the orders cannot be read: {error}") from error
    found = listed.orders
    for order_id in listed.unreadable:
        problem = f"order {escape(order_id)} breaks the table's contract; repair the item"
        aside.print(f"[bold red]Left out:[/] {problem}")
    if as_json:
        print_json(found if order is None else found[0], in_json)
        return
    table = table_of("order", "status", "since", "user", "items")
    for one in found:
        since = one.get("confirmedAt", one["createdAt"]) if to_ship else one["createdAt"]
        lines = _still_open(one) if to_ship else one["items"]
        fields = (one["orderId"], one["status"], since[:16], one["userId"], _units(lines))
        table.add_row(*map(escape, fields))
    screen.print(table if found else "No orders.")
    if listed.has_more:
        screen.print(f"[dim]The first {limit}; --limit shows more.[/]")
    if order is not None and "steps" in found[0]:
        _show_steps(found[0]["steps"])


def _show_steps(steps: Iterable[Mapping[str, Any]]) -> None:
    table = table_of("when", "step", "units", "by", "for")
    for step in steps:
        name = " ".join(filter(None, [step["action"], step.get("stepId")]))
        why = ", ".join(step[note] for note in ("reference", "reason") if note in step)
        cells = (step["at"][:16], name, _units(step.get("items", ())), step.get("actor", ""), why)
        table.add_row(*map(escape, cells))
    screen.print("", table)


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
        f"'{escape(query)}'[/]",
    )


_COUNTED = (
    ("OUT_OF_STOCK", "out of stock"),
    ("LOW_STOCK", "low"),
    ("DISCONTINUED", "discontinued"),
)


def _show_one(aws: Aws, product: str, *, as_json: bool) -> None:
    from inventory_orders.api.products import shown_level  # noqa: PLC0415
    from inventory_orders.errors import InventoryOrdersError  # noqa: PLC0415 - the layer is slow to import
    from operations.lanes import lane_name  # noqa: PLC0415
    from operations.stock import read_stock  # noqa: PLC0415

    try:
        level = read_stock(aws, product)
    except InventoryOrdersError as error:
        raise UserError(f"the stock of {product} cannot be read: {error}") from error
    if level is None:
        raise UserError(f"there is no product {product}")
    row = level.product
    if as_json:
        print_json(shown_level(level))
        return
    table = table_of("place", "units", right={"units"})
    table.add_row("its row", f"{row.stock_count:,}")
    for lane, units in level.in_lanes.items():
        table.add_row(lane_name(lane), f"{units:,}")
    if level.in_lanes:
        screen.print(table)
    about = "" if level.is_exact else "about "
    limits = f"low at {row.low_stock_threshold:,}, backorders to {row.backorder_limit:,}"
    screen.print(
        f"[bold]{escape(row.product_id)}[/]: {about}{level.on_hand:,} on hand, {row.status.value} ({limits}).",
    )
