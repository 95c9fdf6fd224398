"""Commands that write stock levels for other shop systems."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from .common import aside, print_problems
from .imports import Locations, file_option
from .target import Target, aws_of, on_stack

app = typer.Typer(
    no_args_is_help=True, help="Write stock levels as CSV that another shop system imports."
)


@on_stack(app)
def shopify(
    inventory: Annotated[
        Path,
        file_option(
            "--inventory", "A new export of inventory, of all locations and with all states."
        ),
    ],
    locations: Locations = None,
    account: Target | None = None,
) -> None:
    """Fill Shopify's export of inventory with the units on hand here, and print it. Shopify imports it under Products, Inventory.

    Lines whose product or location is not here are left out, so Shopify does not change them. It also skips lines whose
    stock has changed since the export.
    """
    from ..imports.levels import for_shopify  # noqa: PLC0415 - the layer is slow to import
    from ..imports.locations_file import read_locations  # noqa: PLC0415
    from ..imports.shopify import inventory_file  # noqa: PLC0415

    names = read_locations(locations) if locations else {}
    file = inventory_file(inventory)
    _print(for_shopify(file, names, aws_of(account, aside).store()))
    print_problems("Left out", (f"line {each.number}: {each.message}" for each in file.bad), aside)


@on_stack(app)
def woocommerce(account: Target | None = None) -> None:
    """Print SKU and stock of all products. WooCommerce imports it under Products, with "Update existing products".

    The stock of a product is what is left to sell at all its locations together.
    """
    from ..imports.levels import for_woocommerce  # noqa: PLC0415
    from ..stock import list_stock  # noqa: PLC0415

    levels, unreadable = list_stock(aws_of(account, aside))
    print_problems("Left out", unreadable.values(), aside)
    _print(for_woocommerce(sorted(levels, key=lambda level: level.product.product_id)))


def _print(rows: Iterable[Sequence[str | int]]) -> None:
    csv.writer(sys.stdout).writerows(rows)
