"""Schemathesis sends signed requests to the API, and finds no answer that breaks its contract."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.api import ROUTES
from local import ROOT
from operations.http_api import HttpApi


def test_the_running_api_keeps_its_contract(aws):
    seconds = os.environ.get("API_SECONDS")
    # The long run of `make explore` uses new random data, tries the limits of every route's values, and also follows
    # links from one answer to the next request. The short run tries the limits of placing and listing orders.
    usual = ("--max-examples", "3", "--seed", "1", "--phases", "examples,fuzzing")
    with_limits = ("--phases", "examples,coverage,fuzzing")
    if seconds:
        usual = ("--max-time", seconds, "--max-examples", "1000")

    def tested(paths, *more):
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "run", "docs/openapi.yaml"),
                *("--url", HttpApi.of(aws).url, *usual, "--workers", "1", "--no-color"),
                *("--include-path-regex", paths, *more),
                # API Gateway answers 404 to unknown routes and methods alike. The embedded AWS does not verify
                # signatures of an HTTP API, only the claimed identity, which tests/e2e/test_api.py covers. A delete of a
                # generation that is gone is a success, also where another one has the same id.
                *("--exclude-checks", "unsupported_method,ignored_auth,use_after_free"),
                *("--generation-database", "none"),
            ],
            cwd=ROOT,
            env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.support.signed_requests"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return int(re.search(r"Tested: (\d+)", done.stdout)[1])

    # Two processes, which mostly wait for answers. Threads of one process would not work: Python 3.11's parser counts
    # its recursion depth across threads, and Hypothesis parses code.
    # Links lead from orders to one order's routes, so the long run keeps these together.
    of_orders = "orders" if seconds else "orders$"
    # While a count holds a product's lease, an order for it cannot be cancelled, so a 503 is right. The short run sends
    # both from one process, one after the other. The long run cannot, but no link leads to a count.
    others = f"^/(?!{of_orders}|counts)" if seconds else f"^/(?!{of_orders})"
    with ThreadPoolExecutor(2) as pool:
        orders = pool.submit(tested, f"^/{of_orders}", *(() if seconds else with_limits))
        routes = tested(others) + orders.result()
    if seconds:
        routes += tested("^/counts", *with_limits)
    assert routes == len(ROUTES)
