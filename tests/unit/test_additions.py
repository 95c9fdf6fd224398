"""Adding a reason or an action in one place makes checks fail at every other place that must change."""

import os
import shutil
import subprocess
import sys

import pytest

from local import ROOT

REASON = """
    NOT_ON_SALE = (
        "NOT_ON_SALE",
        "{subject} is not on sale yet",
        403,
        CustomerWords("{products} will be on sale soon", "a product will be on sale soon"),
    )
"""

REJECTS_AN_ORDER = """
        if product.created_at > "2100":
            return RejectionReason.NOT_ON_SALE
"""

IS_SHOWN = """
from docs_generator import pages
from infra import watched
from inventory_orders.api.requests import problem_of
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.outcomes import UnsuccessfulError, rejected

outcome = rejected(Rejection(RejectionReason["NOT_ON_SALE"], "tea"))
answer = problem_of(UnsuccessfulError(outcome)).answer
assert (answer.status, answer.document["detail"]) == (403, "tea is not on sale yet")
assert "| `NOT_ON_SALE` | X is not on sale yet |" in pages.all_codes()
assert "rejections/NOT_ON_SALE" in str(watched.sections(60, api=True))
"""

MISSES = """
import runpy
import pytest

checks = runpy.run_path("tests/unit/test_codes.py")
with pytest.raises(AssertionError) as failed:
    checks["test_every_place_that_lists_{things}_has_all_of_them"]()
assert "{place}" in str(failed.traceback[-1].statement)
"""

ACTION = """
    LOSE = "lose", False, "lost", "losses"
"""


@pytest.fixture
def package(tmp_path):
    source = ROOT / "layers" / "core" / "python" / "inventory_orders"
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(source, tmp_path / "inventory_orders", ignore=ignored)


def add(file, before, text):
    """Insert lines into a module, before a given text."""
    source = file.read_text("utf-8")
    assert source.count(before) == 1
    file.write_text(source.replace(before, text.strip("\n") + "\n" + before), "utf-8")


def run(package, *arguments):
    """Run Python with the copy in place of the package, and return its exit status and output."""
    places = os.pathsep.join(map(str, (package.parent, ROOT)))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": places, "MYPYPATH": places},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_adding_a_reason_takes_a_list_entry_and_a_name_in_the_contracts(package):
    add(package / "domain" / "rejection.py", "    BELOW_FLOOR = (\n", REASON)
    add(
        package / "domain" / "order.py",
        "        if product.sellable < self.quantities[product_of(product_id)]:\n",
        REJECTS_AN_ORDER,
    )
    missed = MISSES.format(things="the_reasons_of_rejected_orders", place="ORDER_SCHEMA")
    assert run(package, "-c", IS_SHOWN + missed) == (0, "")


def test_an_action_has_all_its_columns(package):
    add(package / "domain" / "record.py", '    RETURN = "return"', '    LOSE = "lose", None')
    status, shown = run(package, "-c", "import inventory_orders.domain.record")
    assert status == 1
    assert "not enough values to unpack" in shown


def test_an_action_has_to_be_implemented_and_listed(package, tmp_path):
    add(package / "domain" / "record.py", '    RETURN = "return"', ACTION)
    missed = MISSES.format(things="actions_on_orders", place="commands")
    assert run(package, "-c", missed) == (0, "")
    options = ("--strict", "--cache-dir", str(tmp_path / "cache"))
    status, shown = run(
        package, "-m", "mypy", *options, str(package / "domain" / "order_command.py")
    )
    assert status == 1
    assert "Literal[OrderAction.LOSE]" in shown
