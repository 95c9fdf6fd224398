"""The only code that talks to DynamoDB: items to and from the domain, expressions, and errors with a meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from inventory_orders.clock import timestamp
from inventory_orders.errors import (
    CancellationReason,
    ConditionFailedError,
    CorruptItemError,
    Item,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import Amend, Product, ProductStatus, Put, RecordKey, Table, product_key

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

    from inventory_orders.planner import Transaction, Update

# The engine decides about retries, so the client makes none: after a throttle it would sleep for up to a second, with
# whatever is claimed in its hands. Parameter validation costs half of the client's CPU for a large transaction, and
# DynamoDB validates anyway.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"total_max_attempts": 1, "mode": "standard"},
    parameter_validation=False,
    tcp_keepalive=True,
)
WORST_CASE_SECONDS_OF_ONE_CALL = 4.0

BATCH_GET_LIMIT = 100

_ALIAS = re.compile(r"#(\w+)")

_THROTTLED = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
    # What a single write gets while a transaction on its item is in flight.
    "TransactionConflictException",
}
_INVALID = {"ValidationException", "SerializationException"}
_UNKNOWN = {"TransactionInProgressException", "InternalServerError", "ServiceUnavailable"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one read found.

    Attributes:
        products: By id, None where there is no such product; strongly consistent.
        unreadable: What is wrong, by id, with products that break the table's contract.
        records: Rows by key, where they exist. Eventually consistent, so a hint: a row that is here is durable,
            one that is not may exist all the same.
        unprocessed: Keys that DynamoDB left out; ask for them again.
    """

    products: dict[str, Product | None]
    unreadable: dict[str, str]
    records: dict[RecordKey, dict[str, Any]]
    unprocessed: tuple[str | RecordKey, ...]


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A write under its sender's claim on a product.

    Attributes:
        owner: Of the claim.
        release: Whether the write ends it.
    """

    owner: str
    release: bool


class Store:
    """Reads and writes of the three tables.

    Args:
        client: A DynamoDB client; `CLIENT_CONFIG` is meant for it. Clients are thread-safe, so is the store.
        tables: The tables' names.
    """

    def __init__(self, client: DynamoDBClient, tables: Mapping[Table, str]) -> None:
        self._client = client
        self._tables = dict(tables)
        self._table_of = {name: table for table, name in self._tables.items()}

    def read(self, keys: Sequence[str | RecordKey]) -> Snapshot:
        """Read products (a product id) and records (a record key), at most `BATCH_GET_LIMIT` together.

        Raises:
            StoreError: The request failed.
        """
        wanted = {self._read_key(key): key for key in keys}
        request: dict[str, Any] = {}
        for (name, _), key in wanted.items():
            entry = request.setdefault(name, {"Keys": []})
            if isinstance(key, str):
                entry["ConsistentRead"] = True
                entry["Keys"].append({"productId": {"S": key}})
            else:
                entry["Keys"].append(_encode_key(key))
        response = _call(self._client.batch_get_item, RequestItems=request)
        if "Responses" not in response:
            # Taken for an empty answer it would mean that nothing exists.
            raise OutcomeUnknownError("EMPTY_ANSWER", "DynamoDB answered without Responses")

        left_out = {
            self._read_key_of_item(name, key)
            for name, entry in response.get("UnprocessedKeys", {}).items()
            for key in entry["Keys"]
        }
        snapshot = Snapshot(
            products={
                key: None
                for place, key in wanted.items()
                if isinstance(key, str) and place not in left_out
            },
            unreadable={},
            records={},
            unprocessed=tuple(wanted[place] for place in left_out),
        )
        for name, items in response["Responses"].items():
            for item in items:
                key = wanted[self._read_key_of_item(name, item)]
                if isinstance(key, str):
                    try:
                        snapshot.products[key] = decode_product(item)
                    except CorruptItemError as error:
                        del snapshot.products[key]
                        snapshot.unreadable[key] = str(error)
                else:
                    snapshot.records[key] = decode(item)
        return snapshot

    def get(self, key: RecordKey) -> dict[str, Any] | None:
        """Read one item, strongly consistent.

        Raises:
            StoreError: The request failed.
        """
        item = self._get_item(key)
        return decode(item) if item is not None else None

    def get_product(self, product_id: str) -> dict[str, Any] | None:
        """Read a product, strongly consistent, as plain Python values.

        Raises:
            CorruptItemError: It breaks the table's contract.
            StoreError: The request failed.
        """
        item = self._get_item(product_key(product_id))
        return decode_checked(item) if item is not None else None

    def _get_item(self, key: RecordKey) -> Item | None:
        response = _call(
            self._client.get_item,
            TableName=self._tables[key.table],
            Key=_encode_key(key),
            ConsistentRead=True,
        )
        item: Item | None = response.get("Item")
        return item

    def update_product(
        self, product_id: str, update: str, condition: str, values: dict[str, Any]
    ) -> dict[str, Any]:
        """Change a product in one conditional update, and get it back as it is then.

        Without a token: whoever calls this recognises an own lost response from the item that comes back.

        Args:
            product_id: The product; it must exist and keep the table's contract.
            update: The update expression, each attribute as `#name`. It has to raise `#_version`.
            condition: The condition expression.
            values: For the placeholders of both, without the colon.

        Raises:
            ConditionFailedError: With the item as stored.
            StoreError: The request failed.
        """
        return decode(self._update_product(product_id, update, condition, values))

    def _update_product(
        self, product_id: str, update: str, condition: str, values: dict[str, Any]
    ) -> Item:
        response = _call(
            self._client.update_item,
            TableName=self._tables[Table.PRODUCTS],
            Key=_encode_key(product_key(product_id)),
            UpdateExpression=update,
            ConditionExpression=f"{_SOUND} AND {condition}",
            ExpressionAttributeNames=_names(update, condition, _SOUND),
            ExpressionAttributeValues=_values(values | {"number": "N", "text": "S"}),
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        item: Item = response["Attributes"]
        return item

    def claim(self, product_id: str, owner: str, now: datetime, until: float, wait: float) -> Item:
        """Take a short lease on a product, or go on with one's own. Safe to repeat.

        It changes no version: that counts changes of the product, and a claim is none. What an optimistic writer
        has read before it stays true, and while it is live the lease itself keeps him out.

        Args:
            product_id: The product; it must exist and keep the table's contract.
            owner: Who claims it, unique for each acquisition.
            now: The moment.
            until: Unix second at which the claim ends.
            wait: Seconds for which the owner has waited for it, for those who wait behind him.

        Returns:
            The product as the claim left it.

        Raises:
            ConditionFailedError: A lease of another is live, or the product is gone; with the item as stored.
            StoreError: The request failed.
        """
        return self._update_product(
            product_id,
            "SET #lockedBy = :owner, #lockTime = :until, #lockWait = :wait REMOVE #lockVersion",
            f"({NO_LIVE_LEASE} OR {CLAIMED})",
            {
                "owner": owner,
                "until": Decimal(f"{until:.6f}"),
                "wait": Decimal(f"{wait:.3f}"),
                "now": unix(now),
            },
        )

    def release_claim(self, product_id: str, owner: str) -> None:
        """End a claim without a change. Safe to repeat.

        Raises:
            ConditionFailedError: It is over already.
            StoreError: The request failed.
        """
        self._update_product(product_id, UNLOCK, CLAIMED, {"owner": owner})

    def transaction_request(
        self,
        transaction: Transaction,
        now: datetime,
        claims: Mapping[str, ClaimUse] | None = None,
    ) -> list[TransactWriteItemTypeDef]:
        """The actions of a transaction: first its updates, then its records, both in their order.

        Args:
            transaction: What to write.
            now: The moment.
            claims: Of the updated products those that its sender has claimed, and what becomes of the claim.
        """
        at, after, claims = timestamp(now), transaction.after, claims or {}
        actions = [
            self._stock_update(update, now, at, claims.get(update.before.product_id))
            for update in transaction.updates
        ]
        actions += [
            self.record_action(decision.change.record(decision.refusal, after, at))
            for decision in transaction.decisions
            if decision.has_record
        ]
        return actions

    def record_action(self, record: Put | Amend) -> TransactWriteItemTypeDef:
        """The action that writes a record."""
        if isinstance(record, Put):
            return self._put_if_absent(record)
        return self._amend(record)

    def product_action(
        self, product_id: str, update: str, condition: str, values: Mapping[str, Any]
    ) -> TransactWriteItemTypeDef:
        """The action that changes a product, which must exist; parameters as for `update_product`."""
        return self._update_action(product_key(product_id), update, condition, values)

    def _update_action(
        self, key: RecordKey, update: str, condition: str, values: Mapping[str, Any]
    ) -> TransactWriteItemTypeDef:
        return {
            "Update": {
                "TableName": self._tables[key.table],
                "Key": _encode_key(key),
                "UpdateExpression": update,
                "ConditionExpression": condition,
                "ExpressionAttributeNames": _names(update, condition),
                "ExpressionAttributeValues": _values(values),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def product_delete_action(
        self, product_id: str, condition: str, values: Mapping[str, Any]
    ) -> TransactWriteItemTypeDef:
        """The action that deletes a product."""
        return {
            "Delete": {
                "TableName": self._tables[Table.PRODUCTS],
                "Key": _encode_key(product_key(product_id)),
                "ConditionExpression": condition,
                "ExpressionAttributeNames": _names(condition),
                "ExpressionAttributeValues": _values(values),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def write(self, actions: Sequence[TransactWriteItemTypeDef], token: str) -> None:
        """Apply all actions or none.

        Args:
            actions: At most 100.
            token: `ClientRequestToken`: a repetition with the same token within 10 minutes applies nothing twice.

        Raises:
            TransactionCancelledError: A condition failed, or a rival was at work.
            StoreError: Another failure; its type says what it means.
        """
        _call(
            self._client.transact_write_items,
            TransactItems=list(actions),
            ClientRequestToken=token,
        )

    def _stock_update(
        self, update: Update, now: datetime, at: str, claim: ClaimUse | None
    ) -> TransactWriteItemTypeDef:
        before, after = update.before, update.after
        expression = (
            "SET #stockCount = :stockCount, #status = :status, #_version = :nextVersion, "
            "#lastUpdatedAt = :at"
        )
        condition = AS_READ
        values = {
            "stockCount": after.stock_count,
            "status": after.status,
            "nextVersion": after.version,
            "at": at,
            "version": before.version,
            "createdAt": before.created_at,
        }
        if claim is None:
            condition += f" AND {NO_LIVE_LEASE}"
            values["now"] = unix(now)
        else:
            condition += f" AND {CLAIMED}"
            values["owner"] = claim.owner
            if claim.release:
                expression += f" {UNLOCK}"
        return self.product_action(before.product_id, expression, condition, values)

    def _put_if_absent(self, record: Put) -> TransactWriteItemTypeDef:
        return {
            "Put": {
                "TableName": self._tables[record.table],
                "Item": _encode_item(record.row),
                "ConditionExpression": "attribute_not_exists(#key)",
                "ExpressionAttributeNames": {"#key": PARTITION_KEYS[record.table]},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def _amend(self, record: Amend) -> TransactWriteItemTypeDef:
        update = "SET " + ", ".join(f"#{name} = :set_{name}" for name in record.values)
        condition = " AND ".join(
            f"attribute_not_exists(#{name})" if value is None else f"#{name} = :read_{name}"
            for name, value in record.expected.items()
        )
        values = {f"set_{name}": value for name, value in record.values.items()} | {
            f"read_{name}": value for name, value in record.expected.items() if value is not None
        }
        return self._update_action(record.key, update, condition, values)

    def _read_key(self, key: str | RecordKey) -> tuple[str, tuple[str, ...]]:
        """Table name and key values: what tells items of one answer apart."""
        if isinstance(key, str):
            return self._tables[Table.PRODUCTS], (key,)
        return self._tables[key.table], tuple(value for _, value in key.key)

    def _read_key_of_item(self, name: str, item: Item) -> tuple[str, tuple[str, ...]]:
        table = self._table_of[name]
        names = [PARTITION_KEYS[table], *SORT_KEYS.get(table, ())]
        return name, tuple(item[key]["S"] for key in names)


# The version alone would not do: it restarts at 1 when a product is deleted and made again.
AS_READ = "#_version = :version AND #createdAt = :createdAt"
"""Condition: the product is the one that was read, unchanged."""

NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <= :now)"
"""Condition that every write to a product carries, but for its lease owner's."""

