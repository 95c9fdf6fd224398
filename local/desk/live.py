"""What happens in a stack, as it happens, for all pages at once: one queue on its bus while any page listens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from operations.aws import Aws
from operations.errors import UserError
from operations.follow import Heard, listening

News = dict[str, Any]
"""An `event`; that something `changed` which no event tells of; or a `problem`, after which no more comes. Empty: a beat."""

_BEAT_SECONDS = 1.0
# A page that is so far behind has gone away, or reads everything again anyway.
_MOST_WAITING = 10_000


class Live:
    """Listens to a stack as long as any page does.

    Args:
        stack: Finds the stack, which may be deployed again at any time.
        look: Looks at what no event tells of; the pages hear of it when its answer changes.
        seconds: Between two looks.
        heard: Called with each event, also while no page shows it.
    """

    def __init__(
        self,
        stack: Callable[[], Aws],
        look: Callable[[], object],
        seconds: float,
        heard: Callable[[Heard], None] = lambda _: None,
    ) -> None:
        self._stack = stack
        self._look = look
        self._seconds = seconds
        self._heard = heard
        self._lock = Lock()
        self._pages: set[Queue[News]] = set()
        self._thread: Thread | None = None
        self._closed = False

    def news(self) -> Generator[News, None, None]:
        """Yield what happens until the caller closes this, or `close` is called; at least once a second something empty."""
        page: Queue[News] = Queue(_MOST_WAITING)
        with self._lock:
            self._pages.add(page)
            if self._thread is None:
                self._thread = Thread(target=self._listen, daemon=True)
                self._thread.start()
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

    def close(self, seconds: float) -> None:
        """Stop listening, and wait for that for so many seconds at most: what it takes on AWS is removed then."""
        self._closed = True
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _listen(self) -> None:
        try:
            with listening(self._stack()) as listen:
                self._pass_on(listen)
        except (UserError, BotoCoreError, ClientError) as error:
            self._tell({"problem": str(error)})
            with self._lock:
                self._thread = None

    def _pass_on(self, listen: Callable[[float], Any]) -> None:
        seen, look_at = None, 0.0
        while self._goes_on():
            if time.monotonic() >= look_at:
                now = self._look()
                self._tell({"changed": True} if seen not in (None, now) else {})
                seen, look_at = now, time.monotonic() + self._seconds
            for each in listen(_BEAT_SECONDS):
                self._heard(each)
                self._tell({"event": each.event})
            self._tell({})

    def _goes_on(self) -> bool:
        """Whether any page listens. With the last one the thread ends, and the next one starts another."""
        with self._lock:
            if self._pages and not self._closed:
                return True
            self._thread = None
            return False

    def _tell(self, news: News) -> None:
        with self._lock:
            for page in self._pages:
                if not page.full():
                    page.put(news)
