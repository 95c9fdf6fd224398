"""Restores all rows to an earlier time: restores copies of the stack's tables, then copies their rows back.

The stack's tables stay, with their streams, the streams' readers, their settings and their place in the CloudFormation
stack. Replacing them with restored tables would lose all of these.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.store.rows import LOCK, Item, encode, shard_of
from inventory_orders.store.tables import KEYS, OTHER_STATUS_SHARDS, Table

from .aws import Aws, get_items, scan
from .errors import UserError
from .republish import Republished, republish, rows_since
from .verify.deployed import Deployed, Properties
from .words import without_full_stop

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TagTypeDef

JUMP = 1_000_000_000
"""Added to a version if the row with the latest version is gone: more than a row changes in 35 days."""

# Attributes that do not count as differences, because they record only when and by which program a row was written.
_NO_CONTENT = {"_version", "changedVersion", "lastUpdatedAt", "expiresAt", "epoch", *LOCK}

_HOLDS_STOCK = {"PENDING", "CONFIRMED", "FULFILLED"}
_OF_A_PLACED_LINE = {
    *("locationId", "productCreatedAt", "productVersion", "lanePage", "laneVersion", "limitGroup"),
}
_OF_A_LIFE = {"expiresAt", "expiryShard", "steps", "suppliedFrom"}
_NO_UNITS = zlib.compress(b"[]")

_DONE = "inventory-orders:rows-are-back"
_TOGETHER = 100
_SIDE_BY_SIDE = 16
_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The time to restore to, and the time of the restore."""

    then: datetime
    now: datetime


def restored(table: Table, live: Item | None, then: Item | None, moment: Moment) -> Item | None:
    """Compute the item to write: its content at that time, with a version higher than all published ones.

    An order that did not exist at that time stays, because its id is used up and other systems know it; but it takes no
    stock, and becomes `CANCELLED` if it held some. A hold keeps the time that it had left.

    Args:
        table: The item's table.
        live: The current item; None if it does not exist.
        then: The earlier item; None if it did not exist.
        moment: The two times.

    Returns:
        The item to write; `live` itself if nothing changes; None if the item has to be deleted.
    """
    if table is Table.ALLOTMENTS and "units" not in (then or live or {}):
        # A lane's lease stays unchanged, because it holds no units.
        return live
    if then is None:
        return live and _unknown_then(table, live, moment)
    if live is not None and _stays(table, live, then):
        return live
    return _as_it_was(live, then, moment)


def _stays(table: Table, live: Item, then: Item) -> bool:
    """Whether the restore leaves the current item unchanged."""
    if table is Table.ORDERS and "userId" in live and "userId" not in then:
        # An order replaced the tombstone of that time later, and took no stock.
        return True
    # Time passes for a hold while the service is stopped, so it is written even if its order has not changed.
    return "expiresAt" not in then and _content(live) == _content(then)


def _as_it_was(live: Item | None, then: Item, moment: Moment) -> Item:
    item = {name: value for name, value in then.items() if name not in LOCK}
    if "_version" in then:
        is_the_same = live is not None and live.get("createdAt") == then.get("createdAt")
        item |= _written(live, then, moment, jump=not is_the_same)
    if "expiresAt" in then:
        left = datetime.fromisoformat(then["expiresAt"]["S"]) - moment.then
        item["expiresAt"] = {"S": timestamp(moment.now + left)}
    return item


def _unknown_then(table: Table, live: Item, moment: Moment) -> Item | None:
    if table is Table.ALLOTMENTS:
        # Pages are never deleted.
        if bytes(live["units"]["B"]) == _NO_UNITS:
            return live
        return {**live, "units": {"B": _NO_UNITS}} | _written(live, live, moment)
    if table is not Table.ORDERS:
        return None
    lines = live.get("items", {}).get("L", [])
    if not any("productCreatedAt" in line["M"] for line in lines):
        return live
    item = {name: live[name] for name in live if name not in _OF_A_LIFE}
    item["items"] = {"L": [{"M": _as_sent(line["M"])} for line in lines]}
    if _status(live) in _HOLDS_STOCK:
        shard = shard_of(live["orderId"]["S"], OTHER_STATUS_SHARDS, "CANCELLED#")
        item |= encode(
            {"status": "CANCELLED", "statusShard": shard, "statusAt": timestamp(moment.now)}
        )
    return item | _written(live, live, moment)


