"""A short history of a shop that makes the service write each kind of row and event at least once.

It goes through the handlers, in memory, with fixed times and ids, so the same code always writes the same rows.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from inventory_orders.domain.events import EventType
from inventory_orders.domain.location import stock_key
from inventory_orders.store.tables import KEYS, STREAMED, Table
from operations.forget import Forgetting
from testing.aws import Item
from testing.aws.streams import record
from testing.schedules.in_turn.shop import Shop
from testing.world.clock import ManualClock

_WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
_BEGINS = datetime(2026, 12, 1, 9, tzinfo=UTC)
_PSEUDONYM_KEY = b"a key that only this story uses, and no shop"

Line = dict[str, Any]


class StreamedShop(Shop):
    """A shop that records the changes to its tables in the format of their streams."""

    def __init__(self, clock: ManualClock) -> None:
        self.changes: list[dict[str, Any]] = []
        super().__init__(clock=clock)

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        if operation not in _WRITES:
            return super().answer(service, operation, request)
        before = {table: dict(self.items(table)) for table in STREAMED}
        reply = super().answer(service, operation, request)
        for table in STREAMED:
            self._record(table, before[table], self.items(table))
        return reply

    def _record(self, table: Table, before: Mapping[Any, Item], after: Mapping[Any, Item]) -> None:
        for key in dict.fromkeys([*before, *after]):
            old, new = before.get(key), after.get(key)
            if old is not new:
                keys = {name: {"S": part} for name, part in zip(KEYS[table], key, strict=True)}
                self.changes.append(record(keys, old, new, len(self.changes)))

    def publish(self) -> None:
        """Let the service publish the changes since the last call."""
        changes, self.changes = self.changes, []
        self.invoke("publish_events", {"Records": changes})


@contextlib.contextmanager
def opened(clock: ManualClock) -> Iterator[StreamedShop]:
    """Open a shop with `stockEvents`. Its random numbers and ids are always the same, and it discards its logs."""
    chance = random.Random(1)
    with (
        patch.object(os, "urandom", chance.randbytes),
        patch.object(random, "_urandom", chance.randbytes),
        contextlib.redirect_stdout(io.StringIO()),
        StreamedShop(clock).open() as shop,
    ):
        shop.restart(STOCK_EVENT_BUS_NAME="Bus")
        yield shop


class Story:
    """The history of a shop.

    Args:
        shop: The shop, which `opened` makes.

    Attributes:
        names: What each row shows, by table and key.
        sent: The messages of orders as they were sent, by order id.
    """

    def __init__(self, shop: StreamedShop) -> None:
        self.shop = shop
        self.names: dict[tuple[Table, tuple[str, ...]], str] = {}
        self.sent: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        """Run all parts of the history.

        The parts that leave units on pages come last, because later parts would move these units.
        """
        self.list_products()
        self.adjust()
        self.place_orders()
        self.reject_orders()
        self.move_orders()
        self.return_units()
        self.cancel_orders()
        self.pay_late()
        self.cancel_before_orders()
        self.change_products()
        self.delist_products()
        self.sell_from_lanes()
        self.sweep_with_a_refused_event()
        self.leave_units_on_pages()
        self.end_processes_at_the_depot()
        self.shop.publish()

    # ------------------------------------------------------------------ commands

    def ask(self, function: str, expected: str, **command: Any) -> dict[str, Any]:
        """Invoke a function with a command, and check the result."""
        answer: dict[str, Any] = self.shop.invoke(function, command)
        assert answer["result"] == expected, (command, answer)
        return answer

    def name(self, table: Table, *key: str, shows: str) -> None:
        """Note what a row shows. This becomes its name in the saved files."""
        self.names[table, key] = shows

    def list_product(self, shows: str, product_id: str, stock: int, **fields: Any) -> None:
        """List a product, or its stock at a location."""
        key = stock_key(product_id, fields.get("locationId", ""))
        self.name(Table.PRODUCTS, key, shows=shows)
        fields |= {"productId": product_id, "openingStock": stock}
        self.ask("manage_products", "APPLIED", action="create", **fields)

    def adjusted(self, shows: str, adjustment_id: str, product_id: str, **fields: Any) -> None:
        """Book an adjustment: a receipt, unless the fields say otherwise."""
        key = stock_key(product_id, fields.get("locationId", ""))
        self.name(Table.STOCK_ADJUSTMENTS, key, adjustment_id, shows=shows)
        command = {"action": "adjust", "reason": "RECEIPT", "locationId": "", **fields}
        if command["action"] == "decrement":
            del command["reason"]
        expected = command.pop("expected", "APPLIED")
        ids = {"adjustmentId": adjustment_id, "productId": product_id}
        self.ask("adjust_stock", expected, **command, **ids)

    def place(
        self, shows: str, order_id: str, *lines: Line, request_id: str = "", **fields: Any
    ) -> None:
        """Send an order to the queue, and let the service place or reject it."""
        self.name(Table.ORDERS, order_id, shows=shows)
        order = {"orderId": order_id, "userId": "u-7", "items": [*lines], **fields}
        self.sent[order_id] = order
        self.deliver("Order", order, request_id=request_id)

    def deliver(self, queue: str, *bodies: Mapping[str, Any], request_id: str = "") -> None:
        """Send messages, and let the service process them. `request_id` is the API request that waits for them, if any."""
        self.shop.send(queue, *bodies)
        sender = {"messageAttributes": {"requestId": {"stringValue": request_id}}}
        assert self.shop.deliver(queue, lambda records: [r | sender for r in records]) == 0, bodies
        assert not self.shop.dead_letters(queue)

    def command(
        self, action: str, order_id: str, *, expected: str = "APPLIED", **fields: Any
    ) -> None:
        """Send a command about an order."""
        self.ask("change_orders", expected, action=action, orderId=order_id, **fields)

    def part(self, action: str, order_id: str, step_id: str, *lines: Line, **fields: Any) -> None:
        """Send a command about some units of an order."""
        self.command(action, order_id, stepId=step_id, items=[*lines], **fields)

    def sweep(self) -> dict[str, Any]:
        """Wait a minute, then sweep."""
        self.shop.clock.sleep(60)
        return self.ask("sweep", "SWEPT", action="sweep")

    # ------------------------------------------------------------------ products and adjustments

    def list_products(self) -> None:
        """List products with every attribute, some of them at locations."""
        self.list_product(
            "product with a name and a price", "tea", 500, name="Earl Grey", price=680
        )
        for place, stock in (("berlin", 50), ("lyon", 40)):
            self.list_product(
                f"stock of a product at {place}",
                "tea",
                stock,
                locationId=place,
                lowStockThreshold=5,
            )
        self.list_product("product, low in stock", "mug", 20, lowStockThreshold=5)
        self.list_product("stock of another product at lyon", "mug", 8, locationId="lyon")
        self.list_product("product with backorders", "kettle", 3, backorderLimit=10)
        self.list_product("product, out of stock", "pot", 4)
        self.list_product("product, back in stock", "tray", 2, name="Tray", price=2500)
        self.list_product("product, discontinued", "cosy", 9)
        self.list_product("product, discontinued and listed again", "spoon", 9)
        self.list_product("product, delisted and listed again", "sieve", 7)
        self.list_product("product, delisted", "caddy", 6)
        self.list_product("product under a lease, while it is counted", "scale", 30)
        self.list_product("product after a count", "filter", 30)
        self.list_product("product that is lent to lanes", "jar", 5_000, lowStockThreshold=10)
        self.list_product("product of which lanes sold everything they had", "tin", 12)

    def adjust(self) -> None:
        """Book an adjustment for each reason, and some that the service refuses."""
        book = self.adjusted
        notes = {"actor": "anna", "reference": "delivery note 88"}
        book("receipt with notes", "r-1", "tea", delta=40, **notes)
        book("receipt at a location", "r-2", "tea", delta=5, locationId="berlin")
        book("correction", "c-1", "tea", delta=-3, reason="CORRECTION")
        down = {"action": "decrement"}
        book("decrement", "d-1", "tea", quantity=2, **down)
        book("atomic decrement", "d-2", "tea", quantity=1, mode="atomic", **down)
        book(
            "decrement at a location, refused: below the limit",
            "d-3",
            "tea",
            **down | {"quantity": 900, "locationId": "lyon", "expected": "REFUSED"},
        )
        book(
            "decrement, refused: unknown product",
            "d-4",
            "no-such-product",
            **down | {"quantity": 1, "expected": "REFUSED"},
        )
        sides = {"from": "", "to": "berlin"}
        self.name(Table.STOCK_ADJUSTMENTS, "tea", "t-1", shows="transfer, the side that it leaves")
        self.name(
            Table.STOCK_ADJUSTMENTS, "tea#berlin", "t-1", shows="transfer, the side that it reaches"
        )
        transfer = {"productId": "tea", "transferId": "t-1", "quantity": 4, "actor": "anna"}
        self.ask("adjust_stock", "APPLIED", action="transfer", **sides, **transfer)
        self.count("count", "filter", 28)

    def count(self, shows: str, product_id: str, counted: int) -> None:
        """Count a product under a lease."""
        self.name(Table.STOCK_ADJUSTMENTS, product_id, "count-1", shows=shows)
        count = {"adjustmentId": "count-1", "counted": counted, "actor": "ben"}
        lease = self.lease(product_id)
        self.ask("count_stock", "COMMITTED", action="commit", lease=lease, **count)

    def lease(self, product_id: str) -> Any:
        """Begin to count a product."""
        fields = {"productId": product_id, "seconds": 900, "outliveInvocation": True}
        return self.ask("count_stock", "ACQUIRED", action="acquire", **fields)["lease"]

    def change_products(self) -> None:
        """Change products by catalogue events and by commands, discontinue some, list one again, and begin a count."""
        event = {"eventId": "e-7", "eventTime": "2026-12-01T09:00:00Z", "productId": "mug"}
        self.deliver("Catalogue", event | {"details": {"name": "Mug", "price": 900}})
        for action, fields in (
            ("changePrice", {"productId": "tea", "price": 720, "leastAgeMinutes": 0}),
            ("discontinue", {"productId": "cosy"}),
            ("discontinue", {"productId": "spoon"}),
            ("listAgain", {"productId": "spoon"}),
        ):
            self.ask("manage_products", "APPLIED", action=action, **fields)
        self.place("order, rejected: the product is discontinued", "discontinued", units("cosy"))
        # A shop's own attributes, as docs/patterns.md describes them.
        own = {"shelf": "B-7", "tags": ["fragile"]}
        self.shop.products.update_with_retry(
            "mug", lambda mug: replace(mug, other=own), self.shop.soon()
        )
        self.lease("scale")

    def delist_products(self) -> None:
        """Delist products, one of them with open orders, and list one again."""
        self.place("order for a delisted generation, confirmed", "old", units("sieve", 2))
        self.command("confirm", "old")
        self.place("order, cancelled after its product was delisted", "gone", units("caddy", 2))
        for product_id in ("sieve", "caddy"):
            created_at = self.shop.row(product_id)["createdAt"]["S"]
            fields = {"productId": product_id, "createdAt": created_at}
            self.ask("manage_products", "APPLIED", action="delist", **fields)
        del self.names[Table.PRODUCTS, ("caddy",)]
        self.command("cancel", "gone")
        self.list_product("product, delisted and listed again", "sieve", 3)

    # ------------------------------------------------------------------ orders

    def place_orders(self) -> None:
        """Place one order of each kind."""
        attributes = {"channel": "web", "gift": True, "points": 12}
        request_id = "00000000-0000-4000-8000-000000000001"
        self.place("order", "plain", units("tea", 2), request_id=request_id)
        held: dict[str, Any] = {"holdSeconds": 86_400, "attributes": attributes}
        self.place("order, placed with a hold", "held", units("tea", 2), units("mug"), **held)
        self.place("order, its hold extended", "extended", units("tea"), holdSeconds=900)
        until = {"until": "2026-12-02T09:00:00Z", "actor": "anna"}
        self.command("extend", "extended", **until)
        self.place(
            "order, split over two locations",
            "split",
            *(units("tea", 45), units("mug", 2)),
            locations=["berlin", "lyon"],
            split=True,
        )
        one: dict[str, Any] = {"locations": ["berlin", "lyon"]}
        self.place("order from the first of its locations", "first", units("tea", 5), **one)
        lines = [units("tea", 2) | {"locationId": "lyon"}, units("mug", 2)]
        self.place("order, a line with a location", "asked", *lines, locations=[""])
        self.place("order, on backorder", "backorder", units("kettle", 5))
        self.place("order that sells out a product", "last", units("pot", 4))
        self.place("order of a forgotten customer", "forgotten", units("tea"), userId="u-9")
        self.command("confirm", "forgotten", actor="carl")
        Forgetting(self.shop.stack, "u-9", _PSEUDONYM_KEY).run()

    def reject_orders(self) -> None:
        """For each reason, send an order that is rejected for it. The rejection of a discontinued product comes later."""
        self.place("order, rejected with shortages", "short", units("mug", 99), units("pot", 9))
        lines = [units("tea", 900) | {"locationId": "lyon"}]
        self.place("order, rejected with shortages at a location", "short-there", *lines)
        self.place("order, rejected: unknown product", "unknown", units("no-such-product"))
        self.place("order that makes stock low", "low", units("mug", 10), units("tray", 2))
        self.place(
            "order that makes stock low at a location",
            "low-there",
            units("tea", 33),
            locations=["lyon"],
        )
        self.adjusted("receipt that ends a shortage", "r-3", "tray", delta=9)
        self.adjusted("receipt that ends low stock", "r-4", "tea", delta=30, locationId="lyon")

    def move_orders(self) -> None:
        """Confirm and fulfil orders, in whole and in part."""
        who = {"actor": "anna", "reference": "payment 17", "reason": "paid by phone"}
        self.place("order, confirmed with notes", "confirmed", units("tea", 3))
        self.command("confirm", "confirmed", **who)
        self.place("order, fulfilled", "fulfilled", units("tea", 3), units("mug"))
        self.command("confirm", "fulfilled")
        self.command("fulfil", "fulfilled", actor="ben")
        self.place("order, fulfilled in part", "in-part", units("tea", 4))
        self.command("confirm", "in-part")
        self.part("fulfil", "in-part", "parcel-1", units("tea", 3), **who)
        self.place("order, fulfilled in two parts", "two-parts", units("tea", 3))
        self.command("confirm", "two-parts")
        for number, quantity in ((1, 1), (2, 2)):
            self.part("fulfil", "two-parts", f"parcel-{number}", units("tea", quantity))
        self.place("order, fulfilled in part, its rest cancelled", "no-rest", units("tea", 5))
        self.command("confirm", "no-rest")
        self.part("fulfil", "no-rest", "parcel-1", units("tea", 2))
        self.command("cancel", "no-rest")
        self.place(
            "order at a location, fulfilled", "sent-there", units("tea", 2), locations=["berlin"]
        )
        self.command("confirm", "sent-there")
        self.command("fulfil", "sent-there")

    def return_units(self) -> None:
        """Send back sellable units and damaged ones."""
        for order_id, restock in (("returned", True), ("returned-broken", False)):
            words = "sellable" if restock else "broken"
            self.place(f"order, fulfilled, a unit returned {words}", order_id, units("tea", 2))
            self.command("confirm", order_id)
            self.command("fulfil", order_id)
            self.part("return", order_id, "return-1", units("tea"), restock=restock, actor="ben")

    def cancel_orders(self) -> None:
        """Cancel orders, in whole and in part, and let a hold end."""
        self.place("order, cancelled", "cancelled", units("tea", 2), units("mug"))
        self.command("cancel", "cancelled", reason="changed my mind")
        self.place("order, paid and cancelled", "refunded", units("tea", 2))
        self.command("confirm", "refunded")
        self.command("cancel", "refunded")
        self.place("order, cancelled in part", "fewer", units("tea", 4))
        self.part("cancel", "fewer", "unwanted", units("tea", 1))
        self.place("order, a unit lost", "lost", units("tea", 4))
        self.command("confirm", "lost")
        self.part("cancel", "lost", "broken", units("tea"), restock=False, reason="broken")
        self.place("order, all units lost", "all-lost", units("tea", 2))
        self.part("cancel", "all-lost", "stolen", units("tea", 2), restock=False)
        for shows, order_id in (("order, expired", "expired"), ("late payment, expired", "late")):
            self.place(shows, order_id, units("tea", 2), units("mug"), holdSeconds=60)
        self.sweep()
        self.shop.clock.sleep(120)
        assert self.shop.deliver("Expiry") == 0
        assert {self.shop.status(each) for each in ("expired", "late")} == {"EXPIRED"}

    def pay_late(self) -> None:
        """Confirm orders after they have ended."""
        self.command("confirm", "late", expected="REFUSED")
        self.place("late payment, rejected", "late-rejected", units("mug", 99))
        self.command("confirm", "late-rejected", expected="REFUSED")
        self.place("late payment, cancelled", "late-cancelled", units("tea"))
        self.command("cancel", "late-cancelled")
        self.command("confirm", "late-cancelled", expected="REFUSED")

    def cancel_before_orders(self) -> None:
        """Cancel orders that have not arrived yet."""
        for shows, order_id in (
            ("tombstone", "tombstone"),
            ("tombstone with a late payment", "tombstone-late"),
            ("tombstone that its order has filled in", "filled-in"),
        ):
            self.name(Table.ORDERS, order_id, shows=shows)
            self.deliver("OrderCommand", {"action": "cancel", "orderId": order_id})
        self.command("confirm", "tombstone-late", expected="REFUSED")
        self.place("tombstone that its order has filled in", "filled-in", units("tea", 2))

    # ------------------------------------------------------------------ lanes and the sweep

    def sell_from_lanes(self) -> None:
        """Sell contested products from a lane and from the depot."""
        with contested(self.shop, "jar", "tin"):
            self.place("order at the depot", "at-depot", units("jar", 2))
            self.shop.clock.sleep(5)
            self.place("order from a lane", "from-lane", units("jar", 3))
            self.place("order from a lane and a row", "from-both", units("jar", 3), units("tea"))
            self.place("order for most of a product in lanes", "most", units("tin", 8))
            self.place("order for the last units in lanes", "rest", units("tin", 3))
        self.command("confirm", "from-lane")
        self.place("order from a lane, fulfilled", "lane-fulfilled", units("jar", 2))
        self.command("confirm", "lane-fulfilled")
        self.place("order from a lane, cancelled", "lane-cancelled", units("jar", 2))
        self.command("cancel", "lane-cancelled")

    def sweep_with_a_refused_event(self) -> None:
        """Sweep while lanes are in use and the bus refuses a stock event, which stays pending."""
        refused = ("ThrottlingException", "slow down")
        self.shop.bus.judge = lambda _, kind: (
            refused if kind == EventType.PRODUCT_STOCK_CHANGED else None
        )
        self.sweep()
        self.shop.bus.judge = lambda *_: None

    def leave_units_on_pages(self) -> None:
        """Hand over units from a row, a lane and a delisted generation, and leave outbound pages to a later sweep."""
        self.command("fulfil", "lane-fulfilled")
        self.command("fulfil", "old")
        for number in range(3):
            order_id = f"parcel-{number}"
            self.place(f"order on an outbound page, {number}", order_id, units("tea", 2))
            self.command("confirm", order_id)
            self.command("fulfil", order_id)

    def end_processes_at_the_depot(self) -> None:
        """End two processes during their visits to the depot.

        The lease shows that the second one waited for the first.
        """

        def end(_: object) -> None:
            # A process that ends releases nothing.
            self.shop.refuse("", _ProcessEndedError())
            raise _ProcessEndedError

        for number in range(2):
            self.shop.restart()
            order = {"orderId": f"lost-{number}", "userId": "u-7", "items": [units("jar", 9)]}
            self.shop.send("Order", order)
            with contested(self.shop, "jar"), contextlib.suppress(_ProcessEndedError):
                self.shop.on("TransactWriteItems", end)
                self.shop.deliver("Order")
            self.shop.calm()


class _ProcessEndedError(Exception):
    """Simulates a process that ends: it does nothing more, not even clean up."""


@contextlib.contextmanager
def contested(shop: Shop, *product_ids: str) -> Iterator[None]:
    """Cause contention on the products' rows, so that the function that places orders sells them from lanes."""
    client = shop.process("place_orders").engine_with_lanes.client
    with patch.object(client.rivals, "has", product_ids.__contains__):
        yield


def units(product_id: str, quantity: int = 1) -> Line:
    """Make a line of an order or of a command."""
    return {"productId": product_id, "quantity": quantity}


def told() -> Story:
    """Run the story in a new shop, and return the story."""
    with opened(ManualClock(_BEGINS.timestamp())) as shop:
        story = Story(shop)
        story.run()
    return story
