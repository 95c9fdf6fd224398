"""Sends all requests to DynamoDB, and classifies its errors by what they mean for the tables."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from inventory_orders.domain.allotments import Page, PageKey
from inventory_orders.domain.barcode import BarcodeKey
from inventory_orders.domain.location import in_words
from inventory_orders.domain.outbound import Generation, OutboundKey, OutboundPage
from inventory_orders.domain.purchases import BuyerKey, Purchases
from inventory_orders.domain.record import Record, RecordKey
from inventory_orders.errors import (
    AWS_UNREACHABLE,
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
    TransactionCancelledError,
    limits_of,
)
from inventory_orders.store.rows import (
    READERS,
    Item,
    Key,
    Row,
    decode,
    key_item,
    key_of,
    read_item,
    read_product,
)
from inventory_orders.store.tables import KEYS, Table
from inventory_orders.store.writes import Action, Write

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from inventory_orders.domain.product import Product

# The engine decides about retries, so the client makes none: after throttling it would sleep for up to a second, while
# other processes wait for the depot. Parameter validation takes half of the client's CPU time for a large transaction,
# and DynamoDB validates anyway.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"total_max_attempts": 1, "mode": "standard"},
    parameter_validation=False,
    tcp_keepalive=True,
)
WORST_CASE_SECONDS_OF_ONE_CALL = 4.0

READ_LIMIT = 100
"""Maximum number of items in a BatchGetItem or TransactGetItems request."""

ALWAYS_CONSISTENT = (Table.PRODUCTS, Table.ALLOTMENTS, Table.PURCHASES)

_MEANINGS: Mapping[str, type[StoreError]] = {
    "ProvisionedThroughputExceededException": ThrottledError,
    "RequestLimitExceeded": ThrottledError,
    "ThrottlingException": ThrottledError,
    "Throttling": ThrottledError,
    "TooManyRequestsException": ThrottledError,
    # The response to a single write while a transaction on its item is in flight.
    "TransactionConflictException": ThrottledError,
    "ValidationException": RequestInvalidError,
    "SerializationException": RequestInvalidError,
    "TransactionInProgressException": OutcomeUnknownError,
    "InternalServerError": OutcomeUnknownError,
    "ServiceUnavailable": OutcomeUnknownError,
}
"""Errors by code. Other codes with an HTTP status of 5xx also leave the outcome unknown."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The items that one or more reads have returned.

    Attributes:
        products: Products by id, read with strong consistency; None for a product that does not exist.
        unreadable: The errors of products that break the table's contract, by id.
        records: Existing records by key, or the error of an unreadable one. Without strong consistency they are a hint: a
            record that was found is durable, but one that was not found may exist.
        pages: Pages of lanes by key, read with strong consistency. A page that was never written has version 0 and a new
            epoch for its first write.
        outbound: Outbound pages by key, like `pages`.
        purchases: What buyers have bought by key, like `pages`.
        unprocessed: Keys that DynamoDB left out, to be read again.
    """

    products: dict[str, Product | None] = field(default_factory=dict)
    unreadable: dict[str, CorruptItemError] = field(default_factory=dict)
    records: dict[RecordKey, Record | CorruptItemError] = field(default_factory=dict)
    pages: dict[PageKey, Page | CorruptItemError] = field(default_factory=dict)
    outbound: dict[OutboundKey, OutboundPage | CorruptItemError] = field(default_factory=dict)
    purchases: dict[BuyerKey, Purchases | CorruptItemError] = field(default_factory=dict)
    unprocessed: tuple[Key, ...] = ()

    def add(self, other: Snapshot) -> None:
        """Add the items of another read."""
        self.products.update(other.products)
        self.unreadable.update(other.unreadable)
        self.records.update(other.records)
        self.pages.update(other.pages)
        self.outbound.update(other.outbound)
        self.purchases.update(other.purchases)

    def outbound_units(self, product: Product) -> int:
        """Add up the units of a product on the outbound pages that were read.

        Raises:
            CorruptItemError: One of the pages is unreadable.
        """
        units, generation = 0, Generation(product.product_id, product.created_at)
        for page in self.outbound.values():
            if isinstance(page, CorruptItemError):
                raise page
            units += page.units.get(generation, 0)
        return units

    def add_item(self, key: Key, item: Item | None) -> None:
        """Convert and add a stored item; None if the key has no item."""
        found = read_item(key, item)
        match key:
            case PageKey():
                self.pages[key] = found or Page(key, 0, new_epoch())
            case OutboundKey():
                self.outbound[key] = found or OutboundPage(key, 0, new_epoch())
            case BuyerKey():
                self.purchases[key] = found or Purchases(key, 0, new_epoch())
            case str() if isinstance(found, CorruptItemError):
                self.unreadable[key] = found
            case str():
                self.products[key] = found
            # A record that does not exist is left out. `read_item` knows no other keys.
            case _ if found is not None:
                self.records[key] = found


def new_epoch() -> str:
    """Choose a random epoch, so that a page or row that is deleted and written again is never taken for the old one."""
    return uuid.uuid4().hex[:16]


class Store:
    """Reads and writes the tables. The type of a `StoreError` shows whether the request may have been applied.

    Args:
        client: A DynamoDB client, made with `CLIENT_CONFIG`. Several threads may use the store.
        tables: The name of each table.
        consistent: The tables that `read` always reads with strong consistency. Nothing may be written or decided from what a
            store reads otherwise.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        tables: Mapping[Table, str],
        consistent: Collection[Table] = ALWAYS_CONSISTENT,
    ) -> None:
        self._client = client
        self._consistent = consistent
        self._tables = dict(tables)
        self._table_of = {name: table for table, name in self._tables.items()}

    def stream(self, table: Table) -> str | None:
        """The ARN of a table's stream; None if it has none."""
        described = call(self._client.describe_table, TableName=self._tables[table])["Table"]
        enabled = described.get("StreamSpecification", {}).get("StreamEnabled")
        return described["LatestStreamArn"] if enabled else None

    def read(self, keys: Sequence[Key], *, consistent_records: bool = False) -> Snapshot:
        """Read products by id, and records and pages by key: at most `READ_LIMIT` keys in one request.

        Args:
            keys: What to read.
            consistent_records: Whether to read records with strong consistency as well, which costs twice as much.
        """
        wanted = {key_of(key): key for key in keys}
        by_table: dict[Table, list[Item]] = defaultdict(list)
        for (table, _), key in wanted.items():
            by_table[table].append(key_item(key))
        request = {
            self._tables[table]: {
                "Keys": items,
                "ConsistentRead": consistent_records or table in self._consistent,
            }
            for table, items in by_table.items()
        }
        response = call(self._client.batch_get_item, RequestItems=request)
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
        """Index the items of a response by their table and the values of their keys."""
        return {
            (table, tuple(item[key]["S"] for key in KEYS[table])): item
            for name, items in answer.items()
            for table in [self._table_of[name]]
            for item in items
        }

    def read_together(self, keys: Sequence[Key]) -> Snapshot:
        """Read items in one transaction, which costs twice as much: at most `READ_LIMIT` keys, and 4 MB in total.

        Raises:
            ThrottledError: A concurrent writer is changing one of the items, or the read was throttled.
            RequestInvalidError: The items exceed the limits.
        """
        gets = [
            {"Get": {"TableName": self._tables[key_of(key)[0]], "Key": key_item(key)}}
            for key in keys
        ]
        try:
            response = call(self._client.transact_get_items, TransactItems=gets)
        except TransactionCancelledError as error:
            code, words = "CONTENTION", "a concurrent writer was changing one of the items"
            if error.limits:
                code, words = "ThrottlingException", "a read of several items was throttled"
            raise ThrottledError(code, words, error.limits) from error
        snapshot = Snapshot()
        for key, answer in zip(keys, response["Responses"], strict=True):
            snapshot.add_item(key, answer.get("Item"))
        return snapshot

    @overload
    def get(self, key: str) -> Product | None: ...
    @overload
    def get(self, key: RecordKey) -> Record | None: ...
    @overload
    def get(self, key: BarcodeKey) -> Row | None: ...
    def get(self, key: str | RecordKey | BarcodeKey) -> Any:
        """Read a product, a record or the row of a barcode with strong consistency; None if it does not exist.

        Raises:
            CorruptItemError: The item breaks its table's contract.
        """
        response = call(
            self._client.get_item,
            TableName=self._tables[key_of(key)[0]],
            Key=key_item(key),
            ConsistentRead=True,
        )
        return READERS[type(key)](response["Item"]) if "Item" in response else None

    def read_items(self, table: Table, keys: Sequence[Item]) -> Sequence[Item]:
        """Read items by key with eventual consistency. Omits keys without an item, and keys that DynamoDB leaves out."""
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
    ) -> tuple[list[Row], Item | None]:
        """Query one page of the rows of a partition, in the table or in an index.

        Args:
            table: The table.
            condition: The key condition, with attributes as `#name`.
            values: Values for the condition's placeholders, named without the colon.
            after: The key to continue after; None or an empty one for the beginning.
            parameters: Further parameters for DynamoDB.

        Returns:
            The rows, and the key to continue after; None if no more can follow.
        """
        start = {"ExclusiveStartKey": after} if after else {}
        given = Write(condition=condition, values=values).parameters
        answer = call(
            self._client.query,
            TableName=self._tables[table],
            KeyConditionExpression=given.pop("ConditionExpression"),
            **given,
            **start,
            **parameters,
        )
        return [*map(decode, answer["Items"])], answer.get("LastEvaluatedKey")

    def scan(self, table: Table, **parameters: Any) -> Any:
        """Scan one page of the items of a table. The parameters are passed to DynamoDB."""
        return call(self._client.scan, TableName=self._tables[table], **parameters)

    def update(self, table: Table, key: Item, write: Write, **parameters: Any) -> Any:
        """Update one item if a condition holds.

        Args:
            table: The table.
            key: The item's primary key.
            write: What to write, and on which condition.
            parameters: Further parameters for DynamoDB.

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

    def write_items(self, table: Table, requests: Sequence[Item]) -> Sequence[Item]:
        """Put and delete items without conditions, at most 25 in one request. Returns the requests that DynamoDB left out."""
        name = self._tables[table]
        response = call(self._client.batch_write_item, RequestItems={name: requests})
        return response.get("UnprocessedItems", {}).get(name, ())  # type: ignore[no-any-return]

    def update_product(self, product_id: str, write: Write) -> Product:
        """Change a product in one conditional update, and return the result.

        The request has no token. If its response is lost, the caller has to recognise its own write.

        Args:
            product_id: The product. Its row has to exist and to keep the table's contract.
            write: What to write.

        Raises:
            ConditionFailedError: The condition does not hold. The error contains the row as stored.
            CorruptItemError: DynamoDB does not accept the row, or the written row breaks the table's contract in a way that no
                condition can detect.
        """
        try:
            response = self.update(
                Table.PRODUCTS,
                key_item(product_id),
                write.on(_SOUND, number="N", text="S"),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except RequestInvalidError as error:
            # For example, another program has filled the row up to 400 KB.
            raise CorruptItemError(
                f"DynamoDB does not accept the row of product {in_words(product_id)} ({error}); repair the item",
                "CORRUPT_PRODUCT",
            ) from error
        return read_product(response["Attributes"])

    def write(self, actions: Sequence[Action], token: str) -> None:
        """Send one transaction, which applies all of its actions or none.

        Args:
            actions: At most 100.
            token: The `ClientRequestToken`. Within 10 minutes, a repetition with the same token has no further effect.

        Raises:
            TransactionCancelledError: A condition failed, or a concurrent writer interfered.
            StoreError: The request failed. The type of the error shows whether it may have been applied.
        """
        call(
            self._client.transact_write_items,
            actions,
            TransactItems=[
                {
                    action.operation: {
                        "TableName": self._tables[key_of(action.subject)[0]],
                        **(_FOUND if action.write.condition else {}),
                        **({} if action.write.row else {"Key": key_item(action.subject)}),
                        **action.write.parameters,
                    }
                }
                for action in actions
            ],
            ClientRequestToken=token,
        )


_FOUND = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}

# The product exists and keeps the table's contract, as far as a condition can check.
_SOUND = (
    "attribute_type(#_version, :number) AND attribute_type(#stockCount, :number) AND "
    "attribute_type(#onHand, :number) AND "
    "attribute_type(#createdAt, :text) AND attribute_type(#status, :text)"
)


def call(operation: Any, actions: Sequence[Action] = (), /, **parameters: Any) -> Any:
    """Call an operation of an AWS client. Its failures become `StoreError`s, whose types show whether it may have been applied.

    Args:
        operation: The operation.
        actions: The actions of a transaction that writes.
        parameters: The parameters of the operation.
    """
    try:
        return operation(**parameters)
    except ClientError as error:
        raise _meaning(error, actions, parameters) from error
    except (HTTPClientError, BotoConnectionError) as error:
        # After timeouts and broken connections, the request may still have arrived.
        raise OutcomeUnknownError(AWS_UNREACHABLE, f"{type(error).__name__}: {error}") from error
    except BotoCoreError as error:
        raise StoreUnavailableError(AWS_UNREACHABLE, f"{type(error).__name__}: {error}") from error


def _meaning(
    error: ClientError, actions: Sequence[Action], request: Mapping[str, Any]
) -> StoreError:
    # mypy: the stubs lack the reasons, and declare keys that may be missing as required.
    response: Mapping[str, Any] = error.response
    code = response.get("Error", {}).get("Code", "Unknown")
    message = response.get("Error", {}).get("Message", str(error))
    limits = limits_of(response, request)
    if code == "TransactionCanceledException":
        # DynamoDB returns the reasons in the order of the actions.
        return TransactionCancelledError(
            [
                CancellationReason(
                    action,
                    reason.get("Code", "None"),
                    read_item(action.subject, reason.get("Item")),
                    reason.get("Message") or "",
                )
                for action, reason in zip(
                    actions, response.get("CancellationReasons", ()), strict=False
                )
            ],
            limits,
        )
    if code == "ConditionalCheckFailedException":
        return ConditionFailedError(response.get("Item"))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    other = OutcomeUnknownError if status >= 500 else StoreUnavailableError
    return _MEANINGS.get(code, other)(code, message, limits)
