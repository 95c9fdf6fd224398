"""Tells all open pages what is happening in a stack, using one queue that receives the events of the bus."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.errors import InventoryOrdersError
from operations.aws import Aws
from operations.errors import UserError
from operations.follow import Heard, listening

News = dict[str, Any]
"""An `event`, a note that something `changed` without an event, or a `problem`, which is the last item. A heartbeat is empty."""

_BEAT_SECONDS = 1.0
# After this many heartbeats without an answer from AWS, there are no more: events may be waiting.
_MOST_UNANSWERED = 5
# Counts survive while the user moves from one page to another.
_LINGER_SECONDS = 60.0
# A page with more unread news has gone away, or will reload everything anyway.
_MOST_WAITING = 10_000

# A receiver gets at most ten events per request, so several work in parallel when many arrive. Each costs money while it waits.
_RECEIVERS = 6
_BUSY = 30

_EXPECTED = (UserError, InventoryOrdersError, BotoCoreError, ClientError)
_Listen = Callable[[float], Iterator[Heard]]


def reason(error: Exception) -> str:
    """Explain an error in words. If it is a bug in the desk, also log it."""
    if isinstance(error, _EXPECTED):
        return str(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


class Live:
    """Listens to the events of a stack while any page is open, and for a minute after the last one has closed.

    Args:
        stack: Finds the stack, which may be deployed again at any time.
        look: Reads state that can change without an event. It is called every few seconds; when its answer changes, the
            pages are told.

    Attributes:
        heard: Called with each event, possibly by several threads at once.
        since: When it last began to listen, in Unix seconds.
    """

    def __init__(
        self, stack: Callable[[], Aws], look: Callable[[], object], seconds: float
    ) -> None:
        self.heard: Callable[[Heard], None] = lambda _: None
        self.since = 0.0
        self._stack = stack
        self._look = look
        self._seconds = seconds
        self._lock = Lock()
        self._pages: set[Queue[News]] = set()
        self._left_at = 0.0
        self._is_listening = False
        self._threads: list[Thread] = []
        self._closed = False

    def news(self) -> Generator[News, None, None]:
        """Yield news, and a heartbeat at least once a second, until the generator is closed or `close` is called."""
        page: Queue[News] = Queue(_MOST_WAITING)
        with self._lock:
            self._pages.add(page)
            if not self._is_listening:
                self._is_listening = True
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                self._threads.append(Thread(target=self._listen, daemon=True))
                self._threads[-1].start()
        try:
            while not self._closed:
                with contextlib.suppress(Empty):
                    news = page.get(timeout=2 * _BEAT_SECONDS)
                    yield news
                    if "problem" in news:
                        return
        finally:
            with self._lock:
                self._pages.discard(page)
                self._left_at = time.monotonic()

    def close(self, seconds: float) -> None:
        """Stop listening. Wait at most `seconds` until the queue and the rule have been removed from AWS."""
        self._closed = True
        until = time.monotonic() + seconds
        # The thread of a page that was closed before may still be removing its queue.
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _listen(self) -> None:
        try:
            while self._goes_on():
                aws = self._stack()
                with listening(aws) as listen:
                    self.since = time.time()
                    self._pass_on(aws, listen)
        except Exception as error:
            self._tell({"problem": reason(error)})
            with self._lock:
                self._is_listening = False

    def _pass_on(self, aws: Aws, listen: _Listen) -> None:
        """Pass events and changes on to the pages, until no page is open or the stack has been deployed with another bus."""
        seen, look_at, count, unanswered = None, 0.0, 0, 0
        running = set[Future[int]]()
        with ThreadPoolExecutor(_RECEIVERS) as pool:
            while self._goes_on() and self._stack().outputs == aws.outputs:
                if unanswered < _MOST_UNANSWERED:
                    self._tell({})
                if time.monotonic() >= look_at:
                    now = self._what_is_seen()
                    if seen not in (None, now):
                        self._tell({"changed": True})
                    seen, look_at = now, time.monotonic() + self._seconds
                wanted = _RECEIVERS if count > _BUSY else 1
                more = range(wanted - len(running))
                running |= {pool.submit(self._receive, listen) for _ in more}
                done, running = wait(running, _BEAT_SECONDS)
                count = sum(each.result() for each in done)
                unanswered = 0 if done else unanswered + 1

    def _what_is_seen(self) -> object:
        try:
            return self._look()
        # A page that reads the same state shows the error itself.
        except _EXPECTED as error:
            return str(error)

    def _receive(self, listen: _Listen) -> int:
        """Pass on the events received in one interval. Returns how many there were."""
        count = 0
        for each in listen(_BEAT_SECONDS):
            self.heard(each)
            self._tell({"event": each.event})
            count += 1
        return count

    def _goes_on(self) -> bool:
        """Whether a page is open, or was within the last minute. If not, the thread ends, and the next page starts another."""
        with self._lock:
            has_left = time.monotonic() - self._left_at
            if not self._closed and (self._pages or has_left < _LINGER_SECONDS):
                return True
            self._is_listening = False
            return False

    def _tell(self, news: News) -> None:
        with self._lock:
            for page in self._pages:
                if not page.full():
                    page.put(news)
