"""The route of the HTTP API that says which product or order a scanned code means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from inventory_orders.api.orders import sees
from inventory_orders.api.requests import HttpAnswer, ProblemError, Request, malformed, reading
from inventory_orders.api.serving import Caller
from inventory_orders.clock import Deadline
from inventory_orders.domain.barcode import BarcodeKey
from inventory_orders.domain.scan import Scan, read_scan
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import InvalidMessageError
from inventory_orders.invocation import direct, runtime
from inventory_orders.messages.documents import checked_id
from inventory_orders.store import lists, movements
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import Row, drop_none

_MOST_CHARACTERS, _MOST_ORDERS = 1_000, 10


def find_scanned(request: Request, caller: Caller) -> HttpAnswer:
    """Find what a code means that staff have scanned: a listed code, the id of a product or order, or a reference of orders.

    Callers without `orders.read` do not find orders.

    Raises:
        InventoryOrdersError: The code means nothing, or two products; or DynamoDB failed.
    """
    given = request.query.get("scan", "")
    if not given.strip() or len(given) > _MOST_CHARACTERS:
        raise malformed("scan", f"send what was scanned, in 1 to {_MOST_CHARACTERS:,} characters")
    scan, (client, deadline) = read_scan(given), reading()
    found = {
        **next(_meanings(scan, caller, client, deadline)),
        **scan.said,
        "count": scan.count if scan.count > 1 else None,
        "elements": scan.elements or None,
    }
    return HttpAnswer(200, drop_none(found))


def _meanings(
    scan: Scan, caller: Caller, client: RetryingClient, deadline: Deadline
) -> Iterator[Mapping[str, Any]]:
    """Yield what a scan may mean, the most likely first. Each takes a read.

    Raises:
        ProblemError: It means nothing else, or two products.
    """
    listed = [
        {"productId": row["productId"], "units": row["units"] * scan.count, "code": row["code"]}
        for row in find_listed(scan, client, deadline)
    ]
    if len(listed) > 1:
        raise ProblemError(
            *(409, "AMBIGUOUS_BARCODE"),
            "this is both an EAN-8 and a UPC-E, of different products; choose one",
            {"products": listed},
        )
    yield from listed
    for product_id in _ids(scan.text, "productId"):
        if client.ask(Store.get, deadline, product_id) is not None:
            yield {"productId": product_id, "units": 1}
    if caller.has_any("orders.read"):
        yield from _orders(scan, caller, client, deadline)
    raise _unknown(scan)


def find_listed(scan: Scan, client: RetryingClient, deadline: Deadline) -> list[Row]:
    """Read the rows of the listed codes in a scan: one, two if the scan is an EAN-8 and a UPC-E, or none."""
    found = client.side_by_side(
        lambda code: client.ask(Store.get, deadline, BarcodeKey(code)), scan.codes
    )
    rows = [row for row in found if row]
    as_sent = [row for row in rows if row["code"] == scan.text]
    return as_sent or list({(row["productId"], row["units"]): row for row in rows}.values())


def _orders(
    scan: Scan, caller: Caller, client: RetryingClient, deadline: Deadline
) -> Iterator[Mapping[str, Any]]:
    """Yield the order with the scanned id, and the orders with the scanned reference, as far as the caller may see them."""

    def seen(order_id: str) -> bool:
        record = direct.read_order(order_id, client, deadline)
        return record is not None and record.user_id is not None and sees(caller, record)

    for order_id in filter(seen, _ids(scan.text, "orderId")):
        yield {"orderIds": [order_id]}
    for text in (scan.text, scan.sscc) if runtime.process().has_movements else ():
        for reference in _ids(text, "note"):
            wanted = lists.OrderFilter(reference=reference)
            found, _ = client.ask(movements.list_orders, deadline, wanted, _MOST_ORDERS, None)
            if order_ids := [each.id for each in found if seen(each.id)]:
                yield {"reference": reference, "orderIds": order_ids}


def _ids(text: str, kind: str) -> Iterator[str]:
    with suppress(InvalidMessageError):
        yield checked_id(kind, text)


def _unknown(scan: Scan) -> ProblemError:
    code, detail = (
        "UNKNOWN_BARCODE",
        "no product or order has this code; if it is on goods, add it to the barcodes of their product, or enter the product's id",
    )
    if scan.item_number is not None:
        code, detail = (
            "VARIABLE_MEASURE",
            "a price or a weight is in this code; find its item number",
        )
    elif scan.bad_gtin:
        code, detail = (
            "BAD_CHECK_DIGIT",
            f"the check digit of {scan.bad_gtin} is wrong; scan it again",
        )
    reference = next(_ids(scan.sscc or scan.text, "note"), None)
    return ProblemError(404, code, detail, {"itemNumber": scan.item_number, "reference": reference})
