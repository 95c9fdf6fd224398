"""DynamoDB in memory: tables, conditional writes, transactions, and the capacity that they consume.

Each call is one atomic step, whichever thread makes it.

It answers requests in their wire format, and raises `ServiceError` with DynamoDB's codes. An unknown parameter raises
NotImplementedError instead of being ignored. Throttling and transaction conflicts do not happen here: the caller
that simulates several clients adds them (see `touched`, `check` and `begin`).

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import ceil
from threading import Lock
from typing import Any
from zlib import crc32

from testing.aws.expressions import (
    Between,
    Both,
    Comparison,
    Condition,
    ConditionExpression,
    Expression,
    Function,
    Projection,
    Scope,
    parse_condition,
    parse_projection,
    parse_update,
)
from testing.aws.values import (
    Item,
    ServiceError,
    Value,
    checked,
    invalid,
    size_of_item,
)

Key = tuple[str, ...]
"""The values of an item's key attributes."""

TOKEN_SECONDS = 600.0
"""How long a ClientRequestToken is remembered."""

_MAX_ITEM = 400 * 1024
_MAX_TRANSACTION = 4 * 1024 * 1024
_MAX_PAGE = 1024 * 1024
_MAX_BATCH = 16 * 1024 * 1024
# The check for circular references is off, because it would take as long as everything else.
_sorted_text = json.JSONEncoder(sort_keys=True, check_circular=False).encode
_CONDITION_FAILED = "The conditional request failed"


