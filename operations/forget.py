"""Forgets a customer: pseudonymises the user in all of that user's orders, and removes the user from the buyers of others."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.change import Update
from inventory_orders.domain.purchases import (
    BuyerKey,
    Purchases,
    PurchasesByBuyer,
    Refunds,
    together,
)
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.cancellations import (
    CancellationReason,
    Meaning,
    TransactionCancelledError,
)
from inventory_orders.store.rows import Item, read_record
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import (
    Action,
    ActionKind,
    Write,
    record_action,
    refund_action,
)

from .aws import Aws, get_items, query, scan
from .errors import UserError
from .purchases import charged

KEY_VARIABLE = "INVENTORY_ORDERS_PSEUDONYM_KEY"
"""The environment variable that may contain the key."""

MIN_KEY_BYTES = 32

# The index follows the table, usually within a second: docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html
LOOK_AGAIN_SECONDS = 3.0

_PREFIX = "forgotten-"
_PSEUDONYM = re.compile(rf"{_PREFIX}[0-9a-f]{{64}}")
_TOGETHER = 100
_PATIENCE = 60.0


def read_key(file: Path | None, environment: Mapping[str, str]) -> bytes:
    """Read the key for pseudonyms from a file, or else from `KEY_VARIABLE`.

    A line break at the end is not part of the key, so that the file and the variable can contain the same key.

    Raises:
        UserError: There is no key, or it is short enough to guess.
    """
    if file is not None:
        key, where = file.read_bytes(), str(file)
    elif KEY_VARIABLE in environment:
        key, where = environment[KEY_VARIABLE].encode("utf-8", "surrogateescape"), KEY_VARIABLE
    else:
        raise UserError(
            f"pseudonyms need a secret key: give its file with --key-file, or set {KEY_VARIABLE}"
        )
    key = key.rstrip(b"\r\n")
    if len(key) < MIN_KEY_BYTES:
        raise UserError(
            f"the key in {where} has only {len(key)} bytes, so it can be guessed; it needs {MIN_KEY_BYTES} or more, "
            "such as the output of `openssl rand -hex 32`"
        )
    return key


def pseudonym_of(user_id: str, key: bytes) -> str:
    """Derive a user's pseudonym, a valid `userId` of 74 characters that depends only on the user and the key.

    A plain hash could be reversed by hashing all user ids. This one also needs the key.
    """
    return _PREFIX + hmac.new(key, user_id.encode(), hashlib.sha256).hexdigest()


def is_pseudonym(user_id: str) -> bool:
    """Whether a user id is a pseudonym."""
    return _PSEUDONYM.fullmatch(user_id) is not None


def _left_in(order: OrderRecord) -> tuple[Any, ...]:
    """What an earlier run may have left in an order, or what commands have added since."""
    return order.buyers, [step.notes for step in order.steps]


def _lacking(reasons: Sequence[CancellationReason], keys: Iterable[BuyerKey]) -> PurchasesByBuyer:
    """The rows that have fewer units than an order charged."""
    return {
        key: each.found if isinstance(each.found, Purchases) else Purchases(key, 0, "")
        for key, each in zip(keys, reasons, strict=True)
        if each.meaning in (Meaning.CONDITION_FAILED, Meaning.INVALID)
    }


OPEN: Mapping[str, str] = {
    OrderStatus.PENDING: "not paid yet",
    OrderStatus.CONFIRMED: "paid, to ship",
}
"""The statuses of orders that the shop still needs the user for, in words."""


def orders_of(aws: Aws, user_id: str) -> dict[str, str]:
    """Find the ids of a user's orders that are currently in the index, and their statuses."""
    found = query(aws, Table.ORDERS, "userId", user_id, index="byUser")
    return {item["orderId"]["S"]: item.get("status", {}).get("S", "") for item in found}


def orders_bought_by(aws: Aws, user_id: str) -> list[str]:
    """Find the ids of all orders that name a user as a buyer, also those of other users. No index shows them, so this reads all orders."""
    found = scan(
        aws,
        Table.ORDERS,
        FilterExpression="attribute_exists(buyers)",
        ProjectionExpression="orderId, buyers",
    )
    return [item["orderId"]["S"] for item in found if {"S": user_id} in item["buyers"].get("L", ())]


