"""Today's code reads and processes the rows and events of all versions, kept in `tests/contract/`.

If rows or events change, run `python -m tests.support.contract` with the next version. Never change a released version's files.
"""

import dataclasses
import hashlib
import json
import re
import zlib
from collections.abc import Mapping

import jsonschema
import pytest
from referencing import Registry, Resource

from docs_generator import asyncapi
from inventory_orders.domain.adjustment import DECREMENT
from inventory_orders.domain.allotments import Page
from inventory_orders.domain.events import SOURCE, EventType, order_events, public_order
from inventory_orders.domain.location import public_key
from inventory_orders.domain.outbound import OutboundPage
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.record import OrderAction, OrderLine, OrderStatus, Step
from inventory_orders.domain.rejection import REASONS_OF_ORDERS, Rejection, RejectionReason
from inventory_orders.store.rows import (
    adjustment_row,
    decode,
    encode,
    order_row,
    page_units,
    product_row,
    word_row,
)
from inventory_orders.store.tables import Table
from local import ROOT
from testing.aws import in_wire_format
from tests.support import contract
from tests.support.contract import in_sdk_format, kind_of_page, meaning
from tests.support.contract_story import contested
from tests.support.movements import record_movements

VERSIONS = contract.versions()
NEWEST = VERSIONS[-1]

RELEASED: dict[str, str] = {}
"""The digest of each released version's files."""

FOREIGN = {"addedByALaterVersion": {"S": "kept"}}
REASONS = {
    *("OPENING", "CLOSING", "COUNT", "DECREMENT"),
    *("TRANSFER_OUT", "TRANSFER_IN", "TRANSFER_LOST"),
}
REASONS_OF_SENDERS = {"RECEIPT", "CORRECTION"}

each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


def row_of(shop, kept):
    return decode(shop.items(kept.table)[kept.key])


def assert_balances(shop):
    for account in shop.accounts():
        assert account.balances, account


# ---------------------------------------------------------------------- the files


