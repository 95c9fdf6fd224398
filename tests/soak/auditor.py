"""Audits the shop while it is open, and checks that audits report exactly the units that were removed by hand."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from types import TracebackType

from operations.audit import read_books
from operations.aws import Aws
from tests.support.by_hand import add_by_hand

PAUSE_SECONDS = 2.0
AUDITS_BEFORE_THE_THEFT = 2
_THEFTS = {
    "stockCount": {"available": -1, "committed": 1},
    "onHand": {"on_hand": -1, "committed": -1},
}
"""The units that an audit reports as unexplained after one unit was removed from an attribute of a row."""


class Auditor:
    """Runs one audit after another in its own thread while its context is open.

    Args:
        aws: The stack.
        keys: The keys of the product rows from which it removes units.

    Attributes:
        audits: Number of audits so far.
        wrong: The results of wrong audits, which were false alarms or missed a theft, by product.
        thefts_found: The attributes and rows from which a unit was removed and reported as missing.
    """

    def __init__(self, aws: Aws, *keys: str) -> None:
        self._aws = aws
        self._thefts = list(product(keys, _THEFTS.items()))
        self.audits = 0
        self.wrong: list[dict[str, dict[str, int] | tuple[str, ...]]] = []
        self.thefts_found: list[str] = []
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._work: Future[None] | None = None

    @property
    def is_right(self) -> bool:
        """Whether no audit was wrong, and each theft was found."""
        return len(self.thefts_found) == len(self._thefts) and not self.wrong

    def __enter__(self) -> Auditor:
        self._work = self._pool.submit(self._run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._pool.shutdown()
        if error is None and self._work is not None:
            self._work.result()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            self._audit({})
            if self.audits == AUDITS_BEFORE_THE_THEFT:
                for key, (attribute, loss) in self._thefts:
                    add_by_hand(self._aws, key, -1, attribute)
                    if self._audit({key: loss}):
                        self.thefts_found.append(f"{attribute} of {key}")
                    add_by_hand(self._aws, key, 1, attribute)

    def _audit(self, expected: Mapping[str, Mapping[str, int]]) -> bool:
        accounts = read_books(self._aws).accounts
        found = {a.product_id: a.unexplained or a.problems for a in accounts if a.is_wrong}
        self.audits += 1
        if found != expected:
            self.wrong.append(found)
        return found == expected
