"""Examples of races, run on the embedded AWS with the naive code of many tutorials and with ours.

For naive code, each step of a concurrent writer is made to happen exactly when it causes the anomaly.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import boto3

from inventory_orders.clock import timestamp
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import CatalogueEvent, NewProduct, Product
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import LeaseLostError, Outcome
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.products.lease import Lease
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.tables import Table
from local import pattern_costs
from local.pattern_costs import soon
from testing.world.faults import lose_responses
from testing.world.tables import create_table


@dataclass
class ExampleResult:
    """The result of an example.

    Attributes:
        lines: Text for the user, one line per run.
        naive_fails: For each run of the naive code, whether the anomaly happened.
        ours_holds: For each run of our code, whether the result was correct.
    """

    lines: list[str] = field(default_factory=list)
    naive_fails: list[bool] = field(default_factory=list)
    ours_holds: list[bool] = field(default_factory=list)

    @property
    def as_expected(self) -> bool:
        """Whether the naive code failed in every run, and ours in none."""
        ran = self.naive_fails and self.ours_holds
        return bool(ran) and all([*self.naive_fails, *self.ours_holds])

    def naive(self, what: str, *, fails: bool) -> None:
        """Add the result of a run of the naive code."""
        self.naive_fails.append(fails)
        self.lines.append(f"[red]naive[/]  {what}" if fails else f"naive  {what} (no anomaly?)")

    def ours(self, what: str, *, holds: bool) -> None:
        """Add the result of a run of our code."""
        self.ours_holds.append(holds)
        self.lines.append(f"[green]ours[/]   {what}" if holds else f"[bold red]ours[/]   {what}")


class Sandbox:
    """Creates products for an example, and provides a bare boto3 client and the service's own classes."""

    def __init__(self, tables: dict[Table, str]) -> None:
        self.tables = tables
        self.raw = boto3.client("dynamodb")
        self.client = boto3.client("dynamodb", config=CLIENT_CONFIG)
        self.store = Store(self.client, tables)
        self.products = ProductCatalogue(RetryingClient(self.store))
        self.engine = engine_with_lanes(self.store)

    def create(self, stock: int) -> str:
        """Create a product. Returns its id."""
        product_id = f"example-{uuid.uuid4().hex[:10]}"
        self.products.create(NewProduct(product_id, stock, name="Example", price=100), soon())
        return product_id

    def key(self, product_id: str) -> dict[str, Any]:
        """Return the table and key of a product in the bare client's format."""
        return {"TableName": self.tables[Table.PRODUCTS], "Key": {"productId": {"S": product_id}}}

    def get(self, product_id: str) -> dict[str, Any]:
        """Read a product with the bare client."""
        return self.raw.get_item(**self.key(product_id), ConsistentRead=True)["Item"]

    def put(self, item: dict[str, Any]) -> None:
        """Write a whole product without a condition."""
        self.raw.put_item(TableName=self.tables[Table.PRODUCTS], Item=item)

    def update(self, product_id: str, expression: str, **values: int) -> None:
        """Change a product with the bare client."""
        self.raw.update_item(
            **self.key(product_id),
            UpdateExpression=expression,
            ExpressionAttributeValues={f":{n}": {"N": str(value)} for n, value in values.items()},
        )

    def stock(self, product_id: str) -> int:
        """Read the units on hand."""
        return int(self.get(product_id)["stockCount"]["N"])

    def order(self, product_id: str, quantity: int) -> Outcome:
        """Place an order through the engine."""
        change = Order(f"order-{uuid.uuid4().hex[:10]}", "example", {product_id: quantity})
        return self.engine.apply([change], soon()).outcomes[0].kind


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """Create a sandbox with its own tables, and delete them at the end."""
    dynamodb = boto3.client("dynamodb")
    run = uuid.uuid4().hex[:10]
    tables = {table: f"example-{run}-{table.value}" for table in Table}
    for table, name in tables.items():
        create_table(dynamodb, table, name)
    try:
        yield Sandbox(tables)
    finally:
        for name in tables.values():
            dynamodb.delete_table(TableName=name)