@dataclass(slots=True)
class Consumed:
    """Capacity units.

    Attributes:
        reads: Read units of the table.
        writes: Write units of the table.
        index_reads: Read units, by index.
        index_writes: Write units, by index.
    """

    reads: float = 0.0
    writes: float = 0.0
    index_reads: dict[str, float] = field(default_factory=dict)
    index_writes: dict[str, float] = field(default_factory=dict)

    def read(self, index: str | None, units: float) -> None:
        """Count read units of an index, or of the table."""
        if index is None:
            self.reads += units
        else:
            self.index_reads[index] = self.index_reads.get(index, 0.0) + units

    def write(self, index: str, units: float) -> None:
        """Count write units of an index."""
        self.index_writes[index] = self.index_writes.get(index, 0.0) + units


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index.

    Attributes:
        keys: Names of its partition key and, if it has one, its sort key.
        projected: Attributes that it contains in addition to all keys.
    """

    keys: tuple[str, ...]
    projected: frozenset[str]


@dataclass(slots=True)
class Table:
    """A table. All keys are strings, including those of the indexes.

    Attributes:
        name: Its name.
        keys: Names of the partition key and, if any, the sort key.
        indexes: Its indexes, by name.
        items: Its items, by key. Neither the items nor their values are ever changed in place.
        consumed: Capacity units since the table was created.
    """

    name: str
    keys: tuple[str, ...]
    indexes: Mapping[str, Index]
    items: MutableMapping[Key, Item] = field(default_factory=dict)
    consumed: Consumed = field(default_factory=Consumed)

    def key_of(self, attributes: Item, *, exactly: bool = True) -> Key:
        """Take the key from a map of attributes.

        Args:
            attributes: A key, or an item.
            exactly: Whether other attributes are an error.

        Raises:
            ServiceError: ValidationException.
        """
        key = tuple(attributes.get(name, {}).get("S", "") for name in self.keys)
        if "" in key or (exactly and len(attributes) > len(key)):
            raise invalid(
                "The provided key element does not match the schema, or is an empty string"
            )
        return key

    def entry(self, index: Index, item: Item | None) -> Item | None:
        """The part of an item that an index contains; None if the item is not in the index."""
        if item is None or any(name not in item for name in index.keys):
            return None
        kept = index.projected | {*self.keys, *index.keys}
        return {name: value for name, value in item.items() if name in kept}

    def listed(self, index: Index | None, partition: str | None) -> Sequence[tuple[str, Key]]:
        """List a partition of an index, or of the table itself.

        Args:
            index: The index; None for the table.
            partition: The value of the partition key.

        Returns:
            The sort key (empty if there is none) and the item's key, sorted by both.
        """
        keys = index.keys if index else self.keys
        found = [
            (item[keys[-1]]["S"] if len(keys) > 1 else "", key)
            for key, item in self.items.items()
            if all(name in item for name in keys) and item[keys[0]]["S"] == partition
        ]
        return sorted(found, key=lambda place: (_bytes(place[0]), place[1]))

    def keys_in(self, index: Index | None) -> list[Key]:
        """The keys of all items in an index, or in the table itself."""
        names = index.keys if index else ()
        return [key for key, item in self.items.items() if all(name in item for name in names)]


@dataclass(frozen=True)
class Write:
    """A write that was checked. Either it can be applied, or it has a reason why it fails.

    Attributes:
        table: The table.
        key: The item's key.
        before: The item before the write.
        after: The item after the write.
        reason: The cancellation reason of a write that fails.
    """

    table: Table
    key: Key
    before: Item | None
    after: Item | None
    reason: dict[str, Any] | None = None

    @property
    def place(self) -> tuple[str, Key]:
        """The table's name and the item's key."""
        return self.table.name, self.key

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the item before and after the write."""
        return size_of_item(self.before or {}), size_of_item(self.after or {})

    @property
    def units(self) -> int:
        """Write units of the table. A failed write consumes the units of the existing item."""
        return _write_units(self.sizes[0] if self.reason else max(self.sizes))

    @cached_property
    def index_units(self) -> dict[tuple[str, str], int]:
        """Write units by index and by the value of its partition key. A transaction does not double them.

        An entry with a new key is deleted and written, and an unchanged entry consumes nothing:
        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html
        """
        units = Counter[tuple[str, str]]()
        for name, index in self.table.indexes.items():
            old, new = self.table.entry(index, self.before), self.table.entry(index, self.after)
            if old == new:
                continue
            written = [entry for entry in (old, new) if entry is not None]
            if old and new and all(old[key] == new[key] for key in index.keys):
                written = [max(written, key=size_of_item)]
            for entry in written:
                units[name, entry[index.keys[0]]["S"]] += _write_units(size_of_item(entry))
        return units

    def charge(self, times: int = 1) -> None:
        """Count the units of the table, which are consumed even if the write fails.

        Args:
            times: 2 in a transaction.
        """
        self.table.consumed.writes += times * self.units

    def apply(self) -> None:
        """Write the item, and count the units of the indexes."""
        for (index, _), units in self.index_units.items():
            self.table.consumed.write(index, units)
        if self.after is None:
            self.table.items.pop(self.key, None)
        else:
            self.table.items[self.key] = self.after


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that was checked, but not applied.

    Attributes:
        writes: Its writes.
        token: `ClientRequestToken`.
        content: A digest of its actions, if it has a token.
    """

    writes: Sequence[Write]
    token: str | None
    content: str


class DynamoDB:
    """The tables of one account and region.

    Args:
        now: Unix seconds.

    Attributes:
        tables: The tables, by name.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._one_at_a_time = Lock()
        self.tables: dict[str, Table] = {}
        self._tokens: dict[str, tuple[float, str]] = {}
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateTable": self._create_table,
            "DescribeTable": self._describe_table,
            "GetItem": self._get_item,
            "BatchGetItem": self._batch_get_item,
            "BatchWriteItem": self._batch_write_item,
            "PutItem": self._put_item,
            "UpdateItem": self._update_item,
            "DeleteItem": self._delete_item,
            "TransactWriteItems": self._transact_write_items,
            "TransactGetItems": self._transact_get_items,
            "Query": self._query,
            "Scan": self._scan,
        }

    def answer(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            ServiceError: An error response, as from DynamoDB.
        """
        if operation not in self._operations:
            raise NotImplementedError(f"the simulated DynamoDB has no {operation}")
        with self._one_at_a_time:
            return self._operations[operation](request)

    def touched(
        self, operation: str, request: dict[str, Any]
    ) -> tuple[frozenset[tuple[str, Key]], frozenset[tuple[str, Key]]]:
        """The items that a request reads and those that it may write, as (table, key).

        A Query or Scan may read every item, which is expressed as `(table, ())`.
        """
        if operation in {"Query", "Scan", "DescribeTable"}:
            return frozenset({(request["TableName"], ())}), frozenset()
        if operation == "BatchGetItem":
            return frozenset(self._keys_of_batch(request)), frozenset()
        if operation == "BatchWriteItem":
            return frozenset(), frozenset(map(self.place, _single_writes(request)))
        reads: set[tuple[str, Key]] = set()
        writes: set[tuple[str, Key]] = set()
        actions = [next(iter(action.items())) for action in request.get("TransactItems", ())]
        for kind, content in actions or [(operation, request)]:
            is_read = kind in {"Get", "GetItem", "ConditionCheck"}
            (reads if is_read else writes).add(self.place(content))
        return frozenset(reads), frozenset(writes)

    def place(self, content: Mapping[str, Any]) -> tuple[str, Key]:
        """The table and the key of the item that a single-item request or an action refers to."""
        table = self._table(content["TableName"])
        if "Item" in content:
            return table.name, table.key_of(content["Item"], exactly=False)
        return table.name, table.key_of(content["Key"])

    def _keys_of_batch(self, request: dict[str, Any]) -> list[tuple[str, Key]]:
        """The table and the key of each item that a `BatchGetItem` reads.

        Raises:
            ServiceError: ValidationException.
        """
        wanted = request["RequestItems"].items()
        tables = ((self._table(name), entry["Keys"]) for name, entry in wanted)
        places = [(table.name, table.key_of(key)) for table, keys in tables for key in keys]
        if not 1 <= len(places) <= 100:
            raise invalid("Too many items requested for the BatchGetItem call")
        if len(set(places)) < len(places) or not all(entry["Keys"] for _, entry in wanted):
            raise invalid("Provided list of item keys contains duplicates")
        return places

    def _table(self, name: Any) -> Table:
        # AWS accepts a table's ARN as its name.
        table = self.tables.get(str(name).rsplit("/", 1)[-1])
        if table is None:
            raise ServiceError(
                "ResourceNotFoundException",
                f"Requested resource not found: Table: {name} not found",
            )
        return table

    # ------------------------------------------------------------------ tables

    def _create_table(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["TableName"]
        if name in self.tables:
            raise ServiceError("ResourceInUseException", f"Table already exists: {name}")
        if any(one["AttributeType"] != "S" for one in request["AttributeDefinitions"]):
            raise NotImplementedError("the simulated DynamoDB supports only string keys")
        indexes = {}
        for index in request.get("GlobalSecondaryIndexes", ()):
            projection = index["Projection"]
            if projection["ProjectionType"] == "ALL":
                raise NotImplementedError(
                    "the simulated DynamoDB has no indexes that project all attributes"
                )
            indexes[index["IndexName"]] = Index(
                _key_names(index["KeySchema"]), frozenset(projection.get("NonKeyAttributes", ()))
            )
        self.tables[name] = Table(name, _key_names(request["KeySchema"]), indexes)
        return {"TableDescription": self._describe_table(request)["Table"]}

    def _describe_table(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table(request["TableName"])
        return {
            "Table": {
                "TableName": table.name,
                "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{table.name}",
                "TableStatus": "ACTIVE",
                "ItemCount": len(table.items),
                "TableSizeBytes": sum(map(size_of_item, table.items.values())),
            }
        }

    # ------------------------------------------------------------------ reads

    def _get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "TableName Key ConsistentRead")
        table = self._table(request["TableName"])
        item = table.items.get(table.key_of(request["Key"]))
        table.consumed.reads += read_units(
            size_of_item(item or {}), request.get("ConsistentRead", False)
        )
        return {} if item is None else {"Item": item}

    def _batch_get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "RequestItems")
        self._keys_of_batch(request)
        responses: dict[str, list[Item]] = {}
        left_out: dict[str, Any] = {}
        room = _MAX_BATCH
        for name, entry in request["RequestItems"].items():
            _only(entry, "Keys ConsistentRead")
            table = self._table(name)
            responses[name] = []
            for given in entry["Keys"]:
                item = table.items.get(table.key_of(given))
                size = size_of_item(item or {})
                room -= size
                if room < 0:
                    left_out.setdefault(name, {**entry, "Keys": []})["Keys"].append(given)
                    continue
                table.consumed.reads += read_units(size, entry.get("ConsistentRead", False))
                if item:
                    responses[name].append(item)
        return {"Responses": responses, "UnprocessedKeys": left_out}

    def _transact_get_items(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "TransactItems")
        responses, total = [], 0
        gets = [action["Get"] for action in request["TransactItems"]]
        _check_places([self.place(get) for get in gets])
        for get in gets:
            _only(get, "TableName Key")
            table = self._table(get["TableName"])
            item = table.items.get(table.key_of(get["Key"]))
            size = size_of_item(item or {})
            total += size
            table.consumed.reads += 2 * read_units(size, consistent=True)
            responses.append({"Item": item} if item else {})
        if total > _MAX_TRANSACTION:
            raise _too_large()
        return {"Responses": responses}

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"{_PAGED} KeyConditionExpression ScanIndexForward")
        table = self._table(request["TableName"])
        index = _index(table, request)
        keys = index.keys if index else table.keys
        condition = parse_condition(request["KeyConditionExpression"], "KeyConditionExpression")
        scope = _scope(request, [condition, *_filters(request)])
        _check_key_condition(condition.condition, keys, scope)
        partition = _partition(condition.condition, keys, scope)
        found = [
            key
            for sort_key, key in table.listed(index, partition.get("S"))
            if condition.holds(
                Scope(
                    dict(zip(keys, (partition, {"S": sort_key}), strict=False)),
                    scope.names,
                    scope.values,
                )
            )
        ]
        if request.get("ScanIndexForward") is False:
            found.reverse()
        return self._page(request, table, index, found, scope)

    def _scan(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"{_PAGED} Segment TotalSegments")
        table = self._table(request["TableName"])
        index = _index(table, request)
        scope = _scope(request, _filters(request))
        segment, total = request.get("Segment", 0), request.get("TotalSegments", 1)
        # Items belong to segments by their partition key.
        found = [key for key in table.keys_in(index) if crc32(key[0].encode()) % total == segment]
        return self._page(request, table, index, found, scope)

    def _page(
        self,
        request: dict[str, Any],
        table: Table,
        index: Index | None,
        found: Sequence[Key],
        scope: Scope,
    ) -> dict[str, Any]:
        """Build one page of the result, filtered and projected."""
        keys = tuple(dict.fromkeys((*table.keys, *(index.keys if index else ()))))
        start = request.get("ExclusiveStartKey")
        if start is not None:
            last = tuple(start[name]["S"] for name in table.keys)
            found = found[found.index(last) + 1 :] if last in found else found
        page: list[Item] = []
        size, limit = 0, request.get("Limit", len(found) + 1)
        for key in found:
            if len(page) >= limit or size > _MAX_PAGE:
                break
            entry = table.entry(index, table.items[key]) if index else table.items[key]
            assert entry is not None
            size += size_of_item(entry)
            page.append(entry)
        filters, projection = _filter(request), _projection_of(request)
        scopes = [Scope(entry, scope.names, scope.values) for entry in page]
        kept = [one for one in scopes if filters is None or filters.holds(one)]
        answer: dict[str, Any] = {"Count": len(kept), "ScannedCount": len(page)}
        if request.get("Select") != "COUNT":
            answer["Items"] = [projection.apply(one) if projection else one.item for one in kept]
        if page and (len(page) < len(found) or len(page) == limit):
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in keys}
        units = read_units(size, request.get("ConsistentRead", False))
        table.consumed.read(request.get("IndexName"), units)
        return answer

    # ------------------------------------------------------------------ writes

    def _put_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"TableName Item {_CONDITION}")
        self._single(self._check_put(request))
        return {}

    def _delete_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"TableName Key {_CONDITION}")
        self._single(self._check_delete(request))
        return {}

    def _update_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"TableName Key UpdateExpression ReturnValues {_CONDITION}")
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in {"NONE", "ALL_NEW"}:
            raise NotImplementedError(f"the simulated DynamoDB does not support {wanted}")
        write = self._check_update(request)
        self._single(write)
        return {} if wanted == "NONE" else {"Attributes": write.after}

    def _batch_write_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "RequestItems")
        singles = _single_writes(request)
        if not 1 <= len(singles) <= 25:
            raise invalid("Too many items requested for the BatchWriteItem call")
        if len({self.place(single) for single in singles}) < len(singles):
            raise invalid("Provided list of item keys contains duplicates")
        for single in singles:
            (self._put_item if "Item" in single else self._delete_item)(single)
        return {"UnprocessedItems": {}}

    def _single(self, write: Write) -> None:
        """Apply a single write, or raise the error that it fails with."""
        if write.reason is not None and write.reason["Code"] == "ValidationError":
            raise invalid(write.reason["Message"])
        write.charge()
        if write.reason is not None:
            extra = {"Item": write.reason["Item"]} if "Item" in write.reason else {}
            raise ServiceError("ConditionalCheckFailedException", _CONDITION_FAILED, extra=extra)
        write.apply()

    def _transact_write_items(self, request: dict[str, Any]) -> dict[str, Any]:
        transaction = self.begin(request)
        if transaction is not None:
            self.end(transaction, [write.reason for write in transaction.writes])
        return {}

    def begin(self, request: dict[str, Any]) -> Transaction | None:
        """Check a `TransactWriteItems`, without applying it or consuming its units.

        Returns:
            None if the same request was applied before with the same token.

        Raises:
            ServiceError: An error response, unless an action has a cancellation reason.
        """
        _only(request, "TransactItems ClientRequestToken")
        actions = request["TransactItems"]
        writes = [self._check_action(action) for action in actions]
        _check_places([write.place for write in writes])
        token, content = request.get("ClientRequestToken"), ""
        if token is not None:
            content = sha256(_sorted_text(actions).encode()).hexdigest()
            if self._is_replay(token, content):
                for write in writes:
                    write.table.consumed.reads += 2 * read_units(write.sizes[0], consistent=True)
                return None
        if sum(max(write.sizes) for write in writes) > _MAX_TRANSACTION:
            raise _too_large()
        return Transaction(writes, token, content)

    def end(self, transaction: Transaction, reasons: Sequence[dict[str, Any] | None]) -> None:
        """Apply a transaction that began, unless one of its writes has a reason to cancel it.

        Raises:
            ServiceError: TransactionCanceledException.
        """
        for write in transaction.writes:
            write.charge(times=2)
        if any(reasons):
            all_reasons = [reason or {"Code": "None"} for reason in reasons]
            codes = ", ".join(reason["Code"] for reason in all_reasons)
            raise ServiceError(
                "TransactionCanceledException",
                f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
                extra={"CancellationReasons": all_reasons},
            )
        for write in transaction.writes:
            write.apply()
        if transaction.token is not None:
            expires = self._now() + TOKEN_SECONDS
            self._tokens[transaction.token] = (expires, transaction.content)

    def _is_replay(self, token: str, content: str) -> bool:
        """Whether this request was applied before with the same token."""
        known = self._tokens.get(token)
        if known is None or known[0] <= self._now():
            return False
        if known[1] != content:
            raise ServiceError(
                "IdempotentParameterMismatchException",
                "The request was rejected because another request with the same client request token has other "
                "parameters",
            )
        return True

    def check(self, operation: str, request: dict[str, Any]) -> Write:
        """Check a write of a single item, without applying it or consuming its units.

        Raises:
            ServiceError: ValidationException.
        """
        checks = {
            "PutItem": self._check_put,
            "UpdateItem": self._check_update,
            "DeleteItem": self._check_delete,
        }
        return checks[operation](request)

    def _check_action(self, action: dict[str, Any]) -> Write:
        kind, content = next(iter(action.items()))
        if kind == "Put":
            _only(content, f"TableName Item {_CONDITION}")
            return self._check_put(content)
        if kind == "Update":
            _only(content, f"TableName Key UpdateExpression {_CONDITION}")
            return self._check_update(content)
        _only(content, f"TableName Key {_CONDITION}")
        write = self._check_delete(content)
        if kind == "Delete":
            return write
        if not content.get("ConditionExpression"):
            raise invalid("The expression can not be empty;")
        return replace(write, after=write.before)

    def _check_put(self, request: dict[str, Any]) -> Write:
        table = self._table(request["TableName"])
        scope = _scope(request, _conditions(request))
        item = {name: checked(value) for name, value in request["Item"].items()}
        key = table.key_of(item, exactly=False)
        _check_item(table, item)
        before = table.items.get(key)
        reason = _failed_condition(request, before, scope)
        return Write(table, key, before, item, reason)

    def _check_delete(self, request: dict[str, Any]) -> Write:
        table = self._table(request["TableName"])
        scope = _scope(request, _conditions(request))
        key = table.key_of(request["Key"])
        before = table.items.get(key)
        return Write(table, key, before, None, _failed_condition(request, before, scope))

    def _check_update(self, request: dict[str, Any]) -> Write:
        table = self._table(request["TableName"])
        update = parse_update(request["UpdateExpression"])
        scope = _scope(request, [update, *_conditions(request)])
        key = table.key_of(request["Key"])
        for name in update.attributes(scope) & {*table.keys}:
            raise invalid(f"Cannot update attribute {name}. This attribute is part of the key")
        before = table.items.get(key)
        reason = _failed_condition(request, before, scope)
        if reason is not None:
            return Write(table, key, before, None, reason)
        base = before if before is not None else {n: checked(v) for n, v in request["Key"].items()}
        try:
            after = update.apply(Scope(base, scope.names, scope.values))
            _check_item(table, after)
        except ServiceError as error:
            reason = {"Code": "ValidationError", "Message": error.message}
            return Write(table, key, before, None, reason)
        return Write(table, key, before, after)


_CONDITION = (
    "ConditionExpression ExpressionAttributeNames ExpressionAttributeValues "
    "ReturnValuesOnConditionCheckFailure"
)
_PAGED = (
    "TableName IndexName Select FilterExpression ProjectionExpression ExpressionAttributeNames "
    "ExpressionAttributeValues Limit ExclusiveStartKey ConsistentRead"
)


def _single_writes(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The puts and deletes of a `BatchWriteItem`, as requests of their own."""
    return [
        {"TableName": name, **content}
        for name, requests in batch["RequestItems"].items()
        for request in requests
        for content in request.values()
    ]


def _only(request: Mapping[str, Any], known: str) -> None:
    """Fail on parameters that are not simulated, instead of ignoring them."""
    # PynamoDB always asks for the consumed capacity, but does not need it.
    unknown = request.keys() - {*known.split(), "ReturnConsumedCapacity"}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise NotImplementedError(f"the simulated DynamoDB does not support {names}")


def _check_places(places: Sequence[tuple[str, Key]]) -> None:
    """Check that a transaction has 1 to 100 items, without duplicates.

    Raises:
        ServiceError: ValidationException.
    """
    if not 1 <= len(places) <= 100:
        raise invalid("Member must have length less than or equal to 100")
    if len(set(places)) < len(places):
        raise invalid("Transaction request cannot include multiple operations on one item")


def _key_names(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(
        element["AttributeName"]
        for element in sorted(schema, key=lambda element: element["KeyType"])
    )


def _check_item(table: Table, item: Item) -> None:
    """Check the size of an item and its index keys."""
    if size_of_item(item) > _MAX_ITEM:
        raise invalid("Item size has exceeded the maximum allowed size")
    for name, index in table.indexes.items():
        for key in index.keys:
            if not item.get(key, {"S": "none"}).get("S"):
                raise invalid(f"The key {key} of the index {name}  is not a string, or is empty")


def _conditions(request: Mapping[str, Any]) -> list[ConditionExpression]:
    text = request.get("ConditionExpression")
    return [parse_condition(text)] if text is not None else []


def _filter(request: Mapping[str, Any]) -> ConditionExpression | None:
    text = request.get("FilterExpression")
    return parse_condition(text, "FilterExpression") if text is not None else None


def _projection_of(request: Mapping[str, Any]) -> Projection | None:
    text = request.get("ProjectionExpression")
    return parse_projection(text) if text is not None else None


def _filters(request: Mapping[str, Any]) -> list[Expression]:
    found: list[Expression | None] = [_filter(request), _projection_of(request)]
    return [expression for expression in found if expression is not None]


def _scope(request: Mapping[str, Any], expressions: Sequence[Expression]) -> Scope:
    """Check the placeholders of a request: each must be defined and used.

    Raises:
        ServiceError: ValidationException.
    """
    names = request.get("ExpressionAttributeNames", {})
    given = request.get("ExpressionAttributeValues", {})
    for parameter, placeholders in (("Names", names), ("Values", given)):
        if f"ExpressionAttribute{parameter}" in request:
            if not expressions:
                raise invalid(
                    f"ExpressionAttribute{parameter} can only be specified when using expressions"
                )
            if not placeholders:
                raise invalid(f"ExpressionAttribute{parameter} must not be empty")
    values: dict[str, Value] = {name: checked(value) for name, value in given.items()}
    used_names: set[str] = set()
    used_values: set[str] = set()
    for expression in expressions:
        expression.check(names, values)
        used_names |= expression.names
        used_values |= expression.values
    for parameter, unused in (
        ("Names", names.keys() - used_names),
        ("Values", values.keys() - used_values),
    ):
        if unused:
            raise invalid(
                f"Value provided in ExpressionAttribute{parameter} unused in expressions: "
                f"keys: {{{', '.join(sorted(unused))}}}"
            )
    return Scope({}, names, values)


def _failed_condition(
    request: Mapping[str, Any], before: Item | None, scope: Scope
) -> dict[str, Any] | None:
    """The cancellation reason if a condition of a write is not met; None if all are met."""
    for condition in _conditions(request):
        if not condition.holds(Scope(before or {}, scope.names, scope.values)):
            reason: dict[str, Any] = {
                "Code": "ConditionalCheckFailed",
                "Message": _CONDITION_FAILED,
            }
            wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            if wanted and before is not None:
                reason["Item"] = before
            return reason
    return None


def _too_large() -> ServiceError:
    return invalid("Transaction request cannot include items with aggregate size above 4 MB")


def _write_units(size: int) -> int:
    return max(1, ceil(size / 1024))


def read_units(size: int, consistent: bool) -> float:
    """Read units of an item of this number of bytes."""
    return max(1, ceil(size / 4096)) * (1.0 if consistent else 0.5)


def _index(table: Table, request: Mapping[str, Any]) -> Index | None:
    name = request.get("IndexName")
    if name is None:
        return None
    if name not in table.indexes:
        raise invalid(f"The table does not have the specified index: {name}")
    if request.get("ConsistentRead"):
        raise invalid("Consistent reads are not supported on global secondary indexes")
    return table.indexes[name]


def _check_key_condition(condition: Condition, keys: tuple[str, ...], scope: Scope) -> None:
    """Check that a key condition tests the partition key with `=` and, optionally, the sort key, also with BETWEEN.

    Raises:
        ServiceError: ValidationException.
    """
    signs: dict[str, str] = {}
    parts = [condition.left, condition.right] if isinstance(condition, Both) else [condition]
    for part in parts:
        if isinstance(part, Between):
            part.check(scope)
            signs[scope.attribute(part.operand)] = "BETWEEN"
            continue
        if isinstance(part, Function) and part.name == "begins_with":
            signs[scope.attribute(part.attribute)] = part.name
            continue
        if not isinstance(part, Comparison) or part.sign == "<>" or part.right[0] != ":":
            raise invalid("Query key condition not supported")
        signs[scope.attribute(part.left)] = part.sign
    if signs.get(keys[0]) != "=" or len(signs) < len(parts) or not signs.keys() <= {*keys}:
        raise invalid("Query key condition not supported")


def _partition(condition: Condition, keys: tuple[str, ...], scope: Scope) -> Value:
    """The value of the partition key in a key condition that was checked."""
    parts = [condition.left, condition.right] if isinstance(condition, Both) else [condition]
    return next(
        scope.values[part.right]
        for part in parts
        if isinstance(part, Comparison) and scope.attribute(part.left) == keys[0]
    )


def _bytes(text: str) -> bytes:
    """Encode a string as UTF-8, by which DynamoDB sorts."""
    return text.encode("utf-8", "surrogatepass")