@dataclass
class Forgetting:
    """Pseudonymises the orders of one user. It may be interrupted and run again.

    Args:
        aws: The stack.
        user_id: The user to forget.
        key: The key from `read_key`.
        also: The ids of orders that name the user as a buyer.
        keep_limits: Whether what the orders count towards purchase limits stays counted under the buyers' other keys.
        on_progress: Called after each order.

    Attributes:
        pseudonym: The user's pseudonym.
        done: The number of pseudonymised orders.
        is_known: Whether the user, or the user's pseudonym, has any orders, or orders name the user as a buyer.
        problems: Errors of rows that cannot be changed, by order id.
    """

    aws: Aws
    user_id: str
    key: bytes
    also: Sequence[str] = ()
    keep_limits: bool = False
    on_progress: Callable[[], None] = lambda: None
    done: int = 0
    is_known: bool = False
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pseudonym = pseudonym_of(self.user_id, self.key)
        self._client = RetryingClient(self.aws.store())
        self._erased = {BuyerKey(self.user_id)}

    def run(self) -> None:
        """Find orders and pseudonymise them, until two searches in a row find none: the index is eventually consistent.

        Commands that arrived after an earlier run may have left notes in orders that it pseudonymised; these notes are
        removed, too.

        Raises:
            StoreError: DynamoDB failed, or concurrent writers interfered for too long.
        """
        found_none = 0
        earlier = list(orders_of(self.aws, self.pseudonym))
        self.is_known = bool(earlier or self.also)
        self._pseudonymise_all(earlier)
        self._pseudonymise_all(self.also, self.on_progress)
        while found_none < 2:
            order_ids = [o for o in orders_of(self.aws, self.user_id) if o not in self.problems]
            self.is_known |= bool(order_ids)
            self._pseudonymise_all(order_ids, self.on_progress)
            found_none = 0 if order_ids else found_none + 1
            if found_none < 2:
                time.sleep(LOOK_AGAIN_SECONDS)
        self._delete_empty_rows()

    def _pseudonymise_all(
        self, order_ids: Sequence[str], on_progress: Callable[[], None] = lambda: None
    ) -> None:
        for start in range(0, len(order_ids), _TOGETHER):
            keys = [{"orderId": {"S": o}} for o in order_ids[start : start + _TOGETHER]]
            for item in get_items(self.aws, Table.ORDERS, keys):
                self._pseudonymise(item)
                on_progress()

    def _pseudonymise(self, item: Item) -> None:
        """Pseudonymise one order, unless that was done before.

        If the order changes at the same time, the next pass finds it.
        """
        try:
            order: Any = read_record(item)
            after = self._after(order)
            if order.user_id != after.user_id or _left_in(order) != _left_in(after):
                kept = after.charged_buyers
                refunds = {key: n for key, n in charged(order).items() if key not in kept}
                self._erased |= refunds.keys()
                self._write(Update(order.require_version(), after), refunds)
        except CorruptItemError as error:
            self.problems[item["orderId"]["S"]] = str(error)

    def _write(self, update: Update[OrderRecord], refunds: Refunds) -> None:
        """Write one order, unless it has changed since the read, and subtract its units from what its buyers have bought."""
        order, at = record_action(update.before.key, update), update.after.last_updated_at
        actions = [order, *(refund_action(key, units, at) for key, units in refunds.items())]
        try:
            self._client.write(actions, self._soon(), CommitStats())
        except TransactionCancelledError as error:
            reason, *of_buyers = error.reasons
            lacking = _lacking(of_buyers, refunds)
            if reason.meaning is Meaning.NOTHING and lacking:
                # The audit reports the difference.
                self._write(update, together([refunds], lacking))
                return
            if reason.meaning is not Meaning.CONDITION_FAILED:
                raise
            if reason.found == update.before:
                raise CorruptItemError(
                    f"order {update.before.order_id} has no status; repair the item"
                ) from None
        else:
            self.done += 1

    def _delete_empty_rows(self) -> None:
        """Delete the rows of erased buyers who have bought nothing else, because their keys name them."""
        found = read_all(self._client, sorted(self._erased), self._soon(), CommitStats()).purchases
        for key, row in found.items():
            if isinstance(row, Purchases) and row.version and not any(row.units.values()):
                same = Write().on(
                    "#_version = :version AND #epoch = :epoch", version=row.version, epoch=row.epoch
                )
                delete = Action(ActionKind.PURCHASES, key, same, "Delete", by_version=True)
                # If it has changed, it is not empty any more.
                with suppress(TransactionCancelledError):
                    self._client.write([delete], self._soon(), CommitStats())

    def _soon(self) -> Deadline:
        return Deadline.after(_PATIENCE, SystemClock())

    def _after(self, order: OrderRecord) -> OrderRecord:
        is_own = order.user_id in (self.user_id, self.pseudonym)
        return self._forgotten(order) if is_own else self._left(order)

    def _left(self, order: OrderRecord) -> OrderRecord:
        """An order without the user among its buyers."""
        at, buyers = timestamp(SystemClock().now()), order.buyers
        return replace(
            order,
            buyers=None
            if buyers is None
            else tuple(each for each in buyers if each != self.user_id),
            pseudonymised_at=order.pseudonymised_at or at,
            last_updated_at=at,
            version=order.version + 1,
        )

    def _forgotten(self, order: OrderRecord) -> OrderRecord:
        """An order of the user without what may be personal data."""
        left = self._left(order)
        return replace(
            left,
            buyers=(left.buyers if self.keep_limits else None) or None,
            user_id=self.pseudonym,
            attributes={},
            asked=order.asked and replace(order.asked, attributes={}),
            placed_by=None,
            steps=tuple(replace(step, notes={}) for step in order.steps),
        )
