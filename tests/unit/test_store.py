"""The store: every expression on the simulated AWS and on Dynoxide, and the meaning of each error."""

import zlib
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Supply, plan
from inventory_orders.domain.product import NewProduct, ProductStatus
from inventory_orders.domain.record import OrderKey, OrderRecord
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    Limit,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store import lists
from inventory_orders.store.cancellations import ConditionFailedError, TransactionCancelledError
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.sweep_rows import (
    STOCK_PARTS,
    StockPart,
    read_stock_parts,
    write_stock_part,
)
from inventory_orders.store.tables import BY_EXPIRY
from inventory_orders.store.writes import ActionKind, record_action, transaction_actions
from testing.aws import ServiceError, answered_by
from testing.schedules.in_turn.bench import product, stored
from testing.world.tables import NAMES

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def write(store, changes, shelf):
    chains = plan(changes, Supply(Allocation(shelf))).chains
    for transaction in (transaction for chain in chains for wave in chain for transaction in wave):
        store.write(transaction_actions(transaction, NOW), str(uuid4()))


def put_product(value, **more):
    item = {**stored(value), **more}
    boto3.client("dynamodb").put_item(TableName="Products", Item=item)


def read_product(store, product_id="p"):
    return store.read([product_id]).products[product_id]


def test_holds_are_listed_by_shard_in_the_order_of_their_ends_page_by_page(each_store):
    ids = [f"o-{number}" for number in range(400) if zlib.crc32(f"o-{number}".encode()) % 32 == 7]
    ends = {order_id: f"2026-01-01T00:00:{n:02}.000000+00:00" for n, order_id in enumerate(ids)}
    rows = [
        OrderRecord(order_id, "u", (), "PENDING", 1, end, end, expires_at=end)
        for order_id, end in reversed(ends.items())
    ]
    now = NOW.isoformat()
    for row in (*rows, OrderRecord("over", "u", (), "CONFIRMED", 1, now, now)):
        each_store.write([record_action(row.key, row)], str(uuid4()))

    def page(shard, after=None):
        return lists.list_entries(each_store, BY_EXPIRY, shard, 3, after, ends[ids[7]])

    pages = [page("07")]
    while (last := pages[-1][1]) is not None:
        pages.append(page("07", last))
    assert [hold["orderId"] for holds, _ in pages for hold in holds] == ids[:8]
    assert pages[0][0][0]["expiresAt"] == ends[ids[0]]
    assert [len(holds) for holds, _ in pages[:3]] == [3, 3, 2]
    assert page("08") == ([], None)


def test_an_order_and_its_decrement_are_written_together(each_store):
    before = product("p", 10, low_stock_threshold=8)
    put_product(before)
    order = Order("o", "u", {"p": 3})
    write(each_store, [order], {"p": before})
    after = read_product(each_store)
    assert (after.stock_count, after.version, after.status) == (7, 2, ProductStatus.LOW_STOCK)
    record = each_store.read([order.record_key]).records[order.record_key]
    assert record.lines[0].product_version == 2
    assert record.lines[0].product_created_at == before.created_at
    assert record.created_at == "2026-01-02T03:04:05.000000+00:00"


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerError"])
def test_the_client_leaves_every_retry_to_the_engine(code):
    """The SDK's client would sleep for up to a second after a throttle, while other workers wait for the depot."""
    asked = []

    def answer(*call):
        asked.append(call)
        raise ServiceError(code)

    with answered_by(answer):
        store = Store(boto3.client("dynamodb", config=CLIENT_CONFIG), NAMES)
        with pytest.raises((ThrottledError, OutcomeUnknownError)):
            store.read(["p"])
    assert len(asked) == 1


OF_INDEX = "arn:aws:dynamodb:eu-west-1:111122223333:table/Shop-Orders/index/byUser"
INDEX_IS_SHORT = "Throughput exceeds the current capacity for one or more global secondary indexes."


@pytest.mark.parametrize(
    ("code", "member"),
    [
        ("ProvisionedThroughputExceededException", "ThrottlingReasons"),
        ("RequestLimitExceeded", "ThrottlingReasons"),
        ("ThrottlingException", "throttlingReasons"),
    ],
)
def test_a_throttled_request_says_which_limit_of_which_table_or_index(code, member):
    limit = Limit("IndexWriteKeyRangeThroughputExceeded", "Shop-Orders/index/byUser")
    reasons = [{"reason": limit.name, "resource": OF_INDEX}] * 2
    refusal = refuses(code, "Rate exceeded", {member: reasons})
    with answered_by(refusal), pytest.raises(ThrottledError) as throttled:
        real_store().read(["p"])
    assert throttled.value.limits == (limit,)
    assert str(throttled.value) == (
        f"{code}: Rate exceeded (IndexWriteKeyRangeThroughputExceeded of Shop-Orders/index/byUser)"
    )