CLAIMED = "#lockedBy = :owner"
"""Condition: the claim of this owner was not taken over by anybody, even if it has expired."""

LOCK = ("lockedBy", "lockTime", "lockVersion", "lockWait")
"""Attributes of a lease."""

UNLOCK = "REMOVE " + ", ".join(f"#{name}" for name in LOCK)
"""Update: whatever lease there is ends."""

PARTITION_KEYS = {
    Table.PRODUCTS: "productId",
    Table.ORDERS: "orderId",
    Table.STOCK_ADJUSTMENTS: "productId",
}
SORT_KEYS = {Table.STOCK_ADJUSTMENTS: ("adjustmentId",)}


# A product that exists and keeps the table's contract, as far as a condition can tell.
_SOUND = (
    "attribute_type(#_version, :number) AND attribute_type(#stockCount, :number) AND "
    "attribute_type(#createdAt, :text) AND attribute_type(#status, :text)"
)


def unix(moment: datetime) -> Decimal:
    """Unix seconds with six decimals, as lease times are stored and compared."""
    return Decimal(f"{moment.timestamp():.6f}")


def decode_product(item: Item) -> Product:
    """Read a stored product.

    Raises:
        CorruptItemError: It breaks the table's contract.
    """
    try:
        lock_time, lock_wait = item.get("lockTime"), item.get("lockWait")
        return Product(
            product_id=item["productId"]["S"],
            stock_count=int(item["stockCount"]["N"]),
            version=int(item["_version"]["N"]),
            created_at=item["createdAt"]["S"],
            status=ProductStatus(item["status"]["S"]),
            backorder_limit=_optional_int(item, "backorderLimit"),
            low_stock_threshold=_optional_int(item, "lowStockThreshold"),
            lock_time=float(lock_time["N"]) if lock_time is not None else None,
            lock_wait=float(lock_wait["N"]) if lock_wait is not None else None,
            size=_size(item),
        )
    except (KeyError, ValueError, TypeError) as error:
        product_id = item.get("productId", {}).get("S", "?")
        raise CorruptItemError(
            f"product {product_id} breaks the contract of the Products table "
            f"({type(error).__name__}: {error}); repair the item"
        ) from error


