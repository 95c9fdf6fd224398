"""The soak's staff, who count products during sales, move units between locations, and delist and relist products.

Delisted products may have open orders.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from inventory_orders.domain.location import named_key, public_key
from inventory_orders.store.rows import Row, decode, key_item
from inventory_orders.store.tables import Table
from local import sample_orders
from operations.aws import Aws
from operations.errors import LostAnswerError
from tests.soak.ledger import StaffCount, StaffTransfer
from tests.soak.workload import SEASONAL

# Number of counts before the next product is delisted. A transfer follows every second count.
_COUNTS = 8
# The last quantity is more than there are units.
_TRANSFERRED = (1, 2, 3, 5, 100_000)
_PAUSE_SECONDS, _AWAY_SECONDS = 0.5, 1.0
_LEASE_SECONDS = 30
# How often a command is repeated until it has a final answer. By another worker's clock, the lease of a killed worker
# may last for minutes.
_TRIES = 20
_RETRY_SECONDS = 0.5

_ALONE, _WITH_A_PLACE, _ITS_PLACE = (
    product.product_id for product in (SEASONAL[1], SEASONAL[0], SEASONAL[2])
)
_DELISTED_TOGETHER = ((_ALONE,), (_ITS_PLACE,), (_ITS_PLACE, _WITH_A_PLACE))


class Staff:
    """Staff who work until told to stop.

    Args:
        aws: The stack.
        run: Prefix of the ids of their counts and transfers.
        seed: The seed for their random choices.

    Attributes:
        counts: The counts that they tried to commit.
        transfers: The transfers that they requested.
        delisted: How often a product was delisted at one of its locations.
    """

    def __init__(self, aws: Aws, run: str, seed: int) -> None:
        self._aws = aws
        self._run = run
        self._chance = random.Random(seed)
        self.counts: list[StaffCount] = []
        self.transfers: list[StaffTransfer] = []
        self.delisted = 0

    def work(self, over: threading.Event) -> None:
        """Count, transfer, delist and relist products until told to stop. At the end, all products are listed."""
        keys = [product.product_id for product in sample_orders.stocked()]
        while not over.wait(_PAUSE_SECONDS):
            for number in range(_COUNTS):
                self._count(self._chance.choice(keys))
                if number % 2:
                    self._transfer(self._chance.choice([key for key in keys if "#" in key]))
            self._relist(*self._chance.choice(_DELISTED_TOGETHER))

    def _count(self, key: str) -> None:
        """Count a product at a location. Sometimes a unit is missing, and sometimes there is one too many."""
        acquire = {"action": "acquire", **named_key(key), "seconds": _LEASE_SECONDS}
        taken = self._ask("CountStock", {**acquire, "outliveInvocation": True}, tries=1)
        if taken.get("result") != "ACQUIRED":
            return
        lease, on_hand = {"lease": taken["lease"]}, taken["onHand"]
        # With open orders, sometimes count 0, which is fewer units than they need.
        empty = 0 if taken["committed"] else on_hand
        less = max(0, on_hand - 1)
        found = self._chance.choice((empty, less, on_hand, on_hand, on_hand + 1, on_hand + 2))
        count_id = f"{self._run}-count-{len(self.counts)}"
        commit = {"action": "commit", **lease, "counted": found, "adjustmentId": count_id}
        result = self._ask("CountStock", commit).get("result", "")
        self.counts.append(StaffCount(key, count_id, on_hand, found, result))
        if result != "COMMITTED":
            self._ask("CountStock", {"action": "release", **lease})

    def _transfer(self, place: str) -> None:
        """Move units of a product from a location to the default location, or the other way round."""
        product_id, _, location_id = place.partition("#")
        sides = self._chance.sample(("", location_id), 2)
        quantity = self._chance.choice(_TRANSFERRED)
        transfer_id = f"{self._run}-transfer-{len(self.transfers)}"
        command = {"action": "transfer", "transferId": transfer_id, "productId": product_id}
        route = {"from": sides[0], "to": sides[1], "quantity": quantity}
        result = self._ask("AdjustStock", command | route).get("result", "")
        keys = [place if side else product_id for side in sides]
        self.transfers.append(StaffTransfer(transfer_id, keys[0], keys[1], quantity, result))

    def _relist(self, *keys: str) -> None:
        """Delist a product at its locations for a moment, even while there are open orders. Its own row is deleted last
        and created first."""
        for key in keys:
            names = {**public_key(key), "createdAt": self._row(key)["createdAt"]}
            self._insist({"action": "delist", **names}, ("APPLIED", "STALE"))
            self.delisted += 1
        time.sleep(_AWAY_SECONDS)
        for key in reversed(keys):
            stock = next(p.opening_stock for p in SEASONAL if p.product_id == key)
            create = {"action": "create", **public_key(key), "openingStock": stock}
            # The product already exists: an attempt whose response was lost has created it.
            self._insist(create, ("APPLIED", "REFUSED"))

    def _row(self, key: str) -> Row:
        table = self._aws.tables[Table.PRODUCTS]
        found = self._aws.dynamodb.get_item(TableName=table, Key=key_item(key), ConsistentRead=True)
        return decode(found["Item"])

    def _insist(self, command: dict[str, Any], wanted: Sequence[str]) -> None:
        while (answer := self._ask("ManageProducts", command)).get("result") not in wanted:
            time.sleep(_RETRY_SECONDS)
            if answer.get("result") in ("INVALID", "UNAVAILABLE"):
                raise AssertionError(f"{command} was answered {answer}")

    def _ask(self, function: str, command: dict[str, Any], tries: int = _TRIES) -> dict[str, Any]:
        """Send a command until it gets a final answer. Returns that answer; empty if there was none."""
        for _ in range(tries):
            try:
                answer = self._aws.invoke(function, command)
            except LostAnswerError:
                # The worker was killed, or was too slow.
                continue
            if answer.get("result") != "RETRY_LATER":
                return answer
            time.sleep(_RETRY_SECONDS)
        return {}