def test_a_throttled_transaction_says_which_tables_are_throttled():
    sold = product("p", 1)
    (chain,) = plan([Order("o", "secret", {"p": 1})], Supply(Allocation({"p": sold}))).chains
    actions = transaction_actions(chain[0][0], NOW)
    reasons = [{"Code": "None"}] * len(actions)
    at = {action.kind: number for number, action in enumerate(actions)}
    reasons[at[ActionKind.PRODUCT]] = {"Code": "ThrottlingError", "Message": "Slow down"}
    index = {"Code": "ProvisionedThroughputExceeded", "Message": INDEX_IS_SHORT}
    reasons[at[ActionKind.RECORD]] = index
    cancelled = {"CancellationReasons": reasons}
    with answered_by(refuses("TransactionCanceledException", "", cancelled)):
        with pytest.raises(TransactionCancelledError) as write:
            real_store().write(actions, "token")
        with pytest.raises(ThrottledError) as read:
            real_store().read_together(["p", OrderKey("o")])
    of_products = Limit("ThrottlingError", "Products")
    of_index = Limit("ProvisionedThroughputExceeded", "an index of Orders")
    assert set(write.value.limits) == set(read.value.limits) == {of_products, of_index}
    assert "ThrottlingError of Products" in str(write.value)
    assert read.value.code == "ThrottlingException"
    assert "secret" not in f"{write.value}{read.value}"


def refuses(code, message, extra):
    def answer(*_):
        raise ServiceError(code, message, extra=extra)

    return answer


def real_store():
    return Store(boto3.client("dynamodb", config=CLIENT_CONFIG), NAMES)


@pytest.mark.parametrize("moved", ["version", "createdAt", "order id"])
def test_a_moved_version_cancels_and_returns_the_item(each_store, moved):
    """Another generation with the same version also cancels the write, and so does an order id that is already used."""
    stale = product("p", 10)
    put_product(stale)
    if moved == "createdAt":
        put_product(product("p", 9, created_at="2025-01-01T00:00:00.000000+00:00"))
    else:
        write(each_store, [Order("a", "u", {"p": 1})], {"p": stale})
    is_used = moved == "order id"
    read = read_product(each_store) if is_used else stale
    with pytest.raises(TransactionCancelledError) as caught:
        write(each_store, [Order("a" if is_used else "b", "u", {"p": 1})], {"p": read})
    failed, other = caught.value.reasons[::-1] if is_used else caught.value.reasons
    assert (failed.code, other.code) == ("ConditionalCheckFailed", "None")
    assert failed.found.order_id == "a" if is_used else failed.found.stock_count == 9
    assert read_product(each_store).stock_count == 9


def test_an_update_does_not_create_a_delisted_product(each_store):
    with pytest.raises(TransactionCancelledError) as caught:
        write(each_store, [Order("a", "u", {"p": 1})], {"p": product("p", 10)})
    assert caught.value.reasons[0].found is None
    assert read_product(each_store) is None


@pytest.mark.parametrize(("lock_offset", "locked"), [(0.5, True), (0, False)])
def test_a_live_lease_cancels_and_an_expired_one_does_not(each_store, lock_offset, locked):
    value = product("p", 10)
    put_product(
        value, lockTime={"N": str(NOW.timestamp() + lock_offset)}, lockedBy={"S": "a worker"}
    )
    if locked:
        with pytest.raises(TransactionCancelledError):
            write(each_store, [Order("a", "u", {"p": 1})], {"p": value})
    else:
        write(each_store, [Order("a", "u", {"p": 1})], {"p": value})
    assert read_product(each_store).stock_count == (10 if locked else 9)


def test_a_product_is_created_once_and_its_opening_stock_is_booked(each_store):
    catalogue = ProductCatalogue(RetryingClient(each_store))
    soon = Deadline.after(10, SystemClock())
    created, _ = catalogue.create(NewProduct("p", 7, name="Tea", price=450), soon)
    again, existing = catalogue.create(NewProduct("p", 99), soon)
    assert (created, again) == (True, False)
    assert existing.stock_count == read_product(each_store).stock_count == 7
    rows = boto3.client("dynamodb").scan(TableName="StockAdjustments")["Items"]
    assert [(row["delta"], row["reason"]) for row in rows] == [({"N": "7"}, {"S": "OPENING"})]
    assert rows[0]["productCreatedAt"]["S"] == existing.created_at
    assert len(existing.created_at) == len("2026-01-02T03:04:05.000000+00:00")
    assert existing.created_at.endswith("+00:00")


