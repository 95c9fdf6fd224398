"""Seven races, each run twice against the embedded AWS: with the naive code of many tutorials, and with ours.

The schedules are forced, not hoped for: the rival's step is called at the very moment at which it hurts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.exceptions import ClientError, ReadTimeoutError

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import CatalogueEvent, NewProduct, Product
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.contention import ContentionStats
from inventory_orders.engine.outcomes import ChangeStatus
from inventory_orders.errors import ConditionFailedError, LeaseLostError
from inventory_orders.products.catalogue import Products
from inventory_orders.products.decrement import AtomicDecrement
from inventory_orders.products.lease import Lease
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import Table
from operations.aws import Aws


@dataclass
class Story:
    """What an example has to tell.

    Attributes:
        lines: For a person.
        naive_fails: For each naive run, whether the anomaly happened.
        ours_holds: For each of ours, whether it did not.
    """

    lines: list[str] = field(default_factory=list)
    naive_fails: list[bool] = field(default_factory=list)
    ours_holds: list[bool] = field(default_factory=list)

    @property
    def as_told(self) -> bool:
        """Whether all went as the example says."""
        return bool(self.ours_holds) and all([*self.naive_fails, *self.ours_holds])

    def naive(self, what: str, *, fails: bool) -> None:
        """Tell how the naive code fared."""
        self.naive_fails.append(fails)
        self.lines.append(f"[red]naive[/]  {what}" if fails else f"naive  {what} (no anomaly?)")

    def ours(self, what: str, *, holds: bool) -> None:
        """Tell how ours fared."""
        self.ours_holds.append(holds)
        self.lines.append(f"[green]ours[/]   {what}" if holds else f"[bold red]ours[/]   {what}")


class Stage:
    """Fresh products to race on, and both kinds of clients."""

    def __init__(self, tables: dict[Table, str]) -> None:
        self.tables = tables
        self.raw = boto3.client("dynamodb")
        self.store = Store(boto3.client("dynamodb", config=CLIENT_CONFIG), tables)
        self.products = Products(self.store)
        self.committer = Committer(self.store)

    @classmethod
    def of(cls, aws: Aws) -> Stage:
        """On the tables of a deployed stack."""
        return cls(
            {
                Table.PRODUCTS: aws.outputs["ProductsTableName"],
                Table.ORDERS: aws.outputs["OrdersTableName"],
                Table.STOCK_ADJUSTMENTS: aws.outputs["StockAdjustmentsTableName"],
            }
        )

    def create(self, stock: int) -> str:
        """A new product. Returns its id."""
        product_id = f"example-{uuid.uuid4().hex[:10]}"
        self.products.create(NewProduct(product_id, stock, name="Example", price=100))
        return product_id

    def key(self, product_id: str) -> dict[str, Any]:
        """A product's key for the raw client."""
        return {"TableName": self.tables[Table.PRODUCTS], "Key": {"productId": {"S": product_id}}}

    def get(self, product_id: str) -> dict[str, Any]:
        """A product as the raw client reads it."""
        return self.raw.get_item(**self.key(product_id), ConsistentRead=True)["Item"]

    def put(self, item: dict[str, Any]) -> None:
        """Write a whole product, unconditionally."""
        self.raw.put_item(TableName=self.tables[Table.PRODUCTS], Item=item)

    def stock(self, product_id: str) -> int:
        """Units on hand."""
        return int(self.get(product_id)["stockCount"]["N"])

    def order(self, product_id: str, quantity: int) -> ChangeStatus:
        """Place an order through the engine."""
        change = Order(f"order-{uuid.uuid4().hex[:10]}", "example", {product_id: quantity})
        return self.committer.apply([change], soon()).outcomes[0].status

    def forget(self, *product_ids: str) -> None:
        """Take away what naive code left, so that the audit is not blamed for it."""
        adjustments = self.tables[Table.STOCK_ADJUSTMENTS]
        for product_id in product_ids:
            self.raw.delete_item(**self.key(product_id))
            rows = self.raw.query(
                TableName=adjustments,
                KeyConditionExpression="#p = :p",
                ExpressionAttributeNames={"#p": "productId"},
                ExpressionAttributeValues={":p": {"S": product_id}},
            )["Items"]
            for row in rows:
                self.raw.delete_item(
                    TableName=adjustments,
                    Key={name: row[name] for name in ("productId", "adjustmentId")},
                )


