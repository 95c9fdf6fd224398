"""Every page of the desk, with some content, for the tests that look at all pages."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from infra.desk_files import run_esbuild
from local import ROOT
from local.sample_orders import HOT_PRODUCT
from tests.support.desk import TEA, DeskOfShop

APP = ROOT / "local" / "desk" / "page" / "app.js"
MILK = "tea-hojicha"


class Page(NamedTuple):
    """A page of the desk.

    Attributes:
        view: The name of its view in `VIEWS` of app.js.
        path: Its address.
        title: Its heading, once it has been read.
        press: Texts of the buttons and boxes that must be pressed to show the whole page.
    """

    view: str
    path: str
    title: str
    press: tuple[str, ...] = ()


PAGES = [
    Page("today", "#/today", "Today"),
    Page("orders", "#/orders", "Orders to ship", ("Select o-0", "Select o-2")),
    Page("orders", "#/orders/at/berlin", "Orders to ship from berlin"),
    Page("orders", "#/orders/held", "Orders waiting for payment"),
    Page("orders", "#/orders/of/auth0:anna", "Orders of auth0:anna"),
    Page("order", "#/order/o-1", "Order o-1"),
    Page("pick", "#/pick/*/o-0/o-1/o-2", "Pick list"),
    Page("scan", "#/scan", "Scan", ("Enter",)),
    Page("products", "#/products", "Products", (f"2 locations of {TEA}",)),
    Page("product", f"#/product/{TEA}/berlin", "Earl Grey at berlin", ("Begin to count",)),
    Page("product", f"#/product/{MILK}", "Hojicha", ("Receive",)),
    Page("drop", f"#/drop/{HOT_PRODUCT}", "Drop: First Flush 2026, limited drop"),
    Page("receive", "#/receive", "Receive a delivery"),
    Page("count", "#/count", "Count stock", ("Count Earl Grey",)),
    Page("stocktake", "#/stocktake/Winter", "Report: Winter"),
    Page("labels", f"#/labels/product/{TEA}", "Labels: Earl Grey"),
    Page("transfers", "#/transfers", "Transfers"),
    Page("send", "#/send", "Send a transfer"),
    Page("arrive", "#/arrive/van-7", "Receive a transfer", ("Everything arrived",)),
    Page("dead-letters", "#/dead-letters", "Dead letters", ("Edit and send again",)),
    Page("lanes", "#/lanes", "Lanes"),
    Page("search", "#/search/tea", "Search: tea"),
    Page("search", "#/search/nothing", "Search: nothing"),
    Page("try", "try", "Try the service", ("Place order",)),
    Page("contract", "contract", "The HTTP API", ("post /orders/{orderId}/extend",)),
]


def views() -> list[str]:
    """Return the names of all views in the frame that the desk's pages share."""
    (listed,) = re.findall(
        r"^const PARTS = (.*?)^const states", APP.read_text("utf-8"), re.M | re.S
    )
    own = " ".join(re.findall(r'name: "[\w-]+"|views: \[.*?\]', listed))
    return ["search", *re.findall(r'"([\w-]+)"', own)]


def module(name: str) -> str:
    """Bundle a script of the desk into one that a page can evaluate: the variable `tested` has its exports."""
    return run_esbuild(name, "--bundle", "--format=iife", "--global-name=tested")


def fill(desk: DeskOfShop) -> None:
    """Put some content on every page of the desk."""
    tea = {"productId": TEA, "locationId": "berlin"}
    desk.command("ManageProducts", action="create", **tea, openingStock=20)
    desk.command("ManageProducts", action="create", productId="mug", openingStock=0)
    desk.command("ManageProducts", action="change", productId=MILK, lowStockThreshold=5000)
    for number in range(6):
        lines = (TEA, 1 + number), (MILK, 2)
        order_id, user = f"o-{number}", "auth0:anna" if number % 2 else "auth0:ben"
        if number < 4:
            desk.sell(order_id, *lines, user=user)
        else:
            desk.place(order_id, *lines, user=user, holdSeconds=900)
    part = [{"productId": TEA, "quantity": 1}]
    desk.command("ChangeOrders", action="fulfil", orderId="o-1", stepId="s", items=part)
    desk.command("ChangeOrders", action="cancel", orderId="o-5")
    desk.place("o-9", (HOT_PRODUCT, 3), user="auth0:ben")
    receipt = {"adjustmentId": "r-1", "productId": TEA, "delta": 40, "reason": "RECEIPT"}
    desk.command("AdjustStock", action="adjust", **receipt, locationId="", actor="desk:anna")
    sent = {"adjustmentId": "s-1", "productId": TEA, "delta": -3, "reason": "TRANSFER_OUT"}
    sent |= {"locationId": "", "sentTo": "berlin", "reference": "van-7"}
    desk.command("AdjustStock", action="adjust", **sent)
    counted = {"productId": MILK, "locationId": "", "adjustmentId": "c-1"}
    begun = desk.aws.invoke("CountStock", {"action": "begin", **counted})
    count = {"snapshot": begun["snapshot"], "counted": begun["onHand"] - 1, "reference": "Winter"}
    desk.command("CountStock", action="count", **counted, **count)
    damage = {"adjustmentId": "r-9", "productId": TEA, "delta": -9000, "reason": "DAMAGE"}
    desk.dead_letter("StockDeadLetterQueueUrl", json.dumps(damage), "BELOW_FLOOR")
    desk.dead_letter("OrderDeadLetterQueueUrl", "no order", "INVALID_JSON")
    empty = {"orderId": "x", "userId": "u", "items": []}
    desk.dead_letter("OrderDeadLetterQueueUrl", json.dumps(empty), "SCHEMA_VIOLATION")