def lost_update(sandbox: Sandbox) -> ExampleResult:
    """Two writers read the same stock; the second write overwrites the first."""
    result = ExampleResult()
    naive = sandbox.create(10)
    mine, rivals = sandbox.get(naive), sandbox.get(naive)
    for item, units in ((rivals, 5), (mine, 3)):
        item["stockCount"]["N"] = str(int(item["stockCount"]["N"]) + units)
        sandbox.put(item)
    after = sandbox.stock(naive)
    result.naive(
        f"stock is 10, one writer adds 5, another adds 3: stock is {after}. The 5 are lost.",
        fails=after != 18,
    )

    product_id = sandbox.create(10)
    seen = []

    def add(units: int) -> Callable[[Product], Product]:
        def change(product: Product) -> Product:
            wishes = product.other.get("wishes", 10)
            seen.append(wishes)
            if units == 3 and len(seen) == 1:
                # The concurrent write happens between the engine's read and its write.
                sandbox.products.update_with_retry(product_id, add(5), soon())
            return replace(product, other={**product.other, "wishes": wishes + units})

        return change

    sandbox.products.update_with_retry(product_id, add(3), soon())
    after = sandbox.products.get(product_id, soon()).other["wishes"]
    result.ours(
        f"stock is 10, one writer adds 5, another adds 3: stock is {after}. The loser read {seen[-1]} and tried again.",
        holds=after == 18,
    )
    return result


def overdraft(sandbox: Sandbox) -> ExampleResult:
    """Two buyers check the stock, both see enough, and both take it."""
    result = ExampleResult()
    naive = sandbox.create(5)
    seen = [sandbox.stock(naive) for _ in range(2)]
    for stock in seen:
        if stock >= 4:
            sandbox.update(naive, "SET stockCount = stockCount - :q", q=4)
    after = sandbox.stock(naive)
    result.naive(
        f"5 in stock, two buyers check the stock and take 4 each: {after} left. Oversold.",
        fails=after < 0,
    )

    product_id = sandbox.create(5)
    read, statuses = sandbox.store.read, []

    def read_while_a_rival_buys(keys: Any, **options: Any) -> Any:
        found = read(keys, **options)
        with patch.object(sandbox.store, "read", read):
            statuses.append(sandbox.order(product_id, 4))
        return found

    with patch.object(sandbox.store, "read", read_while_a_rival_buys):
        statuses.append(sandbox.order(product_id, 4))
    after = sandbox.stock(product_id)
    answers = ", ".join(status.name.lower() for status in statuses)
    result.ours(
        f"5 in stock, two buyers read 5 and order 4 each: {answers}; {after} left.",
        holds=after == 1 and statuses == [Outcome.APPLIED, Outcome.REJECTED],
    )
    return result


def stale_delete(sandbox: Sandbox) -> ExampleResult:
    """A late delete removes a product that was listed again with the same id."""
    result = ExampleResult()
    naive = sandbox.create(1)
    sandbox.raw.delete_item(**sandbox.key(naive))
    sandbox.products.create(NewProduct(naive, 7), soon())
    sandbox.raw.delete_item(**sandbox.key(naive))
    gone = sandbox.products.client.store.read([naive]).products[naive] is None
    result.naive(
        "deleted, listed again with 7, then the same delete is delivered again: the product is gone.",
        fails=gone,
    )

    product_id = sandbox.create(1)
    old = sandbox.products.get(product_id, soon()).created_at
    sandbox.products.delist(product_id, old, soon())
    sandbox.products.create(NewProduct(product_id, 7), soon())
    deleted = sandbox.products.delist(product_id, old, soon())
    after = sandbox.stock(product_id)
    result.ours(
        f"the same with a condition on createdAt: the second delete is stale and changes nothing; {after} left.",
        holds=not deleted and after == 7,
    )
    return result


def out_of_order_event(sandbox: Sandbox) -> ExampleResult:
    """An older catalogue event arrives after a newer one and overwrites it."""
    result = ExampleResult()
    now = datetime.now(UTC)
    older, newer = timestamp(now - timedelta(minutes=9)), timestamp(now - timedelta(minutes=1))
    naive = sandbox.create(1)
    for price in (200, 150):
        sandbox.update(naive, "SET price = :p", p=price)
    price = int(sandbox.get(naive)["price"]["N"])
    result.naive(
        f"an event of 9:59 sets the price to 200, then an event of 9:51 sets it to 150: it is {price}.",
        fails=price != 200,
    )

    product_id = sandbox.create(1)
    for number, (at, price) in enumerate(((newer, 200), (older, 150))):
        applied, product = sandbox.products.change_details(
            CatalogueEvent(product_id, f"e-{number}", at, {"price": price}), soon()
        )
    result.ours(
        f"the same with a condition on detailsEventTime: it is {product.price}, because the older event is ignored.",
        holds=product.price == 200 and not applied,
    )
    return result


