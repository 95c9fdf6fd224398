"""A shop with many workers, staff and customers in one process, in which a random process moves next.

As in the exploration, processes pause before every AWS call, and all invariants are checked after every write. A seed decides who moves, which faults happen, and what people do, so a run can be repeated exactly.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from operations.audit import read_books
from testing.schedules.by_chance.people import (
    PRODUCTS,
    Mail,
    Staff,
    answers,
    mails,
    orders_over_http,
)
from testing.schedules.result import Failure, Result
from testing.world.checked import GO, CheckedWorld
from testing.world.faults import BACK, FAULTS, faults_of
from testing.world.process import Call, Client, CrashedError, Process
from testing.world.tables import FEEDS
from testing.world.violation import ViolationError, require

ORDERS = 300
_WORKERS = {
    "Order": 4,
    "OrderFifo": 2,
    "OrderExpress": 2,
    "Stock": 2,
    "Catalogue": 2,
    "OrderCommand": 3,
    "Expiry": 2,
    "sweep": 2,
    "caller": 4,
}
_LANES = 3
_SHARE_OVER_HTTP = 0.3
_SHARE_OF_PAUSES = 0.15
# A caller repeats an order that was not answered, as often as this.
_TRIES = 20
_TURNS_OF_STAFF = 12
# The messages of a run are sent within this time, without counting the time that passes because of faults.
_SENDING_SECONDS = 30.0
_SHARE_OF_FAULTS = 0.06
_SHARE_OF_BROWN_OUTS = 0.3
# Events wait, so that the publisher sends several of an order in a batch.
_SHARE_OF_READS_OF_STREAMS = 0.1
_SHARE_OF_ARRIVALS = 0.02
_JUMPS = (1.0, 5.0, 40.0)
_SHARE_OF_JUMPS = 0.001
_SHARE_OF_REDELIVERIES = 0.005
_MAX_STEPS = 60_000
_CLOCKS = (-120.0, 0.0, 0.0, 120.0)
_SECONDS_BETWEEN_SWEEPS = 10.0
_SECONDS_BETWEEN_AUDITS = 20.0

# A failure shows this many steps.
_LAST = 60

HAPPENED = {
    *(fault.name for fault in FAULTS),
    *("late request arrived", "again", "time"),
    *("INVALID_JSON", "SCHEMA_VIOLATION", "ORDER_ID_REUSED"),
    *("order PENDING", "order CONFIRMED", "order FULFILLED", "order CANCELLED", "order EXPIRED"),
    *("order INSUFFICIENT_STOCK", "order UNKNOWN_PRODUCT", "units in lanes", "units owed"),
    *("order PURCHASE_LIMIT", "line charged to buyers", "change APPLIED"),
    *("order split", "order not from its first location", "entries folded", "delist APPLIED"),
    *("audit", "line from a lane of the API"),
    *("answer 200", "answer 201", "answer 202", "answer 409"),
    *("step fulfil", "step cancel", "step cancel without restock", "step return", "step expire"),
    *("commit COMMITTED", "commit REFUSED", "transfer APPLIED", "transfer REFUSED"),
}
"""What must happen in some of many seeds."""

_INVALID = {"INVALID_JSON", "SCHEMA_VIOLATION"}
_REUSED = {"ORDER_ID_REUSED", "ADJUSTMENT_ID_REUSED"}


class Town(CheckedWorld):
    """One run.

    Args:
        seed: Decides everything that happens.
        orders: Number of orders.

    Attributes:
        happened: How often each kind of fault and each outcome happened.
    """

    lanes = _LANES
    small_batch = 2
    max_steps = _MAX_STEPS
    max_invocations = _MAX_STEPS

    def __init__(self, seed: int, orders: int = ORDERS) -> None:
        self._chance = random.Random(seed)
        self._orders = orders
        self.happened = Counter[str]()
        self._heard = 0
        self._mail: list[tuple[float, int, Mail]] = []
        self._numbers = count()
        self._at_work = 0
        names = [f"{name}{number}" for name, n in _WORKERS.items() for number in range(n)]
        clocks = {name: self._chance.choice(_CLOCKS) for name in names}
        super().__init__(clocks, PRODUCTS)

    def begin(self) -> None:
        """Start the workers, the staff, and what customers send."""
        super().begin()
        for table in ("Orders", "Products"):
            self.follow(f"of{table}", table)
        over_http = round(self._orders * _SHARE_OVER_HTTP)
        from_queues = self._orders - over_http
        orders = orders_over_http(self._chance, from_queues, over_http)
        for name in self.clocks:
            if name.startswith("sweep"):
                self.add(Process(name, self._sweep))
            elif name.startswith("caller"):
                self._let_call(name, orders)
            else:
                self.serve(name, name.rstrip("0123456789"))
        self.add(Process("auditor", self._audit))
        self._staff = [self._hire(name, work) for name, work in self._jobs().items()]
        for mail in mails(self._chance, from_queues):
            self._post(mail, self._chance.uniform(0.0, _SENDING_SECONDS))

    # ------------------------------------------------------------------ processes

    def batch_size(self) -> int:
        return self._chance.choice((1, 2, 3, 10))

    def _let_call(self, name: str, orders: Iterator[dict[str, Any]]) -> None:
        """Start a caller that places orders over HTTP in an environment of its own, in rushes, and waits for each outcome."""

        def script(client: Client) -> None:
            for body in orders:
                if self._chance.random() < _SHARE_OF_PAUSES:
                    self.sleep(self._chance.uniform(0.0, _SENDING_SECONDS / 5))
                for _ in range(_TRIES):
                    status = client("api", body).get("statusCode", 503)
                    client.process.clock = self.clocks[name]
                    if status != 503:
                        break
                    self.sleep(1.0)
            self._at_work -= 1

        self._at_work += 1
        self.client(name, script)

    def _sweep(self, process: Process) -> None:
        client = Client(self, process)
        while not self.is_closing:
            self.sleep(_SECONDS_BETWEEN_SWEEPS)
            answer = client("sweep", {"action": "sweep"})
            self.happened["entries folded"] += answer.get("folded", 0)
            process.clock = self.clocks[process.name]

    def _audit(self, process: Process) -> None:
        """Audit the open shop. An audit must not report a problem that is only a change between two of its reads."""
        while not self.is_closing:
            self.sleep(_SECONDS_BETWEEN_AUDITS)
            books = read_books(self.stack)
            accounts = [each for each in books.accounts if each.is_wrong]
            found = {each.product_id: each.unexplained or each.problems for each in accounts}
            require(not found, f"an audit of the open shop found {found}")
            require(not books.purchases, f"an audit found {books.purchases}")
            self.happened["audit"] += 1

    def _jobs(self) -> dict[str, Callable[[Staff], None]]:
        def since(key: str) -> str:
            row = self.row("Products", key)
            return str(row["createdAt"]) if row else ""

        return {
            "counter": Staff.count,
            "walker": Staff.count_as_of_a_time,
            "mover": Staff.transfer,
            "till": Staff.decrement,
            "keeper": Staff.limit,
            "buyer": lambda staff: staff.relist(since),
        }

    def _hire(self, name: str, work: Callable[[Staff], None]) -> Staff:
        staff = Staff(name, lambda *_: {}, self.sleep, self._chance)

        def script(client: Client) -> None:
            staff.ask = client
            for _ in range(_TURNS_OF_STAFF):
                self.sleep(self._chance.uniform(0.0, 5.0))
                work(staff)
            self._at_work -= 1

        self._at_work += 1
        self.client(name, script)
        return staff

    def sleep(self, seconds: float) -> None:
        """Let the calling process wait while others continue."""
        process = self.current
        if process is None:
            super().sleep(seconds)
            return
        until = self.clock.seconds + seconds
        if until > process.ends_at:
            self._violations.append(f"{process.name} waits beyond the end of its invocation")
            process.crashing = True
            raise CrashedError
        self.answer("clock", "Wait", {"until": until})

    def seen(self, service: str, operation: str, request: dict[str, Any]) -> Call:
        if service == "clock":
            return Call(service, operation, request, frozenset(), frozenset())
        return super().seen(service, operation, request)

    def _apply(self, process: Process, call: Call) -> Any:
        return {} if call.service == "clock" else super()._apply(process, call)

    # ------------------------------------------------------------------ moving

    def live(self, most: int | None = None) -> None:
        """Let random processes move until nothing is left to do, and check the end.

        Args:
            most: Stop after this many steps.

        Raises:
            ViolationError: An invariant does not hold.
        """
        while self._move():
            self._send_mail()
            self._answer_events()
            if self.steps_taken == most:
                return
        self.check_end()

    def _move(self) -> bool:
        """Take a step. Returns False if nothing is left to do."""
        chance = self._chance
        late = [each for each in self.late if each.repeated]
        if late and chance.random() < _SHARE_OF_ARRIVALS:
            self.happened["late request arrived"] += 1
            self.tick()
            self.arrive(late[0])
            return True
        ready = [process for process in self.processes.values() if self._is_ready(process)]
        if not ready:
            return self._wait()
        if chance.random() >= _SHARE_OF_READS_OF_STREAMS:
            ready = [process for process in ready if not self._reads_stream(process)] or ready
        if chance.random() < _SHARE_OF_JUMPS:
            self.happened["time"] += 1
            self.jump(chance.choice(_JUMPS))
            return True
        process = chance.choice(ready)
        if self.clock.seconds >= process.ends_at:
            # Its invocation has run out of time.
            self.jump(0.0)
            return True
        self.tick()
        self.make_call(process, self._draw(process))
        if chance.random() < _SHARE_OF_REDELIVERIES:
            self._redeliver()
        return True

    def _draw(self, process: Process) -> str:
        """Choose whether a fault hits the next call of a process."""
        forced, call = self.forced(process), process.call
        is_at_work = call is not None and call.service != "clock" and math.isfinite(process.ends_at)
        if forced != GO or not is_at_work:
            return forced
        is_event = call is not None and call.operation == "PutEvents"
        if self._chance.random() >= (_SHARE_OF_BROWN_OUTS if is_event else _SHARE_OF_FAULTS):
            return GO
        drawn = self._chance.choice([name for name, _ in faults_of(self, process)] or [GO])
        self.happened[drawn.removesuffix(BACK)] += drawn != GO
        return drawn

    def _is_ready(self, process: Process) -> bool:
        call = process.call
        if process.is_over or call is None:
            return False
        if call.service == "clock":
            return bool(self.clock.seconds >= call.request["until"])
        return not self.has_no_news(process)

    @staticmethod
    def _reads_stream(process: Process) -> bool:
        return process.call is not None and process.call.service == "streams"

    def _wait(self) -> bool:
        """If something is left to do, move the clock to the next moment at which a process can continue."""
        calls = [p.call for p in self.processes.values() if p.call is not None and not p.is_over]
        messages = [m for q in self._feeds() for m in q.messages]
        orders = self.aws.dynamodb.tables["Orders"].items
        is_held = any("expiresAt" in item for item in orders.values())
        # A publisher may wait until the bus takes its events.
        is_busy = any(math.isfinite(process.ends_at) for process in self.processes.values())
        if not (self._mail or messages or self._at_work or is_held or is_busy):
            return False
        moments = [call.request["until"] for call in calls if call.service == "clock"]
        moments += [message.visible_at for message in messages]
        moments += [self._mail[0][0]] if self._mail else []
        self.clock.seconds = min(moment for moment in moments if moment > self.clock.seconds)
        return True

    def _feeds(self) -> Iterator[Any]:
        return (self.queues[name] for name in FEEDS)

    def _redeliver(self) -> None:
        """Deliver a message again while it is being processed, as only standard queues do."""
        now = self.clock.seconds
        hidden = [
            m
            for queue in self._feeds()
            if not queue.is_fifo
            for m in queue.messages
            if m.visible_at > now
        ]
        if hidden:
            self.happened["again"] += 1
            self._chance.choice(hidden).visible_at = now

    # ------------------------------------------------------------------ messages and events

    def _post(self, mail: Mail, seconds: float) -> None:
        """Send a message some seconds from now."""
        heappush(self._mail, (self.clock.seconds + seconds, next(self._numbers), mail))

    def _send_mail(self) -> None:
        while self._mail and self._mail[0][0] <= self.clock.seconds:
            _, _, mail = heappop(self._mail)
            more = {} if mail.group is None else {"MessageGroupId": mail.group}
            (message_id,) = self.send(mail.feed, mail.text, **more)
            body = json.loads(mail.text) if mail.valid else {}
            self.sent[message_id] = (FEEDS[mail.feed].function, body, mail.group)
            if not mail.valid:
                self.invalid.add(message_id)

    def _answer_events(self) -> None:
        """Let customers answer the events that are new on the bus."""
        taken = self.aws.bus.taken
        news, self._heard = taken[self._heard :], len(taken)
        for event in news:
            data = event["detail"]["data"]
            kind = event["detail-type"] if "orderId" in data else ""
            for command in answers(kind, data, self._chance):
                mail = Mail("OrderCommand", json.dumps(command))
                for _ in range(2 if self._chance.random() < 0.15 else 1):
                    self._post(mail, self._chance.expovariate(0.2))

    # ------------------------------------------------------------------ the end

    def check_end(self) -> None:
        """Check that the run ended well, and count what happened."""
        super().check_end()
        self._check_dead_letters()
        self._check_strangers()
        self._count()

    def _check_dead_letters(self) -> None:
        """Check that invalid messages became dead letters, and of the others only those that reuse an id."""
        for message_id, (_, body, _) in self.sent.items():
            is_invalid = message_id in self.invalid
            for code in self.error_codes(message_id):
                self.happened[code] += 1
                allowed = _INVALID if is_invalid else _REUSED
                require(code in allowed, f"{body or message_id} was dead-lettered as {code}")

    def _check_strangers(self) -> None:
        """Check that every order and adjustment belongs to a message, a command or the start."""
        bodies = [body for _, body, _ in self.sent.values()]
        bodies += [command for _, command, _ in self.answers]
        ids = {body.get("orderId") for body in bodies}
        ids |= {body.get("adjustmentId", body.get("transferId")) for body in bodies}
        for table, name in (("Orders", "orderId"), ("StockAdjustments", "adjustmentId")):
            for row in self.rows(table):
                is_ours = row.get("reason") in ("OPENING", "CLOSING")
                require(is_ours or row[name] in ids, f"nothing asked for {row}")

    def _count(self) -> None:
        """Count what happened in the run."""
        happened = self.happened
        for row in self.rows("Orders"):
            happened[f"order {row.get('reason', row['status'])}"] += 1
            used = [line.get("locationId", "") for line in row["items"]]
            if row["status"] != "REJECTED" and used:
                happened["order split"] += len(set(used)) > 1
                happened["order not from its first location"] += (
                    used[0] != row.get("locations", [""])[0]
                )
                happened["line charged to buyers"] += any(
                    "limitGroup" in each for each in row["items"]
                )
                happened["units owed"] += sum(line.get("backordered", 0) for line in row["items"])
                pages = [line.get("lanePage", "0/0") for line in row["items"]]
                happened["line from a lane of the API"] += f"{_LANES + 1}" in {
                    page.partition("/")[0] for page in pages
                }
            for step in row.get("steps", ()):
                lost = " without restock" if step.get("restock") is False else ""
                happened[f"step {step['action']}{lost}"] += 1
        for change in self.history:
            happened["units in lanes"] += "lentTo" in (change.after or {})
        for function, _, answer in self.answers:
            if function == "api":
                happened[f"answer {answer['statusCode']}"] += 1
        for staff in self._staff:
            happened.update(f"{action} {result}" for action, result in staff.results)


def run(seed: int, orders: int = ORDERS) -> Result:
    """Run a town from a seed."""
    result, town = Result(schedules=1), Town(seed, orders)
    with town.open():
        try:
            town.begin()
            town.live()
        except ViolationError as violation:
            last = tuple(town.trace[-_LAST:])
            result.failure = Failure(str(violation), last, str(seed), 0, 0, {})
    result.longest, result.happened = town.steps_taken, town.happened
    return result