def test_files_of_a_released_version_never_change():
    found = {}
    for version in (each for each in VERSIONS if contract.is_released(each.name)):
        digest = hashlib.sha256()
        for path in sorted(version.folder.iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
        found[version.name] = digest.hexdigest()
    assert found == RELEASED, (
        "restore the changed files; tests/support/contract.py says how to add new ones"
    )


# ---------------------------------------------------------------------- reading


@each_version
def test_every_row_means_what_it_meant_to_the_version_that_wrote_it(version):
    for kept in version.rows:
        assert in_json(meaning(kept.read())) == kept.expects, kept.key


def in_json(value):
    return json.loads(json.dumps(value))


_ROWS = {
    Table.PRODUCTS: product_row,
    Table.ORDERS: order_row,
    Table.STOCK_ADJUSTMENTS: adjustment_row,
    Table.WORDS: lambda value: word_row(*value[0], value[1]),
}


@each_version
def test_every_row_is_written_back_as_it_was(version):
    for kept in version.rows:
        with_foreign = {**kept.row, **FOREIGN} if kept.table is Table.PRODUCTS else kept.row
        if kept.table is Table.ORDERS:
            for name in {"items", "steps"} & kept.row.keys():
                parts = [{"M": each["M"] | FOREIGN} for each in kept.row[name]["L"]]
                with_foreign = {**with_foreign, name: {"L": parts}}
        value = contract.read(kept.table, with_foreign)
        if isinstance(value, (Page, OutboundPage)):
            stored = in_sdk_format(kept.row)["units"]["B"]
            assert zlib.decompress(page_units(value)) == zlib.decompress(stored), kept.key
        elif kept.table in _ROWS:
            row = decode(in_wire_format(encode(_ROWS[kept.table](value))))
            # A later version may add attributes.
            assert row | decode(with_foreign) == row, kept.key


@each_version
def test_movements_that_are_recorded_again_stay_as_they_were(version):
    kept = {each.key: each.row for each in version.rows_of(Table.MOVEMENTS)}
    assert kept
    with version.open() as shop:
        record_movements(shop)
        assert shop.items(Table.MOVEMENTS) == kept


# ---------------------------------------------------------------------- carrying on


@each_version
def test_orders_and_adjustments_that_are_sent_again_are_recognised(version):
    with version.open() as shop:
        for kept in version.rows_of(Table.ORDERS):
            if kept.sent is not None:
                answer = shop.invoke("place_orders", {"action": "place", **kept.sent})
                is_rejected = kept.row["status"]["S"] == OrderStatus.REJECTED
                assert answer["result"] == ("REFUSED" if is_rejected else "REPLAYED"), answer
                assert answer.get("code") == (decode(kept.row)["reason"] if is_rejected else None)
        for kept in version.rows_of(Table.STOCK_ADJUSTMENTS):
            command = adjustment_of(decode(kept.row))
            if command is not None:
                answer = shop.invoke("adjust_stock", command)
                expected = "REFUSED" if "rejected" in kept.row else "REPLAYED"
                assert answer["result"] == expected, answer
        rows = {(kept.table, kept.key): kept.row for kept in version.rows}
        stored = {(table, key): row for table in Table for key, row in shop.items(table).items()}
        assert stored == rows


def adjustment_of(row):
    """Return the command that led to an adjustment, or None if it came from a count or from the service itself."""
    delta, reason = row.get("rejected", row)["delta"], row["reason"]
    ids = {"adjustmentId": row["adjustmentId"], **public_key(row["productId"])}
    if reason == DECREMENT:
        return {"action": "decrement", "quantity": -delta, **ids}
    if reason in REASONS_OF_SENDERS:
        return {"action": "adjust", "delta": delta, "reason": reason, **ids}
    if "transferShard" in row:
        more = {"reason": reason, "reference": row["reference"]}
        return {"action": "adjust", "delta": delta, **ids, **more}
    if reason == "TRANSFER_OUT":
        target = row["transferWith"].partition("#")[2]
        sides = {"from": ids.get("locationId", ""), "to": target, "transferId": ids["adjustmentId"]}
        return {"action": "transfer", "productId": ids["productId"], "quantity": -delta, **sides}
    return None


@each_version
@pytest.mark.parametrize("actions", [("confirm", "fulfil", "return"), ("cancel",)])
def test_every_open_order_takes_its_next_commands_and_the_books_balance(version, actions):
    with version.open(**FOREIGN) as shop:
        assert_balances(shop)
        for kept in version.rows_of(Table.ORDERS):
            is_open = decode(kept.row)["status"] in (OrderStatus.PENDING, OrderStatus.CONFIRMED)
            for action in actions if is_open else ():
                answer = shop.invoke("change_orders", command(action, row_of(shop, kept)))
                assert answer["result"] in ("APPLIED", "REPLAYED"), (kept.key, action, answer)
            ends = (OrderStatus.FULFILLED, OrderStatus.CANCELLED)
            assert not is_open or row_of(shop, kept)["status"] in ends, kept.key
        assert_balances(shop)
        assert_foreign_attributes_are_kept(shop)
        shop.publish()
        assert not shop.aws.sqs.queues["UndeliverableEventsQueue"].messages


def command(action, order):
    fields = {"action": action, "orderId": order["orderId"]}
    if action == "return":
        items = [{"productId": order["items"][0]["productId"], "quantity": 1}]
        fields |= {"stepId": "return-later", "items": items, "restock": True}
    return fields


def assert_foreign_attributes_are_kept(shop):
    for table in (Table.ORDERS, Table.PRODUCTS):
        for key, row in shop.items(table).items():
            assert row.items() >= FOREIGN.items(), key


@each_version
def test_ended_orders_refuse_a_payment_for_the_reason_that_they_had(version):
    with version.open(**FOREIGN) as shop:
        for kept in version.rows_of(Table.ORDERS):
            order = decode(kept.row)
            if order["status"] not in ("REJECTED", "CANCELLED", "EXPIRED"):
                continue
            answer = shop.invoke("change_orders", command("confirm", order))
            is_paid = "confirmedAt" in order
            assert answer["result"] == ("REPLAYED" if is_paid else "REFUSED"), kept.key
            if not is_paid:
                assert answer["code"] == f"ORDER_{order['status']}"
        assert_foreign_attributes_are_kept(shop)


@each_version
def test_pages_and_leases_are_sold_from_swept_and_folded(version):
    lent = [kept.key[0] for kept in version.rows_of(Table.PRODUCTS) if "lentTo" in kept.row]
    with version.open(**FOREIGN) as shop:
        with contested(shop, *lent):
            for number, key in enumerate(lent):
                items = [{**public_key(key), "quantity": 1}]
                order = {"orderId": f"later-{number}", "userId": "u-7", "items": items}
                shop.send("Order", order)
                assert shop.deliver("Order") == 0
        placed = [shop.order_row(f"later-{number}") for number in range(len(lent))]
        assert {order["status"] for order in placed} == {OrderStatus.PENDING}
        assert any("lanePage" in order["items"][0] for order in placed)
        assert_balances(shop)
        published = 0
        for _ in range(4):
            shop.clock.sleep(120)
            published += shop.invoke("sweep", {"action": "sweep"})["published"]
        assert published, "pending stock levels and changed ones are published"
        assert_balances(shop)
        assert not any("lentTo" in row for row in shop.items(Table.PRODUCTS).values())
        for row in shop.items(Table.ALLOTMENTS).values():
            if kind_of_page(row) in ("out", "lane", "depot"):
                assert json.loads(zlib.decompress(in_sdk_format(row)["units"]["B"])) == [], row


@each_version
def test_holds_still_end(version):
    held = [kept for kept in version.rows_of(Table.ORDERS) if "expiresAt" in kept.row]
    with version.open() as shop:
        shop.clock.sleep(7 * 86_400)
        assert shop.invoke("sweep", {"action": "sweep"})["holds"] == len(held)
        shop.clock.sleep(60)
        assert shop.deliver("Expiry") == 0
        assert {row_of(shop, kept)["status"] for kept in held} == {OrderStatus.EXPIRED}
        assert_balances(shop)


# ---------------------------------------------------------------------- events


@pytest.fixture(scope="module")
def validate():
    parts = asyncapi.schemas()
    files = [(f"{name}.schema.json", Resource.from_contents(part)) for name, part in parts.items()]
    registry = Registry().with_resources(files)
    validators = {
        name: jsonschema.Draft7Validator({"$ref": f"{name}.schema.json"}, registry=registry)
        for name in EventType
    }
    return lambda kind, detail: validators[kind].validate(detail)


@each_version
def test_kept_events_conform_to_todays_schemas(version, validate):
    for event in version.events.values():
        assert event["source"] == SOURCE
        validate(event["detail-type"], event["detail"])


@each_version
def test_orders_are_shown_and_published_with_all_that_consumers_received(version, validate):
    received = {}
    for event in version.events.values():
        data = event["detail"]["data"]
        if "orderId" in data:
            received[data["orderId"], data["version"]] = data
    compared = 0
    for kept in version.rows_of(Table.ORDERS):
        row = decode(kept.row)
        for event in order_events(None, row):
            validate(event.type, event.detail())
        if data := received.get((row["orderId"], row["_version"])):
            compared += 1
            without_step = {name: value for name, value in data.items() if name != "step"}
            assert public_order(row).items() >= without_step.items(), kept.key
    assert compared > 40


# ---------------------------------------------------------------------- completeness


def all_rows(table):
    return [decode(kept.row) for version in VERSIONS for kept in version.rows_of(table)]


def test_every_status_action_reason_and_type_of_event_has_an_entry():
    """If this fails, add the new name to tests/support/contract_story.py, and save the files of the next version."""
    orders, adjustments = all_rows(Table.ORDERS), all_rows(Table.STOCK_ADJUSTMENTS)
    steps = [step for order in orders for step in order.get("steps", ())]
    assert {order["status"] for order in orders} == set(OrderStatus)
    assert {step["action"] for step in steps} == set(OrderAction)
    # A row of these would have a thousand groups or 98 lines.
    large = {RejectionReason.TOO_MANY_GROUPS, RejectionReason.TOO_MANY_PRODUCTS}
    reasons = {order["reason"] for order in orders if "reason" in order}
    assert reasons == set(REASONS_OF_ORDERS) - large
    late = {
        each["confirmationRejected"]["reason"] for each in orders if "confirmationRejected" in each
    }
    assert late == {"ORDER_REJECTED", "ORDER_CANCELLED", "ORDER_EXPIRED"}
    assert {row["status"] for row in all_rows(Table.PRODUCTS)} == set(ProductStatus)
    assert {row["reason"] for row in adjustments} == REASONS | REASONS_OF_SENDERS
    pages = [kept for version in VERSIONS for kept in version.rows_of(Table.ALLOTMENTS)]
    kinds_of_pages = {kind_of_page(kept.row) for kept in pages}
    assert kinds_of_pages == {
        *("changes", "depot", "lane", "lease", "levels", "out", "stock", "today")
    }
    kinds = {event["detail-type"] for version in VERSIONS for event in version.events.values()}
    assert kinds == set(EventType)


def test_every_attribute_of_the_domain_classes_has_an_entry_with_a_value():
    found, classes = set(), set()
    for version in VERSIONS:
        for kept in version.rows:
            for part in parts_of(kept.read()):
                classes.add(type(part))
                found |= {(type(part), name) for name in meaning(part)}
    attributes = {
        (each, field.name)
        for each in classes
        for field in dataclasses.fields(each)
        if field.compare
    }
    # Only the test that writes rows back has lines and steps with unknown attributes. Orders store what was asked.
    assert attributes - found == {
        *((OrderLine, "other"), (Step, "other")),
        *((Rejection, "asked"), (Rejection, "limits")),
    }


def parts_of(value):
    """Yield a domain object and all domain objects inside it."""
    if dataclasses.is_dataclass(value):
        yield value
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from parts_of(part)


def documented():
    """Return the attributes in the tables of docs/data-model.md: table, path and DynamoDB type."""
    page = (ROOT / "docs" / "data-model.md").read_text("utf-8")
    for table in Table:
        section = re.search(rf"\n## {table}\n(.*?)\n## ", page, re.DOTALL)[1]
        for names, types, meant in re.findall(
            r"^\| (`.*?) \((.*?)\) \| (.*) \|$", section, re.MULTILINE
        ):
            paths = re.findall(r"`(.+?)`", names)
            kinds = [kind.split()[0] for kind in types.split(", ")]
            kinds = kinds * len(paths) if len(kinds) == 1 else kinds
            for path, kind in zip(paths, kinds, strict=True):
                yield table, path, kind
            if len(paths) == 1 and types in ("M", "L of M"):
                inner = paths[0] + ("[]" if types != "M" else "")
                for name in re.findall(r"`([a-z][A-Za-z]*)`", meant):
                    yield table, f"{inner}.{name}", None


def paths_of(attributes, prefix=""):
    """Return the paths of all attributes of a row, with their types."""
    for name, value in attributes.items():
        ((kind, content),) = value.items()
        yield prefix + name, kind
        if kind == "M":
            yield from paths_of(content, f"{prefix}{name}.")
        for part in content if kind == "L" else ():
            yield from paths_of(part.get("M", {}), f"{prefix}{name}[].")


def test_every_documented_attribute_has_an_entry_with_its_type():
    found = {
        (kept.table, path, kind)
        for version in VERSIONS
        for kept in version.rows
        for path, kind in paths_of(kept.row)
    }
    untyped = {(table, path, None) for table, path, _ in found}
    expected = set(documented())
    assert len(expected) > 85
    assert expected - found - untyped == set()


def fields_of(value, prefix=""):
    if isinstance(value, list):
        return {path for part in value for path in fields_of(part, prefix)}
    if not isinstance(value, dict):
        return set()
    own = {prefix + name for name in value}
    return own.union(*(fields_of(part, f"{prefix}{name}.") for name, part in value.items()))


def test_todays_code_writes_only_what_the_newest_version_keeps():
    """If this fails, rows or events have changed: run `python -m tests.support.contract` with the next version."""
    today = contract.documents()
    for table, kept in ((table, NEWEST.rows_of(table)) for table in Table):
        entries = today[contract.file_of(table)]["entries"].values()
        assert shapes(table, [entry["row"] for entry in entries]) <= shapes(
            table, [each.row for each in kept]
        )
    events = today["events"]["entries"].values()
    assert shapes_of_events(events) <= shapes_of_events(NEWEST.events.values())


def shapes(table, rows):
    kind_of = kind_of_page if table is Table.ALLOTMENTS else lambda _: table
    return {(kind_of(row), *path) for row in rows for path in paths_of(row)}


def shapes_of_events(events):
    return {(event["detail-type"], path) for event in events for path in fields_of(event)}
