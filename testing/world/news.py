"""The events that changes to rows require, and the events that were published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from testing.world.ends import Row, key_of
from testing.world.ledger import Change
from testing.world.violation import require

_EVENTS = {
    "PENDING": "OrderPlaced",
    "REJECTED": "OrderRejected",
    "CONFIRMED": "OrderConfirmed",
    "FULFILLED": "OrderFulfilled",
    "CANCELLED": "OrderCancelled",
    "EXPIRED": "OrderExpired",
}
_PARTLY = {
    "fulfil": "OrderPartlyFulfilled",
    "cancel": "OrderPartlyCancelled",
    "amend": "OrderAmended",
}
_ENDS_AS = {"fulfil": "FULFILLED", "cancel": "CANCELLED", "amend": "CANCELLED"}


class News:
    """Compares the published events with the changes to orders and products.

    Attributes:
        required: By order or product, the ids of the events that its changes require, in order.
        published: By order or product, the ids of its published events without duplicates, in order of first arrival.
    """

    def __init__(self) -> None:
        self.required: dict[str, list[str]] = defaultdict(list)
        self.published: dict[str, list[str]] = defaultdict(list)

    def note(self, changes: Collection[Change]) -> None:
        """Record the changes of a write."""
        for change in changes:
            table, (subject, *_) = change.place
            before, after = change.before or {}, change.after
            if table not in ("Orders", "Products") or after is None:
                continue
            names = _of_order(before, after) if table == "Orders" else product_news(before, after)
            product_id, *location = subject.split("#")
            of = subject if table == "Orders" else f"{product_id}@{after['createdAt']}"
            self.required[subject] += (
                "#".join([of, str(after["_version"]), name, *location]) for name in names
            )

    def hear(self, event: dict[str, Any]) -> bool:
        """Record a published event, and check that it matches a change and overtakes no earlier event.

        Returns:
            Whether the event is new.

        Raises:
            ViolationError: The event is wrong.
        """
        event_id, data = event["metadata"]["eventId"], event["data"]
        if not data:
            # A probe has no subject.
            return False
        subject = data.get("orderId") or key_of(data)
        ids, required = self.published[subject], self.required.get(subject, [])
        if event_id in ids:
            return False
        ids.append(event_id)
        require(
            ids == required[: len(ids)],
            f"{event_id} was published, so events of {subject} are {ids}, but its changes call for {required}",
        )
        return True

    def check_end(self) -> None:
        """Check that each change was published.

        Raises:
            ViolationError: An event is missing.
        """
        for subject, required in self.required.items():
            published = self.published.get(subject, [])
            require(
                published == required,
                f"events of {subject} on the bus: {published}; its changes call for: {required}",
            )


def _of_order(before: Row, after: Row) -> Iterator[str]:
    if "userId" not in after:
        return
    # An order that replaces its tombstone is new.
    before = before if "userId" in before else {}
    status, steps = after["status"], after.get("steps", [])
    is_step = len(steps) > len(before.get("steps", ()))
    action = steps[-1]["action"] if is_step else ""
    if action in _PARTLY and status != _ENDS_AS[action]:
        yield _PARTLY[action]
    if before.get("status") != status and action != "unfulfil":
        yield _EVENTS[status]
    if before.get("confirmationRejected") != after.get("confirmationRejected"):
        yield "ConfirmationRejected"
    if action in ("return", "unfulfil"):
        yield "OrderReturned" if action == "return" else "OrderUnfulfilled"
    told = [one["stepId"] for one in before.get("rejectedAmends", ())]
    for one in after.get("rejectedAmends", ()):
        if one["stepId"] not in told:
            yield "OrderAmendRejected"


def product_news(before: Row, after: Row) -> Iterator[str]:
    """List the types of the events that a change to a product's row requires."""
    steps = [row.get("status") for row in (before, after)]
    ranks = ["OUT_OF_STOCK", "LOW_STOCK", "ACTIVE"]
    if steps[0] in ranks and steps[1] in ranks and steps[0] != steps[1]:
        is_better = ranks.index(steps[1]) > ranks.index(steps[0])
        worse = "ProductOutOfStock" if steps[1] == "OUT_OF_STOCK" else "ProductLowOnStock"
        better = "ProductBackInStock" if steps[0] == "OUT_OF_STOCK" else "ProductStockRecovered"
        yield better if is_better else worse
