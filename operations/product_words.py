"""Repairs the rows by which a search finds products."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.product import Product
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.rows import read_product
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import (
    Action,
    ActionKind,
    Write,
    product_update_action,
    word_actions,
)

from .audit import read_rows
from .aws import Aws, scan

_PATIENCE = 10.0


def repair_words(aws: Aws) -> tuple[int, int]:
    """List each readable product under the words of its id and name, and no other product under any.

    This reads all products and words. The service may run: a product that changes at the same time is left out.

    Returns:
        The number of products whose words were repaired, and of those left out.
    """
    listed: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for row in read_rows(aws, Table.WORDS):
        word, _, product_id = row["word"].partition("#")
        listed[product_id][word] = frozenset(row.get("words", ()))
    products: dict[str, Product | None] = dict.fromkeys(listed)
    for item in scan(aws, Table.PRODUCTS):
        try:
            products[item["productId"]["S"]] = read_product(item)
        except CorruptItemError:
            products.pop(item["productId"]["S"], None)
    repaired = wrong = 0
    for product_id, product in products.items():
        words = frozenset[str]() if product is None else product.words
        if listed[product_id] != dict.fromkeys(words, words):
            wrong += 1
            with suppress(TransactionCancelledError):
                _list_anew(aws, product_id, product, frozenset(listed[product_id]))
                repaired += 1
    return repaired, wrong - repaired


def _list_anew(aws: Aws, product_id: str, product: Product | None, before: frozenset[str]) -> None:
    """Replace the words of a product, if it has not changed since it was read."""
    client, clock = RetryingClient(aws.store()), SystemClock()
    if product is None:
        gone = Write().on("attribute_not_exists(#productId)")
        check = Action(ActionKind.PRODUCT, product_id, gone, "ConditionCheck")
    else:
        check = product_update_action(product, product, clock.now())
    none = frozenset[str]()
    for old, new in ((before, none), (none, product.words if product else none)):
        if actions := word_actions(product_id, old, new):
            client.write([check, *actions], Deadline.after(_PATIENCE, clock), CommitStats())
