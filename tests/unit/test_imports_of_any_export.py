"""Imports of any export: it is imported with a sound proof, or refused with each reason, and then nothing is written."""

import csv
import io
import itertools
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given, note, settings
from typer.testing import CliRunner

from inventory_orders.domain.location import stock_key
from inventory_orders.domain.record import OrderKey
from inventory_orders.store.tables import Table
from local.commands.main import app
from operations.audit import read_books
from operations.commands import imports
from operations.errors import UserError
from testing.schedules.in_turn.shop import open_shop
from tests.support.exports import shopify, woocommerce

# `make explore` tries more.
some = settings(max_examples=int(os.environ.get("EXPORTS", "25")))


@some
@given(shopify())
def test_any_export_of_shopify_is_imported_soundly_or_refused_with_each_reason(export):
    imported_or_refused("shopify", export)


@some
@given(woocommerce())
def test_any_export_of_woocommerce_is_imported_soundly_or_refused_with_each_reason(
    export,
):
    imported_or_refused("woocommerce", export)


def imported_or_refused(platform, export):
    with open_shop() as shop, TemporaryDirectory() as folder:
        command = write(platform, export, Path(folder))
        before = rows(shop)
        expected, said = run(shop, *command, "--check")
        assert rows(shop) == before, "a check writes nothing"
        status, said = run(shop, *command)
        assert status == expected, "a check finds what an import finds"
        for word in export.faults:
            assert word in said
        if status:
            assert rows(shop) == before, "a refused import writes nothing"
            assert export.faults or export.may_refuse
            return
        assert not export.faults
        for word in export.mentioned:
            assert word in said
        assert_sound(shop, export)
        after = rows(shop)
        assert run(shop, *command)[0] == 0
        assert rows(shop) == after, "a second import changes nothing"


def assert_sound(shop, export):
    """All levels and open orders are those of the model, and the books balance."""
    books = read_books(shop.stack)
    assert books.is_sound
    assert [account.finding for account in books.accounts if account.is_wrong] == []
    ids = {sku: ids_of(shop).get(code) for sku, code in export.barcodes.items()}
    levels = {
        stock_key(ids.get(sku, sku), place): level for (sku, place), level in export.levels.items()
    }
    found = {account.product_id: account for account in books.accounts}
    assert levels.keys() <= found.keys()
    keeps_unavailable = "safety" in export.options
    for key, account in found.items():
        level = levels.get(key)
        if level is None:
            assert (account.available, account.on_hand) == (0, 0), key
            continue
        kept = level.unavailable if keeps_unavailable else 0
        gone = level.unavailable - kept
        assert shop.product(key).safety_stock == kept, key
        assert account.available - kept == level.available, key
        assert account.committed == level.committed, key
        assert account.on_hand == level.on_hand - gone, key
    skus = {product_id: sku for sku, product_id in ids.items()}
    assert Counter(open_orders(shop, skus)) == export.open


def open_orders(shop, skus):
    for order_id in read_books(shop.stack).orders:
        record = shop.record(OrderKey(order_id))
        units = {skus.get(key, key): line.open for key, line in record.units().items()}
        assert all(units.values())
        yield frozenset(units.items()), record.status == "CONFIRMED"


def ids_of(shop):
    """The product of each barcode."""
    return {row["code"]: row["productId"] for row in shop.rows(Table.BARCODES)}


def rows(shop):
    """All rows, by table."""
    return {table: dict(shop.items(table)) for table in Table}


def write(platform, export, folder):
    """Write the files. Returns the command."""
    command = ["import", platform, *export.options]
    for option, content in export.files.items():
        path = folder / f"{option.strip('-')}.csv"
        path.write_bytes(content)
        note(f"{option}\n{without_empty_columns(content)}")
        command += [option, str(path)]
    return command


def without_empty_columns(content):
    table = list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))
    used = [any(cells) for cells in zip(*table[1:], strict=True)] or [True] * len(table[0])
    out = io.StringIO()
    csv.writer(out).writerows(itertools.compress(row, used) for row in table)
    return out.getvalue()


def run(shop, *command):
    """Run a command. Returns its exit status, and all that it said and wrote."""
    shop.stack.outputs["Currency"] = '{"code": "EUR", "digits": 2}'
    with patch.object(imports, "aws_of", lambda account: shop.stack):
        done = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    if not isinstance(done.exception, SystemExit | UserError | None):
        raise done.exception
    reports = Path(command[-1]).parent.glob("*.csv.*.csv")
    said = [
        done.output,
        str(done.exception or ""),
        *(path.read_text("utf-8-sig") for path in reports),
    ]
    note("\n".join([" ".join(command), *said]))
    return done.exit_code, "\n".join(said)