def soon() -> Deadline:
    """Time enough."""
    return Deadline.after(20, SystemClock())


def lost_update(stage: Stage) -> Story:
    """Two writers read the same stock; the second one's write undoes the first one's."""
    story = Story()
    naive = stage.create(10)
    mine, rivals = stage.get(naive), stage.get(naive)
    for item, units in ((rivals, 5), (mine, 3)):
        item["stockCount"]["N"] = str(int(item["stockCount"]["N"]) + units)
        stage.put(item)
    after = stage.stock(naive)
    story.naive(f"10, one adds 5, the other 3: {after}. The 5 are lost.", fails=after != 18)
    stage.forget(naive)

    product_id = stage.create(10)
    seen = []

    def add(units: int) -> Callable[[Product], Product]:
        def change(product: Product) -> Product:
            wishes = product.other.get("wishes", 10)
            seen.append(wishes)
            if units == 3 and len(seen) == 1:
                # The rival comes between our read and our write.
                stage.products.update_with_retry(product_id, add(5), soon())
            return replace(product, other={**product.other, "wishes": wishes + units})

        return change

    stage.products.update_with_retry(product_id, add(3), soon())
    after = stage.products.get(product_id, soon()).other["wishes"]
    story.ours(
        f"10, one adds 5, the other 3: {after}. The loser decided again, on {seen[-1]}.",
        holds=after == 18,
    )
    return story


def overdraft(stage: Stage) -> Story:
    """Two buyers check the stock, both see enough, both take it."""
    story = Story()
    naive = stage.create(5)
    seen = [stage.stock(naive) for _ in range(2)]
    for stock in seen:
        if stock >= 4:
            stage.raw.update_item(
                **stage.key(naive),
                UpdateExpression="SET stockCount = stockCount - :q",
                ExpressionAttributeValues={":q": {"N": "4"}},
            )
    after = stage.stock(naive)
    story.naive(f"5 in stock, two check and take 4 each: {after}. Oversold.", fails=after < 0)
    stage.forget(naive)

    product_id = stage.create(5)
    read, statuses = stage.store.read, []

    def read_while_a_rival_buys(keys: Any) -> Any:
        found = read(keys)
        stage.store.read = read  # type: ignore[method-assign]
        statuses.append(stage.order(product_id, 4))
        return found

    stage.store.read = read_while_a_rival_buys  # type: ignore[method-assign]
    statuses.append(stage.order(product_id, 4))
    after = stage.stock(product_id)
    told = ", ".join(status.name.lower() for status in statuses)
    story.ours(
        f"5 in stock, two read 5 and order 4 each: {told}; {after} left.",
        holds=after == 1 and statuses == [ChangeStatus.APPLIED, ChangeStatus.REJECTED],
    )
    return story


def stale_delete(stage: Stage) -> Story:
    """A delete that was decided upon long ago hits the product that was listed anew under the same id."""
    story = Story()
    naive = stage.create(1)
    stage.raw.delete_item(**stage.key(naive))
    stage.products.create(NewProduct(naive, 7))
    stage.raw.delete_item(**stage.key(naive))
    gone = stage.products.store.read([naive]).products[naive] is None
    story.naive("delete, list anew with 7, the delete is delivered again: gone.", fails=gone)
    stage.forget(naive)

    product_id = stage.create(1)
    old = stage.products.get(product_id, soon()).created_at
    stage.products.delist(product_id, old, soon())
    stage.products.create(NewProduct(product_id, 7))
    deleted = stage.products.delist(product_id, old, soon())
    after = stage.stock(product_id)
    story.ours(
        f"the same, on condition of createdAt: the second delete is stale, a success that does nothing; {after} left.",
        holds=not deleted and after == 7,
    )
    return story


