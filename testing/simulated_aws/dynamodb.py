"""DynamoDB in memory: tables, conditional writes, transactions, and the capacity that they consume.

Each call is one atomic step, whichever thread makes it.

It answers requests in their wire format, and raises `ServiceError` with DynamoDB's codes. An unknown parameter raises
NotImplementedError instead of being ignored. Throttling and transaction conflicts do not happen here: the caller
that simulates several clients adds them (see `touched`).

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from math import ceil
from threading import Lock
from typing import Any

from testing.simulated_aws.expressions import (
    Both,
    Comparison,
    Condition,
    ConditionExpression,
    Expression,
    Function,
    Path,
    Placeholder,
    Projection,
    Scope,
    UpdateError,
    UpdateExpression,
    parse_condition,
    parse_projection,
    parse_update,
    project,
)
from testing.simulated_aws.values import (
    Item,
    ServiceError,
    Value,
    checked,
    invalid,
    number,
    size_of,
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
# Without a look for circles, which takes as long as the rest.
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

    def add(self, other: Consumed) -> None:
        """Add other capacity units."""
        self.reads += other.reads
        self.writes += other.writes
        for name, units in other.index_reads.items():
            self.index_reads[name] = self.index_reads.get(name, 0.0) + units
        for name, units in other.index_writes.items():
            self.index_writes[name] = self.index_writes.get(name, 0.0) + units


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index.

    Attributes:
        keys: Names of its partition key and, if it has one, its sort key.
        projected: Attributes that it holds in addition to all keys; None for all attributes.
    """

    keys: tuple[str, ...]
    projected: frozenset[str] | None


@dataclass(slots=True)
class Table:
    """A table.

    Attributes:
        name: Its name.
        keys: Names of the partition key and, if there is one, the sort key.
        types: Data types of all key attributes, those of the indexes included.
        indexes: Its indexes, by name.
        items: Its items, by key. Neither the items nor their values are ever changed in place.
        consumed: Capacity units since the table was created.
    """

    name: str
    keys: tuple[str, ...]
    types: Mapping[str, str]
    indexes: Mapping[str, Index]
    items: dict[Key, Item] = field(default_factory=dict)
    consumed: Consumed = field(default_factory=Consumed)

    def key_of(self, attributes: Any, *, exactly: bool = True) -> Key:
        """The key in a map of attributes.

        Args:
            attributes: A key, or an item.
            exactly: Whether other attributes are an error.

        Raises:
            ServiceError: ValidationException.
        """
        if not isinstance(attributes, dict):
            raise invalid("The key is missing")
        if exactly and attributes.keys() != set(self.keys):
            raise invalid("The provided key element does not match the schema")
        key = []
        for name in self.keys:
            kind = self.types[name]
            if name not in attributes:
                raise invalid(
                    f"One or more parameter values were invalid: Missing the key {name} in the item"
                )
            value = attributes[name]
            if kind not in value:
                wrong = "The provided key element does not match the schema"
                raise invalid(
                    wrong
                    if exactly
                    else f"One or more parameter values were invalid: Type mismatch for key {name}"
                )
            content = checked(value)[kind]
            if content == "":
                raise invalid(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot "
                    f"contain an empty string value. Key: {name}"
                )
            key.append(content)
        return tuple(key)

    def entry(self, index: Index, item: Item | None) -> Item | None:
        """The part of an item that an index holds; None if the item is not in the index."""
        if item is None or any(self.types[name] not in item.get(name, ()) for name in index.keys):
            return None
        if index.projected is None:
            return item
        kept = index.projected | {*self.keys, *index.keys}
        return {name: value for name, value in item.items() if name in kept}


