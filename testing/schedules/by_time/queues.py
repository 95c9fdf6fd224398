"""Simulated queues, and the pollers through which Lambda receives from them."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from testing.schedules.by_time.latency import (
    BATCH_WINDOW_SECONDS,
    RECEIVE_SECONDS,
    RECEIVED_AT_ONCE,
    VISIBILITY_SECONDS,
)
from testing.schedules.scheduler import Scheduler, Task, VirtualExecutor


@dataclass(slots=True, eq=False)
class Message:
    """One message. All times are virtual seconds.

    Attributes:
        order_id: Id of its order.
        body: The message body.
        wanted: Units of its order, by product.
        sent: Its number in the order of sending.
        group: `MessageGroupId` in a FIFO queue, else None.
        deliveries: Number of receives so far.
        first_received: Time of the first receive.
        visible_at: When it becomes visible if it is returned.
    """

    order_id: str
    body: str
    wanted: Mapping[str, int]
    sent: int
    group: str | None = None
    deliveries: int = 0
    first_received: float = 0.0
    visible_at: float = 0.0


class Queue:
    """A standard queue, which delivers visible messages, including returned ones, in the order of sending.

    Source of that order: "generally delivered in the same order as they are sent",
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues.html

    Args:
        scheduler: Provides virtual time.
        sent: The messages, in the order of sending. The iterator may be endless.
        stays: Whether to wait for more when all messages have been settled.

    Attributes:
        closed: Whether it has stopped delivering.
        open: The messages that were received and are not settled yet, by order id.
    """

    def __init__(
        self, scheduler: Scheduler, sent: Iterable[Message], *, stays: bool = False
    ) -> None:
        self._scheduler = scheduler
        self._stays = stays
        self._sent = iter(sent)
        self._again: list[tuple[int, Message]] = []
        self._idle: list[Task] = []
        self.closed = False
        self.open: dict[str, Message] = {}

    @property
    def visible(self) -> int:
        """The number of waiting messages that were sent or returned since the start."""
        return len(self._again)

    def wait(self, most: int) -> list[Message]:
        """Receive messages, or wait for the first one, as long polling does.

        Returns no messages if all are settled or the queue is closed.
        """
        while not self.closed:
            received = self.receive(most)
            if received or not (self.open or self._stays):
                return received
            self._idle.append(self._scheduler.current)
            self._scheduler.block()
        return []

    def receive(self, most: int) -> list[Message]:
        """Receive visible messages."""
        now = self._scheduler.now
        received = self._visible(most)
        for message in received:
            message.deliveries += 1
            message.first_received = message.first_received or now
            message.visible_at = now + VISIBILITY_SECONDS
            self.open[message.order_id] = message
        return received

    def _visible(self, most: int) -> list[Message]:
        """Find visible messages: returned ones first, then undelivered ones."""
        taken = [heappop(self._again)[1] for _ in range(min(most, len(self._again)))]
        return [*taken, *islice(self._sent, most - len(taken))]

    def end(self, messages: Iterable[Message]) -> None:
        """Delete messages that were received."""
        for message in messages:
            del self.open[message.order_id]
        if not self.open:
            self._wake_idle()

    def give_back(self, messages: Sequence[Message]) -> None:
        """Return or send messages; each becomes visible at its time."""
        for moment in dict.fromkeys(message.visible_at for message in messages):
            group = [message for message in messages if message.visible_at == moment]
            self._scheduler.start(functools.partial(self._show, moment, group))

    def close(self) -> None:
        """Stop delivering."""
        self.closed = True
        self._wake_idle()

    def _show(self, moment: float, messages: Sequence[Message]) -> None:
        self._scheduler.sleep(moment - self._scheduler.now)
        for message in messages:
            heappush(self._again, (message.sent, message))
        self._wake_idle()

    def _wake_idle(self) -> None:
        while self._idle:
            self._scheduler.wake(self._idle.pop())


class FifoQueue(Queue):
    """A FIFO queue, which delivers each group in order. A group with a message in flight or hidden has to wait.

    A batch takes all messages of one group before it takes any of another:
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html

    Args:
        scheduler: Provides virtual time.
        sent: The messages, in the order of sending. The iterator may be endless.
        depth: Number of messages that wait in the queue, as long as there are more to send.
    """

    def __init__(self, scheduler: Scheduler, sent: Iterable[Message], depth: int) -> None:
        super().__init__(scheduler, sent)
        self._depth = depth
        self._count = 0
        self._waiting: defaultdict[str | None, list[tuple[int, Message]]] = defaultdict(list)
        self._out: Counter[str | None] = Counter()
        self._ready: list[tuple[int, str | None]] = []

    def _visible(self, most: int) -> list[Message]:
        """Find the oldest messages of the groups that have no message in flight."""
        for message in islice(self._sent, self._depth - self._count):
            self._add(message)
        taken: list[Message] = []
        while self._ready and len(taken) < most:
            _, group = heappop(self._ready)
            waiting = self._waiting[group]
            some = [heappop(waiting)[1] for _ in range(min(most - len(taken), len(waiting)))]
            self._out[group] += len(some)
            taken += some
        self._count -= len(taken)
        return taken

    def _add(self, message: Message) -> None:
        self._count += 1
        waiting = self._waiting[message.group]
        heappush(waiting, (message.sent, message))
        if len(waiting) == 1 and not self._out[message.group]:
            heappush(self._ready, (message.sent, message.group))

    def _came_back(self, group: str | None) -> None:
        """Record that a message of a group is no longer in flight or hidden."""
        self._out[group] -= 1
        if not self._out[group] and (waiting := self._waiting[group]):
            heappush(self._ready, (waiting[0][0], group))

    def end(self, messages: Iterable[Message]) -> None:
        """Delete messages that were received."""
        ended = list(messages)
        for message in ended:
            self._came_back(message.group)
        super().end(ended)
        self._wake_idle()

    def _show(self, moment: float, messages: Sequence[Message]) -> None:
        self._scheduler.sleep(moment - self._scheduler.now)
        for message in messages:
            # While the message counts as in flight, its group does not become ready twice.
            self._add(message)
            self._came_back(message.group)
        self._wake_idle()


class Poller:
    """Receives the batches of one worker, and gathers the next batch while the worker handles one.

    Args:
        scheduler: Provides virtual time.
        queue: The queue.
        most: Maximum number of messages in a batch.
        interval: Minimum number of seconds between the starts of two receives.
    """

    def __init__(self, scheduler: Scheduler, queue: Queue, most: int, interval: float) -> None:
        self._scheduler = scheduler
        self._queue = queue
        self._most = most
        self._interval = interval
        self._next_receive = 0.0
        self._window = BATCH_WINDOW_SECONDS if most > RECEIVED_AT_ONCE else 0.0

    def batches(self) -> Iterator[list[Message]]:
        """Yield batches until all messages are settled or the queue is closed."""
        ahead = VirtualExecutor(self._scheduler, 1)
        gathered = ahead.submit(self._gather)
        while (batch := gathered.result()) and not self._queue.closed:
            gathered = ahead.submit(self._gather)
            yield batch

    def _gather(self) -> list[Message]:
        """Receive until the batch is full or its window ends. The window begins with the first message."""
        self._call()
        batch = self._queue.wait(min(self._most, RECEIVED_AT_ONCE))
        ends = self._scheduler.now + self._window
        while len(batch) < self._most and self._scheduler.now < ends and not self._queue.closed:
            self._call()
            batch += self._queue.receive(min(self._most - len(batch), RECEIVED_AT_ONCE))
        return batch

    def _call(self) -> None:
        """Let the time of a receive pass, once the next one may start."""
        starts = max(self._scheduler.now, self._next_receive)
        self._next_receive = starts + self._interval
        self._scheduler.sleep(starts + RECEIVE_SECONDS - self._scheduler.now)
