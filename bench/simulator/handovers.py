"""Hand-overs of earlier orders, while new ones are placed and the sweep runs.

The backlog of confirmed orders never runs out. The row of each of these orders is written, as the service would have
written it, when its command is sent. It is removed after the hand-over, so that the table stays small.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import nan
from statistics import fmean
from typing import Any

from bench.capacity import Call
from bench.contenders import OURS
from bench.figures import SceneFigures, percentile
from bench.simulator.callers import RETRY_SECONDS
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import CREATED_AT, PLENTY, Workload, endless
from inventory_orders.domain.outbound import OUTBOUND_KEYS, Generation, OutboundPage
from inventory_orders.domain.record import (
    OrderAction,
    OrderLine,
    OrderRecord,
    OrderStatus,
    Step,
)
from inventory_orders.store.rows import encode, order_row
from local import ROOT
from local.invoke import read_event
from testing.aws import Item
from testing.schedules.by_time.queues import Message, Queue
from testing.schedules.by_time.world import Worker

COMMANDS = 10
"""Commands of one invocation, as in the stack."""

_DONE, _LATER = 200, 503


class HandOvers(Simulation):
    """An endless stream of orders, and hand-overs of earlier ones.

    Args:
        workload: The orders. The backlog has orders of the same kind.
        workers: Number of order workers.
        sweep_each: Seconds between the starts of two sweeps.
        earlier: Number of hand-overs on the outbound pages at the start.
        seed: Seed of all randomness.
        conditions: The conditions of the run.
    """

    def __init__(
        self,
        workload: Workload,
        workers: int,
        sweep_each: float,
        earlier: int,
        seed: int,
        conditions: Conditions,
    ) -> None:
        self._sweep_each = sweep_each
        self._earlier = earlier
        self._attempts: list[tuple[float, bool, int]] = []
        super().__init__(OURS, workload, workers, seed, conditions)

    def _fill_tables(self) -> None:
        """Write the opening rows. The units of the backlog are on hand, but not in stock.

        Earlier hand-overs are on the outbound pages, as they would be between two sweeps.
        """
        super()._fill_tables()
        products = self.items("Products")
        orders = endless(self._workload, self._seed + 3)
        for key in OUTBOUND_KEYS:
            outbound: Counter[str] = Counter()
            for _, _, wanted in islice(orders, self._earlier // len(OUTBOUND_KEYS)):
                outbound.update(wanted)
            units = {Generation(name, CREATED_AT): count for name, count in outbound.items()}
            self._put_page(OutboundPage(key, 1, "earlier", units))
            self._books.owed.subtract(outbound)
        for product_id, units_in_stock in self._workload.stock.items():
            on_hand = {"N": str(units_in_stock + PLENTY)}
            products[product_id,] = products[product_id,] | {"onHand": on_hand}
            self._books.owed[product_id] += PLENTY

    def _start_workers(self) -> None:
        super()._start_workers()
        self.sweep(self._sweep_each)

    def _backlog(self) -> Iterator[Message]:
        """Write confirmed orders, each with the command that hands it over."""
        kinds = {f"earlier-{order_id}": body for order_id, body in self._workload.bodies.items()}
        orders = endless(replace(self._workload, bodies=kinds), self._seed + 2)
        rows = self.items("Orders")
        for sent, (order_id, _, wanted) in enumerate(orders):
            rows[order_id,] = _confirmed(order_id, wanted)
            command = json.dumps({"action": "fulfil", "orderId": order_id})
            yield Message(order_id, command, wanted, sent)

    def _see(self, call: Call) -> None:
        """Record the attempts to hand over."""
        if any(map(_hands_over, call.actions)):
            handed_over = sum(1 for _ in call.order_ids) if call.ok else 0
            self._attempts.append((call.exchange.ended, call.is_conflict, handed_over))

    def _enter_hand_over(self, message: Message) -> None:
        """Enter a hand-over into the books, and delete the order's row, which is no longer needed."""
        row = self.items("Orders").pop((message.order_id,))
        if row["status"] == {"S": OrderStatus.FULFILLED}:
            self._books.owed.subtract(message.wanted)
        else:
            self._lost += 1

    def _enter_unanswered(self, message: Message) -> None:
        """Enter an unanswered hand-over into the books, if the order's row shows that it happened."""
        row = self.items("Orders")[message.order_id,]
        if row["status"] == {"S": OrderStatus.FULFILLED}:
            self._enter_hand_over(message)

    def result(self) -> SceneFigures:
        """Compute the figures, including those of the hand-overs."""
        began, window = self.observed.began, self.observed.window or nan
        counted = [one for one in self._attempts if began < one[0] <= began + window]
        return replace(
            super().result(),
            handed_over=sum(units for _, _, units in counted) / window,
            again=fmean(is_conflict for _, is_conflict, _ in counted) if counted else nan,
        )


