"""Finds out how many units of counted products came in and left since they were counted.

A count by file is booked later than it was made. It corrects the units that were on hand when it began, so parcels that
left since stay gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import COUNT, Adjustment
from inventory_orders.domain.location import in_words
from inventory_orders.domain.outbound import OUTBOUND_KEYS, OutboundPage
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import RejectedError
from inventory_orders.store import movements
from inventory_orders.store.rows import Row

from .catalogue_file import Count

# Rows that orders keep changing are often in conflict, and then the whole transaction is repeated.
_READ_TOGETHER = 10
_SECONDS = 300.0
_PAUSE = 5.0
_ROWS = 100

# Clocks on AWS may be this far apart.
_CLOCKS = timedelta(minutes=1)

# An atomic decrement does not say which version of the row it wrote. Its time is when its invocation began, which may last
# 15 minutes. AWS refuses requests from this machine if its clock is more than 5 minutes off.
_IN_FLIGHT = timedelta(minutes=15 + 5) + _CLOCKS

MOVED_SINCE_COUNT = "MOVED_SINCE_COUNT"
_REMEDY = "count again, or book the difference as a receipt or a loss (`delta` and `reason`)"
_NO_MOVEMENTS = (
    f"the stage has the setting movements: false, so it is unknown what left since: {_REMEDY}"
)


@dataclass(frozen=True, slots=True)
class Level:
    """The units on hand of one generation of a product at a location, read at one moment.

    Attributes:
        created_at: The generation.
        on_hand: Units on hand.
        versions: The versions of the outbound pages by name, and that of the row, whose name is empty.
        changed_at: When the row or an outbound page was last written, ISO 8601, by a clock on AWS.
        read_at: A time before the read, ISO 8601, by the clock of this machine.
        counted_at: As of which time the product was last counted, or when it was created.
    """

    created_at: str
    on_hand: int
    versions: Mapping[str, int]
    changed_at: str
    read_at: str
    counted_at: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The units on hand of counted products when they were counted.

    Attributes:
        levels: The units on hand when the load began, by key.
        since: The changes since the earliest count, newest first, by key.
        booked: The keys for which the file itself books stock.
        gap: Why movements are not known up to the beginning of the load; empty if they are.
    """

    levels: dict[str, Level] = field(default_factory=dict)
    since: dict[str, list[Row]] = field(default_factory=dict)
    booked: frozenset[str] = frozenset()
    gap: str = ""

    def correction(self, count: Count) -> Adjustment:
        """Return the change that corrects the units that were on hand when a count began, according to the books.

        Raises:
            RejectedError: `MOVED_SINCE_COUNT`: the number cannot be known, or a newer count was booked.
        """
        if objection := self.gap or self._objection(count):
            raise RejectedError(objection, MOVED_SINCE_COUNT)
        level = self.levels[count.product_id]
        since = sum(_units(row, level) for row in self._later(count) if not _is_same(row, count))
        return Adjustment(
            count.product_id,
            count.adjustment_id,
            count.counted - (level.on_hand - since),
            COUNT,
            count.notes,
            names_location=count.names_location,
            counted=count.counted,
            stamps={"counted_at": count.counted_at},
            counted_before=level.counted_at,
        )

    def _objection(self, count: Count) -> str:
        level = self.levels.get(count.product_id)
        if level is None:
            return f"{in_words(count.product_id)} was listed while the file was loaded: {_REMEDY}"
        if count.product_id in self.booked:
            return f"the file also books stock of the product, which the count may include: use two files, or {_REMEDY}"
        objections = (_objection_to(row, count, level) for row in self._later(count))
        return next(filter(None, objections), "")

    def _later(self, count: Count) -> Iterator[Row]:
        return _since(self.since[count.product_id], count.counted_at)


