"""The soak's staff: count products while they are sold, and delist products with open orders and list them again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from inventory_orders.store.rows import decode, key_item
from inventory_orders.store.tables import Table
from local import sample_orders
from operations.aws import Aws
from operations.errors import LostAnswerError
from tests.soak.ledger import StaffCount
from tests.soak.workload import SEASONAL

# Counts between two products that are delisted.
_COUNTS = 8
_PAUSE_SECONDS, _AWAY_SECONDS = 0.5, 1.0
_LEASE_SECONDS = 30
# So often a command is given until it has a final answer. A lease that a killed worker has left lasts for minutes by the
# clock of another.
_TRIES = 20
_RETRY_SECONDS = 0.5


class Staff:
    """Work until they are told to stop.

    Args:
        aws: The stack.
        run: Begins the ids of their counts.
        seed: Seed of what they do.

    Attributes:
        counts: The counts that they tried to commit.
        delisted: How often a product was delisted.
    """

    def __init__(self, aws: Aws, run: str, seed: int) -> None:
        self._aws = aws
        self._run = run
        self._chance = random.Random(seed)
        self.counts: list[StaffCount] = []
        self.delisted = 0

    def work(self, over: threading.Event) -> None:
        """Count, delist and list again until it is over. In the end all products are listed."""
        products = [product.product_id for product in sample_orders.catalogue()]
        while not over.wait(_PAUSE_SECONDS):
            for _ in range(_COUNTS):
                self._count(self._chance.choice(products))
            self._relist(self._chance.choice(SEASONAL).product_id)

    def _count(self, product_id: str) -> None:
        """Count a product: sometimes a unit is missing, sometimes there are more."""
        acquire = {"action": "acquire", "productId": product_id, "seconds": _LEASE_SECONDS}
        taken = self._ask("CountStock", {**acquire, "outliveInvocation": True}, tries=1)
        if taken.get("result") != "ACQUIRED":
            return
        lease, on_hand = {"lease": taken["lease"]}, taken["onHand"]
        # Orders wait for more than an empty shelf has.
        empty = 0 if taken["committed"] else on_hand
        less = max(0, on_hand - 1)
        found = self._chance.choice((empty, less, on_hand, on_hand, on_hand + 1, on_hand + 2))
        count_id = f"{self._run}-count-{len(self.counts)}"
        commit = {"action": "commit", **lease, "counted": found, "adjustmentId": count_id}
        result = self._ask("CountStock", commit).get("result", "")
        self.counts.append(StaffCount(product_id, count_id, on_hand, found, result))
        if result != "COMMITTED":
            self._ask("CountStock", {"action": "release", **lease})

    def _relist(self, product_id: str) -> None:
        """Delist a product for a moment, whatever orders are open for it."""
        key = key_item(product_id)
        table = self._aws.tables[Table.PRODUCTS]
        found = self._aws.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)
        row = decode(found["Item"])
        names = {"productId": product_id, "createdAt": row["createdAt"]}
        self._insist({"action": "delist", **names}, ("APPLIED", "STALE"))
        self.delisted += 1
        time.sleep(_AWAY_SECONDS)
        stock = next(p.opening_stock for p in SEASONAL if p.product_id == product_id)
        create = {"action": "create", "productId": product_id, "openingStock": stock}
        # Refused because it exists: an attempt whose answer was lost has made it.
        self._insist(create, ("APPLIED", "REFUSED"))

    def _insist(self, command: dict[str, Any], wanted: Sequence[str]) -> None:
        while (answer := self._ask("ManageProducts", command)).get("result") not in wanted:
            time.sleep(_RETRY_SECONDS)
            if answer.get("result") in ("INVALID", "UNAVAILABLE"):
                raise AssertionError(f"{command} was answered {answer}")

    def _ask(self, function: str, command: dict[str, Any], tries: int = _TRIES) -> dict[str, Any]:
        """Give a command until it has a final answer. Returns that; empty if there was none."""
        for _ in range(tries):
            try:
                answer = self._aws.invoke(function, command)
            except LostAnswerError:
                # Its worker was killed, or too slow.
                continue
            if answer.get("result") != "RETRY_LATER":
                return answer
            time.sleep(_RETRY_SECONDS)
        return {}
