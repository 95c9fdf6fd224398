"""Counts stock: under a lease, so that a product is not sold while it is counted, or as of a time, while it is sold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.api.serving import answer_command
from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.location import key_in, named_key
from inventory_orders.domain.record import NOTES_OF_ADJUSTMENT, AdjustmentKey, AdjustmentRecord
from inventory_orders.engine.outcomes import UnsuccessfulError
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import Outcome
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import emit_stats, logger, metrics
from inventory_orders.messages.commands import count_as_of, notes_in, snapshot_of
from inventory_orders.products.lease import Lease, read_on_hand

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


runtime.prepare("store", "engine")

_ROUTES = {"POST /counts": None}
"""The route of the HTTP API. The request's body names the action."""


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Acquire, renew, commit or release a lease on a product, or begin and book a count as of a time.

    Returns:
        An answer with `result` and the `lease` or `snapshot` for the next command. After a commit or a count, it shows the
        count's adjustment instead; after a failure, it says what to do.
    """
    return answer_command(event, context, "count_stock", _ROUTES, _command)


def _command(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    as_of_a_time = {"begin": _begin, "count": _count}.get(command["action"])
    return (as_of_a_time or _under_lease)(command, deadline)


# ---------------------------------------------------------------------- as of a time


def _begin(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    client, key = runtime.process().engine.client, key_in(command)
    if earlier := _booked(client, AdjustmentKey(key, command["adjustmentId"]), deadline):
        return {"result": "COUNTED_BEFORE", **earlier}
    at = timestamp(client.clock.now())
    row, on_hand = read_on_hand(client, key, deadline, CommitStats())
    units = {} if command.get("blind", False) else {"onHand": on_hand}
    snapshot = snapshot_of(at, on_hand, row.counted_at)
    return {"result": "BEGUN", **named_key(key), "countedAt": at, **units, "snapshot": snapshot}


def _count(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    count, engine = count_as_of(command), runtime.process().engine
    report = engine.apply([count], deadline)
    emit_stats(report.stats, report.failure)
    outcome = report.outcome_of_one()
    if outcome.kind not in (Outcome.APPLIED, Outcome.REPLAYED):
        raise UnsuccessfulError(outcome, direct.of_details(outcome.rejection))
    # A replay may be of another person's count.
    return direct.of_outcome(outcome) | _booked(engine.client, count.record_key, deadline)


def _booked(client: RetryingClient, key: AdjustmentKey, deadline: Deadline) -> direct.Answer:
    """The fields of an answer that show a count that is booked; empty if there is none."""
    count = client.call(lambda: client.store.get(key), deadline)
    if not isinstance(count, AdjustmentRecord) or count.counted is None:
        return {}
    shown = {
        "adjustmentId": count.adjustment_id,
        "counted": count.counted,
        "delta": count.delta,
        "countedAt": count.counted_at,
        "appliedAt": count.applied_at,
        "version": count.product_version,
        **{name: count.notes.get(name) for name in ("actor", "reference")},
    }
    known = {name: value for name, value in shown.items() if value is not None}
    return named_key(count.product_id) | known


# ---------------------------------------------------------------------- under a lease


def _under_lease(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    client = RetryingClient(runtime.process().store)
    outlive = command.get("outliveInvocation", False)
    if command["action"] == "acquire":
        lease = Lease.acquire(
            client,
            key_in(command),
            command["seconds"],
            deadline,
            holder=command.get("holder", "count"),
            outlive_deadline=outlive,
            names_location="locationId" in command,
        )
        emit_stats(lease.stats)
        granted, numbers = _granted(lease, command["seconds"]), _numbers(lease)
        why = [part["message"] for part in (granted, numbers) if "message" in part]
        message = {"message": ". ".join(why)} if why else {}
        return {"result": "ACQUIRED"} | granted | numbers | message

    lease = Lease.resume(client, command["lease"], deadline)
    try:
        if command["action"] == "renew":
            lease.renew(command["seconds"], deadline, outlive_deadline=outlive)
            return {"result": "RENEWED"} | _granted(lease, command["seconds"])
        if command["action"] == "release":
            return {"result": "RELEASED" if lease.release(deadline) else "LEASE_WAS_OVER"}
        count = lease.commit(
            command["counted"],
            command["adjustmentId"],
            deadline,
            notes_in(command, NOTES_OF_ADJUSTMENT),
        )
        return _committed(count, lease.handed_over)
    finally:
        emit_stats(lease.stats)


def _numbers(lease: Lease) -> direct.Answer:
    """The fields of the answer that show how many units there were when the count began."""
    product, on_hand = lease.product, lease.product.lock_on_hand or 0
    numbers: direct.Answer = {
        "onHand": on_hand,
        "committed": on_hand - product.stock_count,
        "available": product.stock_count,
    }
    if on_hand < 0:
        numbers["message"] = (
            f"{on_hand:,} units are on hand, because goods left before their receipt was booked; release the lease, book the receipt, "
            "and count again"
        )
    return direct.of_product(product) | named_key(product.product_id) | numbers


def _committed(count: AdjustmentRecord, handed_over: int | None) -> direct.Answer:
    since = {} if handed_over is None else {"handedOverSince": handed_over}
    return {
        "result": "COMMITTED",
        **named_key(count.product_id),
        "counted": count.counted,
        "delta": count.delta,
        "version": count.product_version,
        **since,
    }


def _granted(lease: Lease, asked: float) -> direct.Answer:
    """The fields of the answer that show the lease and its duration, and why it is shorter than requested."""
    answer: direct.Answer = {"lease": lease.token, "grantedSeconds": round(lease.granted, 3)}
    if lease.granted < asked:
        answer["message"] = (
            f"granted for {lease.granted:.1f} s instead of {asked} s, because a lease without outliveInvocation ends with the "
            "call that acquired it"
        )
    return answer
