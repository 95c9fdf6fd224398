"""Verifies a deployed stack with test traffic, and by asking AWS about its resources."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.domain.location import in_words
from inventory_orders.errors import StoreError

from ..errors import UserError
from . import stack, traffic
from .report import CheckFailedError, Line, Report, State, what_went_wrong
from .run import Run

Check = Callable[[Run], list[Line]]

CHECKS: Mapping[str, Check] = traffic.CHECKS | stack.CHECKS
"""All checks by name, in the sequence in which they run. Each can be run alone."""

TITLES = {next(iter(traffic.CHECKS)): "Traffic", next(iter(stack.CHECKS)): "The stack"}
"""The headings of the report, by the name of the first check below each."""


def run_check(name: str, run: Run) -> list[Line]:
    """Run one check. It never raises: an error becomes a failed line."""
    try:
        return CHECKS[name](run)
    except (CheckFailedError, UserError) as error:
        return [Line(name, State.FAILED, str(error))]
    except (StoreError, BotoCoreError, ClientError) as error:
        return [Line(name, State.FAILED, what_went_wrong(error))]


def verify(
    run: Run,
    report: Report,
    only: Collection[str] = (),
    on_line: Callable[[str, Line], None] = lambda _, __: None,
) -> None:
    """Run the checks in sequence, and clean up in any case.

    Args:
        run: The run, with its stack.
        report: Filled while the checks run, so that it can be used after an interruption.
        only: Names of checks; empty for all.
        on_line: Called with each line and the check that it belongs to.
    """
    began = time.monotonic()
    run.patience += run.deployed.batching_window
    try:
        for name in CHECKS:
            if only and name not in only:
                continue
            run.say(name)
            for line in run_check(name, run):
                report.lines.append((name, line))
                on_line(name, line)
        report.finished = True
    finally:
        run.say("cleaning up")
        report.figures = run.figures
        # If the cleanup is interrupted, the report keeps this line.
        report.left = [f"{in_words(key)}: still listed" for key in run.products]
        report.left = run.clean_up()
        report.seconds = time.monotonic() - began
