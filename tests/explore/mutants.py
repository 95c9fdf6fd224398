"""Mutants: planted mistakes, each a small replacement in the code, all of which the explorer must find."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from local import ROOT

CODE = "layers/core/python"
_PACKAGE = f"{CODE}/inventory_orders"


@dataclass(frozen=True)
class Mutant:
    """A planted mistake.

    Attributes:
        name: What is wrong.
        edits: (file, old text, new text); an empty old text stands for the whole file.
        scenarios: The scenarios that reveal it.
        kind: The fault that reveals it first; empty if none is needed, or any.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    scenarios: tuple[str, ...]
    kind: str = ""


def tree(folder: Path, mutant: Mutant) -> None:
    """Copy the code into a folder and plant the mistake.

    Raises:
        ValueError: The old text does not occur exactly once, so the mutant has to be adapted to the code.
    """
    for name in (CODE, "functions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in mutant.edits:
        path = folder / name
        text = path.read_text("utf-8")
        if old and text.count(old) != 1:
            raise ValueError(
                f"mutant {mutant.name!r}: {old!r} occurs {text.count(old)} times in {name}; rewrite the mutant"
            )
        path.write_text(text.replace(old, new) if old else new, "utf-8")


def _mutant(name: str, file: str, old: str, new: str, *scenarios: str, kind: str = "") -> Mutant:
    return Mutant(name, ((f"{_PACKAGE}/{file}", old, new),), scenarios, kind)


LAST_UNIT = "order against order on the last unit"
TWICE = "the same order twice at once"
BATCHES = "batch against overlapping batch"
CANCELLATION = "order against its cancellation"
RECEIPT = "receipt twice against order"
LEASE = "lease against order"
SUCCESSOR = "expired lease against its successor"
RELISTED = "delist and relist against order"
RELISTED_CANCELLATION = "delist and relist against cancellation"
BODIES = "conflicting bodies under one orderId"
FIFO = "FIFO groups, redelivered"
DECREMENTS = "atomic against optimistic decrement"
OTHERS = "rows of somebody else's"
EVENTS = "catalogue event against a later one"

_AS_READ = 'AS_READ = "#_version = :version AND #createdAt = :createdAt"'
_MINE = '_MINE = "#lockedBy = :owner AND #_version = #lockVersion"'
_COMMIT = 'f"{_MINE} AND #_version = :version AND #lockTime > :now AND #createdAt = :createdAt"'

MUTANTS = (
    _mutant(
        "version condition dropped",
        *("store/dynamodb.py", _AS_READ),
        'AS_READ = "#_version <= #_version AND (#_version = :version OR #_version <> :version) '
        'AND #createdAt = :createdAt"',
        *(LAST_UNIT, BATCHES),
    ),
    _mutant(
        "createdAt condition dropped",
        *("store/dynamodb.py", _AS_READ),
        'AS_READ = "#_version = :version AND (#createdAt = :createdAt OR #createdAt <> :createdAt)"',
        RELISTED,
    ),
    _mutant(
        "record condition dropped",
        *("store/dynamodb.py", '"attribute_not_exists(#key)"'),
        '"attribute_not_exists(#key) OR attribute_exists(#key)"',
        *(TWICE, RECEIPT),
    ),
    _mutant(
        "version not raised",
        *("store/dynamodb.py", '"nextVersion": after.version'),
        '"nextVersion": before.version',
        LAST_UNIT,
    ),
    _mutant(
        "rejection from a stale read",
        *("store/dynamodb.py", 'entry["ConsistentRead"] = True'),
        'entry["ConsistentRead"] = False',
        *(RECEIPT, RELISTED),
        kind="stale",
    ),
    _mutant(
        "stock not checked",
        *("domain/order.py", "if product.available < quantity:"),
        "if product.available < 0:",
        LAST_UNIT,
    ),
    _mutant(
        "lines with another incarnation given back",
        *(
            "domain/order.py",
            "return product is not None and product.created_at == line.product_created_at",
        ),
        "return product is not None",
        RELISTED_CANCELLATION,
    ),
    _mutant(
        "cancelled whatever the order's state",
        *("store/dynamodb.py", 'condition = "#_version = :version AND #status = :status"'),
        'condition = "(#_version = :version OR #_version <> :version) AND '
        '(#status = :status OR #status <> :status)"',
        CANCELLATION,
        kind="again",
    ),
    Mutant(
        "tombstone filled in twice",
        (
            (
                *(
                    f"{_PACKAGE}/store/dynamodb.py",
                    'condition = "#_version = :version AND #status = :status"',
                ),
                'condition = "(#_version = :version OR #_version <> :version) AND #status = :status"',
            ),
            (
                *(
                    f"{_PACKAGE}/store/dynamodb.py",
                    'condition += " AND attribute_not_exists(#userId)"',
                ),
                'condition += " AND (attribute_not_exists(#userId) OR attribute_exists(#userId))"',
            ),
        ),
        (CANCELLATION,),
        kind="again",
    ),
    _mutant(
        "order placed over its tombstone's cancellation",
        *("domain/order.py", "return CancelledBeforehand(self, _with_version(stored))"),
        "return IdempotencyMatch.SAME_REQUEST",
        CANCELLATION,
    ),
    _mutant(
        "replay answered as another request",
        *(
            "domain/adjustment.py",
            "return IdempotencyMatch.SAME_REQUEST if same else IdempotencyMatch.OTHER_REQUEST",
        ),
        "return IdempotencyMatch.OTHER_REQUEST",
        *(RECEIPT, DECREMENTS),
        kind="again",
    ),
    _mutant(
        "other body under a used id answered as replay",
        *(
            "domain/order.py",
            "if stored.user_id == self.user_id and quantities == self.quantities:",
        ),
        "if stored.user_id == self.user_id or quantities == self.quantities:",
        BODIES,
    ),
    _mutant(
        "acknowledged before commit",
        *(
            "invocation/sqs_batch.py",
            "return replace(result, cause=outcome.cause, detail=outcome.detail)",
        ),
        "return replace(result, disposition=Disposition.APPLIED)",
        LEASE,
        kind="time",
    ),
    _mutant(
        "dead letter taken for sent",
        *("invocation/sqs.py", "return poison.keys() - sent"),
        "return set()",
        BODIES,
        kind="throttled",
    ),
    _mutant(
        "followers of a returned message not held back",
        *("invocation/sqs_batch.py", "return message.group in self._stopped"),
        "return False",
        FIFO,
        kind="throttled",
    ),
    Mutant(
        "backoff without deadline",
        tuple(
            (f"{_PACKAGE}/engine/{file}", old, new)
            for file, old, new in (
                ("retrying_client.py", "if seconds >= deadline.remaining():", "if False:"),
                ("retrying_client.py", "return deadline.remaining() > 0", "return True"),
                ("reader.py", "    if deadline.remaining() <= 0:\n", "    if False:\n"),
                (
                    *("reader.py", "answer = client.store.read(missing)"),
                    "if deadline.remaining() <= 0: raise ThrottledError('OUT_OF_TIME', '')\n"
                    "                answer = client.store.read(missing)",
                ),
            )
        ),
        (CANCELLATION,),
        kind="time",
    ),
    _mutant(
        "token renewed after a lost response",
        *(
            "engine/retrying_client.py",
            "self._unknown = self._unknown or isinstance(error, OutcomeUnknownError)",
        ),
        "self._unknown, self._token = False, uuid.uuid4().hex",
        RELISTED,
        kind="lost-twice",
    ),
    _mutant(
        "lease taken while another is live",
        *(
            "store/dynamodb.py",
            'NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <= :now)"',
        ),
        'NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <> :now)"',
        *(SUCCESSOR, LEASE),
    ),
    _mutant(
        "commit under a claim that another has taken over",
        *("store/dynamodb.py", 'return f"{AS_READ} AND {CLAIMED}", values'),
        'return f"{AS_READ} AND (#lockedBy = :owner OR #lockedBy <> :owner)", values',
        *(BATCHES, LAST_UNIT),
        kind="time",
    ),
    Mutant(
        "lease without fencing",
        (
            (
                *(f"{_PACKAGE}/products/lease.py", _MINE),
                '_MINE = "(attribute_not_exists(#lockedBy) OR #lockedBy = :owner OR #lockedBy <> :owner)"',
            ),
            (
                *(f"{_PACKAGE}/products/lease.py", _COMMIT),
                'f"{_MINE} AND #_version >= :version AND (attribute_not_exists(#lockTime) OR #lockTime <> :now) '
                'AND #createdAt = :createdAt"',
            ),
        ),
        (SUCCESSOR, LEASE),
        kind="time",
    ),
    _mutant(
        "release without looking whose lease it is",
        *("products/lease.py", "                _MINE,\n                self._values(),"),
        '                "(#lockedBy = :owner OR attribute_exists(#lockedBy))",\n                self._values(),',
        SUCCESSOR,
        kind="time",
    ),
    _mutant(
        "own lease not recognised after a lost response",
        *("products/lease.py", "if product.locked_by != owner:"),
        "if product.locked_by is not None:",
        LEASE,
        kind="lost",
    ),
    _mutant(
        "atomic decrement below the threshold",
        *("products/decrement.py", "#stockCount > :least"),
        "#stockCount >= :least",
        DECREMENTS,
    ),
    _mutant(
        "older event applied after a newer one",
        *("products/catalogue.py", "#detailsEventTime < :time OR"),
        "#detailsEventTime <> :time OR",
        EVENTS,
    ),
    _mutant(
        "delisted without closing its books",
        *("products/catalogue.py", "-product.stock_count,"),
        "0,",
        RELISTED,
    ),
    _mutant(
        "an order in a foreign status taken for a placed one",
        *("domain/order.py", "if stored.status != OrderStatus.PENDING:"),
        "if False:",
        OTHERS,
    ),
    _mutant(
        "a foreign status acknowledged without a word",
        *("invocation/sqs_batch.py", "if rejection.reason in rules.poison or is_last:"),
        "if False:",
        OTHERS,
    ),
    Mutant(
        "the literature: read, then put",
        (
            (
                *("functions/place_orders/handler.py", ""),
                Path(__file__).with_name("naive").joinpath("read_then_put.py").read_text("utf-8"),
            ),
        ),
        (LAST_UNIT,),
    ),
    Mutant(
        "the literature: a conditional decrement",
        (
            (
                *("functions/place_orders/handler.py", ""),
                Path(__file__)
                .with_name("naive")
                .joinpath("conditional_decrement.py")
                .read_text("utf-8"),
            ),
        ),
        (TWICE,),
        kind="lost",
    ),
)
