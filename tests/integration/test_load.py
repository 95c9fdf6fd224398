"""A catalogue is loaded on the embedded AWS: interrupted twice, and complete and exact in the end."""

import signal
import time

import pytest

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.product import NewProduct
from operations.audit import read_books
from operations.catalogue_file import CatalogueFile, Line, read_catalogue
from operations.load import Done, Load
from testing.faults import lose_responses
from tests.support.parallel import in_threads
from tests.support.stack import COMMAND, cli, in_the_background

COUNT = 240


def stock_of(number):
    return 10 + number % 7 + (3 if number % 2 else 0)


def accounts(shop, prefix):
    books = read_books(shop.aws)
    return {a.product_id: a for a in books.accounts if a.product_id.startswith(prefix)}


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "catalogue.csv"
    lines = ["action,productId,openingStock,name,delta,reason"]
    lines += [f"create,load-{n:04},{10 + n % 7},Product {n},," for n in range(COUNT)]
    lines += [f"adjust,load-{n:04},,,3,RECEIPT" for n in range(1, COUNT, 2)]
    lines += [f"changeDetails,load-{n:04},,New name,," for n in range(0, COUNT, 40)]
    path.write_text("\n".join(lines) + "\n")
    return path


def interrupt(shop, path, by, after):
    """Load slowly, and send a signal once so many products are there. Returns the exit status."""
    with in_the_background(COMMAND, "load", str(path), "--rate", "40") as process:
        while shop.product(f"load-{after:04}") is None:
            assert process.poll() is None, "it was through before it was interrupted"
            time.sleep(0.02)
        process.send_signal(by)
        return process.wait(60)


def test_a_load_that_is_interrupted_twice_is_complete_and_exact(shop, catalogue):
    assert interrupt(shop, catalogue, signal.SIGTERM, 10) == 130
    assert interrupt(shop, catalogue, signal.SIGKILL, 50) == -signal.SIGKILL
    assert shop.product(f"load-{COUNT - 1:04}") is None
    done = cli("load", str(catalogue))
    assert f"{COUNT + COUNT // 2 + COUNT // 40:,} lines done" in done.stdout
    loaded = accounts(shop, "load-")
    assert {i: (a.on_hand, a.unexplained) for i, a in loaded.items()} == {
        f"load-{n:04}": (stock_of(n), 0) for n in range(COUNT)
    }
    versions = {i: a.version for i, a in loaded.items()}
    again = Load(read_catalogue(catalogue), shop.store)
    again.run()
    assert (again.bad, again.done[Done.THERE]) == ([], COUNT)
    assert {i: a.version for i, a in accounts(shop, "load-").items()} == versions
    assert shop.product("load-0040").name == "New name"


def test_lost_responses_and_rivals_with_the_same_file_double_nothing(shop):
    """Two people load one file at the same time, and each loses answers."""
    file = CatalogueFile(
        [Line(n, NewProduct(f"twice-{n:03}", 5)) for n in range(120)],
        adjustments=[Line(n, Adjustment(f"twice-{n:03}", "r", 2, "RECEIPT")) for n in range(120)],
    )
    loads = []
    for _ in range(2):
        store = shop.new_store()
        lose_responses(store._client, "TransactWriteItems", 2)
        loads.append(Load(file, store))
    in_threads(lambda number: loads[number].run(), 2)
    assert [load.bad for load in loads] == [[], []]
    created, booked = (
        sum(load.done[done] for load in loads) for done in (Done.CREATED, Done.BOOKED)
    )
    assert (created, booked) == (120, 120)
    assert [(a.on_hand, a.unexplained) for a in accounts(shop, "twice-").values()] == [(7, 0)] * 120