@dataclass(frozen=True)
class _Write:
    """A checked write: to be applied, or failed with a reason."""

    table: Table
    key: Key
    before: Item | None
    after: Item | None
    reason: dict[str, Any] | None = None
    paths: tuple[Any, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the item before and after the write."""
        return size_of_item(self.before or {}), size_of_item(self.after or {})

    def units(self) -> Consumed:
        """The capacity that it consumes. A failed write consumes the units of the existing item."""
        size = self.sizes[0] if self.reason else max(self.sizes)
        consumed = Consumed(writes=float(max(1, ceil(size / 1024))))
        if not self.reason:
            for name, index in self.table.indexes.items():
                units = self._index_units(index)
                if units:
                    consumed.index_writes[name] = units
        return consumed

    def _index_units(self, index: Index) -> float:
        """Write units of an index: a moved entry is deleted and written, an unchanged entry costs nothing."""
        old = self.table.entry(index, self.before)
        new = self.table.entry(index, self.after)
        if old == new:
            return 0.0
        costs = [float(max(1, ceil(size_of_item(e) / 1024))) for e in (old, new) if e is not None]
        if old is not None and new is not None:
            moved = any(old[name] != new[name] for name in index.keys)
            return sum(costs) if moved else max(costs)
        return costs[0]

    def apply(self) -> None:
        if self.after is None:
            self.table.items.pop(self.key, None)
        else:
            self.table.items[self.key] = self.after


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
            "PutItem": self._put_item,
            "UpdateItem": self._update_item,
            "DeleteItem": self._delete_item,
            "BatchWriteItem": self._batch_write_item,
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
        reads: set[tuple[str, Key]] = set()
        writes: set[tuple[str, Key]] = set()
        if operation in {"Query", "Scan", "DescribeTable"}:
            reads.add((request["TableName"], ()))
        elif operation == "GetItem":
            reads.add(self._place(request))
        elif operation == "BatchGetItem":
            for name, wanted in request["RequestItems"].items():
                table = self._table(name)
                reads |= {(name, table.key_of(key)) for key in wanted["Keys"]}
        elif operation in {"PutItem", "UpdateItem", "DeleteItem"}:
            writes.add(self._place(request))
        elif operation == "TransactGetItems":
            reads |= {self._place(action["Get"]) for action in request["TransactItems"]}
        elif operation == "TransactWriteItems":
            for action in request["TransactItems"]:
                kind, content = next(iter(action.items()))
                (reads if kind == "ConditionCheck" else writes).add(self._place(content))
        elif operation == "BatchWriteItem":
            for name, actions in request["RequestItems"].items():
                for action in actions:
                    kind, content = next(iter(action.items()))
                    writes.add(self._place({"TableName": name, **content}))
        return frozenset(reads), frozenset(writes)

    def _place(self, request: Mapping[str, Any]) -> tuple[str, Key]:
        table = self._table(request["TableName"])
        if "Item" in request:
            return table.name, table.key_of(request["Item"], exactly=False)
        return table.name, table.key_of(request["Key"])

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
        types = {d["AttributeName"]: d["AttributeType"] for d in request["AttributeDefinitions"]}
        indexes = {}
        for index in request.get("GlobalSecondaryIndexes", ()):
            projection = index["Projection"]
            indexes[index["IndexName"]] = Index(
                _key_names(index["KeySchema"]),
                None
                if projection["ProjectionType"] == "ALL"
                else frozenset(projection.get("NonKeyAttributes", ())),
            )
        self.tables[name] = Table(name, _key_names(request["KeySchema"]), types, indexes)
        return {"TableDescription": self._describe_table(request)["Table"]}

    def _describe_table(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table(request["TableName"])
        description: dict[str, Any] = {
            "TableName": table.name,
            "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{table.name}",
            "TableStatus": "ACTIVE",
            "KeySchema": _key_schema(table.keys),
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in table.types.items()
            ],
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
            "ProvisionedThroughput": {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0},
            "CreationDateTime": 0,
            "ItemCount": len(table.items),
            "TableSizeBytes": sum(size_of_item(item) for item in table.items.values()),
        }
        if table.indexes:
            description["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": name,
                    "IndexStatus": "ACTIVE",
                    "KeySchema": _key_schema(index.keys),
                    "Projection": {"ProjectionType": "ALL"}
                    if index.projected is None
                    else {
                        "ProjectionType": "INCLUDE",
                        "NonKeyAttributes": sorted(index.projected),
                    }
                    if index.projected
                    else {"ProjectionType": "KEYS_ONLY"},
                }
                for name, index in table.indexes.items()
            ]
        return {"Table": description}

    # ------------------------------------------------------------------ reads

    def _get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "TableName Key ConsistentRead ProjectionExpression ExpressionAttributeNames")
        table = self._table(request["TableName"])
        key = table.key_of(request["Key"])
        projection, scope = _projection(request)
        item = table.items.get(key)
        consumed = Consumed(reads=_read_units([item], request.get("ConsistentRead", False)))
        answer: dict[str, Any] = {}
        if item is not None:
            answer["Item"] = _project(projection, scope, item)
        return answer | self._consume(request, [(table, consumed)])

    def _batch_get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "RequestItems")
        wanted = request["RequestItems"]
        count = sum(len(entry["Keys"]) for entry in wanted.values())
        if not wanted or count > 100:
            raise invalid("Too many items requested for the BatchGetItem call")
        responses: dict[str, list[Item]] = {}
        left_out: dict[str, Any] = {}
        consumed, room = [], _MAX_BATCH
        for name, entry in wanted.items():
            _only(
                entry,
                "Keys ConsistentRead ProjectionExpression ExpressionAttributeNames",
                top=False,
            )
            table = self._table(name)
            keys = [table.key_of(key) for key in entry["Keys"]]
            if not keys or len(set(keys)) < len(keys):
                raise invalid("Provided list of item keys contains duplicates")
            projection, scope = _projection(entry)
            found = []
            for key, given in zip(keys, entry["Keys"], strict=True):
                item = table.items.get(key)
                room -= size_of_item(item or {})
                if room >= 0:
                    found.append(item)
                else:
                    left_out.setdefault(name, {**entry, "Keys": []})["Keys"].append(given)
            consistent = entry.get("ConsistentRead", False)
            units = sum(_read_units([item], consistent) for item in found)
            consumed.append((table, Consumed(reads=units)))
            responses[name] = [_project(projection, scope, item) for item in found if item]
        return {"Responses": responses, "UnprocessedKeys": left_out} | self._consume(
            request, consumed, as_list=True
        )

    def _transact_get_items(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "TransactItems")
        responses, consumed, size = [], [], 0
        places = [self._place(action["Get"]) for action in request["TransactItems"]]
        if len(set(places)) < len(places):
            raise invalid("Transaction request cannot include multiple operations on one item")
        for get in (action["Get"] for action in request["TransactItems"]):
            _only(get, "TableName Key ProjectionExpression ExpressionAttributeNames", top=False)
            table = self._table(get["TableName"])
            projection, scope = _projection(get)
            item = table.items.get(table.key_of(get["Key"]))
            size += size_of_item(item or {})
            units = 2 * _read_units([item], consistent=True)
            consumed.append((table, Consumed(reads=units)))
            responses.append({"Item": _project(projection, scope, item)} if item else {})
        if size > _MAX_TRANSACTION:
            raise _too_large()
        return {"Responses": responses} | self._consume(request, consumed, as_list=True)

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"{_PAGED} KeyConditionExpression ScanIndexForward")
        table = self._table(request["TableName"])
        index = _index(table, request)
        keys = index.keys if index else table.keys
        condition = parse_condition(request["KeyConditionExpression"], "KeyConditionExpression")
        scope = _scope(request, [condition, *_filters(request)])
        condition = _checked_key_condition(condition, keys, scope)
        found = [
            (key, entry)
            for key, item in table.items.items()
            if (entry := table.entry(index, item) if index else item) is not None
            and condition.holds(Scope(entry, scope.names, scope.values))
        ]
        sort_key = keys[1] if len(keys) > 1 else None
        found.sort(
            key=lambda pair: (_sortable(pair[1][sort_key]) if sort_key else (), pair[0]),
            reverse=request.get("ScanIndexForward") is False,
        )
        return self._page(request, table, index, found, scope)

    def _scan(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, _PAGED)
        table = self._table(request["TableName"])
        index = _index(table, request)
        scope = _scope(request, _filters(request))
        found = [
            (key, entry)
            for key, item in table.items.items()
            if (entry := table.entry(index, item) if index else item) is not None
        ]
        return self._page(request, table, index, found, scope)

    def _page(
        self,
        request: dict[str, Any],
        table: Table,
        index: Index | None,
        found: Sequence[tuple[Key, Item]],
        scope: Scope,
    ) -> dict[str, Any]:
        """Make one page of the result, filtered and projected."""
        keys = tuple(dict.fromkeys((*table.keys, *(index.keys if index else ()))))
        start = request.get("ExclusiveStartKey")
        if start is not None:
            last = tuple(start[name][table.types[name]] for name in table.keys)
            places = [place for place, (key, _) in enumerate(found) if key == last]
            found = found[places[0] + 1 :] if places else found
        page: list[Item] = []
        size, limit = 0, request.get("Limit", len(found) + 1)
        for _, entry in found:
            if len(page) >= limit or size > _MAX_PAGE:
                break
            size += size_of_item(entry)
            page.append(entry)
        filters, projection = _filter(request), _projection_of(request)
        kept = [
            entry
            for entry in page
            if filters is None or filters.holds(Scope(entry, scope.names, scope.values))
        ]
        answer: dict[str, Any] = {"Count": len(kept), "ScannedCount": len(page)}
        if request.get("Select") != "COUNT":
            answer["Items"] = [_project(projection, scope, entry) for entry in kept]
        if page and (len(page) < len(found) or len(page) == limit):
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in keys}
        units = max(1, ceil(size / 4096)) * (1.0 if request.get("ConsistentRead") else 0.5)
        consumed = (
            Consumed(index_reads={request["IndexName"]: units}) if index else Consumed(reads=units)
        )
        return answer | self._consume(request, [(table, consumed)])

    # ------------------------------------------------------------------ writes

    def _put_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"TableName Item {_WRITE}")
        return self._single(request, self._check_put(request), {"NONE", "ALL_OLD"})

    def _delete_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"TableName Key {_WRITE}")
        return self._single(request, self._check_delete(request), {"NONE", "ALL_OLD"})

    def _update_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, f"TableName Key UpdateExpression {_WRITE}")
        every = {"NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"}
        return self._single(request, self._check_update(request), every)

    def _single(
        self, request: dict[str, Any], write: _Write, allowed: Collection[str]
    ) -> dict[str, Any]:
        """Apply a single write, or raise the reason why it fails."""
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in allowed:
            raise invalid("ReturnValues can only be " + " or ".join(sorted(allowed)))
        if write.reason is not None and write.reason["Code"] == "ValidationError":
            raise invalid(write.reason["Message"])
        consumed = self._consume(request, [(write.table, write.units())])
        if write.reason is not None:
            extra = {"Item": write.reason["Item"]} if "Item" in write.reason else {}
            raise ServiceError("ConditionalCheckFailedException", _CONDITION_FAILED, extra=extra)
        write.apply()
        source = write.before if wanted.endswith("OLD") else write.after
        answer: dict[str, Any] = {}
        if wanted.startswith("ALL") and source is not None:
            answer["Attributes"] = source
        elif wanted.startswith("UPDATED") and source is not None:
            attributes = project(source, write.paths)
            if attributes:
                answer["Attributes"] = attributes
        return answer | consumed

    def _batch_write_item(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "RequestItems")
        writes = []
        for name, actions in request["RequestItems"].items():
            for action in actions:
                kind, content = next(iter(action.items()))
                judge = self._check_put if kind == "PutRequest" else self._check_delete
                writes.append(judge({"TableName": name, **content}))
        if not 1 <= len(writes) <= 25:
            raise invalid("Too many items requested for the BatchWriteItem call")
        if len({(write.table.name, write.key) for write in writes}) < len(writes):
            raise invalid("Provided list of item keys contains duplicates")
        for write in writes:
            write.apply()
        consumed = [(write.table, write.units()) for write in writes]
        return {"UnprocessedItems": {}} | self._consume(request, consumed, as_list=True)

    def _transact_write_items(self, request: dict[str, Any]) -> dict[str, Any]:
        _only(request, "TransactItems ClientRequestToken")
        actions = request["TransactItems"]
        if not 1 <= len(actions) <= 100:
            raise invalid(
                "1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have "
                "length less than or equal to 100"
            )
        writes = [self._check_action(action) for action in actions]
        if len({(write.table.name, write.key) for write in writes}) < len(writes):
            raise invalid("Transaction request cannot include multiple operations on one item")
        token, content = request.get("ClientRequestToken"), ""
        if token is not None:
            content = sha256(_sorted_text(actions).encode()).hexdigest()
            if self._is_replay(token, content):
                sizes = [
                    (w.table, Consumed(reads=2 * _read_units([w.before], consistent=True)))
                    for w in writes
                ]
                return self._consume(request, sizes, as_list=True)
        size = sum(max(write.sizes) for write in writes)
        if size > _MAX_TRANSACTION:
            raise _too_large()
        consumed = []
        for write in writes:
            units = write.units()
            units.writes *= 2
            consumed.append((write.table, units))
        reasons = [write.reason or {"Code": "None"} for write in writes]
        answer = self._consume(request, consumed, as_list=True)
        if any(write.reason for write in writes):
            codes = ", ".join(reason["Code"] for reason in reasons)
            raise ServiceError(
                "TransactionCanceledException",
                f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
                extra={"CancellationReasons": reasons},
            )
        for write in writes:
            write.apply()
        if token is not None:
            self._tokens[token] = (self._now() + TOKEN_SECONDS, content)
        return answer

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

    def _check_action(self, action: dict[str, Any]) -> _Write:
        kind, content = next(iter(action.items()))
        condition = (
            "ConditionExpression ExpressionAttributeNames ExpressionAttributeValues "
            "ReturnValuesOnConditionCheckFailure"
        )
        if kind == "Put":
            _only(content, f"TableName Item {condition}", top=False)
            return self._check_put(content)
        if kind == "Update":
            _only(content, f"TableName Key UpdateExpression {condition}", top=False)
            return self._check_update(content)
        if kind not in {"Delete", "ConditionCheck"}:
            raise invalid(f"{kind} is not an action of a transaction")
        _only(content, f"TableName Key {condition}", top=False)
        write = self._check_delete(content)
        if kind == "Delete":
            return write
        if not content.get("ConditionExpression"):
            raise invalid("The expression can not be empty;")
        return _Write(write.table, write.key, write.before, write.before, write.reason)

    def _check_put(self, request: dict[str, Any]) -> _Write:
        table = self._table(request["TableName"])
        scope = _scope(request, _conditions(request))
        item = {name: checked(value) for name, value in request["Item"].items()}
        key = table.key_of(item, exactly=False)
        _check_item(table, item)
        before = table.items.get(key)
        reason = _failed_condition(request, before, scope)
        return _Write(table, key, before, item, reason)

    def _check_delete(self, request: dict[str, Any]) -> _Write:
        table = self._table(request["TableName"])
        scope = _scope(request, _conditions(request))
        key = table.key_of(request["Key"])
        before = table.items.get(key)
        return _Write(table, key, before, None, _failed_condition(request, before, scope))

    def _check_update(self, request: dict[str, Any]) -> _Write:
        table = self._table(request["TableName"])
        update: UpdateExpression | None = None
        if "UpdateExpression" in request:
            update = parse_update(request["UpdateExpression"])
        scope = _scope(request, [*([update] if update else ()), *_conditions(request)])
        key = table.key_of(request["Key"])
        paths = update.paths(scope) if update is not None else []
        for steps in paths:
            if steps[0] in table.keys:
                raise invalid(
                    f"One or more parameter values were invalid: Cannot update attribute {steps[0]}. "
                    "This attribute is part of the key"
                )
        before = table.items.get(key)
        reason = _failed_condition(request, before, scope)
        if reason is not None:
            return _Write(table, key, before, None, reason)
        base = before if before is not None else {n: checked(v) for n, v in request["Key"].items()}
        try:
            after = update.apply(Scope(base, scope.names, scope.values)) if update else base
            _check_item(table, after)
        except UpdateError as error:
            reason = {"Code": "ValidationError", "Message": str(error)}
            return _Write(table, key, before, None, reason)
        except ServiceError as error:
            reason = {"Code": "ValidationError", "Message": error.message}
            return _Write(table, key, before, None, reason)
        return _Write(table, key, before, after, None, tuple(paths))

    # ------------------------------------------------------------------ capacity

    def _consume(
        self,
        request: Mapping[str, Any],
        used: Sequence[tuple[Table, Consumed]],
        *,
        as_list: bool = False,
    ) -> dict[str, Any]:
        """Count capacity units, and report them if the request asks for it."""
        by_table: dict[str, Consumed] = {}
        for table, consumed in used:
            table.consumed.add(consumed)
            by_table.setdefault(table.name, Consumed()).add(consumed)
        wanted = request.get("ReturnConsumedCapacity", "NONE")
        if wanted == "NONE":
            return {}
        entries = []
        for name, consumed in by_table.items():
            indexes = {
                index: {
                    "CapacityUnits": consumed.index_reads.get(index, 0.0)
                    + consumed.index_writes.get(index, 0.0)
                }
                for index in {**consumed.index_reads, **consumed.index_writes}
            }
            own = consumed.reads + consumed.writes
            entry: dict[str, Any] = {
                "TableName": name,
                "CapacityUnits": own + sum(units["CapacityUnits"] for units in indexes.values()),
            }
            if wanted == "INDEXES":
                entry["Table"] = {"CapacityUnits": own}
                if indexes:
                    entry["GlobalSecondaryIndexes"] = indexes
            entries.append(entry)
        return {"ConsumedCapacity": entries if as_list else entries[0]}


_WRITE = (
    "ConditionExpression ExpressionAttributeNames ExpressionAttributeValues ReturnValues "
    "ReturnValuesOnConditionCheckFailure"
)
_PAGED = (
    "TableName IndexName Select FilterExpression ProjectionExpression ExpressionAttributeNames "
    "ExpressionAttributeValues Limit ExclusiveStartKey ConsistentRead"
)


def _only(request: Mapping[str, Any], known: str, *, top: bool = True) -> None:
    """Fail on parameters that are not simulated, instead of ignoring them."""
    allowed = set(known.split())
    if top:
        allowed |= {"ReturnConsumedCapacity", "ReturnItemCollectionMetrics"}
    if not request.keys() <= allowed:
        unknown = ", ".join(sorted(request.keys() - allowed))
        raise NotImplementedError(f"the simulated DynamoDB does not support {unknown}")


def _key_names(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(
        element["AttributeName"]
        for element in sorted(schema, key=lambda element: element["KeyType"])
    )


def _key_schema(keys: tuple[str, ...]) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(keys, ("HASH", "RANGE"), strict=False)
    ]


def _check_item(table: Table, item: Item) -> None:
    """Check the size of an item and its index keys."""
    if size_of_item(item) > _MAX_ITEM:
        raise invalid("Item size has exceeded the maximum allowed size")
    for name, index in table.indexes.items():
        for key in index.keys:
            value = item.get(key)
            if value is None:
                continue
            kind = table.types[key]
            if kind not in value:
                raise invalid(
                    f"One or more parameter values were invalid: Type mismatch for Index Key {key} "
                    f"Expected: {kind} Actual: {next(iter(value))} IndexName: {name}"
                )
            if size_of(value) == 0:
                raise invalid(
                    "One or more parameter values are not valid. A value specified for a secondary index key is not "
                    f"supported: an empty string. IndexName: {name}, IndexKey: {key}"
                )


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


def _projection(request: Mapping[str, Any]) -> tuple[Projection | None, Scope]:
    projection = _projection_of(request)
    return projection, _scope(request, [projection] if projection else [])


def _project(projection: Projection | None, scope: Scope, item: Item) -> Item:
    return projection.apply(Scope(item, scope.names, scope.values)) if projection else item


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
    """The cancellation reason if a condition of a write does not hold; None if all hold."""
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


def _read_units(items: Sequence[Item | None], consistent: bool) -> float:
    size = sum(size_of_item(item) for item in items if item is not None)
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


def _checked_key_condition(
    expression: ConditionExpression, keys: tuple[str, ...], scope: Scope
) -> ConditionExpression:
    """Check that a key condition tests the partition key with `=` and, optionally, the sort key.

    Raises:
        ServiceError: ValidationException.
    """
    parts: list[Condition] = []
    left: Condition = expression.condition
    while isinstance(left, Both):
        parts.append(left.right)
        left = left.left
    parts.append(left)
    named: dict[str | int, Condition] = {}
    for part in parts:
        operand = getattr(part, "left", None) or getattr(part, "operand", None)
        if isinstance(part, Function) and part.name == "begins_with":
            operand = part.path
        if not isinstance(operand, Path) or (isinstance(part, Comparison) and part.sign == "<>"):
            raise invalid("Query key condition not supported")
        (name, *rest) = operand.resolve(scope)
        if rest or name not in keys or name in named:
            raise invalid("Query key condition not supported")
        named[name] = part
    partition = named.get(keys[0])
    if partition is None:
        raise invalid(f"Query condition missed key schema element: {keys[0]}")
    if not (
        isinstance(partition, Comparison)
        and partition.sign == "="
        and isinstance(partition.right, Placeholder)
    ):
        raise invalid("Query key condition not supported")
    return expression


def _sortable(value: Value) -> tuple[Decimal | bytes]:
    if "N" in value:
        return (number(value),)
    return (str(next(iter(value.values()))).encode("utf-8", "surrogatepass"),)