def test_a_corrupt_product_is_unreadable_and_others_are_not(each_store):
    put_product(product("p", 7), stockCount={"S": "7"})
    put_product(product("q", 3))
    snapshot = each_store.read(["p", "q", "r"])
    assert list(snapshot.unreadable) == ["p"]
    assert snapshot.products["q"].stock_count == 3
    assert snapshot.products["r"] is None


class Answers:
    """A client that answers each request with a function of its arguments, or fails."""

    def __init__(self, answer):
        self._answer = answer

    def __getattr__(self, operation):
        return lambda **request: self._answer(operation, request)


def store_that(answer):
    return Store(Answers(answer), NAMES)


def client_error(code, status=400):
    return ClientError(
        {
            "Error": {"Code": code, "Message": "m"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "TransactWriteItems",
    )


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (client_error("ProvisionedThroughputExceededException"), ThrottledError),
        (client_error("ThrottlingException"), ThrottledError),
        (client_error("RequestLimitExceeded"), ThrottledError),
        (client_error("ValidationException"), RequestInvalidError),
        (client_error("TransactionInProgressException"), OutcomeUnknownError),
        (client_error("InternalServerError", 500), OutcomeUnknownError),
        (client_error("SomethingNew", 503), OutcomeUnknownError),
        (ReadTimeoutError(endpoint_url="x"), OutcomeUnknownError),
        (ConnectTimeoutError(endpoint_url="x"), OutcomeUnknownError),
        (EndpointConnectionError(endpoint_url="x"), OutcomeUnknownError),
        (client_error("AccessDeniedException"), StoreUnavailableError),
        (client_error("ResourceNotFoundException"), StoreUnavailableError),
        (client_error("IdempotentParameterMismatchException"), StoreUnavailableError),
        (NoCredentialsError(), StoreUnavailableError),
    ],
)
def test_an_error_shows_whether_the_write_may_have_happened(error, meaning):
    def fail(*_):
        raise error

    with pytest.raises(meaning):
        store_that(fail).write([], "token")


def test_items_of_a_batch_read_are_told_apart_by_their_keys():
    def answer(_, request):
        """Return the last key first, leave `l` unprocessed, and find no row for `g`."""
        keys = {key["productId"]["S"]: key for key in request["RequestItems"]["Products"]["Keys"]}
        there = [stored(product(id_, ord(id_))) for id_ in sorted(keys.keys() - {*"gl"})[::-1]]
        left_out = {"Products": {"Keys": [keys["l"]], "ConsistentRead": True}}
        return {"Responses": {"Products": there}, "UnprocessedKeys": left_out}

    snapshot = store_that(answer).read(["a", "g", "b", "l", "c"])
    counts = {id_: p and p.stock_count for id_, p in snapshot.products.items()}
    assert counts == {"a": ord("a"), "g": None, "b": ord("b"), "c": ord("c")}
    assert snapshot.unprocessed == ("l",)


def test_decisions_are_based_on_strongly_consistent_reads():
    consistent = {}

    def answer(operation, request):
        if operation == "get_item":
            consistent[f"one of {request['TableName']}"] = request["ConsistentRead"]
            return {}
        for name, wanted in request["RequestItems"].items():
            consistent[name] = wanted.get("ConsistentRead", False)
        return {"Responses": {}}

    store, order = store_that(answer), Order("o", "u", {"p": 1})
    store.read(["p", order.record_key])
    assert store.get("p") is store.get(order.record_key) is None
    only_a_hint = {"Orders": False}
    decided_on = {"Products": True, "one of Products": True, "one of Orders": True}
    assert consistent == decided_on | only_a_hint


def test_published_stock_is_written_only_by_its_last_reader(each_store):
    parts = read_stock_parts(each_store)
    assert list(parts.values()) == [StockPart(number) for number in range(STOCK_PARTS)]
    level = ("2026-01-01T00:00:00.000000+00:00", -3, "OUT_OF_STOCK")
    first = replace(parts[7], at="2026", levels={"p": level}, pending=["p"])
    written = write_stock_part(each_store, first)
    assert read_stock_parts(each_store)[7] == written == replace(first, version=1)
    with pytest.raises(ConditionFailedError):
        write_stock_part(each_store, replace(first, at="2027"))
    assert write_stock_part(each_store, replace(written, pending=[])).version == 2
    assert read_stock_parts(each_store)[7].pending == []
