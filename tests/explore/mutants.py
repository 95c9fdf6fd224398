"""Mutants: planted mistakes, each a small replacement in the code, all of which the explorer must find."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from local import ROOT
from tests.explore.planting import Edit, plant

CODE = "layers/core/python"
FOLDERS = (CODE, "functions")


@dataclass(frozen=True)
class Mutant:
    """A planted mistake.

    Attributes:
        name: What is wrong.
        edits: What is replaced in the code.
        scenarios: The scenarios that reveal it.
        kind: The fault that reveals it first; empty if none is needed, or any.
        handler: The file in `naive` that replaces the handler of orders, if any.
    """

    name: str
    edits: tuple[Edit, ...]
    scenarios: tuple[str, ...]
    kind: str = ""
    handler: str = ""

    def changes(self) -> dict[Path, str]:
        """Return the files that the mistake changes, relative to the root, with their new text.

        Raises:
            ValueError: The code no longer has a piece to replace, or has it several times.
        """
        sources = {
            path.relative_to(ROOT): path.read_text("utf-8")
            for folder in FOLDERS
            for path in (ROOT / folder).rglob("*.py")
        }
        changed: dict[Path, str] = {}
        if self.handler:
            naive = Path(__file__).with_name("naive") / self.handler
            changed[Path("functions/place_orders/handler.py")] = naive.read_text("utf-8")
        for edit in self.edits:
            path, text = plant(sources | changed, edit)
            changed[path] = text
        return changed


def tree(folder: Path, mutant: Mutant) -> None:
    """Copy the code into a folder and plant the mistake.

    Raises:
        ValueError: The mistake does not fit the code.
    """
    for name in FOLDERS:
        # With its bytecode: most of the time that a mutant takes would go into compiling what it does not change.
        shutil.copytree(ROOT / name, folder / name)
    for file, text in mutant.changes().items():
        path = folder / file
        path.write_text(text, "utf-8")
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _mutant(
    name: str, old: str, new: str, *scenarios: str, kind: str = "", within: str = ""
) -> Mutant:
    return Mutant(name, (Edit(old, new, within),), scenarios, kind)


LAST_UNIT = "order against order on the last unit"
TWICE = "the same order twice at once"
CANCELLATION = "order against its cancellation"
RECEIPT = "receipt twice against order"
LEASE = "lease against order"
SUCCESSOR = "expired lease against its successor"
RELISTED = "delist and relist against order"
RELISTED_CANCELLATION = "delist and relist against cancellation"
BODIES = "conflicting bodies under one orderId"
FIFO = "FIFO groups, redelivered"
DECREMENTS = "atomic against optimistic decrement"
LATE = "decrement sent twice against a sale and a receipt"
CORRECTION = "correction by the last unit, repeated"
OTHERS = "rows of somebody else's"

CONFIRM_CANCEL = "confirmation against cancellation"
ENDS = "ends of holds, sent twice"
RETURNS = "return against return"
LINES = "lines of one order"
ONE_BATCH = "commands of one order in one batch"
LIFE_TOLD = "publishing an order's life"

LOAN = "loan against sale from the row"
SALE_RECALL = "sale from a lane against recall"
RECALL_FILL = "recall against fill"
LAST_IN_LANE = "last units in a lane"
TAKEN_OVER = "lane taken over against its woken owner"
COUNT_LANE = "count against lane"
DISCONTINUED = "discontinue against lane"
TWO_LOSSES = "two losses that reclaim"

_AS_READ = 'AS_READ = "#_version = :version AND #createdAt = :createdAt"'
_MINE = '_MINE = "#lockedBy = :owner AND #_version = #lockVersion"'

MUTANTS = (
    _mutant(
        "version condition dropped",
        _AS_READ,
        'AS_READ = "#_version <= #_version AND (#_version = :version OR #_version <> :version) '
        'AND #createdAt = :createdAt"',
        *(LAST_UNIT, "batch against overlapping batch"),
    ),
    _mutant(
        "createdAt condition dropped",
        _AS_READ,
        'AS_READ = "#_version = :version AND (#createdAt = :createdAt OR #createdAt <> :createdAt)"',
        RELISTED,
    ),
    _mutant(
        "record condition dropped",
        'f"attribute_not_exists(#{KEYS[table][0]})"',
        'f"attribute_not_exists(#{KEYS[table][0]}) OR attribute_exists(#{KEYS[table][0]})"',
        *(TWICE, RECEIPT),
    ),
    _mutant(
        "version not raised",
        "difference(product_row(before), row)",
        'difference(product_row(before), row | {"_version": before.version})',
        LAST_UNIT,
    ),
    _mutant(
        "rejection from a stale read",
        "consistent_records or table in _ALWAYS_CONSISTENT",
        "False",
        *(RECEIPT, RELISTED),
        kind="stale",
    ),
    _mutant(
        "stock not checked",
        "if product.available < quantity:",
        "if product.available < 0:",
        LAST_UNIT,
    ),
    _mutant(
        "lines with another incarnation given back",
        "and product.created_at == line.product_created_at",
        "",
        RELISTED_CANCELLATION,
    ),
    _mutant(
        "incarnation told by the clock",
        "and product.created_at == line.product_created_at",
        "and product.created_at <= self.order.created_at",
        RELISTED_CANCELLATION,
        kind="clocks",
    ),
    _mutant(
        "cancelled whatever the order's state",
        '"#_version = :version AND #status = :status"',
        '"(#_version = :version OR #_version <> :version) AND (#status = :status OR #status <> :status)"',
        CANCELLATION,
        kind="again",
    ),
    Mutant(
        "tombstone filled in twice",
        (
            Edit(
                '"#_version = :version AND #status = :status"',
                '"(#_version = :version OR #_version <> :version) AND #status = :status"',
            ),
            Edit(
                'update.on("attribute_not_exists(#userId)")',
                'update.on("(attribute_not_exists(#userId) OR attribute_exists(#userId))")',
            ),
        ),
        (CANCELLATION,),
        kind="again",
    ),
    _mutant(
        "order placed over its tombstone's cancellation",
        "return CancelledBeforehand(self, stored.require_version())",
        "return IdempotencyMatch.SAME_REQUEST",
        CANCELLATION,
    ),
    _mutant(
        "replay answered as another request",
        "return record.rejection or IdempotencyMatch.SAME_REQUEST",
        "return IdempotencyMatch.OTHER_REQUEST",
        *(RECEIPT, DECREMENTS),
        kind="again",
    ),
    _mutant(
        "group that goes on before its poison is dead-lettered",
        "if outcome.verdict is Verdict.POISON:",
        "if False:",
        "FIFO group behind a reused orderId",
        within="settle",
    ),
    _mutant(
        "refused decrement taken for a booked one",
        "return record.rejection or IdempotencyMatch.SAME_REQUEST",
        "return IdempotencyMatch.SAME_REQUEST",
        LATE,
    ),
    _mutant(
        "other body under a used id answered as replay",
        "same = quantities == self.quantities and stored.hold_seconds == self.hold_seconds",
        "same = True",
        BODIES,
    ),
    _mutant(
        "acknowledged before commit",
        "return outcome.verdict",
        "return Verdict.APPLIED if outcome.verdict is Verdict.RETURNED else outcome.verdict",
        LEASE,
        kind="time",
    ),
    _mutant(
        "dead letter taken for sent",
        "return poison.keys() - sent",
        "return set()",
        BODIES,
        kind="throttled",
    ),
    _mutant(
        "followers of a returned message not held back",
        "elif member.group in groups:",
        "elif False:",
        FIFO,
        kind="throttled",
    ),
    Mutant(
        "backoff without deadline",
        (
            Edit("if seconds >= deadline.remaining():", "if False:"),
            Edit("return deadline.remaining() > 0", "return True", "engine"),
            Edit("if is_late or batch.deadline.remaining() <= 0:", "if is_late:"),
            Edit(
                'raise ThrottledError("OUT_OF_TIME", "the invocation had no time left")',
                "pass",
            ),
            Edit(
                "answer = client.store.read(missing, consistent_records=consistent_records)",
                """
                if deadline.remaining() <= 0:
                    raise ThrottledError('OUT_OF_TIME', '')
                answer = client.store.read(missing)
                """,
            ),
        ),
        (CANCELLATION,),
        kind="time",
    ),
    _mutant(
        "token renewed after a lost response",
        "self.is_unknown = self.is_unknown or isinstance(error, OutcomeUnknownError)",
        "self.is_unknown, self.token = False, uuid.uuid4().hex",
        RELISTED,
        kind="lost-twice",
    ),
    _mutant(
        "lease taken while another is live",
        'NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <= :now)"',
        'NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <> :now)"',
        *(SUCCESSOR, LEASE),
    ),
    Mutant(
        "lease without fencing",
        (
            Edit(
                _MINE,
                '_MINE = "(attribute_not_exists(#lockedBy) OR #lockedBy = :owner OR #lockedBy <> :owner)"',
            ),
            Edit(
                'f"{_MINE} AND #_version = :version AND #lockTime > :now AND #createdAt = :createdAt "',
                'f"{_MINE} AND #_version >= :version AND (attribute_not_exists(#lockTime) OR #lockTime '
                '<> :now) AND #createdAt = :createdAt "',
            ),
        ),
        (SUCCESSOR, LEASE),
        kind="time",
    ),
    _mutant(
        "release without looking whose lease it is",
        "LOCK).on(_MINE, owner=owner)",
        'LOCK).on("(#lockedBy = :owner OR attribute_exists(#lockedBy))", owner=owner)',
        SUCCESSOR,
        kind="time",
    ),
    _mutant(
        "own lease not recognised after a lost response",
        "return False, require_product(failed.found, product_id)",
        """
        from dataclasses import replace
        return False, replace(require_product(failed.found, product_id), locked_by=None)
        """,
        LEASE,
        kind="lost",
    ),
    _mutant(
        "lease acquired whatever the version",
        "return _lock(owner, moment, until).on_unchanged(before, moment)",
        """
        lock = _lock(owner, moment, until).on_unchanged(before, moment)
        return replace(lock, condition=lock.condition.replace("#_version =", "#_version >="))
        """,
        SUCCESSOR,
        kind="late",
    ),
    _mutant(
        "decrement refused without a record",
        "stores_rejection: ClassVar = True",
        "stores_rejection: ClassVar = False",
        *(LATE, "decrement of too much against receipt"),
        kind="late",
        within="Decrement",
    ),
    _mutant(
        "atomic decrement below the threshold",
        '"#createdAt = :createdAt AND #status = :active AND #stockCount > :least AND "',
        '"#createdAt = :createdAt AND #status = :active AND #stockCount >= :least AND "',
        DECREMENTS,
    ),
    _mutant(
        "older event applied after a newer one",
        '"(attribute_not_exists(#detailsEventTime) OR #detailsEventTime < :time OR "',
        '"(attribute_not_exists(#detailsEventTime) OR #detailsEventTime <> :time OR "',
        "catalogue event against a later one",
    ),
    _mutant("delisted without closing its books", "-whole.stock_count,", "0,", RELISTED),
    _mutant(
        "an order in a foreign status taken for a placed one",
        "return Rejection(RejectionReason.UNKNOWN_ORDER_STATUS, str(order.status))",
        "status = OrderStatus.PENDING",
        OTHERS,
    ),
    _mutant(
        "a foreign status acknowledged without a word",
        "if outcome.cause in self.poison:",
        "if False:",
        OTHERS,
    ),
    Mutant(
        "confirmation judged by when it was sent",
        (
            Edit(
                "from datetime import timedelta",
                """
                from dataclasses import replace
                from datetime import UTC, datetime, timedelta
                """,
                "change_orders",
            ),
            Edit(
                "batch.parse(lambda message: parse_order_command(message.body))",
                "batch.parse(lambda message: replace(parse_order_command(message.body), "
                "ended_by=datetime.fromtimestamp(message.sent, UTC).isoformat(timespec='microseconds')))",
            ),
            Edit(
                "return self._to(OrderStatus.CONFIRMED, order)",
                """
                if not self.ended_by or self.ended_by <= (order.expires_at or '~'):
                    return self._to(OrderStatus.CONFIRMED, order)
                status = OrderStatus.EXPIRED
                """,
            ),
            Edit(
                "if told is not None:", "if told is not None and status is not OrderStatus.PENDING:"
            ),
        ),
        ("confirmation sent before and after the end of its hold",),
    ),
    _mutant(
        "late payment that is never published",
        "return Transition(self, order.require_version(), order.status, rejected=rejection)",
        "return rejection",
        CONFIRM_CANCEL,
    ),
    _mutant(
        "confirmation of a cancelled order taken for a replay",
        "if status is not OrderStatus.REJECTED and order.confirmed_at is not None:",
        "if status is not OrderStatus.REJECTED:",
        CONFIRM_CANCEL,
    ),
    _mutant(
        "hold that outlives what it held", 'changed["expires_at"] = None', "pass", CONFIRM_CANCEL
    ),
    _mutant(
        "attribute that is gone left in the row",
        "gone = [name for name in before if name not in after]",
        "gone: list[str] = []",
        CONFIRM_CANCEL,
    ),
    _mutant(
        "expired before its grace was over",
        "SystemClock().now() - timedelta(seconds=runtime.process().hold_grace_seconds)",
        "SystemClock().now()",
        ENDS,
    ),
    _mutant(
        "expired before the end of the hold",
        "return Rejection(RejectionReason.HOLD_NOT_ENDED, order.order_id)",
        "pass",
        ENDS,
    ),
    _mutant(
        "early confirmation forgotten",
        "RejectionReason.UNKNOWN_ORDER,",
        "",
        "order against its early commands",
    ),
    _mutant(
        "expired without giving its units back",
        "return self._to(OrderStatus.EXPIRED, order, _open(_units(order)))",
        "return self._to(OrderStatus.EXPIRED, order)",
        "cancellation against the end of its hold",
    ),
    Mutant(
        "cancelled after it was handed over",
        (
            Edit("if self.part is None and status is OrderStatus.FULFILLED:", "if False:"),
            Edit(
                "self.quantity - self._moved(Units.OPEN)",
                "self.quantity - self.moved[OrderAction.CANCEL]",
            ),
        ),
        ("fulfilment against cancellation",),
    ),
    _mutant(
        "a unit given back by two cancellations of one line",
        "if quantity > still_open.get(product_id, 0):",
        "if False:",
        LINES,
    ),
    _mutant(
        "return of what was cancelled",
        "self.moved[OrderAction.FULFIL] - self._moved(Units.DELIVERED)",
        "self.quantity - self._moved(Units.DELIVERED)",
        "return against a cancelled rest",
    ),
    _mutant(
        "fulfilment after a partial cancellation, of all that was ordered",
        "self.quantity - self._moved(Units.OPEN)",
        "self.quantity - self.moved[OrderAction.FULFIL]",
        LINES,
    ),
    _mutant(
        "handed over without being paid",
        "(OrderAction.FULFIL, OrderStatus.PENDING): RejectionReason.NOT_CONFIRMED,",
        "",
        ONE_BATCH,
    ),
    Mutant(
        "other commands of an order in a batch taken for duplicates",
        (
            Edit("next_turn[change.record_key] = turn + 1", "next_turn[change.record_key] = turn"),
            Edit(
                "self._pending = dict(self.by_key)",
                """
                self._all = changes
                self._pending = dict(self.by_key)
                """,
            ),
            Edit(
                "self._outcomes[key] for key in self.by_key)",
                "self._outcomes[change.record_key] for change in self._all)",
            ),
        ),
        (ONE_BATCH,),
    ),
    Mutant(
        "more taken back than was delivered",
        (
            Edit("if quantity > line.delivered + line.open:", "if False:"),
            Edit("is_early |= quantity > line.delivered", "is_early |= False"),
        ),
        (RETURNS,),
    ),
    _mutant(
        "the same return taken back twice",
        "if step.step_id == self.part.step_id:",
        "if False:",
        RETURNS,
    ),
    _mutant(
        "another return under a used id answered as replay",
        "return IdempotencyMatch.SAME_REQUEST if same else IdempotencyMatch.OTHER_REQUEST",
        "return IdempotencyMatch.SAME_REQUEST",
        "two returns under one id",
        within="OrderCommand",
    ),
    _mutant(
        "return into stock of which the books know nothing",
        "self.command.step(at, self.moved, versions)",
        "self.command.step(at, self.moved, {})",
        RETURNS,
    ),
    _mutant(
        "event that the bus refuses taken for published",
        'if "ErrorCode" not in answer',
        "if True",
        LIFE_TOLD,
        kind="refused",
    ),
    _mutant(
        "call that the bus refuses taken for published",
        "return [Refusal(code, str(error), is_shared=len(entries) > 1)]",
        "return [None]",
        LIFE_TOLD,
        kind="throttled",
    ),
    _mutant(
        "an order's next event sent with the one before",
        "unsent.setdefault(each.subject, deque())",
        "unsent.setdefault(each.id, deque())",
        LIFE_TOLD,
        kind="refused",
    ),
    _mutant(
        "changes forgotten when time runs out",
        "if report.left:",
        "if False:",
        LIFE_TOLD,
        kind="time",
        within="publish_events",
    ),
    _mutant(
        "every change of an order published as a new status",
        'is_news = before.get("status") != order["status"]',
        "is_news = True",
        LIFE_TOLD,
    ),
    _mutant(
        "tombstone published",
        "if after is None or (_is_tombstone(after) and",
        "if after is None or (False and",
        "publishing a tombstone filled in",
    ),
    _mutant(
        "page written whatever its version",
        '"#_version = :version AND #epoch = :epoch"',
        '"(#_version = :version OR #_version <> :version) AND #epoch = :epoch"',
        *(TAKEN_OVER, SALE_RECALL),
    ),
    _mutant(
        "page written whatever its epoch",
        '"#_version = :version AND #epoch = :epoch"',
        '"#_version = :version AND (#epoch = :epoch OR #epoch <> :epoch)"',
        "page made again",
    ),
    _mutant(
        "page made by two at once",
        'write.on("attribute_not_exists(#page)")',
        'write.on("attribute_not_exists(#page) OR attribute_exists(#page)")',
        "two visits that both have the depot",
    ),
    _mutant(
        "loan that ignores the threshold",
        "surplus = row.stock_count - max(0, row.low_stock_threshold) - 1",
        "surplus = row.stock_count - 1",
        LOAN,
    ),
    Mutant(
        "row that is lent sold to the last unit",
        (
            Edit(
                "return self.stock_count - max(0, self.low_stock_threshold) - 1",
                "return self.available",
            ),
            Edit("if after.lent_to and not after.may_be_lent:", "if False:", "domain"),
        ),
        (LOAN,),
    ),
    _mutant(
        "loan that names the depot alone",
        "row.lent_to | frozenset(range(reach + 1))",
        "row.lent_to | frozenset({DEPOT})",
        LOAN,
    ),
    Mutant(
        "fill beyond the reach",
        (
            Edit("there.reach < lane", "there.reach < 0"),
            Edit("if held is None or lane > held.reach:", "if False:"),
        ),
        (RECALL_FILL,),
    ),
    _mutant(
        "recall that leaves the depot free to fill",
        "self._set_reach(product_id, 0)",
        "",
        SALE_RECALL,
    ),
    _mutant(
        "recall that does not check a lane without units",
        "self._touched_pages[PageKey.of(lane, product_id)] = None",
        "",
        RECALL_FILL,
    ),
    _mutant(
        "recall that does not check the depot's page",
        """
        self._set_reach(product_id, 0)
        self._touched_pages[PageKey.of(DEPOT, product_id)] = None
        """,
        "self._set_reach(product_id, 0)",
        "recall of nothing against loan",
    ),
    _mutant(
        "lane left out of a recall, and its name removed",
        "self._set_row(replace(row, lent_to=row.lent_to - frozenset(lanes)))",
        "self._set_row(replace(row, lent_to=row.lent_to & {DEPOT}))",
        RECALL_FILL,
    ),
    Mutant(
        "units reclaimed while a lane was left out",
        (
            Edit(
                "is_reclaimed = self._to_row is not None and row.lent_to <= {DEPOT, *lanes}",
                "is_reclaimed = self._to_row is not None",
            ),
            Edit("if self.row(product_id).lent_to - {DEPOT}:", "if False:"),
        ),
        (DISCONTINUED, COUNT_LANE),
    ),
    _mutant(
        "row as a source that leaves units at the depot",
        "for product_id in next(iter(self._in_portions(to_reclaim, _FEW_LOANS)), ()):",
        "for product_id in ():",
        *(SALE_RECALL, LAST_IN_LANE),
    ),
    _mutant(
        "depot as a source that leaves units in the lane",
        "allocation.give_back(lane, product_id)",
        "pass",
        LAST_IN_LANE,
    ),
    _mutant(
        "rejected while lanes may hold more",
        "return bool(self.lent_to)",
        "return False",
        TWO_LOSSES,
    ),
    _mutant(
        "rejected for want of units in a page",
        "is_partial: ClassVar = True",
        "is_partial: ClassVar = False",
        "lease on a row that is lent",
    ),
    _mutant(
        "row and pages of one read taken for one moment",
        "self._to_reclaim |= new",
        """
        from inventory_orders.domain.allotments import PageKey
        from inventory_orders.engine.retrying_client import read
        pages = [PageKey.of(lane, p) for lane in range(3) for p in new]
        found = read(self._client, [*new, *pages], batch.deadline, batch.stats)
        for product_id in new:
            row = found.products[product_id]
            units = row.stock_count + sum(page.units(product_id) for page in found.pages.values())
            if units < max(-change.delta for change in batch.pending):
                from dataclasses import replace
                reclaimed = replace(row, stock_count=units, lent_to=frozenset())
                batch.learn_row(product_id, reclaimed)
                return True
        self._to_reclaim |= new
        """,
        TWO_LOSSES,
        kind="torn",
    ),
    Mutant(
        "count without what is in lanes",
        (
            Edit(
                """
                if lease.product.lent_to:
                    lease._reclaim(deadline)
                """,
                "",
            ),
            Edit('"AND attribute_not_exists(#lentTo)"', '""'),
        ),
        (COUNT_LANE,),
    ),
    _mutant(
        "delisted without a recall",
        "(wanted is None or not _next",
        "(wanted is not None and not _next",
        "delist and relist against fill",
    ),
    _mutant(
        "another incarnation delisted",
        "if update.before.created_at != product.created_at:",
        "if False:",
        "delist against delist and relist, lent again",
    ),
    Mutant(
        "changed before all its units are reclaimed",
        (
            Edit(
                "for update in transaction.updates if not update.after.lent_to]",
                "for update in transaction.updates]",
            ),
            Edit("if after.lent_to and not after.may_be_lent:", "if False:", "store"),
        ),
        (DISCONTINUED,),
    ),
    Mutant(
        "discontinued without a recall",
        (
            Edit("(wanted is None or not _next(before, wanted).may_be_lent)", "wanted is None"),
            Edit("if after.lent_to and not after.may_be_lent:", "if False:", "store"),
        ),
        (DISCONTINUED,),
    ),
    _mutant(
        "reclaimed without the change that needs it",
        "self._actions(update.before, whole, change(whole))",
        "self._actions(update.before, whole, whole)",
        DISCONTINUED,
    ),
    _mutant(
        "loss that takes what must stay in the row",
        "and not product.may_change_by(delta)",
        "and product.stock_count + delta < 0",
        "loss against lane",
    ),
    _mutant(
        "FIFO group torn by a visit",
        "return self._needs_depot(decision) or decision.change.group in groups",
        "return self._needs_depot(decision)",
        "FIFO group against visit",
    ),
    _mutant(
        "decided by remembered stock",
        "if batch.from_cache and (planned.rejects or planned.missing):",
        "if False:",
        "order by remembered stock against receipt",
    ),
    _mutant(
        "a lost race taken for poison",
        'return None, "CONTENTION"',
        'return Verdict.POISON, "REFUSED_BY_DYNAMODB"',
        LAST_UNIT,
    ),
    _mutant(
        "a repetition answered with a want of stock",
        "self._read_together(product_ids, list(some))",
        "pass",
        CORRECTION,
    ),
    _mutant(
        "stock and record read one after the other",
        "partial(self._client.store.read_together, keys)",
        "partial(self._client.store.read, keys[-1:], consistent_records=True)",
        CORRECTION,
        kind="parted",
    ),
    _mutant(
        "a count looked up without its product",
        "client.store.read_together([key.product_id, key])",
        "client.store.read([key], consistent_records=True)",
        "one count, committed twice at once",
        kind="parted",
    ),
    _mutant(
        "a lost lease reported without a fence",
        """
        try:
            self.release(deadline)
        """,
        """
        try:
            pass
        """,
        "count, asked again after its lease",
        kind="late",
    ),
    _mutant(
        "lane remembered after a transaction that was not applied",
        "if not is_applied and transaction.pages:",
        "if False:",
        TAKEN_OVER,
    ),
    _mutant(
        "lane remembered past its own lease",
        "if not kept or self._lease is None:",
        "if self._lease is None:",
        "page restored while its owner slept",
    ),
    _mutant(
        "depot that forgets what it was emptied of",
        "self._emptied[key].add(product_id)",
        "pass",
        LAST_IN_LANE,
    ),
    _mutant(
        "line that names a version that it did not make",
        "if (entries, emptied) == (page.entries, page.emptied) and key not in self._sold_from:",
        "if (entries, emptied) == (page.entries, page.emptied):",
        "last unit to lend",
    ),
    Mutant("the literature: read, then put", (), (LAST_UNIT,), kind="", handler="read_then_put.py"),
    Mutant(
        "the literature: a conditional decrement",
        (),
        (TWICE,),
        kind="lost",
        handler="conditional_decrement.py",
    ),
)
