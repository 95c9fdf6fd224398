"""Compares the table of barcodes with the barcodes in the products' rows."""

from __future__ import annotations

from collections.abc import Iterator

from inventory_orders.domain.barcode import code_and_units, key_of_barcode
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table

from .aws import Aws, scan
from .words import counted

_Owner = tuple[str, str, int]
"""The id and the generation of a product, and the units that bear a code."""


def stray_barcodes(aws: Aws) -> list[str]:
    """Describe the barcodes of products that do not point back, and those that no product has.

    The service may run: a difference counts only if the next read shows it too.
    """
    found = _differences(aws)
    again = _differences(aws) if found else {}
    return [words for code, words in found.items() if again.get(code) == words]


def _differences(aws: Aws) -> dict[str, str]:
    listed: dict[str, _Owner] = {}
    for item in scan(aws, Table.BARCODES):
        row = decode(item)
        listed[row["code"]] = (row["productId"], row["productCreatedAt"], row["units"])
    wanted = dict(_of_products(aws))
    return {
        code: _words(code, listed.get(code), wanted.get(code))
        for code in sorted(listed.keys() | wanted.keys())
        if listed.get(code) != wanted.get(code)
    }


def _of_products(aws: Aws) -> Iterator[tuple[str, _Owner]]:
    """Yield each code in a product's row, and its owner."""
    for item in scan(aws, Table.PRODUCTS):
        row = decode(item)
        for barcode in row.get("barcodes", ()):
            code, units = key_of_barcode(barcode).code, code_and_units(barcode)[1]
            yield code, (row["productId"], row["createdAt"], units)


def _words(code: str, listed: _Owner | None, wanted: _Owner | None) -> str:
    found = "no product" if listed is None else _owner(*listed)
    right = "no product" if wanted is None else _owner(*wanted)
    return f"{code} finds {found}, but is a barcode of {right}"


def _owner(product_id: str, created_at: str, units: int) -> str:
    return f"{product_id} ({counted(units, 'unit')}, created {created_at})"
