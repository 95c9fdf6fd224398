"""The steps of an order: the commands that changed it, and where they left the units of its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class OrderAction(StrEnum):
    """The action of a command on an order."""

    CONFIRM = "confirm"
    """It is paid."""
    FULFIL = "fulfil"
    """Units are handed over."""
    CANCEL = "cancel"
    """Units are not wanted any more, before they are handed over."""
    EXPIRE = "expire"
    """Its hold has ended."""
    EXTEND = "extend"
    """Its hold ends later."""
    RETURN = "return"
    """Units come back after they were handed over."""


NOTES_OF_ADJUSTMENT = ("actor", "reference")
NOTES = (*NOTES_OF_ADJUSTMENT, "reason")
"""Who gave a command, and what for: kept as sent, and no part of what makes two commands the same."""

NO_NOTES: Mapping[str, str] = MappingProxyType({})

MAX_NAMED_STEPS = 100
"""Steps of an order that may name items."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command that changed an order.

    Attributes:
        action: An `OrderAction`.
        at: When.
        step_id: Given by the sender of a command that names items: the idempotency key, within the order; else None.
        quantities: Units that it moved, by product id; None if it moved none, or fulfilled all that was left.
        returned_versions: By product id, the version of the product that taking the units back into stock made.
        restock: Of a return: whether its units can be sold again.
        notes: By name, of `NOTES`.
        other: Attributes that this version does not know. They are kept as they are.
    """

    action: str
    at: str
    step_id: str | None = None
    quantities: Mapping[str, int] | None = field(default=None, hash=False)
    returned_versions: Mapping[str, int] = field(default_factory=dict, hash=False)
    restock: bool | None = None
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def size(self) -> int:
        """Upper bound of its size in the row, in bytes."""
        notes = sum(len(name) + len(text.encode()) for name, text in self.notes.items())
        return 250 + notes + sum(100 + len(product_id) for product_id in self.quantities or ())


@dataclass(slots=True)
class LineUnits:
    """Where the units of a line are.

    Attributes:
        quantity: Units that were ordered.
        moved: Units that steps moved, by action.
    """

    quantity: int
    moved: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> int:
        """Units that are neither handed over nor cancelled."""
        return self.quantity - self.moved[OrderAction.FULFIL] - self.moved[OrderAction.CANCEL]

    @property
    def delivered(self) -> int:
        """Units that were handed over and did not come back."""
        return self.moved[OrderAction.FULFIL] - self.moved[OrderAction.RETURN]


def units_by_line(
    quantities: Mapping[str, int], steps: Iterable[tuple[str, Mapping[str, int] | None]]
) -> dict[str, LineUnits]:
    """Where steps left the units of each line, by product id.

    Args:
        quantities: Units that were ordered, by product id.
        steps: The action of each step, and the units that it names, in their order.

    Raises:
        KeyError: A step moved units of a product that was not ordered.
    """
    units = {product_id: LineUnits(quantity) for product_id, quantity in quantities.items()}
    for action, named in steps:
        if named is None and action == OrderAction.FULFIL:
            for line in units.values():
                line.moved[action] += line.open
        for product_id, quantity in (named or {}).items():
            units[product_id].moved[action] += quantity
    return units