def out_of_order_event(stage: Stage) -> Story:
    """An older catalogue event arrives after a newer one and wins."""
    story = Story()
    now = datetime.now(UTC)
    older, newer = timestamp(now - timedelta(minutes=9)), timestamp(now - timedelta(minutes=1))
    naive = stage.create(1)
    for price in (200, 150):
        stage.raw.update_item(
            **stage.key(naive),
            UpdateExpression="SET price = :p",
            ExpressionAttributeValues={":p": {"N": str(price)}},
        )
    price = int(stage.get(naive)["price"]["N"])
    story.naive(f"9:59 says 200, then 9:51 arrives and says 150: {price}.", fails=price != 200)

    product_id = stage.create(1)
    for number, (at, price) in enumerate(((newer, 200), (older, 150))):
        applied, product = stage.products.change_details(
            CatalogueEvent(product_id, f"e-{number}", at, {"price": price})
        )
    story.ours(
        f"the same, on condition of detailsEventTime: {product.price}; the older one is stale.",
        holds=product.price == 200 and not applied,
    )
    return story


def expired_lease(stage: Stage) -> Story:
    """The owner of a lock is paused past its expiry, and writes into its successor's work."""
    story = Story()
    naive = stage.create(10)
    _naive_lock(stage, naive, "owner-1", 0.05)
    counted = stage.stock(naive)
    time.sleep(0.06)
    # Owner 1 is paused. Its lock has expired, so owner 2 takes over, finds 4 broken, and writes 6.
    _naive_lock(stage, naive, "owner-2", 0.05)
    for count in (stage.stock(naive) - 4, counted):
        stage.raw.update_item(
            **stage.key(naive),
            UpdateExpression="SET stockCount = :counted REMOVE lockedBy, lockTime",
            ExpressionAttributeValues={":counted": {"N": str(count)}},
        )
    after = stage.stock(naive)
    story.naive(
        f"owner 1 counts 10 and is paused past its expiry, owner 2 writes 6, owner 1 wakes up: {after}.",
        fails=after != 6,
    )
    stage.forget(naive)

    product_id = stage.create(10)
    first = Lease.acquire(stage.store, product_id, 0.05, deadline=soon())
    time.sleep(0.06)
    status = stage.order(product_id, 4)
    try:
        first.commit(10, "late-count", soon())
        refused = False
    except LeaseLostError:
        refused = True
    after = stage.stock(product_id)
    story.ours(
        f"lease expired, 4 {status.name.lower()}, the late count is refused by version and expiry: {after}.",
        holds=refused and after == 6,
    )
    return story


def aba(stage: Stage) -> Story:
    """Deleted and made again, a product has the version that a stale writer has read: it looks unchanged."""
    story = Story()
    naive = stage.create(10)
    read = stage.get(naive)
    stage.raw.delete_item(**stage.key(naive))
    stage.products.create(NewProduct(naive, 500))
    _version_conditioned_put(stage, read, 9)
    after = stage.stock(naive)
    story.naive(
        f"read 10 at version 1, made again with 500 at version 1, 9 written: {after}.",
        fails=after == 9,
    )
    stage.forget(naive)

    product_id = stage.create(10)
    old = stage.products.get(product_id, soon())
    snapshot = stage.store.read([product_id])
    stage.products.delist(product_id, old.created_at, soon())
    stage.products.create(NewProduct(product_id, 500))
    committer = Committer(stage.store)
    reader = stage.store.read
    # The engine plans from what was read before: the old incarnation.
    stage.store.read = lambda keys: snapshot if product_id in keys else reader(keys)  # type: ignore[method-assign]
    (outcome,) = committer.apply(
        [Order(f"order-{uuid.uuid4().hex[:10]}", "example", {product_id: 1})], soon()
    ).outcomes
    stage.store.read = reader  # type: ignore[method-assign]
    after = stage.stock(product_id)
    story.ours(
        f"the same, on condition of createdAt too: planned again on the new one, {outcome.status.name.lower()}, "
        f"{after} left.",
        holds=after == 499,
    )
    return story


