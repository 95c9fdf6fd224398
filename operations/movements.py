"""The changes to a product's available units and units on hand, as recorded by adjustments and orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from inventory_orders.domain.location import key_in, location_of
from inventory_orders.domain.outbound import Generation

from .lanes import Pages
from .words import lane_name, location_name

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Movement:
    """One change of a product's stock figures.

    Attributes:
        generation: The product's generation.
        version: The version of the row or page that it wrote; None if unknown.
        at: Its time, ISO 8601.
        what: A description of the change.
        available: Change in the units that orders can take; negative for units taken.
        on_hand: Units that came in; negative for units that left.
        open: Change in the units that orders are waiting for; negative for units handed over or cancelled.
        page: Name of the page that it wrote (a lane's page or an outbound page); empty if it wrote the row.
        closes: Whether it ends the generation.
        facts: The change for other programs: its `kind`, which is the reason of an adjustment or the action of an order
            (`lose` for units that are not sold again), and the ids and notes that come with it.
    """

    generation: Generation
    version: int | None
    at: str
    what: str
    available: int = 0
    on_hand: int = 0
    open: int = 0
    page: str = ""
    closes: bool = False
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)

    def is_in(self, version: int, pages: Pages) -> bool:
        """Whether a row of this version and these pages already include the change."""
        if self.version is None:
            return True
        return self.version <= (pages.version(self.page) if self.page else version)

    @property
    def row_version(self) -> int | None:
        """The version of the row that the change wrote; None if it wrote a page, or if the version is unknown."""
        return None if self.page else self.version

    def check(self) -> None:
        """Check the types of the values, because DynamoDB does not."""
        check_types(int, self.available, self.on_hand, self.open, self.version or 0)
        check_types(str, *self.generation, self.at, self.page)


def check_types(kind: type, *values: object) -> None:
    """Raise an error unless values of a row are numbers (int) or strings (str)."""
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not a {'number' if kind is int else 'string'}")


def adjustment_of(row: Row) -> Movement:
    """Read a booked adjustment as a movement."""
    return Movement(
        Generation(row["productId"], row["productCreatedAt"]),
        row.get("productVersion"),
        row["appliedAt"],
        " ".join([row["reason"], row["adjustmentId"], *_other_location(row), *_notes(row)]),
        row["delta"],
        row.get("onHandDelta", row["delta"]),
        closes=row["reason"] == "CLOSING",
        facts=_facts(row["reason"], row, "adjustmentId")
        | ({"locationId": location_of(row["transferWith"])} if "transferWith" in row else {}),
    )


def _other_location(row: Row) -> Iterator[str]:
    """Name the location that the units of a transfer went to or came from."""
    if "transferWith" in row:
        direction = "to" if row["delta"] < 0 else "from"
        yield f"{direction} {location_name(location_of(row['transferWith']))}"
    if "sentTo" in row:
        yield f"to {location_name(row['sentTo'])}"


# ---------------------------------------------------------------------- steps of orders


class Effect(NamedTuple):
    """The effect of a step on each figure, per unit that it moves.

    Attributes:
        available: Change in the units that orders can take.
        on_hand: Change in the units in the warehouse.
        open: Change in the line's units that are neither handed over, cancelled nor expired.
        delivered: Change in the line's units that were handed over and did not come back.
    """

    available: int
    on_hand: int
    open: int
    delivered: int


LOST = Effect(available=0, on_hand=-1, open=-1, delivered=0)
TAKEN = Effect(available=-1, on_hand=0, open=1, delivered=0)
_NONE = Effect(0, 0, 0, 0)
_EFFECTS: Mapping[tuple[object, object], Effect] = {
    ("fulfil", None): Effect(available=0, on_hand=-1, open=-1, delivered=1),
    ("cancel", None): Effect(available=1, on_hand=0, open=-1, delivered=0),
    ("cancel", False): LOST,
    ("amend", None): Effect(available=1, on_hand=0, open=-1, delivered=0),
    ("unfulfil", None): Effect(available=0, on_hand=1, open=1, delivered=-1),
    ("expire", None): Effect(available=1, on_hand=0, open=-1, delivered=0),
    ("return", True): Effect(available=1, on_hand=1, open=0, delivered=-1),
    ("return", False): Effect(available=0, on_hand=0, open=0, delivered=-1),
}
"""Effects by `action` and `restock`. The audit has its own table, so an error in the service's code cannot hide
here.
"""


class Move(NamedTuple):
    """The effect of a step on a line of its order.

    Attributes:
        step: The step.
        effect: The change per unit.
        units: The number of units that it moved.
        returned: The version of the row, or of the page, after units came back; None if no units came back.
        page: The page of a lane into which they came back; empty for the product's row.
        source: The line that says where the units were taken: an amend may add some from elsewhere.
    """

    step: Row
    effect: Effect
    units: int
    returned: int | None
    page: str
    source: Row


def moves_of_line(order: Row, line: Row) -> Iterator[Move]:
    """Yield the effects of an order's steps on one of its lines, except that amends may have added units to it."""
    return (move for move in _changes_of_line(order, line) if move.effect != TAKEN)


def _changes_of_line(order: Row, line: Row) -> Iterator[Move]:
    """Yield the effects of an order's steps on one of its lines. Units that an amend adds are `TAKEN`."""
    source = _line_as_placed(order, line) or line
    still_open = 0 if source is line and "asked" in order else source["quantity"]
    for step in order.get("steps", ()):
        effect = _EFFECTS.get((step.get("action"), step.get("restock")), _NONE)
        for units, returned, page in _units_of(step, line["productId"], still_open):
            still_open += effect.open * units
            yield Move(step, effect, units, returned, page, source)
        for added in step.get("added", ()):
            if added["productId"] == line["productId"]:
                source, still_open = added, still_open + added["quantity"]
                yield Move(step, TAKEN, added["quantity"], None, "", source)


def _line_as_placed(order: Row, line: Row) -> Row | None:
    """The line as it was before all amends; None if an amend added it."""
    placed = (each for each in order.get("asked", order)["items"])
    return next((each for each in placed if each["productId"] == line["productId"]), None)


def _units_of(step: Row, product_id: str, still_open: int) -> Iterator[tuple[int, int | None, str]]:
    for item in step.get("items", ()):
        if item["productId"] == product_id:
            yield item["quantity"], item.get("returnedVersion"), item.get("returnedPage", "")
    # The fulfilment of a whole order names no items: it moves all remaining units.
    if "items" not in step and step.get("action") == "fulfil" and still_open > 0:
        yield still_open, None, ""


def movements_of(order: Row) -> Iterator[Movement]:
    """Yield the units that the lines of an order took, returned and handed over.

    When an order is cancelled or expires, a line returns nothing if its generation was already delisted.
    `faults.faults_of` finds all other lines that took or returned nothing.
    """
    name = f"order {order['orderId']}"
    for line in _taken_lines(order):
        if (placed := _line_as_placed(order, line)) is not None:
            yield _taken(
                name, order["createdAt"], placed, _facts("place", order, "orderId", "userId")
            )
        for move in _changes_of_line(order, line):
            if move.effect == TAKEN:
                facts = _facts(
                    "amend", {**move.step, "orderId": order["orderId"]}, "orderId", "reason"
                )
                said = f"{name}, {_said(move.step)}"
                yield _taken(said, move.step["at"], move.source, facts)
            elif move.effect.open or move.effect.available:
                yield _moved(name, order, move)


def _taken_lines(order: Row) -> Iterator[Row]:
    return (line for line in order.get("items", ()) if "productCreatedAt" in line)


def _taken(name: str, at: str, line: Row, facts: Mapping[str, str]) -> Movement:
    page, units = line.get("lanePage", ""), line["quantity"]
    version = line["laneVersion"] if page else line.get("productVersion")
    what = f"{name}, from {lane_name(lane_of(page))}" if page else name
    return Movement(
        _generation(line),
        version,
        at,
        what,
        -units,
        open=units,
        page=page,
        facts=facts,
    )


def _moved(name: str, order: Row, move: Move) -> Movement:
    step, effect, units, version, page, source = move
    if effect.on_hand < 0 or step["action"] == "unfulfil":
        page, version = step.get("outPage", ""), step.get("outVersion")
    elif version is None:
        # The product had been delisted.
        effect = effect._replace(available=0, on_hand=0)
    where = f" to {lane_name(lane_of(page))}" if move.page else ""
    what = f"{name}, {_said(step)}{', units lost' if effect == LOST else ''}{where}"
    numbers = (effect.available * units, effect.on_hand * units, effect.open * units)
    kind = "lose" if effect == LOST else step["action"]
    facts = _facts(kind, {**step, "orderId": order["orderId"]}, "orderId", "reason")
    return Movement(_generation(source), version, step["at"], what, *numbers, page, facts=facts)


def stranded(order: Row) -> Iterator[tuple[Generation, int]]:
    """Yield the open units of a finished order, by generation: they are not sold, and will never be handed over."""
    if order.get("status") not in ("PENDING", "CONFIRMED"):
        for line in _taken_lines(order):
            moves = moves_of_line(order, line)
            yield (
                _generation(line),
                line["quantity"] + sum(move.effect.open * move.units for move in moves),
            )


def _generation(line: Row) -> Generation:
    return Generation(key_in(line), line["productCreatedAt"])


def lane_of(page: str) -> int:
    """Read the number of the lane from the name of a page."""
    return int(page.split("/", maxsplit=1)[0])


def _said(step: Row) -> str:
    """Describe a step: action, id, actor and reference."""
    return " ".join([step["action"], *filter(None, [step.get("stepId")]), *_notes(step)])


def _facts(kind: str, row: Row, *names: str) -> dict[str, str]:
    """Describe a change for other programs: its kind, and attributes of its row."""
    given = {name: row[name] for name in (*names, "actor", "reference") if name in row}
    return {"kind": kind, **given}


def _notes(row: Row) -> list[str]:
    by, notes = row.get("actor"), [row[name] for name in ("reference", "comment") if row.get(name)]
    return [*([f"by {by}"] if by else []), *([f"({', '.join(notes)})"] if notes else [])]
