"""Commands that show what there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cli.common import AsJson, OnAccount, aside, aws_of, screen
from cli.operators import PANEL
from operations.errors import UserError
from operations.words import counted

if TYPE_CHECKING:
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
        bool, typer.Option("--in-lanes", help="Only products of which lanes hold units.")
    ] = False,
    as_json: AsJson = False,
    account: OnAccount = None,
) -> None:
    """Show how many units of each product there are, in its row and in lanes together; what is out or low comes first.

    A list is an estimate, because units move while it is read. One product is exact.
    """
    aws = aws_of(account, aside if as_json else screen)
    if product is not None:
        _show_one(aws, product, as_json=as_json)
        return
    from operations.stock import list_stock  # noqa: PLC0415

    with aside.status("Reading rows and lanes"):
        listed = list_stock(aws)
    wanted = {"LOW_STOCK": low, "OUT_OF_STOCK": out}
    shown = [
        one
        for one in listed
        if (wanted.get(one.status) or not (low or out)) and (one.in_lanes or not in_lanes)
    ]
    if as_json:
        print(json.dumps([one.as_json() for one in shown], indent=2))
        return
    table = Table("product", "on hand", "in lanes", "low at", "status", "name", box=None)
    for column in table.columns[1:4]:
        column.justify = "right"
    for one in shown:
        units = f"{one.in_lanes:,}" if one.in_lanes else ""
        table.add_row(
            *(escape(one.product_id), f"{one.on_hand:,}", units, f"{one.low_stock_threshold:,}"),
            *(one.status, escape(one.name)),
        )
    if shown:
        screen.print(table)
    counts = [f"{sum(o.status == status for o in listed):,} {word}" for status, word in _COUNTED]
    screen.print(
        f"{counted(len(shown), 'product')} of {len(listed):,} ({', '.join(counts)}).",
        soft_wrap=True,
    )


_COUNTED = (
    ("OUT_OF_STOCK", "out of stock"),
    ("LOW_STOCK", "low"),
    ("DISCONTINUED", "discontinued"),
)


def _show_one(aws: Aws, product: str, *, as_json: bool) -> None:
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
        found = {
            "productId": row.product_id,
            "status": row.status.value,
            "onHand": level.on_hand,
            "isExact": level.is_exact,
            "row": row.stock_count,
            "lanes": level.in_lanes,
            "lowStockThreshold": row.low_stock_threshold,
            "backorderLimit": row.backorder_limit,
        }
        print(json.dumps(found, indent=2))
        return
    table = Table("place", "units", box=None)
    table.columns[1].justify = "right"
    table.add_row("its row", f"{row.stock_count:,}")
    for lane, units in level.in_lanes.items():
        table.add_row(lane_name(lane), f"{units:,}")
    if level.in_lanes:
        screen.print(table)
    about = "" if level.is_exact else "about "
    limits = f"low at {row.low_stock_threshold:,}, backorders to {row.backorder_limit:,}"
    screen.print(
        f"[bold]{escape(row.product_id)}[/]: {about}{level.on_hand:,} on hand, {row.status.value} ({limits}).",
        soft_wrap=True,
    )