def _as_sent(line: Item) -> Item:
    return {name: value for name, value in line.items() if name not in _OF_A_PLACED_LINE}


def _written(
    live: Item | None, then: Item, moment: Moment, *, jump: bool = False
) -> dict[str, Any]:
    """Compute the next version, with a large step if the row with the latest version is gone."""
    latest = max(_version(live or {}), _version(then))
    version = {"N": str(latest + (JUMP if jump else 1))}
    # A sender that has read an earlier version of an order may have read what the restore undoes.
    changed = {"changedVersion": version} if "orderId" in then else {}
    return {"_version": version, **changed, "lastUpdatedAt": {"S": timestamp(moment.now)}}


def _status(order: Item) -> str:
    return str(order.get("status", {}).get("S", ""))


def _version(item: Item) -> int:
    return int(item.get("_version", {}).get("N", 0))


def _key(table: Table, item: Item) -> dict[str, Any]:
    return {name: item[name] for name in KEYS[table]}


def _unwritten(table: Table, live: Item | None) -> dict[str, Any]:
    """Build the condition that no other program has written an item since it was read."""
    if live is None:
        return {
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": KEYS[table][0]},
        }
    if "_version" not in live:
        return {}
    # Folding a page changes a row's units on hand without raising its version.
    names = [name for name in ("_version", "onHand") if name in live]
    return {
        "ConditionExpression": " AND ".join(f"#{name} = :{name}" for name in names),
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": {f":{name}": live[name] for name in names},
    }


def _content(item: Item) -> Item:
    return {name: value for name, value in item.items() if name not in _NO_CONTENT}


def _sorted(item: Item | None) -> Mapping[str, Any]:
    """Sort the sets of an item, so that equal items compare as equal."""
    values = (item or {}).items()
    return {name: sorted(value["SS"]) if "SS" in value else value for name, value in values}


@dataclass(slots=True)
class Differences:
    """The difference between the tables and the restored ones.

    Attributes:
        rows: The number of rows read.
        back: The number of rows whose content or remaining hold time is restored, by table.
        gone: The number of rows that did not exist at that time and are removed, or emptied, by table.
        cancelled: The number of orders that did not exist at that time and hold stock, by status.
    """

    rows: int = 0
    back: Counter[Table] = field(default_factory=Counter)
    gone: Counter[Table] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)

    def count(self, table: Table, live: Item | None, then: Item | None) -> None:
        """Count one row to write."""
        if then is not None:
            self.back[table] += 1
        elif live is not None and table is Table.ORDERS:
            self.cancelled[_status(live)] += 1
        else:
            self.gone[table] += 1