def decode_checked(item: Item) -> dict[str, Any]:
    """A stored product as plain Python values.

    Raises:
        CorruptItemError: It breaks the table's contract.
    """
    decode_product(item)
    return decode(item)


def decode(item: Item) -> dict[str, Any]:
    """A stored item as plain Python values; numbers are int where they are whole, else Decimal."""
    return {name: _decode(value) for name, value in item.items()}


def _optional_int(item: Item, name: str) -> int:
    value = item.get(name)
    return int(value["N"]) if value is not None else 0


def _decode(value: Mapping[str, Any]) -> Any:
    kind, content = next(iter(value.items()))
    if kind == "N":
        number = Decimal(content)
        return int(number) if number == number.to_integral_value() else number
    if kind == "L":
        return [_decode(element) for element in content]
    if kind == "M":
        return {name: _decode(element) for name, element in content.items()}
    if kind == "NULL":
        return None
    return content


def _encode(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": str(value)}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | Decimal):
        return {"N": str(value)}
    if isinstance(value, list):
        return {"L": [_encode(element) for element in value]}
    if isinstance(value, dict):
        return {"M": {name: _encode(element) for name, element in value.items()}}
    raise TypeError(f"cannot store a {type(value).__name__}")


def _names(*expressions: str) -> dict[str, str]:
    """Every attribute of the expressions, aliased: many of our names are reserved words."""
    return {f"#{name}": name for text in expressions for name in _ALIAS.findall(text)}


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {f":{name}": _encode(value) for name, value in values.items()}


def _encode_item(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _encode(value) for name, value in row.items()}


def _encode_key(key: RecordKey) -> dict[str, Any]:
    return {name: {"S": value} for name, value in key.key}


def _size(value: Any) -> int:
    """Upper bound of an item's size: DynamoDB counts names and values in UTF-8, plus 1 to 3 bytes a container."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Mapping):
        return 3 + sum(_size(name) + _size(content) for name, content in value.items())
    if isinstance(value, list):
        return 3 + sum(_size(content) for content in value)
    return len(value) if isinstance(value, bytes) else 1


def _call(operation: Any, **parameters: Any) -> Any:
    """Call DynamoDB; failures become errors that say what they mean for the tables."""
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
                CancellationReason(reason.get("Code", "None"), reason.get("Item"))
                for reason in response.get("CancellationReasons", ())
            ]
        )
    if code == "ConditionalCheckFailedException":
        return ConditionFailedError(response.get("Item"))
    if code in _THROTTLED:
        return ThrottledError(code, message)
    if code in _INVALID:
        return RequestInvalidError(code, message)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _UNKNOWN or status >= 500:
        return OutcomeUnknownError(code, message)
    return StoreUnavailableError(code, message)
