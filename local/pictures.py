"""Takes screenshots of the desk for the docs, on the embedded AWS after a demonstration (`make screenshot`)."""

from __future__ import annotations

import random
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from local import ROOT, emulator
from local.dashboard.browser import launched
from local.demo import stock_up
from local.desk import background
from local.endpoint import use_embedded
from local.sample_orders import HOT_PRODUCT, catalogue, orders, own_id, own_orders
from local.stack import STACK_NAME
from operations import queues
from operations.aws import Aws
from operations.errors import UserError

FOLDER = ROOT / "docs" / "pictures"
ORDER, DROP = "order-1042", own_id(HOT_PRODUCT)
PICTURES = {
    "today": ("#/today", 890),
    "products": ("#/products", 720),
    "order": (f"#/order/{ORDER}", 640),
    "drop": (f"#/drop/{DROP}", 760),
    "dashboard": ("dashboard", 640),
}
"""The page that each picture shows, and its height in pixels. The picture of the drop is taken while units sell."""

_WIDTH = 1280
_DROP_UNITS, _ORDERS_A_SECOND, _DROP_SECONDS = 4000, 60, 30
# Charts are drawn when data arrives, once a second.
_SETTLE_MILLISECONDS = 2500


def take(aws: Aws, server: background.DeskServer, folder: Path) -> None:
    """Write all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    _ship_a_part(aws)
    # The page Today shows what the last sweep counted.
    aws.invoke("Sweep", {"action": "sweep"})
    with launched() as browser, ThreadPoolExecutor(1) as beside:
        page = browser.new_page(viewport={"width": _WIDTH, "height": 900})
        page.goto(server.address())
        for name, (path, height) in PICTURES.items():
            selling = beside.submit(_sell, aws) if name == "drop" else None
            page.set_viewport_size({"width": _WIDTH, "height": height})
            # Otherwise, the browser would report that the previous page cannot be loaded.
            page.goto("about:blank")
            page.goto(f"{server.endpoint}/desk/{path}")
            page.locator("#view[aria-busy=false]").wait_for()
            page.wait_for_timeout(_DROP_SECONDS * 800 if selling else _SETTLE_MILLISECONDS)
            page.screenshot(path=folder / f"{name}.png")
            if selling:
                selling.result()


def _ship_a_part(aws: Aws) -> None:
    """Make an order that is worth a picture: pay for it, and hand over part of it."""
    teas = ("tea-earl-grey", "tea-jasmine-pearls", "tea-gyokuro")
    lines = [{"productId": own_id(tea), "quantity": 2} for tea in teas]
    parcel = {"stepId": "parcel-1", "items": lines[:1], "reference": "1Z 999 AA1 0123 4567"}
    for function, command in (
        ("PlaceOrders", {"userId": "anna", "items": lines}),
        ("ChangeOrders", {"action": "confirm"}),
        ("ChangeOrders", {"action": "fulfil", **parcel}),
    ):
        answer = aws.invoke(function, {"orderId": ORDER, **command})
        if "code" in answer:
            raise UserError(f"the order placed for a picture was refused: {answer}")


def _sell(aws: Aws) -> None:
    """Sell a hot product until its picture has been taken."""
    run = f"drop-{uuid.uuid4().hex[:6]}"
    (product,) = (one for one in catalogue() if one.product_id == HOT_PRODUCT)
    stock_up(aws, [replace(product, product_id=DROP, opening_stock=_DROP_UNITS)], run)
    count = _ORDERS_A_SECOND * _DROP_SECONDS
    made = orders(run, 3 * count, random.Random(run))
    hot = own_orders(message for message in made if message.group == HOT_PRODUCT)
    # The page has to be open before the first order arrives.
    time.sleep(1)
    queues.send(aws, queues.STANDARD, hot[:count], rate=_ORDERS_A_SECOND)


def main() -> int:
    """Take the pictures on the running embedded AWS."""
    running = emulator.running()
    if running is None:
        raise UserError("the embedded AWS is not running: `make screenshot` starts it")
    use_embedded(running.endpoint)
    take(Aws.of_stack(STACK_NAME), background.start(), FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
