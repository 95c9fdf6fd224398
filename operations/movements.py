"""Movements of stock: what the rows of adjustments and orders say of a product's units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inventory_orders.domain.allotments import Page
from operations.words import lane_name

Row = Mapping[str, Any]
Incarnation = tuple[str, str]
"""A product's id, and the time at which it was created, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Movement:
    """One change of a product's stock.

    Attributes:
        incarnation: The product's incarnation.
        version: The version of the row or the page that it made; None if that is not known.
        at: Its time, ISO 8601.
        delta: Units added; negative for units taken.
        what: The change, in words.
        page: Name of the page that it was taken from; empty for the row.
    """

    incarnation: Incarnation
    version: int | None
    at: str
    delta: int
    what: str
    page: str = ""

    def is_in(self, version: int, pages: Mapping[str, Page]) -> bool:
        """Whether a row of this version and these pages already show it."""
        if self.version is None:
            return True
        if self.page:
            version = pages[self.page].version if self.page in pages else 0
        return self.version <= version

    @property
    def row_version(self) -> int | None:
        """The version of the row that it made; None if it made none, or that is not known."""
        return None if self.page else self.version

    def check(self) -> None:
        """Check the types that no database has checked."""
        check_types(int, self.delta, self.version or 0)
        check_types(str, *self.incarnation, self.at)


def check_types(kind: type, *values: object) -> None:
    """Check that values of a row are numbers (int) or texts (str)."""
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is no {'number' if kind is int else 'text'}")


def adjustment_of(row: Row) -> Movement:
    """Read an adjustment that was booked."""
    return Movement(
        (row["productId"], row["productCreatedAt"]),
        row.get("productVersion"),
        row["appliedAt"],
        row["delta"],
        " ".join([row["reason"], row["adjustmentId"], *_notes(row)]),
    )


def sales_of(order: Row) -> Iterator[Movement]:
    """Yield the units that the lines of an order took and gave back.

    A line whose incarnation was already delisted gave nothing back when its order was cancelled or expired.
    `faults.faults_of` finds the other lines that gave or took nothing.
    """
    name = f"order {order['orderId']}"
    for line in order.get("items", ()):
        if "productCreatedAt" in line:
            key = line["productId"], line["productCreatedAt"]
            yield _taken(key, name, order["createdAt"], line)
            for step, item in items_of_steps(order, line["productId"]):
                if "returnedVersion" in item:
                    back, what = item["returnedVersion"], f"{name}, {_said(step)}"
                    yield Movement(key, back, step["at"], item["quantity"], what)


def _taken(key: Incarnation, name: str, at: str, line: Row) -> Movement:
    page = line.get("lanePage", "")
    if not page:
        return Movement(key, line.get("productVersion"), at, -line["quantity"], name)
    what = f"{name}, from {lane_name(lane_of(page))}"
    return Movement(key, line["laneVersion"], at, -line["quantity"], what, page)


def items_of_steps(order: Row, product_id: str) -> Iterator[tuple[Row, Row]]:
    """Yield the items of an order's steps that name a product, each with its step."""
    for step in order.get("steps", ()):
        for item in step.get("items", ()):
            if item["productId"] == product_id:
                yield step, item


def lane_of(page: str) -> int:
    """Read the number of a lane in the name of a page."""
    return int(page.split("/", maxsplit=1)[0])


def _said(step: Row) -> str:
    """A step in words: what was done, under which id, by whom and what for."""
    return " ".join([step["action"], *filter(None, [step.get("stepId")]), *_notes(step)])


def _notes(row: Row) -> list[str]:
    by, reference = row.get("actor"), row.get("reference")
    return [*([f"by {by}"] if by else []), *([f"({reference})"] if reference else [])]