class QueuedHandOvers(HandOvers):
    """Hand-overs by commands from the queue, which is never empty.

    Args:
        command_workers: Number of workers that carry out the commands.
        others: As for `HandOvers`.
    """

    def __init__(self, command_workers: int, *others: Any) -> None:
        super().__init__(*others)
        self._command_workers = command_workers
        self._commands = self.polled["OrderCommand"] = Queue(self.scheduler, self._backlog())

    def _start_workers(self) -> None:
        super()._start_workers()
        for _ in range(self._command_workers):
            self.scheduler.start(self._hand_over, Worker("change_orders", "OrderCommand"))

    def _hand_over(self) -> None:
        for batch in self.serve(COMMANDS):
            for message in batch:
                if message.order_id not in self._commands.open:
                    self._enter_hand_over(message)

    def result(self) -> SceneFigures:
        """Compute the figures."""
        for message in self._commands.open.values():
            self._enter_unanswered(message)
        return super().result()


@dataclass(slots=True)
class _Call:
    """A hand-over that an operator requests.

    Attributes:
        message: The order.
        began: When the first call began, in virtual seconds.
        asked_again: Whether an answer asked the operator to try again.
        ended: When the last call was answered, in virtual seconds.
    """

    message: Message
    began: float
    asked_again: bool = False
    ended: float = nan


class CalledHandOvers(HandOvers):
    """Hand-overs by operators who call `POST /orders/{orderId}/fulfil` at random moments.

    There are as many execution environments as concurrent calls need, and a call gets the most recently used idle one.
    The API's limit is left out, and so is the time taken by API Gateway and by starting an invocation.

    Args:
        calls_a_second: Average number of hand-overs that begin each second.
        others: As for `HandOvers`.
    """

    def __init__(self, calls_a_second: float, *others: Any) -> None:
        super().__init__(*others)
        self._calls_a_second = calls_a_second
        self._idle: list[Worker] = []
        self._answered: list[_Call] = []
        self._unexpected = 0
        self._event = read_event(ROOT / "events" / "api.json", "api")
        self._event["routeKey"] = "POST /orders/{orderId}/fulfil"
        self._event["body"] = ""

    def _start_workers(self) -> None:
        super()._start_workers()
        self.scheduler.start(self._arrive, self.scheduler)

    def _arrive(self) -> None:
        """Begin hand-overs at random moments until the window ends."""
        chance = random.Random(f"operators {self._seed}")
        for message in self._backlog():
            self.scheduler.sleep(chance.expovariate(self._calls_a_second))
            if self.is_closed:
                break
            self._send(_Call(message, self.scheduler.now))

    def _send(self, call: _Call) -> None:
        """Begin a call in an idle environment, or in a new one."""
        idle = self._idle
        environment = idle.pop() if idle else Worker("api")
        self.scheduler.start(partial(self._hand_over, call), environment)

    def _hand_over(self, call: _Call) -> None:
        """Call the API to hand over an order, and repeat the call later if the answer says so."""
        status = self._status_of(call.message.order_id)
        self._idle.append(self.scheduler.owner)
        if status == _LATER:
            call.asked_again = True
            self.scheduler.sleep(RETRY_SECONDS)
            if self.is_closed:
                self._enter_unanswered(call.message)
            else:
                self._send(call)
            return
        self._unexpected += status != _DONE
        self._enter_hand_over(call.message)
        call.ended = self.scheduler.now
        self._answered.append(call)

    def _status_of(self, order_id: str) -> int:
        """Call the API. Returns the status of the answer."""
        path = {"rawPath": f"/orders/{order_id}/fulfil", "pathParameters": {"orderId": order_id}}
        return self.request(self._event | path)

    def result(self) -> SceneFigures:
        """Compute the figures of the calls, with requests and units per hand-over."""
        began, window = self.observed.began, self.observed.window or nan
        counted = [call for call in self._answered if began < call.ended <= began + window]
        seen, tally = super().result(), self.observed.tally
        return replace(
            seen,
            rate=0.0,
            requests=tally.calls / (len(counted) or nan),
            write_units=self._write_units() / (len(counted) or nan),
            p99=percentile([call.ended - call.began for call in counted], 99),
            again=fmean(call.asked_again for call in counted) if counted else nan,
            clean=seen.clean and not self._unexpected,
        )


def _hands_over(action: tuple[str, Mapping[str, Any]]) -> bool:
    kind, content = action
    fulfilled = {"S": OrderStatus.FULFILLED}
    return kind == "Update" and fulfilled in content["ExpressionAttributeValues"].values()


def _confirmed(order_id: str, wanted: Mapping[str, int]) -> Item:
    """The row of a confirmed order that was sold from a lane."""
    lines = (
        OrderLine(product_id, units, CREATED_AT, lane_page="1/0", lane_version=1_000)
        for product_id, units in wanted.items()
    )
    order = OrderRecord(
        order_id,
        "user",
        tuple(lines),
        OrderStatus.CONFIRMED,
        *(2, CREATED_AT, CREATED_AT),
        confirmed_at=CREATED_AT,
        steps=(Step(OrderAction.CONFIRM, CREATED_AT),),
    )
    return encode(order_row(order))