# Long enough for the requests of an acquisition on a busy machine, which give up when the lease would end.
_LEASE_SECONDS = 0.6


def expired_lease(sandbox: Sandbox) -> ExampleResult:
    """The owner of a lock is paused until the lock has expired, and then overwrites the work of the next owner."""
    result = ExampleResult()
    naive = sandbox.create(10)
    _naive_lock(sandbox, naive, "owner-1", 0.05)
    counted = sandbox.stock(naive)
    time.sleep(0.06)
    # Owner 1 is paused until its lock has expired. Owner 2 acquires the lock, finds 4 broken units, and writes 6.
    _naive_lock(sandbox, naive, "owner-2", 0.05)
    for count in (sandbox.stock(naive) - 4, counted):
        sandbox.update(naive, "SET stockCount = :count REMOVE lockedBy, lockTime", count=count)
    after = sandbox.stock(naive)
    result.naive(
        f"owner 1 counts 10 and is paused until its lock expires, owner 2 writes 6, owner 1 goes on: {after}.",
        fails=after != 6,
    )

    product_id = sandbox.create(10)
    first = Lease.acquire(RetryingClient(sandbox.store), product_id, _LEASE_SECONDS, soon())
    time.sleep(_LEASE_SECONDS)
    status = sandbox.order(product_id, 4)
    try:
        first.commit(10, "late-count", soon())
        lost = False
    except LeaseLostError:
        lost = True
    after = sandbox.stock(product_id)
    result.ours(
        f"the lease expires, an order for 4 is {status.name.lower()}, the late count fails: {after} left.",
        holds=lost and after == 6,
    )
    return result


def aba(sandbox: Sandbox) -> ExampleResult:
    """A product that was deleted and created again seems unchanged: it has the version that a stale writer read."""
    result = ExampleResult()
    naive = sandbox.create(10)
    seen = sandbox.get(naive)
    sandbox.raw.delete_item(**sandbox.key(naive))
    sandbox.products.create(NewProduct(naive, 500), soon())
    _version_conditioned_put(sandbox, seen, 9)
    after = sandbox.stock(naive)
    result.naive(
        f"a writer reads 10 at version 1, the product is created again with 500 at version 1, the writer writes 9: {after}.",
        fails=after == 9,
    )

    product_id = sandbox.create(10)
    old = sandbox.products.get(product_id, soon())
    snapshot = sandbox.store.read([product_id])
    sandbox.products.delist(product_id, old.created_at, soon())
    sandbox.products.create(NewProduct(product_id, 500), soon())
    read = sandbox.store.read

    def read_the_old_one(keys: Any, **options: Any) -> Any:
        return snapshot if product_id in keys else read(keys, **options)

    # Let the engine plan from the old generation.
    with patch.object(sandbox.store, "read", read_the_old_one):
        status = sandbox.order(product_id, 1)
    after = sandbox.stock(product_id)
    result.ours(
        f"the same with a condition on createdAt, too: on the second attempt, the order is {status.name.lower()}, "
        f"{after} left.",
        holds=after == 499,
    )
    return result


def lost_response(sandbox: Sandbox) -> ExampleResult:
    """A decrement is applied, its response is lost, and the SDK repeats the decrement, which takes effect twice."""
    result = ExampleResult()
    naive = sandbox.create(10)
    lose_responses(sandbox.raw)
    sandbox.update(naive, "SET stockCount = stockCount - :q", q=1)
    after = sandbox.stock(naive)
    result.naive(
        f"10 in stock, a decrement of 1 whose response is lost: {after} left.", fails=after == 8
    )

    product_id = sandbox.create(10)
    lose_responses(sandbox.client, "TransactWriteItems")
    status = sandbox.order(product_id, 1)
    after = sandbox.stock(product_id)
    result.ours(
        f"the same with a token: {status.name.lower()} once, {after} left.",
        holds=after == 9 and status is Outcome.APPLIED,
    )
    return result


