"""A short history of a shop that makes the service write each kind of row and event at least once.

It goes through the handlers, in memory, with fixed times and ids, so the same code always writes the same rows.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from inventory_orders.domain.events import EventType
from operations.forget import Forgetting
from testing.shop import RunningShop
from testing.world.clock import ManualClock
from tests.support.movements import record_movements

_BEGINS = datetime(2026, 12, 1, 9, tzinfo=UTC)
_PSEUDONYM_KEY = b"a key that only this story uses, and no shop"

Line = dict[str, Any]


@contextlib.contextmanager
def opened(clock: ManualClock) -> Iterator[RunningShop]:
    """Open a shop with `stockEvents`. Its random numbers and ids are always the same, and it discards its logs."""
    chance = random.Random(1)
    with (
        patch.object(os, "urandom", chance.randbytes),
        patch.object(random, "_urandom", chance.randbytes),
        contextlib.redirect_stdout(io.StringIO()),
        RunningShop(clock=clock).open() as shop,
    ):
        shop.restart(STOCK_EVENT_BUS_NAME="Bus")
        yield shop


class Story:
    """The history of a shop. Each order's id describes the order.

    Args:
        shop: The shop, which `opened` makes.

    Attributes:
        sent: The messages of orders as they were sent, by order id.
    """

    def __init__(self, shop: RunningShop) -> None:
        self.shop = shop
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
        self.amend_orders()
        self.cancel_orders()
        self.pay_late()
        self.cancel_before_orders()
        self.change_products()
        self.delist_products()
        self.send_goods()
        self.sell_from_lanes()
        self.sweep_with_a_refused_event()
        self.leave_units_on_pages()
        self.end_processes_at_the_depot()
        self.shop.publish()
        self.shop.restart(NOTES_CHANGES="true")
        record_movements(self.shop, late=True)

    # ------------------------------------------------------------------ commands

    def ask(self, function: str, expected: str, **command: Any) -> dict[str, Any]:
        """Invoke a function with a command, and check the result."""
        answer = self.shop.ask(function, **command)
        assert answer["result"] == expected, (command, answer)
        return answer

    def list_product(self, product_id: str, stock: int, **fields: Any) -> None:
        """List a product, or its stock at a location."""
        fields |= {"productId": product_id, "openingStock": stock}
        self.ask("manage_products", "APPLIED", action="create", **fields)

    def receive(self, adjustment_id: str, product_id: str, delta: int, **fields: Any) -> None:
        """Book a receipt, unless the fields name another reason."""
        command = {"reason": "RECEIPT", "delta": delta, "locationId": "", **fields}
        ids = {"action": "adjust", "adjustmentId": adjustment_id, "productId": product_id}
        self.ask("adjust_stock", "APPLIED", **command, **ids)

    def place(
        self,
        order_id: str,
        *lines: Line,
        then: Sequence[str] = (),
        request_id: str = "",
        placed_by: str = "",
        **fields: Any,
    ) -> None:
        """Send an order to the queue, let the service place or reject it, then send commands about all its units."""
        order = {"orderId": order_id, "userId": "u-7", "items": [*lines], **fields}
        self.sent[order_id] = order
        self.deliver("Order", order, requestId=request_id, placedBy=placed_by)
        for action in then:
            self.command(action, order_id)

    def deliver(self, queue: str, *bodies: Mapping[str, Any], **attributes: str) -> None:
        """Send messages with these attributes, and let the service process them."""
        self.shop.send(queue, *bodies)
        given = {name: {"stringValue": text} for name, text in attributes.items()}
        sender = {"messageAttributes": given}
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
        codes = [{"code": "4006381333931"}, {"code": "14006381333938", "units": 12}, {"code": "=1"}]
        tea = {"name": "Earl Grey", "price": 680, "barcodes": codes}
        self.list_product("tea", 500, actor="anna", **tea)
        for place, stock in (("berlin", 50), ("lyon", 40)):
            self.list_product("tea", stock, locationId=place, lowStockThreshold=5)
        self.list_product("mug", 20, lowStockThreshold=5)
        self.list_product("mug", 8, locationId="lyon")
        self.list_product("kettle", 3, backorderLimit=10)
        self.list_product("shoe-42", 30, safetyStock=2, purchaseLimit=2, limitGroup="shoe")
        self.list_product("sold-out", 4)
        self.list_product("back-in-stock", 2, name="Tray", price=2500)
        self.list_product("discontinued", 9)
        self.list_product("on-sale-again", 9)
        self.list_product("relisted", 7)
        self.list_product("delisted", 6)
        self.list_product("being-counted", 30)
        self.list_product("counted", 30)
        self.list_product("in-lanes", 5_000, lowStockThreshold=10)
        self.list_product("sold-out-in-lanes", 12)

    def adjust(self) -> None:
        """Book an adjustment for each reason, and some that the service refuses."""
        self.receive(
            "with-notes",
            "tea",
            40,
            actor="anna",
            reference="delivery note 88",
            scanned={"tea": ["(10)L-7"]},
        )
        self.receive("at-a-location", "tea", 5, locationId="berlin")
        self.receive("correction", "tea", -3, reason="CORRECTION")
        for adjustment_id, product_id, quantity, expected, more in (
            ("decrement", "tea", 2, "APPLIED", {}),
            ("atomic", "tea", 1, "APPLIED", {"mode": "atomic"}),
            ("below-the-limit", "tea", 900, "REFUSED", {"locationId": "lyon"}),
            ("unknown-product", "no-such-product", 1, "REFUSED", {}),
        ):
            fields = {"adjustmentId": adjustment_id, "productId": product_id, "locationId": ""}
            fields |= more
            self.ask("adjust_stock", expected, action="decrement", quantity=quantity, **fields)
        sides = {"from": "", "to": "berlin"}
        transfer = {"productId": "tea", "transferId": "transfer", "quantity": 4, "actor": "anna"}
        self.ask("adjust_stock", "APPLIED", action="transfer", **sides, **transfer)
        count = {"adjustmentId": "count", "counted": 28, "actor": "ben"}
        lease = self.lease("counted")
        self.ask("count_stock", "COMMITTED", action="commit", lease=lease, **count)
        shelf = {"productId": "counted", "locationId": ""}
        begun = self.ask("count_stock", "BEGUN", action="begin", **shelf, adjustmentId="c")
        again = {"adjustmentId": "as-of-a-time", "counted": 27, "reference": "Stocktake 1"}
        again |= {"snapshot": begun["snapshot"]}
        self.ask("count_stock", "APPLIED", action="count", **shelf, **again)

    def send_goods(self) -> None:
        """Send goods to another location, and lose them on the way."""
        van = {"locationId": "berlin", "reference": "van-7"}
        self.receive("sent", "tea", -1, reason="TRANSFER_OUT", sentTo="lyon", **van)
        self.receive("lost", "tea", 0, reason="TRANSFER_LOST", comment="fell off", **van)

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
            ("discontinue", {"productId": "discontinued"}),
            ("discontinue", {"productId": "on-sale-again"}),
            ("listAgain", {"productId": "on-sale-again"}),
        ):
            self.ask("manage_products", "APPLIED", action=action, **fields)
        self.place("rejected-discontinued", units("discontinued"))
        # A shop's own attributes, as docs/patterns.md describes them.
        own = {"shelf": "B-7", "tags": ["fragile"]}
        self.shop.products.update_with_retry(
            "mug", lambda mug: replace(mug, other=own), self.shop.soon()
        )
        self.lease("being-counted")

    def delist_products(self) -> None:
        """Delist products, one of them with open orders, and list one again."""
        self.place("old-generation", units("relisted", 2), then=["confirm"])
        self.place("cancelled-after-delisting", units("delisted", 2))
        for product_id in ("relisted", "delisted"):
            created_at = self.shop.row(product_id)["createdAt"]["S"]
            fields = {"productId": product_id, "createdAt": created_at}
            self.ask("manage_products", "APPLIED", action="delist", **fields)
        self.command("cancel", "cancelled-after-delisting")
        self.list_product("relisted", 3)

    # ------------------------------------------------------------------ orders

    def place_orders(self) -> None:
        """Place one order of each kind."""
        attributes = {"channel": "web", "gift": True, "points": 12}
        request_id = "00000000-0000-4000-8000-000000000001"
        self.place("plain", units("tea", 2), request_id=request_id, placed_by="anna")
        held: dict[str, Any] = {"holdSeconds": 86_400, "attributes": attributes}
        self.place("with-a-hold", units("tea", 2), units("mug"), **held)
        self.place("extended", units("tea"), holdSeconds=900)
        self.command("extend", "extended", until="2026-12-02T09:00:00Z", actor="anna")
        places: dict[str, Any] = {"locations": ["berlin", "lyon"]}
        self.place("split", units("tea", 45), units("mug", 2), split=True, **places)
        self.place("from-the-first-location", units("tea", 5), **places)
        lines = [units("tea", 2) | {"locationId": "lyon"}, units("mug", 2)]
        self.place("line-with-a-location", *lines, locations=[""])
        self.place("on-backorder", units("kettle", 5))
        self.place("sells-out", units("sold-out", 4))
        self.place("of-a-forgotten-customer", units("tea"), userId="u-9")
        self.command("confirm", "of-a-forgotten-customer", actor="carl")
        Forgetting(self.shop.stack, "u-9", _PSEUDONYM_KEY).run()

    def reject_orders(self) -> None:
        """For each reason, send an order that is rejected for it. The rejection of a discontinued product comes later."""
        self.place("rejected-short", units("mug", 99), units("sold-out", 9))
        there = {"locationId": "lyon"}
        self.place("rejected-short-at-a-location", units("tea", 900) | there)
        self.place("rejected-unknown", units("no-such-product"))
        self.place("makes-stock-low", units("mug", 10), units("back-in-stock", 2))
        self.place("makes-stock-low-at-a-location", units("tea", 33), locations=["lyon"])
        buyers = ["u-7", "card-5f2c"]
        self.place("charged-to-buyers", units("shoe-42", 2), buyers=buyers)
        self.place("rejected-purchase-limit", units("shoe-42"), userId="u-8", buyers=buyers)
        self.receive("ends-a-shortage", "back-in-stock", 9)
        self.receive("ends-low-stock", "tea", 30, **there)

    def move_orders(self) -> None:
        """Confirm and fulfil orders, in whole and in part."""
        who = {"actor": "anna", "reference": "payment 17", "reason": "paid by phone"}
        self.place("confirmed-with-notes", units("tea", 3))
        self.command("confirm", "confirmed-with-notes", **who)
        self.place("fulfilled", units("tea", 3), units("mug"), then=["confirm"])
        self.command("fulfil", "fulfilled", actor="ben")
        self.place("fulfilled-in-part", units("tea", 4), then=["confirm"])
        self.part("fulfil", "fulfilled-in-part", "parcel-1", units("tea", 3), **who)
        self.place("fulfilled-in-two-parts", units("tea", 3), then=["confirm"])
        for number in (1, 2):
            parcel = f"parcel-{number}"
            self.part("fulfil", "fulfilled-in-two-parts", parcel, units("tea", number))
        self.place("fulfilled-in-part-rest-cancelled", units("tea", 5), then=["confirm"])
        scanned = {"tea": ["(10)L-7", "(10)L-8"]}
        self.part(
            "fulfil",
            "fulfilled-in-part-rest-cancelled",
            "parcel-1",
            units("tea", 2),
            scanned=scanned,
        )
        self.command("cancel", "fulfilled-in-part-rest-cancelled")
        self.place("at-berlin", units("tea", 2), locations=["berlin"], then=["confirm", "fulfil"])

    def return_units(self) -> None:
        """Send back sellable units and damaged ones."""
        for order_id, restock in (("returned-sellable", True), ("returned-broken", False)):
            self.place(order_id, units("tea", 2), then=["confirm", "fulfil"])
            self.part("return", order_id, "return-1", units("tea"), restock=restock, actor="ben")

    def amend_orders(self) -> None:
        """Amend orders, reject amends and a payment for an earlier version, and undo a hand-over."""
        self.place("amended", units("tea", 3), units("mug"), attributes={"gift": True})
        lines = units("tea", 4), units("mug", 0), units("kettle")
        self.part("amend", "amended", "changed", *lines, attributes={"gift": False})
        amend = {"action": "amend", "stepId": "too-many"}
        too_many = amend | {"orderId": "amended", "items": [units("mug", 99)]}
        beyond = amend | {"orderId": "charged-to-buyers", "items": [units("shoe-42", 3)]}
        self.deliver("Order", too_many, beyond)
        self.command("confirm", "amended", ifVersion=1, expected="REFUSED")
        self.command("confirm", "amended", ifVersion=4)
        self.place("amended-to-nothing", units("tea", 2))
        self.part("amend", "amended-to-nothing", "nothing", units("tea", 0))
        self.place("hand-over-undone", units("tea", 2), then=["confirm", "fulfil"])
        self.part("unfulfil", "hand-over-undone", "still-here", units("tea"), actor="ben")

    def cancel_orders(self) -> None:
        """Cancel orders, in whole and in part, and let a hold end."""
        self.place("cancelled", units("tea", 2), units("mug"))
        self.command("cancel", "cancelled", reason="changed my mind")
        self.place("paid-and-cancelled", units("tea", 2), then=["confirm", "cancel"])
        self.place("cancelled-in-part", units("tea", 4))
        self.part("cancel", "cancelled-in-part", "unwanted", units("tea", 1))
        self.place("a-unit-lost", units("tea", 4), then=["confirm"])
        broken: dict[str, Any] = {"restock": False, "reason": "broken"}
        self.part("cancel", "a-unit-lost", "broken", units("tea"), **broken)
        self.place("all-units-lost", units("tea", 2))
        self.part("cancel", "all-units-lost", "stolen", units("tea", 2), restock=False)
        for order_id in ("expired", "paid-after-expiry"):
            self.place(order_id, units("tea", 2), units("mug"), holdSeconds=60)
        self.sweep()
        self.shop.clock.sleep(120)
        assert self.shop.deliver("Expiry") == 0
        assert self.shop.status("expired") == self.shop.status("paid-after-expiry") == "EXPIRED"

    def pay_late(self) -> None:
        """Confirm orders after they have ended."""
        self.place("paid-after-rejection", units("mug", 99))
        self.place("paid-after-cancellation", units("tea"), then=["cancel"])
        for end in ("expiry", "rejection", "cancellation"):
            self.command("confirm", f"paid-after-{end}", expected="REFUSED")

    def cancel_before_orders(self) -> None:
        """Cancel orders that have not arrived yet."""
        for order_id in ("tombstone", "tombstone-paid", "tombstone-filled-in"):
            self.deliver("OrderCommand", {"action": "cancel", "orderId": order_id})
        self.command("confirm", "tombstone-paid", expected="REFUSED")
        self.place("tombstone-filled-in", units("tea", 2))

    # ------------------------------------------------------------------ lanes and the sweep

    def sell_from_lanes(self) -> None:
        """Sell contested products from a lane and from the depot."""
        with contested(self.shop, "in-lanes", "sold-out-in-lanes"):
            self.place("at-the-depot", units("in-lanes", 2))
            self.shop.clock.sleep(5)
            self.place("from-a-lane", units("in-lanes", 3))
            self.place("from-a-lane-and-a-row", units("in-lanes", 3), units("tea"))
            self.place("most-of-a-product-in-lanes", units("sold-out-in-lanes", 8))
            self.place("last-units-in-lanes", units("sold-out-in-lanes", 3))
            self.place("amended-in-a-lane", units("in-lanes", 3))
            less = {"action": "amend", "orderId": "amended-in-a-lane", "stepId": "less"}
            self.deliver("Order", less | {"items": [units("in-lanes", 2)]})
        self.command("confirm", "from-a-lane")
        self.place("from-a-lane-fulfilled", units("in-lanes", 2), then=["confirm"])
        self.place("from-a-lane-cancelled", units("in-lanes", 2), then=["cancel"])

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
        self.command("fulfil", "from-a-lane-fulfilled")
        self.command("fulfil", "old-generation")
        for number in range(3):
            order_id = f"on-an-outbound-page-{number}"
            self.place(order_id, units("tea", 2), then=["confirm", "fulfil"])

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
            order = {"orderId": f"lost-{number}", "userId": "u-7", "items": [units("in-lanes", 9)]}
            self.shop.send("Order", order)
            with contested(self.shop, "in-lanes"), contextlib.suppress(_ProcessEndedError):
                self.shop.on("TransactWriteItems", end)
                self.shop.deliver("Order")
            self.shop.calm()


class _ProcessEndedError(Exception):
    """Simulates a process that ends: it does nothing more, not even clean up."""


@contextlib.contextmanager
def contested(shop: RunningShop, *product_ids: str) -> Iterator[None]:
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
