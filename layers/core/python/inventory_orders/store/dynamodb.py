"""The only code that talks to DynamoDB: requests, and errors that say what they mean."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from inventory_orders.domain.allotments import Page, PageKey
from inventory_orders.domain.location import in_words
from inventory_orders.domain.outbound import Generation, OutboundKey, OutboundPage
from inventory_orders.domain.record import AdjustmentKey, OrderKey, Record, RecordKey
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.store.cancellations import (
    CancellationReason,
    ConditionFailedError,
    Found,
    TransactionCancelledError,
)
from inventory_orders.store.rows import (
    Item,
    Key,
    is_outbound,
    key_item,
    key_of,
    read_lease,
    read_outbound_page,
    read_page,
    read_product,
    read_record,
)
from inventory_orders.store.tables import KEYS, Table
from inventory_orders.store.writes import Action, Write, names_and_values

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

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

_ALWAYS_CONSISTENT = (Table.PRODUCTS, Table.ALLOTMENTS)

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
        outbound: Outbound pages, likewise.
        unprocessed: Keys that DynamoDB left out; ask for them again.
    """

    products: dict[str, Product | None] = field(default_factory=dict)
    unreadable: dict[str, CorruptItemError] = field(default_factory=dict)
    records: dict[RecordKey, Record | CorruptItemError] = field(default_factory=dict)
    pages: dict[PageKey, Page | CorruptItemError] = field(default_factory=dict)
    outbound: dict[OutboundKey, OutboundPage | CorruptItemError] = field(default_factory=dict)
    unprocessed: tuple[Key, ...] = ()

    def add(self, other: Snapshot) -> None:
        """Take over what another read found."""
        self.products.update(other.products)
        self.unreadable.update(other.unreadable)
        self.records.update(other.records)
        self.pages.update(other.pages)
        self.outbound.update(other.outbound)

    def outbound_units(self, product: Product) -> int:
        """Units of a product on the outbound pages that were read.

        Raises:
            CorruptItemError: One of them cannot be read.
        """
        units, generation = 0, Generation(product.product_id, product.created_at)
        for page in self.outbound.values():
            if isinstance(page, CorruptItemError):
                raise page
            units += page.units.get(generation, 0)
        return units

    def add_item(self, key: Key, item: Item | None) -> None:
        """Take over what a key names, as it is stored; None: it does not exist."""
        match key:
            case PageKey():
                self.pages[key] = (
                    read_if_sound(read_page, item) if item else Page(key, 0, _new_epoch())
                )
            case OutboundKey():
                self.outbound[key] = (
                    read_if_sound(read_outbound_page, item)
                    if item
                    else OutboundPage(key, 0, _new_epoch())
                )
            case str():
                product = read_if_sound(read_product, item) if item else None
                if isinstance(product, CorruptItemError):
                    self.unreadable[key] = product
                else:
                    self.products[key] = product
            case OrderKey() | AdjustmentKey():
                if item:
                    self.records[key] = read_if_sound(read_record, item)
            case unknown:
                assert_never(unknown)


def _new_epoch() -> str:
    """What tells a page from one that was deleted, and made again with the same version."""
    return uuid.uuid4().hex[:16]


