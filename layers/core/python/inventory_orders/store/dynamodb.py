"""The only code that talks to DynamoDB: requests, their conditions, and errors with a meaning."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from inventory_orders.clock import timestamp
from inventory_orders.domain.allotments import STOCK_PARTS, LaneLease, Page, PageKey, StockPart
from inventory_orders.domain.record import AdjustmentKey, NewRecord, OrderUpdate, Record, RecordKey
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.store.actions import (
    RIVAL,
    Action,
    ActionKind,
    CancellationReason,
    ConditionFailedError,
    Found,
    TransactionCancelledError,
)
from inventory_orders.store.expressions import (
    NO_LIVE_LEASE,
    OWNED,
    Write,
    as_read,
    assign,
    difference,
    unix,
)
from inventory_orders.store.rows import (
    FULFIL_SHARDS,
    KEYS,
    Item,
    Key,
    Row,
    Table,
    decode,
    encode,
    key_item,
    key_of,
    page_units,
    product_row,
    read_lease,
    read_page,
    read_product,
    read_record,
    read_stock_part,
    record_row,
    shard_name,
    stock_part_key,
    stock_part_row,
)

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

    from inventory_orders.domain.allocation import PageUpdate
    from inventory_orders.domain.planner import Transaction
    from inventory_orders.domain.product import Product

# The engine decides about retries, so the client makes none: after a throttle it would sleep for up to a second, while
# others wait for the depot. Parameter validation costs half of the client's CPU for a large transaction, and
# DynamoDB validates anyway.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"total_max_attempts": 1, "mode": "standard"},
    parameter_validation=False,
    tcp_keepalive=True,
)
WORST_CASE_SECONDS_OF_ONE_CALL = 4.0

READ_LIMIT = 100
"""Most items that a BatchGetItem or a TransactGetItems names."""

_HOLDS_OF_A_PAGE = 1000

_ALIAS = re.compile(r"#(\w+)")

F = TypeVar("F")

_MEANINGS: Mapping[str, type[StoreError]] = {
    "ProvisionedThroughputExceededException": ThrottledError,
    "RequestLimitExceeded": ThrottledError,
    "ThrottlingException": ThrottledError,
    "Throttling": ThrottledError,
    "TooManyRequestsException": ThrottledError,
    # The answer to a single write while a transaction on its item is in flight.
    "TransactionConflictException": ThrottledError,
    "ValidationException": RequestInvalidError,
    "SerializationException": RequestInvalidError,
    "TransactionInProgressException": OutcomeUnknownError,
    "InternalServerError": OutcomeUnknownError,
    "ServiceUnavailable": OutcomeUnknownError,
}
"""By error code. Of the others, those of the service's own failures leave the outcome unknown, too."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one read.

    Attributes:
        products: By id, None where there is no such product; strongly consistent.
        unreadable: What is wrong, by id, with products that break the table's contract.
        records: By key, where they exist, or the error that reading one raised. Unless they were asked for with strong
            consistency, a hint: a record that is here is durable, one that is not may exist all the same.
        pages: By key, strongly consistent; one that was never written has version 0 and an epoch to be written with.
        unprocessed: Keys that DynamoDB left out; ask for them again.
    """

    products: dict[str, Product | None] = field(default_factory=dict)
    unreadable: dict[str, CorruptItemError] = field(default_factory=dict)
    records: dict[RecordKey, Record | CorruptItemError] = field(default_factory=dict)
    pages: dict[PageKey, Page | CorruptItemError] = field(default_factory=dict)
    unprocessed: tuple[Key, ...] = ()

    def add(self, other: Snapshot) -> None:
        """Take over what another read found."""
        self.products.update(other.products)
        self.unreadable.update(other.unreadable)
        self.records.update(other.records)
        self.pages.update(other.pages)


@dataclass(frozen=True, slots=True, order=True)
class ListPosition:
    """A place in a list.

    Attributes:
        at: When the order at that place was written; in the list of orders to ship, when it was confirmed; in those of
            holds, when its hold ends. Empty in lists that are not sorted by time.
        id: The order, product or adjustment.
    """

    at: str
    id: str


class Store:
    """Reads and writes of the tables.

    Args:
        client: A DynamoDB client; `CLIENT_CONFIG` is meant for it. Clients are thread-safe, so is the store.
        tables: The tables' names.
    """

    def __init__(self, client: DynamoDBClient, tables: Mapping[Table, str]) -> None:
        self._client = client
        self._tables = dict(tables)
        self._table_of = {name: table for table, name in self._tables.items()}

    def stream(self, table: Table) -> str | None:
        """The ARN of a table's stream; None if it has none.

        Raises:
            StoreError: DynamoDB failed.
        """
        described = call(self._client.describe_table, TableName=self._tables[table])["Table"]
        enabled = described.get("StreamSpecification", {}).get("StreamEnabled")
        return described["LatestStreamArn"] if enabled else None

    def read(self, keys: Sequence[Key], *, consistent_records: bool = False) -> Snapshot:
        """Read products (by their ids), records and pages (by their keys), at most `READ_LIMIT` together.

        Args:
            keys: What to read.
            consistent_records: Whether records are read with strong consistency, too. That costs twice as much.

        Raises:
            StoreError: The request failed.
        """
        wanted = {key_of(key): key for key in keys}
        request: dict[str, Any] = {}
        for (table, _), key in wanted.items():
            is_consistent = consistent_records or table in (Table.PRODUCTS, Table.ALLOTMENTS)
            entry = {"Keys": [], "ConsistentRead": is_consistent}
            request.setdefault(self._tables[table], entry)["Keys"].append(key_item(key))
        response = call(self._client.batch_get_item, RequestItems=request)
        if "Responses" not in response:
            # Taken for an empty answer it would mean that nothing exists.
            raise OutcomeUnknownError("EMPTY_ANSWER", "DynamoDB answered without Responses")

        left_out = {
            self._place_of(name, key)
            for name, entry in response.get("UnprocessedKeys", {}).items()
            for key in entry["Keys"]
        }
        snapshot = Snapshot(unprocessed=tuple(wanted.pop(place) for place in left_out))
        items = {
            self._place_of(name, item): item
            for name, items in response["Responses"].items()
            for item in items
        }
        for place, key in wanted.items():
            self._add(snapshot, key, items.get(place))
        return snapshot

    def read_together(self, keys: Sequence[Key]) -> Snapshot:
        """Read what keys name as it is at one moment, at most `READ_LIMIT` and 4 MB together. It costs twice as much.

        Raises:
            ThrottledError: A rival is writing one of them.
            RequestInvalidError: They are more than that.
            StoreError: The request failed.
        """
        gets = [
            {"Get": {"TableName": self._tables[key_of(key)[0]], "Key": key_item(key)}}
            for key in keys
        ]
        try:
            response = call(self._client.transact_get_items, TransactItems=gets)
        except TransactionCancelledError as error:
            raise ThrottledError(RIVAL, str(error)) from error
        snapshot = Snapshot()
        for key, answer in zip(keys, response["Responses"], strict=True):
            self._add(snapshot, key, answer.get("Item"))
        return snapshot

    def _place_of(self, name: str, item: Item) -> tuple[Table, tuple[str, ...]]:
        """Table and key values of an item: what tells the items of one answer apart."""
        table = self._table_of[name]
        return table, tuple(item[key]["S"] for key in KEYS[table])

    @staticmethod
    def _add(snapshot: Snapshot, key: Key, item: Item | None) -> None:
        match key:
            case PageKey():
                snapshot.pages[key] = (
                    _found(read_page, item) if item else Page(key, 0, uuid.uuid4().hex[:16])
                )
            case str():
                product = _found(read_product, item) if item else None
                if isinstance(product, CorruptItemError):
                    snapshot.unreadable[key] = product
                else:
                    snapshot.products[key] = product
            case _ if item:
                snapshot.records[key] = _found(read_record, item)

    def get_record(self, key: RecordKey) -> Record | None:
        """Read one record, strongly consistent.

        Raises:
            CorruptItemError: It breaks its table's contract.
            StoreError: The request failed.
        """
        return self._get_item(key, read_record)

    def get_product(self, product_id: str) -> Product | None:
        """Read one product, strongly consistent.

        Raises:
            CorruptItemError: It breaks the table's contract.
            StoreError: The request failed.
        """
        return self._get_item(product_id, read_product)

    def list_orders(
        self, user_id: str, limit: int, after: ListPosition | None
    ) -> tuple[list[ListPosition], bool]:
        """List a user's orders, the newest first. Eventually consistent.

        Args:
            user_id: The user.
            limit: At most so many.
            after: Where to go on; None: at the beginning.

        Returns:
            The orders, and whether there are more.

        Raises:
            StoreError: The request failed.
        """
        # One more shows whether there is more: DynamoDB says where to go on also where nothing comes.
        response = self._query(
            Table.ORDERS,
            "#userId = :user",
            {"user": user_id},
            limit + 1,
            None
            if after is None
            else encode({"userId": user_id, "createdAt": after.at, "orderId": after.id}),
            IndexName="byUser",
            ScanIndexForward=False,
        )
        found = [_position(item, "createdAt") for item in response["Items"]]
        return found[:limit], len(found) > limit

    def list_products(
        self, limit: int, after: ListPosition | None
    ) -> tuple[Snapshot, ListPosition | None]:
        """List products in no order, strongly consistent.

        Args:
            limit: At most so many.
            after: Where to go on; None: at the beginning.

        Returns:
            The products, and where to go on; None at the end.

        Raises:
            StoreError: The request failed.
        """
        items, last = self._scan(Table.PRODUCTS, after, ConsistentRead=True, Limit=limit)
        snapshot = Snapshot()
        for item in items:
            self._add(snapshot, item["productId"]["S"], item)
        return snapshot, last

    def list_all_orders(
        self, after: ListPosition | None
    ) -> tuple[dict[str, Record | CorruptItemError], ListPosition | None]:
        """List orders in no order, a megabyte of them. Eventually consistent.

        Args:
            after: Where to go on; None: at the beginning.

        Returns:
            The orders by id, or why one cannot be read, and where to go on; None at the end.

        Raises:
            StoreError: The request failed.
        """
        items, last = self._scan(Table.ORDERS, after)
        return {item["orderId"]["S"]: _found(read_record, item) for item in items}, last

    def _scan(
        self, table: Table, after: ListPosition | None, **more: Any
    ) -> tuple[Sequence[Item], ListPosition | None]:
        (key,) = KEYS[table]
        if after is not None:
            more["ExclusiveStartKey"] = {key: {"S": after.id}}
        response = call(self._client.scan, TableName=self._tables[table], **more)
        last = response.get("LastEvaluatedKey")
        return response["Items"], ListPosition("", last[key]["S"]) if last else None

    def list_adjustments(
        self, product_id: str, limit: int, after: ListPosition | None
    ) -> tuple[list[Row], ListPosition | None]:
        """List a product's adjustments by their ids, strongly consistent.

        Args:
            product_id: The product.
            limit: At most so many.
            after: Where to go on; None: at the beginning.

        Returns:
            Their rows, and where to go on; None at the end.

        Raises:
            StoreError: The request failed.
        """
        response = self._query(
            Table.STOCK_ADJUSTMENTS,
            "#productId = :product",
            {"product": product_id},
            limit,
            None if after is None else key_item(AdjustmentKey(product_id, after.id)),
            ConsistentRead=True,
        )
        rows = [decode(item) for item in response["Items"]]
        last = response.get("LastEvaluatedKey")
        return rows, ListPosition("", last["adjustmentId"]["S"]) if last else None

    def list_to_fulfil(
        self, limit: int, after: ListPosition | None
    ) -> tuple[list[ListPosition], bool]:
        """List the orders that are confirmed and not fulfilled, the oldest first. Eventually consistent.

        Args:
            limit: At most so many.
            after: Where to go on; None: at the beginning.

        Returns:
            The orders, and whether there are more.

        Raises:
            StoreError: A request failed.
        """
        start = after or ListPosition("", "")
        found: list[ListPosition] = []
        for number in range(FULFIL_SHARDS):
            found += self._to_fulfil(shard_name(number), limit + 1, start)
        found.sort()
        return found[:limit], len(found) > limit

    def _to_fulfil(self, shard: str, limit: int, after: ListPosition) -> list[ListPosition]:
        """At least the first orders of a shard, if there are so many: an index does not sort orders of one moment."""
        condition = "#fulfilShard = :shard AND #confirmedAt >= :at"
        values = {"shard": shard, "at": after.at or " "}
        found: list[ListPosition] = []
        start: Item | None = None
        while len(found) < limit or found[limit - 1].at == found[-1].at:
            response = self._query(
                Table.ORDERS, condition, values, limit, start, IndexName="byToFulfil"
            )
            positions = (_position(item, "confirmedAt") for item in response["Items"])
            found += (position for position in positions if position > after)
            if "LastEvaluatedKey" not in response:
                break
            start = response["LastEvaluatedKey"]
        return found

    def _query(
        self,
        table: Table,
        condition: str,
        values: Mapping[str, Any],
        limit: int,
        after: Item | None,
        **more: Any,
    ) -> Any:
        start = {} if after is None else {"ExclusiveStartKey": after}
        return call(
            self._client.query,
            TableName=self._tables[table],
            KeyConditionExpression=condition,
            ExpressionAttributeNames=_names(condition),
            ExpressionAttributeValues=_values(values),
            Limit=limit,
            **start,
            **more,
        )

    def _get_item(self, key: Key, read: Callable[[Item], F]) -> F | None:
        response = call(
            self._client.get_item,
            TableName=self._tables[key_of(key)[0]],
            Key=key_item(key),
            ConsistentRead=True,
        )
        return read(response["Item"]) if "Item" in response else None

    def update_product(self, product_id: str, write: Write) -> Product:
        """Change a product in one conditional update, and get it back as it is then.

        Without a token: the caller recognises an own lost response by the product that comes back.

        Args:
            product_id: The product; it must exist and keep the table's contract.
            write: What to write.

        Raises:
            ConditionFailedError: With the product as stored.
            CorruptItemError: DynamoDB does not take the row; or it was written, but breaks the table's contract in a way
                that no condition can tell.
            StoreError: The request failed.
        """
        sound = replace(
            write,
            condition=f"{_SOUND} AND {write.condition}",
            values={**write.values, "number": "N", "text": "S"},
        )
        request = self.product_action(product_id, sound).request["Update"]
        try:
            response = call(self._client.update_item, **request, ReturnValues="ALL_NEW")
        except RequestInvalidError as error:
            # Such as a row that somebody else has filled up to 400 KB.
            raise CorruptItemError(
                f"DynamoDB does not take the row of product {product_id} ({error}); repair the item",
                "CORRUPT_PRODUCT",
            ) from error
        return read_product(response["Attributes"])

    def lease_lane(
        self,
        lane: int,
        owner: str,
        now: datetime,
        until: float,
        wait: float = 0.0,
        dead: str = "",
    ) -> LaneLease:
        """Take a lane, or keep one's own for longer. Safe to repeat.

        Args:
            lane: The lane.
            owner: The new owner.
            now: The moment.
            until: Unix second at which the lease ends.
            wait: Seconds for which the owner has waited for it, for those that wait behind it.
            dead: An owner whose lease is over, whatever the clocks say.

        Returns:
            The lease on the lane: the owner's, or that of another, which is live.

        Raises:
            StoreError: The request failed.
        """
        readable = "attribute_type(#lockTime, :number) AND attribute_type(#lockedBy, :text)"
        write = Write(
            "SET #lockedBy = :owner, #lockTime = :until, #lockWait = :wait",
            f"({NO_LIVE_LEASE} OR {OWNED} OR #lockedBy = :dead OR NOT ({readable}))",
            {
                "owner": owner,
                "dead": dead,
                "number": "N",
                "text": "S",
                "until": Decimal(f"{until:.6f}"),
                "wait": Decimal(f"{wait:.3f}"),
                "now": unix(now),
            },
        )
        action = self._update_action(ActionKind.LANE, lane, write)
        try:
            call(self._client.update_item, **action.request["Update"])
        except ConditionFailedError as failed:
            if isinstance(failed.found, LaneLease):
                return failed.found
            raise
        return LaneLease(lane, owner, until, wait)

    def release_lane(self, lease: LaneLease) -> None:
        """End the lease on a lane. Safe to repeat; one that is over stays over.

        Raises:
            StoreError: The request failed.
        """
        action = self._release_action(lease)
        with contextlib.suppress(ConditionFailedError):
            call(self._client.update_item, **action.request["Update"])

    def read_lane_leases(self, lanes: Sequence[int]) -> list[LaneLease]:
        """The leases that were ever taken on lanes, at most `READ_LIMIT`. Eventually consistent, so a hint.

        Raises:
            StoreError: The request failed.
        """
        return [read_lease(item) for item in self._allotments([key_item(lane) for lane in lanes])]

    def _allotments(self, keys: Sequence[Item]) -> Sequence[Item]:
        """Those items of the table that are there and that DynamoDB does not leave out. Eventually consistent."""
        name = self._tables[Table.ALLOTMENTS]
        response = call(self._client.batch_get_item, RequestItems={name: {"Keys": keys}})
        return response.get("Responses", {}).get(name, ())  # type: ignore[no-any-return]

    def read_stock_parts(self) -> dict[int, StockPart]:
        """What was last published of products' stock, by number; empty where nothing is known. Eventually consistent, so a hint.

        Raises:
            CorruptItemError: A part breaks the table's contract.
            StoreError: The request failed.
        """
        parts = {number: StockPart(number) for number in range(STOCK_PARTS)}
        return parts | {
            part.number: part
            for part in map(read_stock_part, self._allotments([*map(stock_part_key, parts)]))
        }

    def write_stock_part(self, part: StockPart) -> StockPart:
        """Write what is published of products' stock, in the place of the version that was read. Returns it as it is then.

        Raises:
            ConditionFailedError: Another sweep has written it since.
            StoreError: The request failed.
        """
        after = replace(part, version=part.version + 1)
        update, values = assign(stock_part_row(after))
        condition = "attribute_not_exists(#page) OR #_version = :version"
        call(
            self._client.update_item,
            TableName=self._tables[Table.ALLOTMENTS],
            Key=stock_part_key(part.number),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames=_names(update, condition),
            ExpressionAttributeValues=_values(values | {"version": part.version}),
        )
        return after

    def list_holds(
        self, shard: int, until: str, after: ListPosition | None = None
    ) -> tuple[list[ListPosition], ListPosition | None]:
        """The holds of a shard that end until a moment, oldest first. Eventually consistent, so a hint.

        Args:
            shard: One of `EXPIRY_SHARDS`.
            until: The moment.
            after: Where to go on; None: at the beginning.

        Returns:
            Some of the holds, and where to go on; None at the end.

        Raises:
            StoreError: The request failed.
        """
        name = shard_name(shard)
        response = self._query(
            Table.ORDERS,
            "#expiryShard = :shard AND #expiresAt <= :until",
            {"shard": name, "until": until},
            _HOLDS_OF_A_PAGE,
            None
            if after is None
            else encode({"expiryShard": name, "expiresAt": after.at, "orderId": after.id}),
            IndexName="byExpiry",
        )
        last = response.get("LastEvaluatedKey")
        holds = [_position(item, "expiresAt") for item in response["Items"]]
        return holds, _position(last, "expiresAt") if last else None

    def transaction_actions(self, transaction: Transaction, now: datetime) -> list[Action]:
        """The actions of a transaction: its updates, its pages, the release of a lane, and its records, in their order.

        Args:
            transaction: What to write.
            now: The moment.
        """
        at, after = timestamp(now), transaction.stock_after
        actions = [self._row_update(u.before, u.after, now) for u in transaction.updates]
        actions += [self._page_action(update, at) for update in transaction.pages]
        if transaction.release is not None:
            actions.append(self._release_action(transaction.release))
        actions += [
            self.record_action(decision.change.record(decision.rejection, after, at))
            for decision in transaction.decisions
            if decision.has_record
        ]
        return actions

    def record_action(self, write: NewRecord | OrderUpdate) -> Action:
        """The action that writes a record."""
        if isinstance(write, NewRecord):
            return self._put_action(ActionKind.RECORD, write.record.key, record_row(write.record))
        before, after = record_row(write.before), record_row(write.after)
        update, values = difference(before, after)
        condition = "#_version = :version AND #status = :status"
        values |= {"version": before["_version"], "status": before["status"]}
        if "userId" in before:
            condition += " AND #userId = :userId"
            values["userId"] = before["userId"]
        else:
            condition += " AND attribute_not_exists(#userId)"
        return self._update_action(
            ActionKind.RECORD, write.before.key, Write(update, condition, values)
        )

    def product_create_action(self, product: Product) -> Action:
        """The action that creates a product, which must not exist."""
        return self._put_action(ActionKind.PRODUCT, product.product_id, product_row(product))

    def product_action(self, product_id: str, write: Write, *, by_version: bool = False) -> Action:
        """The action that changes a product, which must exist; parameters as for `update_product`, and `Action`."""
        return self._update_action(ActionKind.PRODUCT, product_id, write, by_version=by_version)

    def product_replace_action(self, before: Product, after: Product, now: datetime) -> Action:
        """The action that takes a product from one state to another, attribute by attribute.

        Args:
            before: As it was read.
            after: As it is to be.
            now: The moment.

        Raises:
            ValueError: Lanes may hold more of it, and would not be allowed to.
        """
        if after.lent_to and not after.may_be_lent:
            raise ValueError(
                f"{after.product_id} is in lanes: reclaim its units before it becomes {after}"
            )
        return self._row_update(before, after, now)

    def product_delete_action(self, product: Product, now: datetime) -> Action:
        """The action that deletes a product, which must be as it was read.

        Args:
            product: As it was read.
            now: The moment. The same transaction has to reclaim what lanes hold of it.
        """
        condition, values = as_read(product, now)
        return Action(
            ActionKind.PRODUCT,
            product.product_id,
            {
                "Delete": {
                    "TableName": self._tables[Table.PRODUCTS],
                    "Key": key_item(product.product_id),
                    "ConditionExpression": condition,
                    "ExpressionAttributeNames": _names(condition),
                    "ExpressionAttributeValues": _values(values),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            },
            by_version=True,
        )

    def _update_action(
        self, kind: ActionKind, key: Key | int, write: Write, *, by_version: bool = False
    ) -> Action:
        return Action(
            kind,
            key,
            {
                "Update": {
                    "TableName": self._tables[key_of(key)[0]],
                    "Key": key_item(key),
                    "UpdateExpression": write.update,
                    "ConditionExpression": write.condition,
                    "ExpressionAttributeNames": _names(write.update, write.condition),
                    "ExpressionAttributeValues": _values(write.values),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            },
            by_version=by_version,
        )

    def write(self, actions: Sequence[Action], token: str) -> None:
        """Apply all actions or none.

        Args:
            actions: At most 100.
            token: `ClientRequestToken`: a repetition with the same token within 10 minutes applies nothing twice.

        Raises:
            TransactionCancelledError: A condition failed, or a rival was at work.
            StoreError: Another failure; its type says what it means.
        """
        call(
            self._client.transact_write_items,
            TransactItems=[action.request for action in actions],
            ClientRequestToken=token,
        )

    def _row_update(self, before: Product, after: Product, now: datetime) -> Action:
        """The action that changes a row as it was read. Only a lease's owner takes its fence along."""
        is_owner = after.lock_version != before.lock_version
        row = product_row(after) | {"lastUpdatedAt": timestamp(now)}
        update, values = difference(product_row(before), row)
        condition, read = as_read(before, now, before.locked_by if is_owner else None)
        return self.product_action(
            before.product_id, Write(update, condition, values | read), by_version=True
        )

    def _page_action(self, update: PageUpdate, at: str) -> Action:
        before, after = update.before, update.after
        if before.version:
            condition = "#_version = :version AND #epoch = :epoch"
            values: dict[str, Any] = {"version": before.version, "epoch": before.epoch}
        else:
            condition, values = "attribute_not_exists(#page)", {}
        if not update.is_check:
            expression, new = assign(
                {
                    "units": page_units(after),
                    "_version": after.version,
                    "epoch": after.epoch,
                    "lastUpdatedAt": at,
                }
            )
            write = Write(expression, condition, values | new)
            return self._update_action(ActionKind.PAGE, before.key, write, by_version=True)
        check: Any = {
            "TableName": self._tables[Table.ALLOTMENTS],
            "Key": key_item(before.key),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": _names(condition),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if values:
            check["ExpressionAttributeValues"] = _values(values)
        return Action(ActionKind.PAGE, before.key, {"ConditionCheck": check}, by_version=True)

    def _release_action(self, lease: LaneLease) -> Action:
        write = Write("REMOVE #lockedBy, #lockTime, #lockWait", OWNED, {"owner": lease.owner})
        return self._update_action(ActionKind.LANE, lease.lane, write)

    def _put_action(self, kind: ActionKind, key: str | RecordKey, row: Row) -> Action:
        """The action that writes a row which must not exist."""
        table, _ = key_of(key)
        return Action(
            kind,
            key,
            {
                "Put": {
                    "TableName": self._tables[table],
                    "Item": encode(row),
                    "ConditionExpression": "attribute_not_exists(#key)",
                    "ExpressionAttributeNames": {"#key": KEYS[table][0]},
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            },
        )


# A product that exists and keeps the table's contract, as far as a condition can tell.
_SOUND = (
    "attribute_type(#_version, :number) AND attribute_type(#stockCount, :number) AND "
    "attribute_type(#createdAt, :text) AND attribute_type(#status, :text)"
)


def _position(item: Item, time: str) -> ListPosition:
    return ListPosition(item[time]["S"], item["orderId"]["S"])


def _names(*expressions: str) -> dict[str, str]:
    """Every attribute of the expressions, aliased: many of our names are reserved words."""
    return {f"#{name}": name for text in expressions for name in _ALIAS.findall(text)}


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    return encode({f":{name}": value for name, value in values.items()})


def _found(read: Callable[[Item], F], item: Item) -> F | CorruptItemError:
    """The stored object, or the error that tells why it cannot be read."""
    try:
        return read(item)
    except CorruptItemError as error:
        return error


def _found_item(item: Item | None) -> Found:
    """The object that came back with a refused write. A product may have attributes of any name that is not its own."""
    if not item:
        return None
    if "productId" in item:
        is_record = "adjustmentId" in item and "stockCount" not in item
        return _found(read_record, item) if is_record else _found(read_product, item)
    if "page" in item:
        return _found(read_page, item) if "epoch" in item else read_lease(item)
    return _found(read_record, item)


def call(operation: Any, **parameters: Any) -> Any:
    """Call AWS; failures become errors that say what they mean for the tables."""
    try:
        return operation(**parameters)
    except ClientError as error:
        raise _meaning(error) from error
    except (HTTPClientError, BotoConnectionError) as error:
        # Timeouts and broken connections: the request may have arrived all the same.
        raise OutcomeUnknownError(type(error).__name__, str(error)) from error
    except BotoCoreError as error:
        raise StoreUnavailableError(type(error).__name__, str(error)) from error


def _meaning(error: ClientError) -> StoreError:
    # mypy: the stubs know neither the reasons nor that any key may be missing.
    response: Mapping[str, Any] = error.response
    code = response.get("Error", {}).get("Code", "Unknown")
    message = response.get("Error", {}).get("Message", str(error))
    if code == "TransactionCanceledException":
        return TransactionCancelledError(
            [
                CancellationReason(
                    reason.get("Code", "None"),
                    _found_item(reason.get("Item")),
                    reason.get("Message") or "",
                )
                for reason in response.get("CancellationReasons", ())
            ]
        )
    if code == "ConditionalCheckFailedException":
        return ConditionFailedError(_found_item(response.get("Item")))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    other = OutcomeUnknownError if status >= 500 else StoreUnavailableError
    return _MEANINGS.get(code, other)(code, message)
