"""What needs attention in a stack: one look at orders, products, dead letters and alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from inventory_orders.store.lists import list_holds
from inventory_orders.store.tables import EXPIRY_SHARDS
from local.desk.signals import Signals
from operations import orders, queues
from operations.aws import Aws
from operations.codes import DEAD_LETTERS
from operations.dead_letters import POLL_SECONDS, peek_dead_letters
from operations.stock import by_product, list_stock, product_names, shown_total

Document = dict[str, Any]

MOST = 100
"""Of each kind: the page says "100+"."""

# After every moment.
_EVER = "9999"


class Today:
    """Looks at one stack.

    Args:
        stack: Finds the stack, which may be deployed again at any time.
        signals: Its monitoring; None if it has none.
        dead_letters: Messages that one request reads are hidden from another one.
    """

    def __init__(
        self, stack: Callable[[], Aws], signals: Signals | None, dead_letters: Lock
    ) -> None:
        self._stack = stack
        self._signals = signals
        self._dead_letters = dead_letters

    def attention(self) -> object:
        """What comes without an event: how many dead letters there are in each queue, and the alarms that are on."""
        aws = self._stack()
        on = self._signals.alarms().get("on") if self._signals is not None else None
        return _depths(aws), on

    def read(self) -> Document:
        """Read each source once."""
        aws = self._stack()
        reads: dict[str, Callable[[], object]] = {
            "toShip": lambda: _to_ship(aws),
            "held": lambda: _held(aws),
            "products": lambda: _products(aws),
            "deadLetters": lambda: self._causes(aws),
        }
        if self._signals is not None:
            reads |= {"alarms": self._signals.alarms, "lastHour": self._signals.orders}
        with ThreadPoolExecutor(len(reads)) as pool:
            return dict(zip(reads, pool.map(lambda read: read(), reads.values()), strict=True))

    def _causes(self, aws: Aws) -> Document:
        """Count dead letters by cause. Only queues that have some are read, and no more than there are: an end takes time."""
        depths = _depths(aws)
        causes: Counter[str] = Counter()
        with self._dead_letters:
            for name, depth in depths.items():
                if depth:
                    url, most = aws.outputs[name], min(depth, MOST)
                    found = peek_dead_letters(aws.sqs, url, most, POLL_SECONDS)
                    causes.update(letter.code for letter in found)
        return {
            "count": sum(depths.values()),
            "causes": [
                {"code": code, "count": count, "meaning": _meaning(code)}
                for code, count in causes.most_common()
            ],
        }


def _depths(aws: Aws) -> dict[str, int]:
    return {name: queues.depth(aws, name).total for _, name in queues.pairs(aws)}


def _meaning(code: str) -> str:
    return DEAD_LETTERS[code].meaning if code in DEAD_LETTERS else ""


def _counted(found: Sequence[object], *, is_all: bool) -> Document:
    return {"count": len(found), "isAll": is_all}


def _to_ship(aws: Aws) -> Document:
    listed = orders.orders_to_ship(aws, MOST)
    blocked = [order for order in listed.orders if order.get("shippable") is False]
    # An order that misses a product at two locations waits for it once.
    missing = Counter(
        product_id
        for order in blocked
        for product_id in {short["productId"] for short in order["missing"]}
    )
    return {
        **_counted(listed.orders, is_all=not listed.has_more),
        "oldest": listed.orders[0].get("confirmedAt") if listed.orders else None,
        "blocked": len(blocked),
        "missing": dict(missing.most_common()),
        "names": product_names(aws, missing),
    }


def _held(aws: Aws) -> Document:
    store = aws.store()
    ends = sorted(
        hold.at for shard in range(EXPIRY_SHARDS) for hold in list_holds(store, shard, _EVER)[0]
    )
    return {**_counted(ends[:MOST], is_all=len(ends) <= MOST), "nextEnd": ends[0] if ends else None}


def _products(aws: Aws) -> Document:
    levels, _ = list_stock(aws)
    groups = by_product(levels)
    return {
        "count": len(groups),
        "levels": Counter(shown_total(group)["status"] for group in groups.values()),
        # At one location, which the others do not help.
        "promised": sum(any(level.available < 0 for level in group) for group in groups.values()),
    }