def lost_response(stage: Stage) -> Story:
    """A decrement is applied, its answer is lost, the SDK sends it again: decremented twice."""
    story = Story()
    naive = stage.create(10)
    client = boto3.client("dynamodb")
    lose_responses(client)
    client.update_item(
        **stage.key(naive),
        UpdateExpression="SET stockCount = stockCount - :q",
        ExpressionAttributeValues={":q": {"N": "1"}},
    )
    after = stage.stock(naive)
    story.naive(f"10, one decrement of 1, one lost response: {after}.", fails=after == 8)
    stage.forget(naive)

    product_id = stage.create(10)
    client = boto3.client("dynamodb", config=CLIENT_CONFIG)
    store = Store(client, stage.tables)
    change = Order(f"order-{uuid.uuid4().hex[:10]}", "example", {product_id: 1})
    lose_responses(client, "TransactWriteItems")
    (outcome,) = Committer(store).apply([change], soon()).outcomes
    after = stage.stock(product_id)
    story.ours(
        f"the same with a token: {outcome.status.name.lower()} once, {after} left.",
        holds=after == 9 and outcome.status is ChangeStatus.APPLIED,
    )
    return story


def decrement_modes(stage: Stage) -> Story:
    """What a plain decrement costs: optimistic (read, decide, write) and atomic (no read), with 8 rivals."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    story = Story()
    rivals, each = 8, 25
    costs: dict[str, tuple[float, float, float]] = {}
    for mode in ("optimistic", "atomic"):
        product_id = stage.create(10_000)
        counts: list[_Meter] = []

        def work(
            worker: int,
            mode: str = mode,
            product_id: str = product_id,
            counts: list[_Meter] = counts,
        ) -> None:
            client = boto3.client("dynamodb", config=CLIENT_CONFIG)
            meter = _Meter(client)
            committer = Committer(Store(client, stage.tables))
            atomic = AtomicDecrement(committer)
            atomic.apply(product_id, f"warm-{worker}", 1, soon())
            meter.reset()
            for number in range(each):
                adjustment_id = f"{worker}-{number}"
                if mode == "atomic":
                    atomic.apply(product_id, adjustment_id, 1, soon())
                else:
                    change = Adjustment(product_id, adjustment_id, -1, "DECREMENT")
                    committer.apply([change], soon())
            counts.append(meter)

        with ThreadPoolExecutor(rivals) as pool:
            list(pool.map(work, range(rivals)))
        total = rivals * each
        costs[mode] = (
            sum(meter.requests for meter in counts) / total,
            sum(meter.units for meter in counts) / total,
            sum(meter.cancelled for meter in counts) / total,
        )
        left = stage.stock(product_id)
        requests, units, conflicts = costs[mode]
        story.ours(
            f"{mode:10}  {requests:.2f} requests, {units:.1f} write units, {conflicts:.2f} conflicts a decrement; "
            f"{10_000 - rivals - left} of {total} applied",
            holds=10_000 - rivals - left == total,
        )
    return story


class _NeverClaims(ContentionStats):
    """Takes no product for contested: every batch is optimistic, however often it has lost."""

    def is_contested(self, product_id: str) -> bool:
        del product_id
        return False


def hot_product(stage: Stage) -> Story:
    """What 8 rivals with batches of 20 orders for one product cost: with jittered retries alone, and with claims."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    story = Story()
    rivals, batches, size = 8, 10, 20
    total = rivals * batches * size
    for name, statistics in (("retries alone", _NeverClaims), ("with claims", ContentionStats)):
        product_id = stage.create(total)
        meters: list[_Meter] = []

        def work(
            worker: int,
            statistics: type[ContentionStats] = statistics,
            product_id: str = product_id,
            meters: list[_Meter] = meters,
        ) -> None:
            client = boto3.client("dynamodb", config=CLIENT_CONFIG)
            committer = Committer(Store(client, stage.tables))
            client_of_ours = committer.client
            committer.contention = statistics(client_of_ours.clock, client_of_ours.policy.random)
            meters.append(_Meter(client))
            for batch in range(batches):
                ids = (f"{product_id}-{worker}-{batch}-{number}" for number in range(size))
                orders = [Order(order_id, "u-1", {product_id: 1}) for order_id in ids]
                committer.apply(orders, soon())

        with ThreadPoolExecutor(rivals) as pool:
            list(pool.map(work, range(rivals)))
        lost = sum(meter.cancelled_transactions for meter in meters)
        requests = sum(meter.requests for meter in meters)
        story.ours(
            f"{name:13}  {requests / total:.2f} requests an order, "
            f"{lost / (rivals * batches):.2f} lost transactions a batch; "
            f"{total - stage.stock(product_id)} of {total} placed",
            holds=stage.stock(product_id) == 0,
        )
    return story