class Store:
    """Reads and writes of the tables. A request that fails raises a `StoreError`, whose type says what that means for them.

    Args:
        client: A DynamoDB client; `CLIENT_CONFIG` is meant for it. Clients are thread-safe, so is the store.
        tables: The tables' names.
    """

    def __init__(self, client: DynamoDBClient, tables: Mapping[Table, str]) -> None:
        self._client = client
        self._tables = dict(tables)
        self._table_of = {name: table for table, name in self._tables.items()}

    def stream(self, table: Table) -> str | None:
        """The ARN of a table's stream; None if it has none."""
        described = call(self._client.describe_table, TableName=self._tables[table])["Table"]
        enabled = described.get("StreamSpecification", {}).get("StreamEnabled")
        return described["LatestStreamArn"] if enabled else None

    def read(self, keys: Sequence[Key], *, consistent_records: bool = False) -> Snapshot:
        """Read products (by their ids), records and pages (by their keys), at most `READ_LIMIT` together.

        Args:
            keys: What to read.
            consistent_records: Whether records are read with strong consistency, too. That costs twice as much.
        """
        wanted = {key_of(key): key for key in keys}
        by_table: dict[Table, list[Item]] = defaultdict(list)
        for (table, _), key in wanted.items():
            by_table[table].append(key_item(key))
        request = {
            self._tables[table]: {
                "Keys": items,
                "ConsistentRead": consistent_records or table in _ALWAYS_CONSISTENT,
            }
            for table, items in by_table.items()
        }
        response = call(self._client.batch_get_item, RequestItems=request)
        if "Responses" not in response:
            # Taken for an empty answer it would mean that nothing exists.
            raise OutcomeUnknownError("EMPTY_ANSWER", "DynamoDB answered without Responses")

        unprocessed = response.get("UnprocessedKeys", {})
        left_out = self._by_place({name: entry["Keys"] for name, entry in unprocessed.items()})
        snapshot = Snapshot(unprocessed=tuple(wanted.pop(place) for place in left_out))
        items = self._by_place(response["Responses"])
        for place, key in wanted.items():
            snapshot.add_item(key, items.get(place))
        return snapshot

    def _by_place(
        self, answer: Mapping[str, Sequence[Item]]
    ) -> dict[tuple[Table, tuple[str, ...]], Item]:
        """Items by what tells those of one answer apart: their table, and the values of their keys."""
        return {
            (table, tuple(item[key]["S"] for key in KEYS[table])): item
            for name, items in answer.items()
            for table in [self._table_of[name]]
            for item in items
        }

    def read_together(self, keys: Sequence[Key]) -> Snapshot:
        """Read what keys name as it is at one moment, at most `READ_LIMIT` and 4 MB together. It costs twice as much.

        Raises:
            ThrottledError: A rival is writing one of them.
            RequestInvalidError: They are more than that.
        """
        gets = [
            {"Get": {"TableName": self._tables[key_of(key)[0]], "Key": key_item(key)}}
            for key in keys
        ]
        try:
            response = call(self._client.transact_get_items, TransactItems=gets)
        except TransactionCancelledError as error:
            raise ThrottledError("TransactionConflict", str(error)) from error
        snapshot = Snapshot()
        for key, answer in zip(keys, response["Responses"], strict=True):
            snapshot.add_item(key, answer.get("Item"))
        return snapshot

    def get_record(self, key: RecordKey) -> Record | None:
        """Read one record, strongly consistent.

        Raises:
            CorruptItemError: It breaks its table's contract.
        """
        return self._get(key, read_record)

    def get_product(self, product_id: str) -> Product | None:
        """Read one product, strongly consistent.

        Raises:
            CorruptItemError: It breaks the table's contract.
        """
        return self._get(product_id, read_product)

    def _get(self, key: Key, read: Callable[[Item], F]) -> F | None:
        response = call(
            self._client.get_item,
            TableName=self._tables[key_of(key)[0]],
            Key=key_item(key),
            ConsistentRead=True,
        )
        return read(response["Item"]) if "Item" in response else None

    def read_items(self, table: Table, keys: Sequence[Item]) -> Sequence[Item]:
        """Those items that are there and that DynamoDB does not leave out. Eventually consistent."""
        name = self._tables[table]
        response = call(self._client.batch_get_item, RequestItems={name: {"Keys": keys}})
        return response.get("Responses", {}).get(name, ())  # type: ignore[no-any-return]

    def query(
        self,
        table: Table,
        condition: str,
        values: Mapping[str, Any],
        after: Item | None,
        **parameters: Any,
    ) -> Any:
        """A page of the items of one partition.

        Args:
            table: The table.
            condition: On their keys, each attribute as `#name`.
            values: For the placeholders of the condition, without the colon.
            after: The key after which to go on; None: at the beginning.
            parameters: Others, as DynamoDB takes them.
        """
        start = {} if after is None else {"ExclusiveStartKey": after}
        return call(
            self._client.query,
            TableName=self._tables[table],
            KeyConditionExpression=condition,
            **names_and_values(values, condition),
            **start,
            **parameters,
        )

    def scan(self, table: Table, **parameters: Any) -> Any:
        """A page of the items of a table; parameters as DynamoDB takes them."""
        return call(self._client.scan, TableName=self._tables[table], **parameters)

    def update(self, table: Table, key: Item, write: Write, **parameters: Any) -> Any:
        """Change one item.

        Args:
            table: The table.
            key: The item's primary key.
            write: What to write, and on which condition.
            parameters: Others, as DynamoDB takes them.

        Raises:
            ConditionFailedError: The condition does not hold.
        """
        return call(
            self._client.update_item,
            TableName=self._tables[table],
            Key=key,
            **write.parameters,
            **parameters,
        )

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
        """
        sound = replace(
            write,
            condition=f"{_SOUND} AND {write.condition}",
            values={**write.values, "number": "N", "text": "S"},
        )
        try:
            response = self.update(
                Table.PRODUCTS,
                key_item(product_id),
                sound,
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except RequestInvalidError as error:
            # For example, another program has filled the row up to 400 KB.
            raise CorruptItemError(
                f"DynamoDB does not take the row of product {in_words(product_id)} ({error}); repair the item",
                "CORRUPT_PRODUCT",
            ) from error
        return read_product(response["Attributes"])

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
            TransactItems=[
                {
                    action.operation: {
                        "TableName": self._tables[key_of(action.subject)[0]],
                        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                        **action.parameters,
                    }
                }
                for action in actions
            ],
            ClientRequestToken=token,
        )


# A product that exists and keeps the table's contract, as far as a condition can tell.
_SOUND = (
    "attribute_type(#_version, :number) AND attribute_type(#stockCount, :number) AND "
    "attribute_type(#onHand, :number) AND "
    "attribute_type(#createdAt, :text) AND attribute_type(#status, :text)"
)


def read_if_sound(read: Callable[[Item], F], item: Item) -> F | CorruptItemError:
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
        return read_if_sound(read_record, item) if is_record else read_if_sound(read_product, item)
    if "page" in item:
        if is_outbound(item):
            return read_if_sound(read_outbound_page, item)
        return read_if_sound(read_page, item) if "epoch" in item else read_lease(item)
    return read_if_sound(read_record, item)


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
