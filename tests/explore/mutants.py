"""Mutants: planted mistakes, each a small replacement in the code, all of which the explorer must find."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import cache_from_source
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
        # With its bytecode: most of the time that a mutant takes would go into compiling what it does not change.
        shutil.copytree(ROOT / name, folder / name)
    for name, old, new in mutant.edits:
        path = folder / name
        text = path.read_text("utf-8")
        if old and text.count(old) != 1:
            raise ValueError(
                f"mutant {mutant.name!r}: {old!r} occurs {text.count(old)} times in {name}; rewrite the mutant"
            )
        path.write_text(text.replace(old, new) if old else new, "utf-8")
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


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
REUSED_IN_GROUP = "FIFO group behind a reused orderId"
DECREMENTS = "atomic against optimistic decrement"
TOO_MUCH = "decrement of too much against receipt"
LATE = "decrement sent twice against a sale and a receipt"
CORRECTION = "correction by the last unit, repeated"
REMEMBERED = "order by remembered stock against receipt"
OTHERS = "rows of somebody else's"
EVENTS = "catalogue event against a later one"

CONFIRM_CANCEL = "confirmation against cancellation"
CONFIRM_TWICE = "confirmation sent before and after the end of its hold"
CANCEL_END = "cancellation against the end of its hold"
ENDS = "ends of holds, sent twice"
FULFIL_CANCEL = "fulfilment against cancellation"
RETURNS = "return against return"
ONE_RETURN_ID = "two returns under one id"
LINES = "lines of one order"
CANCELLED_REST = "return against a cancelled rest"
EARLY = "order against its early commands"
ONE_BATCH = "commands of one order in one batch"
LIFE_TOLD = "publishing an order's life"
TOMBSTONE_TOLD = "publishing a tombstone filled in"

LOAN = "loan against sale from the row"
LAST_LOAN = "last unit to lend"
VISITS = "two visits that both have the depot"
SALE_RECALL = "sale from a lane against recall"
RECALLS = "recall against recall"
RECALL_NOTHING = "recall of nothing against loan"
RECALL_FILL = "recall against fill"
LAST_IN_LANE = "last units in a lane"
TAKEN_OVER = "lane taken over against its woken owner"
FILLED_AGAIN = "page emptied and filled again"
MADE_AGAIN = "page made again"
RESTORED = "page restored while its owner slept"
LANE_AND_ROW = "order from lane and row against recall"
SWEEP = "sweep against visit"
SWEEP_IN_USE = "sweep against a lane in use"
FIFO_VISIT = "FIFO group against visit"
COUNT_LOAN = "count against loan"
LEASED = "lease on a row that is lent"
COUNT_LANE = "count against lane"
RELISTED_FILL = "delist and relist against fill"
DELISTED_TWICE = "delist against delist and relist, lent again"
DISCONTINUED = "discontinue against lane"
LOSS = "loss against lane"
TWO_LOSSES = "two losses that reclaim"
CANCELLED_RECALL = "cancellation against recall"

_AS_READ = 'AS_READ = "#_version = :version AND #createdAt = :createdAt"'
_MINE = '_MINE = "#lockedBy = :owner AND #_version = #lockVersion"'
_COMMIT = 'f"{_MINE} AND #_version = :version AND #lockTime > :now AND #createdAt = :createdAt "'

MUTANTS = (
    _mutant(
        "version condition dropped",
        *("store/expressions.py", _AS_READ),
        'AS_READ = "#_version <= #_version AND (#_version = :version OR #_version <> :version) '
        'AND #createdAt = :createdAt"',
        *(LAST_UNIT, BATCHES),
    ),
    _mutant(
        "createdAt condition dropped",
        *("store/expressions.py", _AS_READ),
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
        *("store/dynamodb.py", "difference(product_row(before), row)"),
        'difference(product_row(before), row | {"_version": before.version})',
        LAST_UNIT,
    ),
    _mutant(
        "rejection from a stale read",
        *("store/dynamodb.py", '"ConsistentRead": is_consistent'),
        '"ConsistentRead": False',
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
        *("domain/order_command.py", "and product.created_at == line.product_created_at"),
        "",
        RELISTED_CANCELLATION,
    ),
    _mutant(
        "incarnation told by the clock",
        *("domain/order_command.py", "and product.created_at == line.product_created_at"),
        "and product.created_at <= self.order.created_at",
        RELISTED_CANCELLATION,
        kind="clocks",
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
        *("domain/order.py", "return CancelledBeforehand(self, stored.with_sound_version())"),
        "return IdempotencyMatch.SAME_REQUEST",
        CANCELLATION,
    ),
    _mutant(
        "replay answered as another request",
        *("domain/adjustment.py", "return record.rejection or IdempotencyMatch.SAME_REQUEST"),
        "return IdempotencyMatch.OTHER_REQUEST",
        *(RECEIPT, DECREMENTS),
        kind="again",
    ),
    _mutant(
        "group that goes on before its poison is dead-lettered",
        *("engine/batch.py", "if outcome.verdict is Verdict.POISON and change.group is not None:"),
        "if False:",
        REUSED_IN_GROUP,
    ),
    _mutant(
        "refused decrement taken for a booked one",
        *("domain/adjustment.py", "return record.rejection or IdempotencyMatch.SAME_REQUEST"),
        "return IdempotencyMatch.SAME_REQUEST",
        LATE,
    ),
    _mutant(
        "other body under a used id answered as replay",
        *(
            "domain/order.py",
            "same = quantities == self.quantities and stored.hold_seconds == self.hold_seconds",
        ),
        "same = True",
        BODIES,
    ),
    _mutant(
        "acknowledged before commit",
        *(
            "invocation/sqs_batch.py",
            "return outcome.verdict\n",
        ),
        "return Verdict.APPLIED if outcome.verdict is Verdict.RETURNED else outcome.verdict\n",
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
        *("groups.py", "return member.group in self._groups"),
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
                (
                    "loop.py",
                    "if is_late or batch.deadline.remaining() <= 0:",
                    "if is_late:",
                ),
                (
                    "retrying_client.py",
                    'raise ThrottledError("OUT_OF_TIME", "the invocation had no time left to read")',
                    "pass",
                ),
                (
                    *(
                        "retrying_client.py",
                        "answer = client.store.read(missing, consistent_records=consistent_records)",
                    ),
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
            "self.is_unknown = self.is_unknown or isinstance(error, OutcomeUnknownError)",
        ),
        "self.is_unknown, self.token = False, uuid.uuid4().hex",
        RELISTED,
        kind="lost-twice",
    ),
    _mutant(
        "lease taken while another is live",
        *(
            "store/expressions.py",
            'NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <= :now)"',
        ),
        'NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <> :now)"',
        *(SUCCESSOR, LEASE),
    ),
    Mutant(
        "lease without fencing",
        (
            (
                *(f"{_PACKAGE}/store/expressions.py", _MINE),
                '_MINE = "(attribute_not_exists(#lockedBy) OR #lockedBy = :owner OR #lockedBy <> :owner)"',
            ),
            (
                *(f"{_PACKAGE}/store/expressions.py", _COMMIT),
                'f"{_MINE} AND #_version >= :version AND (attribute_not_exists(#lockTime) OR #lockTime <> :now) '
                'AND #createdAt = :createdAt "',
            ),
        ),
        (SUCCESSOR, LEASE),
        kind="time",
    ),
    _mutant(
        "release without looking whose lease it is",
        *("store/expressions.py", '_MINE, {"owner": owner}, LOCK)'),
        '"(#lockedBy = :owner OR attribute_exists(#lockedBy))", {"owner": owner}, LOCK)',
        SUCCESSOR,
        kind="time",
    ),
    _mutant(
        "own lease not recognised after a lost response",
        *("products/lease.py", "            return False, existing(failed.found, self.product_id)"),
        "            from dataclasses import replace\n"
        "            return False, replace(existing(failed.found, self.product_id), locked_by=None)",
        LEASE,
        kind="lost",
    ),
    _mutant(
        "lease acquired whatever the version",
        *("store/expressions.py", "condition, values = as_read(before, moment)\n"),
        "condition, values = as_read(before, moment)\n"
        '    condition = condition.replace("#_version =", "#_version >=")\n',
        SUCCESSOR,
        kind="late",
    ),
    _mutant(
        "decrement refused without a record",
        *("domain/adjustment.py", "stores_rejection: ClassVar = True"),
        "stores_rejection: ClassVar = False",
        *(LATE, TOO_MUCH),
        kind="late",
    ),
    _mutant(
        "atomic decrement below the threshold",
        *("store/expressions.py", "#status = :active AND #stockCount > :least AND"),
        "#status = :active AND #stockCount >= :least AND",
        DECREMENTS,
    ),
    _mutant(
        "older event applied after a newer one",
        *("store/expressions.py", "#detailsEventTime < :time OR"),
        "#detailsEventTime <> :time OR",
        EVENTS,
    ),
    _mutant(
        "delisted without closing its books",
        *("products/catalogue.py", "-whole.stock_count,"),
        "0,",
        RELISTED,
    ),
    _mutant(
        "an order in a foreign status taken for a placed one",
        *(
            "domain/order_command.py",
            "return Rejection(RejectionReason.UNKNOWN_ORDER_STATUS, str(order.status))",
        ),
        "status = OrderStatus.PENDING",
        OTHERS,
    ),
    _mutant(
        "a foreign status acknowledged without a word",
        *("invocation/sqs_batch.py", "if outcome.cause in self.poison:"),
        "if False:",
        OTHERS,
    ),
    Mutant(
        "confirmation judged by when it was sent",
        (
            (
                "functions/change_orders/handler.py",
                "from datetime import timedelta\n",
                "from dataclasses import replace\nfrom datetime import UTC, datetime, timedelta\n",
            ),
            (
                "functions/change_orders/handler.py",
                "batch.parse(lambda message: parse_order_command(message.body))",
                "batch.parse(lambda message: replace(parse_order_command(message.body), ended_by="
                "datetime.fromtimestamp(message.sent, UTC).isoformat(timespec='microseconds')))",
            ),
            (
                f"{_PACKAGE}/domain/order_command.py",
                "return self._to(OrderStatus.CONFIRMED, order)\n",
                "if not self.ended_by or self.ended_by <= (order.expires_at or '~'):\n"
                "                return self._to(OrderStatus.CONFIRMED, order)\n"
                "            status = OrderStatus.EXPIRED\n",
            ),
            (
                f"{_PACKAGE}/domain/order_command.py",
                "if told is not None:",
                "if told is not None and status is not OrderStatus.PENDING:",
            ),
        ),
        (CONFIRM_TWICE,),
    ),
    _mutant(
        "late payment that is never published",
        *(
            "domain/order_command.py",
            "return Transition(self, order.with_sound_version(), order.status, rejected=rejection)",
        ),
        "return rejection",
        CONFIRM_CANCEL,
    ),
    _mutant(
        "confirmation of a cancelled order taken for a replay",
        *(
            "domain/order_command.py",
            "if status is not OrderStatus.REJECTED and order.confirmed_at is not None:",
        ),
        "if status is not OrderStatus.REJECTED:",
        CONFIRM_CANCEL,
    ),
    _mutant(
        "hold that outlives what it held",
        *("domain/order_command.py", '                changed["expires_at"] = None\n'),
        "                pass\n",
        CONFIRM_CANCEL,
    ),
    _mutant(
        "attribute that is gone left in the row",
        *(
            "store/expressions.py",
            "gone = [name for name in before if name not in after]",
        ),
        "gone: list[str] = []",
        CONFIRM_CANCEL,
    ),
    Mutant(
        "expired before its grace was over",
        (
            (
                "functions/change_orders/handler.py",
                "SystemClock().now() - timedelta(seconds=runtime.process().hold_grace_seconds)",
                "SystemClock().now()",
            ),
        ),
        (ENDS,),
    ),
    _mutant(
        "expired before the end of the hold",
        *(
            "domain/order_command.py",
            "            return Rejection(RejectionReason.HOLD_NOT_ENDED, order.order_id)\n",
        ),
        "            pass\n",
        ENDS,
    ),
    _mutant(
        "early confirmation forgotten",
        *(
            "invocation/order_commands.py",
            "            RejectionReason.UNKNOWN_ORDER,\n",
        ),
        "",
        EARLY,
    ),
    _mutant(
        "expired without giving its units back",
        *(
            "domain/order_command.py",
            "return self._to(OrderStatus.EXPIRED, order, _open(_units(order)))",
        ),
        "return self._to(OrderStatus.EXPIRED, order)",
        CANCEL_END,
    ),
    Mutant(
        "cancelled after it was handed over",
        (
            (
                f"{_PACKAGE}/domain/order_command.py",
                "if self.part is None and status is OrderStatus.FULFILLED:",
                "if False:",
            ),
            (
                f"{_PACKAGE}/domain/order_record.py",
                "self.quantity - self.moved[OrderAction.FULFIL] - self.moved[OrderAction.CANCEL]",
                "self.quantity - self.moved[OrderAction.CANCEL]",
            ),
        ),
        (FULFIL_CANCEL,),
    ),
    _mutant(
        "a unit given back by two cancellations of one line",
        *("domain/order_command.py", "if quantity > still_open.get(product_id, 0):"),
        "if False:",
        LINES,
    ),
    _mutant(
        "return of what was cancelled",
        *(
            "domain/order_record.py",
            "return self.moved[OrderAction.FULFIL] - self.moved[OrderAction.RETURN]",
        ),
        "return self.quantity - self.moved[OrderAction.RETURN]",
        CANCELLED_REST,
    ),
    _mutant(
        "fulfilment after a partial cancellation, of all that was ordered",
        *(
            "domain/order_record.py",
            "self.quantity - self.moved[OrderAction.FULFIL] - self.moved[OrderAction.CANCEL]",
        ),
        "self.quantity - self.moved[OrderAction.FULFIL]",
        LINES,
    ),
    _mutant(
        "handed over without being paid",
        *(
            "domain/order_command.py",
            "    (OrderAction.FULFIL, OrderStatus.PENDING): RejectionReason.NOT_CONFIRMED,\n",
        ),
        "",
        ONE_BATCH,
    ),
    Mutant(
        "other commands of an order in a batch taken for duplicates",
        tuple(
            (f"{_PACKAGE}/engine/batch.py", old, new)
            for old, new in (
                ("next_turn[change.record_key] = turn + 1", "next_turn[change.record_key] = turn"),
                (
                    "        self._pending = dict(self.by_key)",
                    "        self._all = changes\n        self._pending = dict(self.by_key)",
                ),
                (
                    "self._outcomes[key] for key in self.by_key)",
                    "self._outcomes[change.record_key] for change in self._all)",
                ),
            )
        ),
        (ONE_BATCH,),
    ),
    Mutant(
        "more taken back than was delivered",
        (
            (
                f"{_PACKAGE}/domain/order_command.py",
                "if quantity > line.delivered + line.open:",
                "if False:",
            ),
            (
                f"{_PACKAGE}/domain/order_command.py",
                "is_early |= quantity > line.delivered",
                "is_early |= False",
            ),
        ),
        (RETURNS,),
    ),
    _mutant(
        "the same return taken back twice",
        *(
            "domain/order_command.py",
            "if self.part is not None and step.step_id == self.part.step_id:",
        ),
        "if False:",
        RETURNS,
    ),
    _mutant(
        "another return under a used id answered as replay",
        *(
            "domain/order_command.py",
            "return IdempotencyMatch.SAME_REQUEST if same else IdempotencyMatch.OTHER_REQUEST",
        ),
        "return IdempotencyMatch.SAME_REQUEST",
        ONE_RETURN_ID,
    ),
    _mutant(
        "return into stock of which the books know nothing",
        *("domain/order_command.py", "self.command.step(at, self.moved, versions)"),
        "self.command.step(at, self.moved, {})",
        RETURNS,
    ),
    _mutant(
        "event that the bus refuses taken for published",
        *("publishing/bus.py", 'if "ErrorCode" not in answer'),
        "if True",
        LIFE_TOLD,
        kind="refused",
    ),
    _mutant(
        "call that the bus refuses taken for published",
        *("publishing/bus.py", "return [Refusal(code, str(error), is_shared=len(entries) > 1)]"),
        "return [None]",
        LIFE_TOLD,
        kind="throttled",
    ),
    _mutant(
        "an order's next event sent with the one before",
        *("publishing/publisher.py", "unsent.setdefault(each.subject, deque())"),
        "unsent.setdefault(each.id, deque())",
        LIFE_TOLD,
        kind="refused",
    ),
    Mutant(
        "changes forgotten when time runs out",
        (("functions/publish_events/handler.py", "    if report.left:\n", "    if False:\n"),),
        (LIFE_TOLD,),
        kind="time",
    ),
    _mutant(
        "every change of an order published as a new status",
        *("domain/events.py", 'is_news = before.get("status") != order["status"]'),
        "is_news = True",
        LIFE_TOLD,
    ),
    _mutant(
        "tombstone published",
        *("domain/events.py", "if after is None or (_is_tombstone(after) and"),
        "if after is None or (False and",
        TOMBSTONE_TOLD,
    ),
    _mutant(
        "page written whatever its version",
        *("store/dynamodb.py", 'condition = "#_version = :version AND #epoch = :epoch"'),
        'condition = "(#_version = :version OR #_version <> :version) AND #epoch = :epoch"',
        *(TAKEN_OVER, SALE_RECALL),
    ),
    _mutant(
        "page written whatever its epoch",
        *("store/dynamodb.py", 'condition = "#_version = :version AND #epoch = :epoch"'),
        'condition = "#_version = :version AND (#epoch = :epoch OR #epoch <> :epoch)"',
        MADE_AGAIN,
    ),
    _mutant(
        "page made by two at once",
        *("store/dynamodb.py", 'condition, values = "attribute_not_exists(#page)", {}'),
        'condition, values = "attribute_not_exists(#page) OR attribute_exists(#page)", {}',
        VISITS,
    ),
    _mutant(
        "loan that ignores the threshold",
        *("lanes/supply.py", "surplus = row.stock_count - max(0, row.low_stock_threshold) - 1"),
        "surplus = row.stock_count - 1",
        LOAN,
    ),
    Mutant(
        "row that is lent sold to the last unit",
        (
            (
                f"{_PACKAGE}/domain/product.py",
                "return self.stock_count - max(0, self.low_stock_threshold) - 1",
                "return self.available",
            ),
            (
                f"{_PACKAGE}/domain/allocation.py",
                "if after.lent_to and not after.may_be_lent:",
                "if False:",
            ),
        ),
        (LOAN,),
    ),
    _mutant(
        "loan that names the depot alone",
        *("domain/allocation.py", "row.lent_to | frozenset(range(reach + 1))"),
        "row.lent_to | frozenset({DEPOT})",
        LOAN,
    ),
    Mutant(
        "fill beyond the reach",
        (
            (
                f"{_PACKAGE}/lanes/supply.py",
                "there.reach < lane\n",
                "there.reach < 0\n",
            ),
            (
                f"{_PACKAGE}/domain/allocation.py",
                "if held is None or lane > held.reach:",
                "if False:",
            ),
        ),
        (RECALL_FILL,),
    ),
    _mutant(
        "recall that leaves the depot free to fill",
        *("domain/allocation.py", "        self._set_reach(product_id, 0)\n"),
        "",
        SALE_RECALL,
    ),
    _mutant(
        "recall that does not check a lane without units",
        *(
            "domain/allocation.py",
            "            self._touched_pages[PageKey.of(lane, product_id)] = None\n",
        ),
        "",
        RECALL_FILL,
    ),
    _mutant(
        "recall that does not check the depot's page",
        *(
            "domain/allocation.py",
            "        self._set_reach(product_id, 0)\n"
            "        self._touched_pages[PageKey.of(DEPOT, product_id)] = None\n",
        ),
        "        self._set_reach(product_id, 0)\n",
        RECALL_NOTHING,
    ),
    _mutant(
        "lane left out of a recall, and its name removed",
        *(
            "domain/allocation.py",
            "self._set_row(replace(row, lent_to=row.lent_to - frozenset(lanes)))",
        ),
        "self._set_row(replace(row, lent_to=row.lent_to & {DEPOT}))",
        RECALL_FILL,
    ),
    Mutant(
        "units reclaimed while a lane was left out",
        (
            (
                f"{_PACKAGE}/lanes/recall.py",
                "is_reclaimed = self._to_row is not None and row.lent_to <= {DEPOT, *lanes}",
                "is_reclaimed = self._to_row is not None",
            ),
            (
                f"{_PACKAGE}/domain/allocation.py",
                "        if self.row(product_id).lent_to - {DEPOT}:\n",
                "        if False:\n",
            ),
        ),
        (DISCONTINUED, COUNT_LANE),
    ),
    _mutant(
        "row as a source that leaves units at the depot",
        *(
            "lanes/supply.py",
            "for product_id in next(iter(self._in_portions(to_reclaim, _FEW_LOANS)), ()):",
        ),
        "for product_id in ():",
        *(SALE_RECALL, LAST_IN_LANE),
    ),
    _mutant(
        "depot as a source that leaves units in the lane",
        *("lanes/supply.py", "                allocation.give_back(lane, product_id)\n"),
        "                pass\n",
        LAST_IN_LANE,
    ),
    _mutant(
        "rejected while lanes may hold more",
        *("domain/product.py", "        return bool(self.lent_to)\n"),
        "        return False\n",
        TWO_LOSSES,
    ),
    _mutant(
        "rejected for want of units in a page",
        *("domain/product.py", "is_partial: ClassVar = True"),
        "is_partial: ClassVar = False",
        LEASED,
    ),
    _mutant(
        "row and pages of one read taken for one moment",
        *("engine/loop.py", "            batch.to_reclaim |= short\n"),
        "            from inventory_orders.domain.allotments import PageKey\n"
        "            from inventory_orders.engine.retrying_client import read\n"
        "            pages = [PageKey.of(lane, p) for lane in range(3) for p in short]\n"
        "            found = read(self.client, [*short, *pages], batch.deadline, batch.stats)\n"
        "            for product_id in short:\n"
        "                row = found.products[product_id]\n"
        "                units = row.stock_count + sum(page.units(product_id) for page in found.pages.values())\n"
        "                if units < max(-change.delta for change in pending):\n"
        "                    reclaimed = replace(row, stock_count=units, lent_to=frozenset())\n"
        "                    batch.observe(product_id, reclaimed)\n"
        "                    return\n"
        "            batch.to_reclaim |= short\n",
        TWO_LOSSES,
        kind="torn",
    ),
    Mutant(
        "count without what is in lanes",
        (
            (
                f"{_PACKAGE}/products/lease.py",
                "        if lease.product.lent_to:\n            lease._reclaim(deadline)\n",
                "",
            ),
            (f"{_PACKAGE}/store/expressions.py", '"AND attribute_not_exists(#lentTo)"', '""'),
        ),
        (COUNT_LANE,),
    ),
    _mutant(
        "delisted without a recall",
        *("products/catalogue.py", "(wanted is None or not _next"),
        "(wanted is not None and not _next",
        RELISTED_FILL,
    ),
    _mutant(
        "another incarnation delisted",
        *(
            "products/catalogue.py",
            "            if update.before.created_at != product.created_at:\n",
        ),
        "            if False:\n",
        DELISTED_TWICE,
    ),
    Mutant(
        "changed before all its units are reclaimed",
        (
            (
                f"{_PACKAGE}/lanes/recall.py",
                "for update in transaction.updates if not update.after.lent_to]",
                "for update in transaction.updates]",
            ),
            (
                f"{_PACKAGE}/store/dynamodb.py",
                "if after.lent_to and not after.may_be_lent:",
                "if False:",
            ),
        ),
        (DISCONTINUED,),
    ),
    Mutant(
        "discontinued without a recall",
        (
            (
                f"{_PACKAGE}/products/catalogue.py",
                "(wanted is None or not _next(before, wanted).may_be_lent)",
                "wanted is None",
            ),
            (
                f"{_PACKAGE}/store/dynamodb.py",
                "if after.lent_to and not after.may_be_lent:",
                "if False:",
            ),
        ),
        (DISCONTINUED,),
    ),
    _mutant(
        "reclaimed without the change that needs it",
        *("products/catalogue.py", "self._actions(update.before, whole, change(whole))"),
        "self._actions(update.before, whole, whole)",
        DISCONTINUED,
    ),
    _mutant(
        "loss that takes what must stay in the row",
        *("domain/planner.py", "        and not product.may_change_by(delta)\n"),
        "        and product.stock_count + delta < 0\n",
        LOSS,
    ),
    _mutant(
        "FIFO group torn by a visit",
        *(
            "domain/planner.py",
            "return supply.needs_depot(decision) or decision.change.group in groups",
        ),
        "return supply.needs_depot(decision)",
        FIFO_VISIT,
    ),
    _mutant(
        "decided by remembered stock",
        *(
            "engine/loop.py",
            "if batch.from_cache and (planned.short or rejects):",
        ),
        "if False:",
        REMEMBERED,
    ),
    _mutant(
        "a lost race taken for poison",
        *("engine/transactions.py", '    return None, "CONTENTION"'),
        '    return Verdict.POISON, "REFUSED_BY_DYNAMODB"',
        LAST_UNIT,
    ),
    _mutant(
        "a repetition answered with a want of stock",
        *("engine/batch.py", "self._read_together(product_ids, changes[start : start + most])"),
        "pass",
        CORRECTION,
    ),
    _mutant(
        "stock and record read one after the other",
        *("engine/batch.py", "partial(self._client.store.read_together, keys)"),
        "partial(self._client.store.read, keys[-1:], consistent_records=True)",
        CORRECTION,
        kind="parted",
    ),
    _mutant(
        "a count looked up without its product",
        *("products/lease.py", "read_together([key.product_id, key])"),
        "read([key], consistent_records=True)",
        "one count, committed twice at once",
        kind="parted",
    ),
    _mutant(
        "a lost lease reported without a fence",
        *("products/lease.py", "            try:\n                self.release(deadline)\n"),
        "            try:\n                pass\n",
        "count, asked again after its lease",
        kind="late",
    ),
    _mutant(
        "lane remembered after a transaction that was not applied",
        *("lanes/lane.py", "if failed.pages:"),
        "if False:",
        TAKEN_OVER,
    ),
    _mutant(
        "lane remembered past its own lease",
        *("lanes/lane.py", "        if not kept or self._lease is None:\n"),
        "        if self._lease is None:\n",
        RESTORED,
    ),
    _mutant(
        "depot that forgets what it was emptied of",
        *("domain/allocation.py", "                self._emptied[key].add(product_id)\n"),
        "                pass\n",
        LAST_IN_LANE,
    ),
    _mutant(
        "line that names a version that it did not make",
        *(
            "domain/allocation.py",
            "if (entries, emptied) == (page.entries, page.emptied) and key not in self._sold_from:",
        ),
        "if (entries, emptied) == (page.entries, page.emptied):",
        LAST_LOAN,
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