EXAMPLES: dict[str, Callable[[Stage], Story]] = {
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


class _Meter:
    """Counts what a client asks for: requests, those that failed, and the write capacity of what was applied."""

    def __init__(self, client: Any) -> None:
        self.reset()
        client.meta.events.register("before-send.dynamodb", self._count_request)
        client.meta.events.register("provide-client-params.dynamodb", self._ask_for_capacity)
        client.meta.events.register("after-call.dynamodb", self._count_units)

    def reset(self) -> None:
        self.requests, self.cancelled, self.units = 0, 0, 0.0
        self.cancelled_transactions = 0

    def _count_request(self, **_: Any) -> None:
        self.requests += 1

    def _ask_for_capacity(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**params, "ReturnConsumedCapacity": "TOTAL"}

    def _count_units(self, parsed: dict[str, Any], **_: Any) -> None:
        if "Error" in parsed:
            self.cancelled += 1
            self.cancelled_transactions += "CancellationReasons" in parsed
            return
        consumed = parsed.get("ConsumedCapacity", [])
        entries = consumed if isinstance(consumed, list) else [consumed]
        self.units += sum(float(entry["CapacityUnits"]) for entry in entries)


def _naive_lock(stage: Stage, product_id: str, owner: str, seconds: float) -> None:
    """A lock that expires, as it is usually written: whoever holds it writes without looking at it again."""
    now = time.time()
    stage.raw.update_item(
        **stage.key(product_id),
        UpdateExpression="SET lockedBy = :owner, lockTime = :until",
        ConditionExpression="attribute_not_exists(lockTime) OR lockTime <= :now",
        ExpressionAttributeValues={
            ":owner": {"S": owner},
            ":until": {"N": f"{now + seconds:.6f}"},
            ":now": {"N": f"{now:.6f}"},
        },
    )


def _version_conditioned_put(stage: Stage, item: dict[str, Any], stock: int) -> None:
    """Optimistic locking as it is usually written: by version alone."""
    changed = {**item, "stockCount": {"N": str(stock)}, "_version": {"N": "2"}}
    try:
        stage.raw.put_item(
            TableName=stage.tables[Table.PRODUCTS],
            Item=changed,
            ConditionExpression="#v = :v",
            ExpressionAttributeNames={"#v": "_version"},
            ExpressionAttributeValues={":v": item["_version"]},
        )
    except ClientError as error:
        raise ConditionFailedError(None) from error


def lose_responses(client: Any, operation: str = "", times: int = 1) -> None:
    """The next requests of a client arrive, their answers do not. Below the SDK's own retries; moto may answer too.

    Args:
        client: Of boto3.
        operation: Which: `TransactWriteItems`, ...; all by default.
        times: How many.
    """
    # Where moto has answered already: it does so before the wire is reached.
    endpoint = client._endpoint
    send, left = endpoint._do_get_response, [times]

    def lossy(request: Any, model: Any, context: Any) -> tuple[Any, Exception | None]:
        answer, error = send(request, model, context)
        if not left[0] or operation not in ("", model.name):
            return answer, error
        left[0] -= 1
        return None, ReadTimeoutError(endpoint_url=request.url)

    endpoint._do_get_response = lossy
