"""Checks that the tests catch every planted bug, or only those that a test file must catch, such as `test_audit`."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.planted.bugs import BUGS, Bug

PROCESSES = 2


def main(wanted: str = "") -> int:
    """Try the bugs whose test files have this text in their names. Returns the exit code: 1 if a bug was missed."""
    bugs = [bug for bug in BUGS if any(wanted in test for test in bug.tests)]
    missed = 0
    with ThreadPoolExecutor(PROCESSES) as pool:
        for bug, test in zip(bugs, pool.map(Bug.failing_test, bugs), strict=True):
            print(f"{bug.name}: {test or 'MISSED'}", flush=True)
            missed += not test
    print(f"{len(bugs) - missed} of {len(bugs)} bugs caught")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
