"""Where the products of a batch are sold from: their rows, the lane of this process, or the depot.

A product is sold from its row until rivals are met there, then from lanes. The policy, with the reason for each number,
is in docs/lanes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.planner import Chain, Supply
from inventory_orders.engine.batch import Batch
from inventory_orders.engine.reader import read_all
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.lanes.depot import Visit
from inventory_orders.lanes.depot_lease import release_depot
from inventory_orders.lanes.lane import Lanes

# If a batch lacks no more than so many products in its lane, they are sold from their rows.
_FEW_ROWS = 10


def supply(
    client: RetryingClient,
    lanes: Lanes,
    batch: Batch,
    commit: Callable[[Sequence[Chain]], bool],
) -> Supply | None:
    """Find what is pending in the own lane, in rows or at the depot.

    After a visit `lanes.depot_lease` may have to be released.

    Args:
        client: Sends the requests.
        lanes: What this process knows of lanes.
        batch: What is wanted, and the rows as they are known.
        commit: Commits chains of moves. Returns whether all of them are durable.

    Returns:
        The supply; None if moves were lost or changes returned, and all has to be looked at again.

    Raises:
        StoreError: DynamoDB failed, or the wait for the depot was too long.
    """
    need = batch.pending.need if lanes.most else {}
    # A process takes a lane when it has a use for it: slow sellers stay in their rows.
    if lanes.lane is not None:
        lanes.take(batch.deadline, batch.stats)
    if lanes.pages is None:
        lanes.remember(read_all(client, lanes.keys, batch.deadline, batch.stats).pages.values())
    found = _without_a_visit(client, lanes, batch, need)
    if found is not None or not batch.pending:
        return found
    if need:
        lanes.take(batch.deadline, batch.stats)
    return Visit(client, lanes, batch, need, commit).prepare()


def end_visit(client: RetryingClient, lanes: Lanes, batch: Batch) -> None:
    """End a visit of the depot, unless a transaction has done so."""
    if lanes.depot_lease is not None:
        release_depot(client, lanes.depot_lease, batch.deadline, batch.stats)
        lanes.depot_lease = None


def _without_a_visit(
    client: RetryingClient,
    lanes: Lanes,
    batch: Batch,
    need: dict[str, int],
) -> Supply | None:
    """The supply, if the own lane has all, or what it lacks is better sold from rows; else None."""
    allocation, lane = Allocation({}, lanes.pages or ()), lanes.lane
    own = {p: allocation.units(lane, p) if lane is not None else 0 for p in need}
    sources = {p: lane for p, units in need.items() if lane is not None and own[p] >= units}
    lacks = [p for p in need if p not in sources and not lanes.is_sold_out(p)]
    if len(lacks) > _FEW_ROWS or any(own[p] or client.rivals.are_met_on(p) for p in lacks):
        return None
    batch.read_unknown(p for p in batch.pending.product_ids if p not in sources)
    for product_id in batch.pending.product_ids:
        if product_id in sources or product_id not in batch.rows:
            continue
        row = batch.rows[product_id]
        lanes.observe_row(product_id, row)
        if row is not None and row.lent_to:
            is_short = row.spare < need.get(product_id, 0)
            if is_short or product_id in batch.to_reclaim:
                return None
        allocation.add_row(product_id, row)
    return Supply(allocation, sources)