def read_moves(
    client: RetryingClient,
    counts: Sequence[Count],
    booked: frozenset[str],
    on_read: Callable[[int], None],
    *,
    has_movements: bool,
) -> Moves:
    """Read the counted products, and what moved their units since the earliest count of each.

    Movements are recorded within a minute or two, so this may wait for a few minutes.

    Args:
        client: The client for the tables.
        counts: The counts; with none, nothing is read.
        booked: The keys for which the file itself books stock.
        on_read: Called with the number of changes read.
        has_movements: Whether the stage records movements.

    Raises:
        StoreError: DynamoDB failed.
    """
    if not counts:
        return Moves()
    if not has_movements:
        return Moves(gap=_NO_MOVEMENTS)
    keys = list(dict.fromkeys(count.product_id for count in counts))
    levels: dict[str, Level] = {}
    for start in range(0, len(keys), _READ_TOGETHER):
        levels.update(_levels(client, keys[start : start + _READ_TOGETHER]))
    if behind := _wait(client, levels.values()):
        return Moves(gap=behind)
    moves = Moves(levels, booked=booked)
    for key in keys:
        earliest = min(count.counted_at for count in counts if count.product_id == key)
        read = partial(_changes, client, key, earliest)
        moves.since[key] = client.call(read, Deadline.after(_SECONDS, client.clock))
        on_read(len(moves.since[key]))
    return moves


def _objection_to(row: Row, count: Count, level: Level) -> str:
    """Say why a count cannot be booked because of a change after it; empty if it can."""
    at, after = row.get("appliedAt", ""), f"after the count at {count.counted_at}"
    if row["productCreatedAt"] != level.created_at:
        return f"the product was delisted {after}: {_REMEDY}"
    if row.get("counted") is not None and not _is_same(row, count):
        return f"a count was booked at {at}, {after}: {_REMEDY}"
    in_flight = timestamp(datetime.fromisoformat(level.read_at) - _IN_FLIGHT)
    if at >= in_flight and "productVersion" not in row:
        minutes = _IN_FLIGHT.seconds // 60
        return f"units were taken at {at}, just now: load the file again after {minutes} minutes"
    return ""


def _levels(client: RetryingClient, keys: Sequence[str]) -> Iterator[tuple[str, Level]]:
    """Read the units on hand of products that exist and are readable, in one transaction."""
    request = partial(client.store.read_together, [*keys, *OUTBOUND_KEYS])
    read_at = timestamp(client.clock.now())
    found = client.call(request, Deadline.after(_SECONDS, client.clock))
    pages = [page for page in found.outbound.values() if isinstance(page, OutboundPage)]
    for key, row in found.products.items():
        if row is not None:
            on_hand = row.on_hand - found.outbound_units(row)
            versions = {"": row.version, **{str(page.key): page.version for page in pages}}
            changed_at = max([row.last_updated_at, *(page.last_updated_at for page in pages)])
            yield (
                key,
                Level(row.created_at, on_hand, versions, changed_at, read_at, row.counted_at),
            )


def _wait(client: RetryingClient, levels: Iterable[Level]) -> str:
    """Wait until the movements that these levels show are recorded. Returns why they are not, or an empty string."""
    changed_at = max((each.changed_at for each in levels), default="")
    if not changed_at:
        return ""
    until = timestamp(datetime.fromisoformat(changed_at) + _CLOCKS)
    deadline = Deadline.after(_SECONDS, client.clock)
    while True:
        complete = client.call(partial(movements.complete_until, client.store), deadline)
        if complete is not None and complete >= until:
            return ""
        if not client.pause(_PAUSE, deadline):
            known = f"only up to {complete}" if complete else "not yet"
            return f"movements of orders are complete {known}, so it is unknown what left since: load the file again later"


def _changes(client: RetryingClient, key: str, since: str) -> list[Row]:
    return list(_since(movements.changes(client.store, key, _ROWS), since))


def _since(rows: Iterable[Row], since: str) -> Iterator[Row]:
    """Yield the first of the changes, newest first, that are not older than a time."""
    return takewhile(lambda row: movements.position_of(row).at >= since, rows)


def _units(row: Row, level: Level) -> int:
    """Return the units that a change added to the units on hand; 0 if it came after these were read."""
    of_order = "movementId" in row
    version = row.get("version" if of_order else "productVersion")
    if version is not None and version > level.versions.get(row.get("page", ""), 0):
        return 0
    units: int = row["onHandDelta"] if "onHandDelta" in row else 0 if of_order else row["delta"]
    return units


def _is_same(row: Row, count: Count) -> bool:
    """Whether an adjustment is the same line of the same file, with another number."""
    return bool(count.stem) and row.get("adjustmentId", "").startswith(count.stem)