def decrement_modes(sandbox: Sandbox) -> ExampleResult:
    """The cost of a decrement with 8 concurrent writers: optimistic (read, decide, write) and atomic (no read)."""
    result = ExampleResult()
    rivals = pattern_costs.RIVALS
    naive = sandbox.create(pattern_costs.PLENTY)
    for item in [sandbox.get(naive) for _ in range(rivals)]:
        item["stockCount"]["N"] = str(int(item["stockCount"]["N"]) - 1)
        sandbox.put(item)
    taken = pattern_costs.PLENTY - sandbox.stock(naive)
    result.naive(
        f"unchecked   2.00 requests, 1.0 write units, 0.00 conflicts per decrement; {taken} of {rivals} applied",
        fails=taken < rivals,
    )
    for mode in pattern_costs.DECREMENT_MODES:
        cost = pattern_costs.decrements(sandbox.tables, sandbox.create(pattern_costs.PLENTY), mode)
        result.ours(
            f"{mode:10}  {cost.requests:.2f} requests, {cost.write_units:.1f} write units, "
            f"{cost.conflicts:.2f} conflicts per decrement; {cost.done} of {cost.wanted} applied",
            holds=cost.done == cost.wanted,
        )
    return result


def hot_product(sandbox: Sandbox) -> ExampleResult:
    """The cost of batches of 20 orders for one product with 8 concurrent writers: with jittered retries only, and with lanes."""
    result = ExampleResult()
    rivals = pattern_costs.RIVALS
    naive = sandbox.create(rivals)
    placed = requests = 0
    while placed < rivals:
        # All writers read before any of them writes, so only one write succeeds.
        seen = [sandbox.get(naive) for _ in range(rivals - placed)]
        requests += 2 * len(seen)
        placed += sum(_version_conditioned_put(sandbox, item, len(seen) - 1) for item in seen)
    lost = requests // 2 - placed
    result.naive(
        f"no batches     {requests / rivals:.2f} requests per order, {lost / rivals:.2f} lost writes per order; "
        f"{placed} of {rivals} placed",
        fails=requests > 2 * rivals,
    )
    for name, lanes in (("retries only", 0), ("with lanes", pattern_costs.RIVALS)):
        product_id = sandbox.create(pattern_costs.ORDERS)
        cost = pattern_costs.hot_product(sandbox.tables, product_id, lanes=lanes)
        result.ours(
            f"{name:13}  {cost.requests:.2f} requests per order, "
            f"{cost.lost_transactions:.2f} lost transactions per batch; {cost.done} of {cost.wanted} placed",
            holds=cost.done == cost.wanted,
        )
    return result


EXAMPLES: dict[str, Callable[[Sandbox], ExampleResult]] = {
    "lost-update": lost_update,
    "overdraft": overdraft,
    "stale-delete": stale_delete,
    "out-of-order-event": out_of_order_event,
    "expired-lease": expired_lease,
    "aba": aba,
    "lost-response": lost_response,
    "decrement-modes": decrement_modes,
    "hot-product": hot_product,
}


def _naive_lock(sandbox: Sandbox, product_id: str, owner: str, seconds: float) -> None:
    """Take a lock that expires, as most tutorials do. Its owner does not check the lock again before writing."""
    now = time.time()
    sandbox.raw.update_item(
        **sandbox.key(product_id),
        UpdateExpression="SET lockedBy = :owner, lockTime = :until",
        ConditionExpression="attribute_not_exists(lockTime) OR lockTime <= :now",
        ExpressionAttributeValues={
            ":owner": {"S": owner},
            ":until": {"N": f"{now + seconds:.6f}"},
            ":now": {"N": f"{now:.6f}"},
        },
    )


def _version_conditioned_put(sandbox: Sandbox, item: dict[str, Any], stock: int) -> bool:
    """Write with optimistic locking as most tutorials do: conditional on the version only. Return whether it succeeded."""
    version = int(item["_version"]["N"]) + 1
    changed = {**item, "stockCount": {"N": str(stock)}, "_version": {"N": str(version)}}
    try:
        sandbox.raw.put_item(
            TableName=sandbox.tables[Table.PRODUCTS],
            Item=changed,
            ConditionExpression="#v = :v",
            ExpressionAttributeNames={"#v": "_version"},
            ExpressionAttributeValues={":v": item["_version"]},
        )
    except sandbox.raw.exceptions.ConditionalCheckFailedException:
        return False
    return True