class Restore:
    """Restores the rows of one stack. Each step may be interrupted and repeated.

    Args:
        aws: The stack.
        then: The time to restore to: a whole second, with its time zone.

    Attributes:
        beside: The same stack, with the names of the restored tables.
    """

    def __init__(self, aws: Aws, then: datetime) -> None:
        then = then.astimezone(UTC)
        self._aws = aws
        self._then = then
        names = {
            f"{table.value}TableName": f"{name}-{then:%Y%m%dT%H%M%SZ}"
            for table, name in aws.tables.items()
        }
        outputs = {**aws.outputs, **names}
        # Movements follow the stream of the restored orders.
        outputs.pop("MovementsTableName", None)
        self.beside = replace(aws, outputs=outputs)

    # ------------------------------------------------------------------ the tables as they were

    def make_tables(self, on_progress: Callable[[str], None]) -> None:
        """Restore copies of all tables, and wait until they can be read. Existing copies are reused."""
        for table, name in self.beside.tables.items():
            if self._describe(name) is not None:
                continue
            try:
                # docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_RestoreTableToPointInTime.html
                self._aws.dynamodb.restore_table_to_point_in_time(
                    SourceTableName=self._aws.tables[table],
                    TargetTableName=name,
                    RestoreDateTime=self._then,
                )
            except ClientError as error:
                raise UserError(
                    f"{table.value} cannot be restored to {self._then.isoformat()}: {without_full_stop(error)}. "
                    f"If you have a backup, restore it as {name}, and run the same command again"
                ) from error
        for table, name in self.beside.tables.items():
            # A table that was just created may not be found yet.
            while (status := (self._describe(name) or {}).get("TableStatus")) != "ACTIVE":
                on_progress(f"{table.value} is {status or 'not created yet'}")
                time.sleep(_PAUSE)

    def _describe(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self._aws.dynamodb.describe_table(TableName=name)["Table"]
        except self._aws.dynamodb.exceptions.ResourceNotFoundException:
            return None

    def _orders_beside(self) -> Mapping[str, Any]:
        found = self._describe(self.beside.tables[Table.ORDERS])
        if found is None:
            raise UserError(
                "the restored tables were deleted during the run; run the same command again"
            )
        return found

    @property
    def rows_are_back_since(self) -> str | None:
        """Return the time at which an earlier, interrupted run had restored all rows; None if there was no such run."""
        arn = self._orders_beside()["TableArn"]
        tags = self._aws.dynamodb.list_tags_of_resource(ResourceArn=arn).get("Tags", [])
        return next((tag["Value"] for tag in tags if tag["Key"] == _DONE), None)

    def finish(self) -> None:
        """Forget that all rows have been restored, so that another restore to this time compares them again."""
        arn = self._orders_beside()["TableArn"]
        self._aws.dynamodb.untag_resource(ResourceArn=arn, TagKeys=[_DONE])

    # ------------------------------------------------------------------ rows

    def look(self, on_progress: Callable[[Differences], None]) -> Differences:
        """Count the rows that `put_back` would write."""
        return self._compare(on_progress, lambda *_: None)

    def put_back(self, on_progress: Callable[[Differences], None]) -> Differences:
        """Write all rows that differ, and all holds. No other program may write at the same time."""
        done = self._compare(on_progress, self._write)
        arn = self._orders_beside()["TableArn"]
        tag: TagTypeDef = {"Key": _DONE, "Value": timestamp(SystemClock().now())}
        self._aws.dynamodb.tag_resource(ResourceArn=arn, Tags=[tag])
        return done

    def _compare(
        self,
        on_progress: Callable[[Differences], None],
        write: Callable[[Table, Item | None, Item | None], None],
    ) -> Differences:
        found, moment = Differences(), Moment(self._then, SystemClock().now())
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            for table in self.beside.tables:
                pairs = self._pairs(table)
                while some := list(islice(pairs, _TOGETHER)):
                    different = [
                        (live, then, after)
                        for live, then in some
                        if (after := restored(table, live, then, moment)) is not live
                    ]
                    for live, then, _ in different:
                        found.count(table, live, then)
                    list(pool.map(lambda each, of=table: write(of, each[0], each[2]), different))
                    found.rows += len(some)
                    on_progress(found)
        return found

    def _pairs(self, table: Table) -> Iterator[tuple[Item | None, Item | None]]:
        """Yield each current row with its earlier content."""
        for aws, other in ((self._aws, self.beside), (self.beside, self._aws)):
            items = scan(aws, table)
            while some := list(islice(items, _TOGETHER)):
                keys = [_key(table, item) for item in some]
                others = {str(_key(table, item)): item for item in get_items(other, table, keys)}
                for key, item in zip(map(str, keys), some, strict=True):
                    if aws is self._aws:
                        yield item, others.get(key)
                    elif key not in others:
                        yield None, item

    def _write(self, table: Table, live: Item | None, after: Item | None) -> None:
        name, key = self._aws.tables[table], _key(table, after or live or {})
        condition = _unwritten(table, live)
        try:
            if after is None:
                self._aws.dynamodb.delete_item(TableName=name, Key=key, **condition)
            else:
                self._aws.dynamodb.put_item(TableName=name, Item=after, **condition)
        except self._aws.dynamodb.exceptions.ConditionalCheckFailedException as error:
            # The client repeats a request if its answer was lost.
            found = self._aws.dynamodb.get_item(TableName=name, Key=key, ConsistentRead=True)
            if _sorted(found.get("Item")) == _sorted(after):
                return
            row = ", ".join(value["S"] for value in key.values())
            raise UserError(
                f"another program has just written {row} of {table.value}: stop it, and run the same command again"
            ) from error

    def republish(self, on_progress: Callable[[int], None]) -> Republished:
        """Publish the state of the restored orders. The stream reports only changes of status."""
        since = timestamp(self._orders_beside()["CreationDateTime"].astimezone(UTC))
        rows = rows_since(self._aws, since)
        return republish(self._aws, rows, send=True, on_progress=on_progress)

    # ------------------------------------------------------------------ functions

    def stop(self, on_progress: Callable[[str], None]) -> None:
        """Stop all functions that write to the tables, and wait until their invocations end.

        Messages wait in their queues. `publish_events` and `record_movements` keep running: they read streams, and write no row
        that is restored.
        """
        deployed = self._deployed()
        on_progress("Disconnecting the queues")
        # The mappings come first, because a message that meets a stopped function uses up a delivery.
        self._connect(deployed, "Disabled")
        functions = self._writers(deployed)
        for name in functions:
            self._aws.functions.put_function_concurrency(
                FunctionName=name, ReservedConcurrentExecutions=0
            )
        seconds = max(properties["Timeout"] for properties in functions.values())
        on_progress(f"Waiting for {seconds} s, until all invocations have ended")
        time.sleep(seconds)

    def start(self, on_progress: Callable[[str], None]) -> None:
        """Undo `stop`: connect queues and functions as deployed."""
        deployed = self._deployed()
        on_progress("Connecting the queues")
        for name, properties in self._writers(deployed).items():
            reserved = properties.get("ReservedConcurrentExecutions")
            if reserved is None:
                self._aws.functions.delete_function_concurrency(FunctionName=name)
            else:
                self._aws.functions.put_function_concurrency(
                    FunctionName=name, ReservedConcurrentExecutions=reserved
                )
        self._connect(deployed, "Enabled")

    def _deployed(self) -> Deployed:
        cloudformation = self._aws.client("cloudformation")
        name, orders = self._aws.stack_name, self._aws.outputs["OrdersTableName"]
        return Deployed.of(cloudformation, self._aws.dynamodb, name, orders)

    def _writers(self, deployed: Deployed) -> dict[str, Properties]:
        readers = [f"{name}FunctionName" for name in ("PublishEvents", "RecordMovements")]
        kept = {self._aws.outputs.get(name) for name in readers}
        functions = deployed.of_type("AWS::Lambda::Function")
        names = {deployed.physical[logical]: each for logical, each in functions.items()}
        return {
            name: each for name, each in names.items() if name in self._own and name not in kept
        }

    @property
    def _own(self) -> set[str]:
        """Return the names of the service's functions, without functions added by the CDK."""
        return {name for key, name in self._aws.outputs.items() if key.endswith("FunctionName")}

    def _connect(self, deployed: Deployed, wanted: str) -> None:
        mappings = deployed.of_type("AWS::Lambda::EventSourceMapping")
        # Only streams have a starting position.
        of_queues = [
            deployed.physical[logical]
            for logical, properties in mappings.items()
            if "StartingPosition" not in properties
        ]
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            list(pool.map(lambda uuid: self._set_mapping(uuid, wanted), of_queues))

    def _set_mapping(self, uuid: str, wanted: str) -> None:
        """Enable or disable a mapping. AWS refuses this while an earlier change is in progress."""
        functions = self._aws.functions
        while (state := functions.get_event_source_mapping(UUID=uuid)["State"]) != wanted:
            if state in ("Enabled", "Disabled"):
                with suppress(functions.exceptions.ResourceInUseException):
                    functions.update_event_source_mapping(UUID=uuid, Enabled=wanted == "Enabled")
            else:
                time.sleep(_PAUSE)
