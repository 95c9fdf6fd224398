"""Counts stock: under a lease, so that a product is not sold while it is counted, or as of a time, while it is sold."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from inventory_orders.api.serving import answer_command
from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import COUNT, Adjustment
from inventory_orders.domain.location import in_words, key_in, named_key
from inventory_orders.domain.record import NOTES_OF_ADJUSTMENT, AdjustmentKey, AdjustmentRecord
from inventory_orders.domain.rejection import Rejection
from inventory_orders.engine.outcomes import UnsuccessfulError
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import (
    ContentionError,
    CorruptItemError,
    InvalidMessageError,
    Outcome,
    ProductNotFoundError,
    RejectedError,
)
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.telemetry import emit_stats, logger, metrics
from inventory_orders.lanes.levels import read_level
from inventory_orders.messages.commands import notes_in
from inventory_orders.products.lease import Lease
from inventory_orders.store.rows import drop_none

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
    match command["action"]:
        case "begin":
            return _begin(command, deadline)
        case "count":
            return _count(command, deadline)
    return _under_lease(command, deadline)


# ---------------------------------------------------------------------- as of a time


class Snapshot(NamedTuple):
    """What was known of a product when a count of it began.

    Attributes:
        at: The time, as stored.
        on_hand: The units on hand.
        counted_before: The row's `countedAt`.
    """

    at: str
    on_hand: int
    counted_before: str

    @property
    def text(self) -> str:
        """The snapshot as the caller sends it back. It hides the units, but does not protect them."""
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """Read a snapshot that a caller has sent back.

        Raises:
            InvalidMessageError: It is not a snapshot.
        """
        try:
            at, on_hand, counted_before = json.loads(base64.urlsafe_b64decode(text))
            return cls(str(at), int(on_hand), str(counted_before))
        except (ValueError, TypeError):
            detail = "snapshot: is not one that begin returned; send that one unchanged"
            raise InvalidMessageError("SCHEMA_VIOLATION", detail, "snapshot") from None


def _begin(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    client, key, stats = runtime.process().engine.client, key_in(command), CommitStats()
    if "adjustmentId" in command:
        earlier = _find(client, AdjustmentKey(key, command["adjustmentId"]), deadline)
        if earlier is not None:
            return {"result": "COUNTED_BEFORE", **_shown(earlier)}
    at = timestamp(client.clock.now())
    level = read_level(client, key, deadline, stats)
    emit_stats(stats)
    if level is None:
        raise ProductNotFoundError(f"there is no product {in_words(key)}")
    unnamed = None if "locationId" in command else Rejection.of_unnamed_location(level.product)
    if unnamed is not None:
        raise RejectedError(unnamed.words, unnamed.reason)
    if not level.is_exact:
        raise ContentionError(f"other requests kept changing {in_words(key)}")
    before = level.product.counted_at
    snapshot = Snapshot(at, level.on_hand, before).text
    times = {"countedAt": at, "lastCountedAt": before}
    units = {} if command.get("blind", False) else {"onHand": level.on_hand}
    return {"result": "BEGUN", **named_key(key), "snapshot": snapshot, **times, **units}


def _count(command: dict[str, Any], deadline: Deadline) -> direct.Answer:
    snapshot = Snapshot.of(command["snapshot"])
    count = Adjustment(
        key_in(command),
        command["adjustmentId"],
        command["counted"] - snapshot.on_hand,
        COUNT,
        notes_in(command, NOTES_OF_ADJUSTMENT),
        names_location="locationId" in command,
        counted=command["counted"],
        counted_at=snapshot.at,
        counted_before=snapshot.counted_before,
    )
    engine = runtime.process().engine
    report = engine.apply([count], deadline)
    emit_stats(report.stats, report.failure)
    outcome = report.outcome_of_one()
    if outcome.kind not in (Outcome.APPLIED, Outcome.REPLAYED):
        raise UnsuccessfulError(outcome, direct.of_shortages(outcome.rejection))
    # A replay may be of another person's count, with another snapshot.
    record = _find(engine.client, count.record_key, deadline)
    return direct.of_outcome(outcome) | ({} if record is None else _shown(record))


def _find(
    client: RetryingClient, key: AdjustmentKey, deadline: Deadline
) -> AdjustmentRecord | None:
    found = client.call(lambda: client.store.get_record(key), deadline)
    if isinstance(found, CorruptItemError):
        raise found
    return found if isinstance(found, AdjustmentRecord) else None


def _shown(count: AdjustmentRecord) -> direct.Answer:
    """The fields of an answer that show a count that is booked."""
    return named_key(count.product_id) | drop_none(
        {
            "adjustmentId": count.adjustment_id,
            "counted": count.counted,
            "delta": count.delta,
            "countedAt": count.counted_at,
            "appliedAt": count.applied_at,
            "version": count.product_version,
            **{name: count.notes.get(name) for name in ("actor", "reference")},
        }
    )


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
