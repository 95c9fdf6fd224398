"""Loading a catalogue: each line takes effect once, whatever already exists and whatever fails."""

import itertools
import os
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.adjustment import Decrement
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import CatalogueEvent
from inventory_orders.engine import memory
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import StoreUnavailableError, ThrottledError
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.products.lease import Lease
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.tables import Table
from local import ROOT
from local.commands.main import app
from operations import load as loading
from operations.catalogue_file import Change, read_catalogue
from operations.commands import load as load_command
from operations.currency import Currency
from operations.errors import UserError
from operations.load import Done, Load
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import lend
from testing.schedules.in_turn.shop import Fault
from testing.world.clock import FakeClock
from testing.world.faults import lose_responses
from tests.support.movements import record_movements
from tests.support.parallel import in_threads
from tests.support.shelf import Shelf, codes, findings

HEADER = "action,productId,openingStock,name,price,adjustmentId,delta,reason\n"
MIXED = HEADER + (
    "create,p,10,Pi,314,,,\n"
    "create,q,20,,,,,\n"
    "changeDetails,p,,Tau,628,,,\n"
    "adjust,p,,,,r-1,5,RECEIPT\n"
    "adjust,q,,,,,-2,CORRECTION\n"
)


@pytest.fixture(autouse=True)
def one_worker(monkeypatch):
    """Load with one worker, so that the results are known even if a load stops."""
    monkeypatch.setattr(loading, "_WORKERS", 1)


@pytest.fixture
def shelf(shop, tmp_path):
    return Shelf(shop, tmp_path / "catalogue.csv")


def many(count, prefix="p"):
    return HEADER + "".join(f",{prefix}-{n:03},{n},,,,,\n" for n in range(count))


def test_a_file_is_carried_out_and_a_second_time_changes_nothing(shelf):
    first = shelf.load(MIXED)
    assert first.bad == []
    assert first.done == {Done.CREATED: 2, Done.CHANGED: 1, Done.BOOKED: 2}
    p = shelf.product("p")
    assert (p.stock_count, p.name, p.price, p.version) == (15, "Tau", 628, 3)
    assert shelf.product("q").stock_count == 18
    rows = shelf.rows()
    again = shelf.load()
    assert again.bad == []
    assert again.done == {Done.THERE: 2, Done.SAME: 1, Done.BOOKED_BEFORE: 2}
    assert shelf.rows() == rows


def test_a_check_shows_what_would_be_done_and_writes_nothing(shelf):
    content = (
        MIXED + "adjust,p,,,,r-2,-16,CORRECTION\nadjust,s,,,,,1,RECEIPT\nchangeDetails,s,,,,,,\n"
    )
    checks = [shelf.check(content)]
    loads = [shelf.load()]
    assert codes(loads[0]) == [
        (7, "p", "BELOW_FLOOR"),
        *((line, "s", "UNKNOWN_PRODUCT") for line in (8, 9)),
    ]
    assert "16 to remove, 15 available" in loads[0].bad[1].message
    checks.append(shelf.check(content))
    loads.append(shelf.load())
    for check, load in zip(checks, loads, strict=True):
        assert check.done == load.done
        assert codes(check) == codes(load)


@pytest.mark.parametrize(
    ("row", "other"),
    [
        ("create,p,11,Pi,314,,,", "openingStock"),
        ("create,p,10,Pie,314,,,", "name"),
        ("create,p,10,,314,,,", "name"),
        ("create,p,10,Pi,315,,,", "price"),
    ],
)
def test_creating_an_existing_different_product_is_a_bad_line(shelf, row, other):
    shelf.load(HEADER + "create,p,10,Pi,314,,,\n")
    rows = shelf.rows()
    content = HEADER + f"{row}\n"
    for load in shelf.check_and_load(content):
        assert codes(load) == [(2, "p", "PRODUCT_EXISTS")]
        assert f"with another {other}; nothing was changed" in load.bad[0].message
        assert not load.done
    assert shelf.rows() == rows


def test_a_price_list_keeps_names_an_empty_cell_removes_them_and_the_check_lists_it(shelf):
    shelf.load(MIXED)
    prices = "productId,price\np,79\nq,1250\n"
    wanted = [(2, "p", "price from 628 to 79"), (3, "q", "price set to 1250")]
    assert findings(shelf.check(prices)) == findings(shelf.load(prices)) == wanted
    p = shelf.product("p")
    assert (p.name, p.price, p.price_changed_at) == ("Tau", 79, p.details_event_time)
    again = shelf.load()
    assert (again.done, again.findings) == ({Done.SAME: 2}, [])
    empty = "productId,name,price\np,,79\nq,,1250\n"
    wanted = [(2, "p", 'name "Tau" removed')]
    assert findings(shelf.check(empty)) == findings(shelf.load(empty)) == wanted
    assert (shelf.product("p").name, shelf.product("p").price) == (None, 79)


def test_a_check_adds_up_the_lines_before(shelf):
    content = (
        "action,productId,openingStock,name,price\n"
        "create,p,5,Pi,314\nchange,p,,Tau,314\ndiscontinue,p,,,\n"
    )
    wanted = [(3, "p", 'name from "Pi" to "Tau"'), (4, "p", "discontinued")]
    assert findings(shelf.check(content)) == findings(shelf.load(content)) == wanted


def test_a_limit_that_would_forget_units_on_backorder_is_refused(shelf):
    shelf.load("productId,openingStock,backorderLimit\np,1,5\n")
    shelf.shop.do(Order("o", "u", {"p": 4}))
    content = "productId,backorderLimit\np,2\n"
    for load in shelf.check_and_load(content):
        assert codes(load) == [(2, "p", "BELOW_FLOOR")]
        assert "3 units of p are on backorder, so the limit cannot be 2" in load.bad[0].message
    assert shelf.load("productId,backorderLimit\np,3\n").done == {Done.CHANGED: 1}


def test_a_concurrent_change_between_read_and_write_is_kept(shelf, monkeypatch):
    shelf.load(MIXED)
    apply, rivals = Change.applied_to, ["Rho"]

    def late(change, product):
        if rivals:
            event_time = product.details_event_time
            rival = Change("p", {"name": rivals.pop()}, {}, event_time, "load-z")
            ProductCatalogue(RetryingClient(shelf.store)).update_with_retry(
                "p", lambda now: apply(rival, now), shelf.shop.soon()
            )
        return apply(change, product)

    monkeypatch.setattr(Change, "applied_to", late)
    assert shelf.load("productId,price\np,79\n").done == {Done.CHANGED: 1}
    assert (shelf.product("p").name, shelf.product("p").price) == ("Rho", 79)


COUNTS = "productId,counted,reference\np,12,November\nq,18,November\n"


def test_counts_are_booked_and_loading_the_same_file_again_books_nothing(shelf):
    shelf.load(MIXED)
    shelf.begin_count()
    wanted = [(2, "p", "counted 12, corrected by -3")]
    assert findings(shelf.check(COUNTS)) == wanted
    first = shelf.load(COUNTS)
    assert (first.bad, findings(first), first.done) == ([], wanted, {Done.COUNTED: 2})
    (record,) = [
        shelf.store.get(line.content.record_key)
        for line in shelf.file().counts
        if line.content.product_id == "p"
    ]
    assert (record.reason, record.counted, record.delta) == ("COUNT", 12, -3)
    assert record.notes == {"reference": "November"}
    shelf.shop.do(Order("o", "u", {"p": 5}))
    rows = shelf.rows()
    for load in shelf.check_and_load(COUNTS):
        assert (load.bad, load.findings, load.done) == ([], [], {Done.COUNTED_BEFORE: 2})
    assert shelf.rows() == rows
    assert shelf.product("p").stock_count == 7


def test_a_count_includes_open_orders_and_fails_for_an_unknown_product(shelf):
    shelf.load(MIXED)
    shelf.shop.do(Order("o", "u", {"p": 5, "q": 5}))
    shelf.begin_count()
    content = "productId,counted\np,14\nq,4\nr,1\n"
    for load in shelf.check_and_load(content):
        assert findings(load) == [(2, "p", "counted 14, corrected by -1")]
        assert codes(load) == [(3, "q", "BELOW_FLOOR"), (4, "r", "UNKNOWN_PRODUCT")]
    p, q = map(shelf.product, "pq")
    assert (p.on_hand, p.stock_count) == (14, 9)
    assert (q.on_hand, q.stock_count, q.locked_by) == (18, 13, None)


def test_counts_that_cannot_be_booked_cost_the_others_nothing(shelf, monkeypatch):
    shelf.load(MIXED)
    monkeypatch.setattr(loading, "_LEASE_SECONDS", 0.3)
    shelf.shop.edit(Table.PRODUCTS, "bad")
    Lease.acquire(RetryingClient(shelf.store), "q", 30.0, shelf.shop.soon())
    shelf.begin_count()
    content = "productId,counted,adjustmentId\np,1,r-1\nq,1,\nbad,1,\nnew,1,\n"
    load = shelf.load(content)
    assert codes(load) == [
        *((2, "p", "ADJUSTMENT_ID_REUSED"), (3, "q", "LEASED")),
        *((4, "bad", "CORRUPT_PRODUCT"), (5, "new", "UNKNOWN_PRODUCT")),
    ]
    assert "load the file again" in load.bad[1].message
    assert codes(shelf.check(content)) == [each for each in codes(load) if each[1] != "q"]


def test_a_count_waits_for_the_lease_of_a_load_that_was_killed(shelf):
    shelf.load(MIXED)
    Lease.acquire(RetryingClient(shelf.store), "p", 0.2, shelf.shop.soon())
    shelf.begin_count()
    assert shelf.load("productId,counted\np,1\n").done == {Done.COUNTED: 1}


def test_two_loads_of_the_same_counts_book_each_once(shelf):
    """The second load, which found no record at first, reports that the count was booked before."""
    shelf.load(MIXED)
    shelf.begin_count()
    record_movements(shelf.shop, ahead=3600)
    file, loads = shelf.file(COUNTS), []
    read = loading._Reader.read

    def read_and_lose(self, keys):
        snapshot = read(self, keys)
        if not loads:
            loads.append(Load(file, shelf.store))
            loads[0].run()
        return snapshot

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading._Reader, "read", read_and_lose)
        second = Load(file, shelf.store)
        second.run()
    assert (loads[0].done, loads[0].bad) == ({Done.COUNTED: 2}, [])
    assert (second.done, second.bad) == ({Done.COUNTED_BEFORE: 2}, [])
    assert [shelf.product(each).locked_by for each in "pq"] == [None, None]
    assert shelf.product("p").stock_count == 12


def test_a_product_that_was_sold_and_renamed_since_counts_as_existing(shelf):
    shelf.load(HEADER + "create,p,10,Pi,314,,,\n")
    shelf.shop.do(Order("o", "u", {"p": 3}))
    event = CatalogueEvent("p", "e", timestamp(SystemClock().now()), {"name": "Tau"})
    ProductCatalogue(RetryingClient(shelf.store)).change_details(event, shelf.shop.soon())
    again = shelf.load()
    assert again.done == {Done.THERE: 1}
    assert "exists; kept name, price as changed at 20" in findings(again)[0][2]
    assert (shelf.product("p").stock_count, shelf.product("p").name) == (7, "Tau")


def test_a_check_includes_units_in_lanes(shelf):
    shelf.load(MIXED)
    lend(shelf.store, "p", 10, {1: 3})
    assert shelf.product("p").stock_count == 2
    everything = HEADER + "adjust,p,,,,out,-15,CORRECTION\n"
    assert shelf.check(everything).bad == []
    assert codes(shelf.check(everything.replace("-15", "-16"))) == [(2, "p", "BELOW_FLOOR")]


def test_a_change_that_came_after_the_file_was_saved_is_not_undone(shelf):
    shelf.load(MIXED)
    os.utime(shelf.path, (1_700_000_000, 1_700_000_000))
    for load in (Load(read_catalogue(shelf.path), shelf.store), shelf.load()):
        load.check()
        assert load.done[Done.STALE] >= 1
    assert shelf.product("p").name == "Tau"


def test_an_adjustment_that_was_refused_as_a_decrement_stays_refused(shelf):
    shelf.load(MIXED)
    shelf.shop.do(Decrement("p", "d", -99, "DECREMENT"))
    content = HEADER + "adjust,p,,,,r-2,100,RECEIPT\nadjust,p,,,,d,-99,DECREMENT\n"
    for load in shelf.check_and_load(content):
        assert codes(load) == [(3, "p", "BELOW_FLOOR")]
    assert shelf.product("p").stock_count == 115


def test_an_id_that_was_used_for_something_else(shelf):
    at = "2026-01-01T00:00:00.000000+00:00"
    shelf.load(MIXED)
    ProductCatalogue(RetryingClient(shelf.store)).change_details(
        CatalogueEvent("q", "e", timestamp(SystemClock().now() + timedelta(minutes=1)), {}),
        shelf.shop.soon(),
    )
    newest = shelf.product("q").details_event_time
    content = (
        "action,productId,adjustmentId,delta,reason,name,eventId,eventTime\n"
        "adjust,p,r-1,6,RECEIPT,,,\n"
        f"changeDetails,q,,,,Kuh,e,{newest}\n"
        f"changeDetails,p,,,,Pi,e,{at}\n"
    )
    for load in shelf.check_and_load(content):
        assert codes(load) == [(2, "p", "ADJUSTMENT_ID_REUSED"), (3, "q", "EVENT_ID_REUSED")]
        assert 'name (stored nothing, sent "Kuh")' in load.bad[0].message
        assert "(stored 5, sent 6)" in load.bad[1].message
        assert load.done == {Done.STALE: 1}


def test_a_corrupt_or_leased_product_delays_no_other(shelf, monkeypatch):
    monkeypatch.setattr(loading, "_LEASE_SECONDS", 0.3)
    shelf.load(many(3))
    shelf.shop.edit(Table.PRODUCTS, "bad")
    Lease.acquire(RetryingClient(shelf.store), "p-001", 30.0, shelf.shop.soon())
    content = HEADER + (
        "create,bad,1,,,,,\ncreate,new,1,,,,,\n"
        "changeDetails,bad,,,,,,\nchangeDetails,p-001,,,,,,\nchangeDetails,p-002,,Zwei,,,,\n"
        "adjust,bad,,,,,1,A\nadjust,p-001,,,,,1,A\nadjust,p-002,,,,,1,A\n"
    )
    load = shelf.load(content)
    assert load.done == {Done.CREATED: 1, Done.CHANGED: 1, Done.BOOKED: 1}
    assert codes(load) == [
        *((2, "bad", "CORRUPT_PRODUCT"), (4, "bad", "CORRUPT_PRODUCT"), (5, "p-001", "LEASED")),
        *((7, "bad", "CORRUPT_PRODUCT"), (8, "p-001", "LEASED")),
    ]
    assert all("load the file again" in bad.message for bad in load.bad if bad.code == "LEASED")
    check = shelf.check(content)
    assert (2, "bad", "CORRUPT_PRODUCT") in codes(check)


def test_a_load_that_is_stopped_is_finished_by_the_next_one(shelf, monkeypatch):
    monkeypatch.setattr(loading, "MAX_AT_ONCE", 5)
    seen = []

    def stop(lines):
        seen.append(lines)
        if len(seen) == 2:
            raise KeyboardInterrupt

    stopped = Load(shelf.file(many(13) + MIXED.removeprefix(HEADER)), shelf.store, None, stop)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert stopped.done == {Done.CREATED: 10}
    finished = shelf.load()
    assert finished.bad == []
    assert finished.done == {Done.THERE: 10, Done.CREATED: 5, Done.CHANGED: 1, Done.BOOKED: 2}
    assert [shelf.product(f"p-{n:03}").stock_count for n in range(13)] == list(range(13))


def test_lost_responses_and_concurrent_loads_of_a_file_double_nothing(
    simulated_store, tmp_path, monkeypatch
):
    """Two people load one file at the same time, each with several workers."""
    monkeypatch.setattr(loading, "_WORKERS", 3)
    rows = "productId,locationId,openingStock,delta,reason,action\n"
    for n in range(40):
        rows += "".join(f"p-{n},{place},{n},,,\n" for place in ("", "a", "b"))
        rows += f"p-{n},,,2,RECEIPT,adjust\n"
    path = tmp_path / "catalogue.csv"
    path.write_text(rows)
    loads = [Load(read_catalogue(path), simulated_store) for _ in range(2)]
    lose_responses(simulated_store._client, "TransactWriteItems", 4)
    in_threads(lambda number: loads[number].run(), 2)
    assert [load.bad for load in loads] == [[], []]
    done = sum((load.done for load in loads), Counter())
    assert [done[each] for each in (Done.CREATED, Done.LISTED, Done.BOOKED)] == [40, 80, 40]
    for n in range(40):
        assert simulated_store.get(f"p-{n}").stock_count == n + 2
        assert simulated_store.get(f"p-{n}").places == {"a", "b"}


def test_a_throttled_load_continues(shelf, monkeypatch):
    monkeypatch.setattr(loading, "POLICY", replace(loading.POLICY, cap=0.001))
    monkeypatch.setattr(memory, "_MAX_PACE", 0.001)
    slow_down = Fault(ServiceError("ThrottlingException", "slow down"))
    shelf.shop.planned["TransactWriteItems"].extend([slow_down] * 12)
    load = shelf.load(MIXED)
    assert (load.bad, load.done[Done.CREATED]) == ([], 2)


def test_a_load_without_access_stops_immediately(shelf):
    shelf.shop.refuse("TransactWriteItems", ServiceError("AccessDeniedException", "no"))
    load = Load(shelf.file(many(60)), shelf.store)
    with pytest.raises(StoreUnavailableError):
        load.run()
    assert not load.done


def test_a_rate_is_kept_and_existing_products_cost_no_time(shelf, monkeypatch):
    monkeypatch.setattr(loading, "MAX_AT_ONCE", 5)
    clock, shelf.shop.call_seconds = shelf.shop.clock, 0.0
    monkeypatch.setattr(loading.StoppableClock, "sleep", lambda _, seconds: clock.sleep(seconds))
    began = clock.seconds
    shelf.load(many(11), rate=20)
    assert clock.seconds - began == pytest.approx(0.5)
    began = clock.seconds
    assert shelf.load(rate=0.5).done == {Done.THERE: 11}
    assert clock.seconds == began


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("catalogue.csv", {Done.THERE: 2, Done.SAME: 1, Done.BOOKED_BEFORE: 1}),
        ("catalogue.jsonl", {Done.THERE: 2, Done.SAME: 1, Done.BOOKED_BEFORE: 1}),
        ("locations.csv", {Done.THERE: 1, Done.LISTED_BEFORE: 3}),
    ],
)
def test_the_sample_file_works_on_the_demos_shop(tea_shop, name, done):
    store = tea_shop.store
    file = read_catalogue(ROOT / "events" / name, Currency("EUR", 2))
    for _ in range(2):
        load = Load(file, store)
        load.check()
        assert (load.bad, load.done.total()) == ([], 4)
        load = Load(file, store)
        load.run()
        assert (load.bad, load.done.total()) == ([], 4)
    assert load.done == done


def test_the_lines_in_the_reference_are_those_of_the_samples():
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    shown, _ = re.findall(r"```csv\n(.*?)```", page, flags=re.DOTALL)
    sample = (ROOT / "events" / "catalogue.csv").read_text("utf-8").splitlines()
    assert [line for line in shown.splitlines() if line not in sample] == []


class TestTheCommand:
    @pytest.fixture
    def run(self, shelf, monkeypatch):
        aws = SimpleNamespace(
            store=lambda: shelf.store, locations=("",), currency=Currency("EUR", 2)
        )
        aws.has_movements = True
        record_movements(shelf.shop, ahead=3600)
        monkeypatch.setattr(load_command, "aws_of", lambda account: aws)
        # A file of bad lines takes no virtual time, but the command says how many lines it did in a second.
        monkeypatch.setattr(
            load_command, "time", SimpleNamespace(monotonic=itertools.count().__next__)
        )

        def run(*arguments, content=None, status=0):
            if content is not None:
                shelf.path.write_text(content)
            done = CliRunner().invoke(app, ["load", *map(str, arguments)], env={"COLUMNS": "300"})
            assert done.exit_code == status, (done.output, done.exception)
            return " ".join(done.output.split())

        return run

    def test_it_reports_bad_lines_until_there_are_none(self, shelf, run):
        report = shelf.path.with_name("catalogue.csv.errors.csv")
        said = run(
            shelf.path, "--check", content=MIXED.replace("create,q,20", "create,q,"), status=1
        )
        assert "nothing was written" in said
        assert shelf.rows()[Table.PRODUCTS] == {}
        said = run(shelf.path, status=1)
        assert f"Bad lines: 2. {report} lists all of them" in said
        assert "1 line: SCHEMA_VIOLATION, column openingStock (missing) line 3: opening" in said
        assert "1 line: UNKNOWN_PRODUCT line 6: there is no product q" in said
        assert [line[:2] for line in report.read_text().splitlines()[1:]] == ["3,", "6,"]
        assert "1 new product" in said
        run(shelf.path, content=MIXED)
        assert not report.exists(), "an old report could be mistaken for this load's"

    def test_it_takes_a_map_and_names_columns_as_the_file_does(self, shelf, run):
        content = "SKU,Vendor,Qty\np,x,4\nthe q,x,4\n"
        options = ("--map=SKU=productId", "--map=Qty=openingStock", "--map", "Vendor=")
        said = run(shelf.path, *options, content=content, status=1)
        assert "column SKU line 3: SKU: must be 1 to 64 printable" in said
        assert shelf.product("p").stock_count == 4

    def test_it_lists_changes_and_the_first_reasons(self, shelf, run):
        run(shelf.path, content=MIXED)
        content = "productId,price\np,12.5\n" + "".join(f"x y{n},1\n" for n in range(5))
        said = run(shelf.path, "--check", content=content, status=1)
        assert "what would happen 2 p price from 628.00 EUR to 12.50 EUR" in said
        assert said.count("productId: must be 1 to 64 printable") == 3
        assert shelf.product("p").price == 62800
        counts, at = "productId,counted\np,1\nq,2\n", timestamp(SystemClock().now())
        said = run(shelf.path, "--counted-at", at, content=counts)
        assert "2 p counted 1, corrected by -14" in said
        assert "2 count booked before" in run(shelf.path, "--counted-at", at)
        for time, why in (
            ("2026-11-20 18:00", "must be an RFC 3339"),
            ("2999-01-01T00:00:00Z", ""),
        ):
            with pytest.raises(UserError, match=f"^--counted-at: {why}"):
                app(["load", str(shelf.path), "--counted-at", time], standalone_mode=False)

    def test_the_report_goes_where_it_is_wanted(self, shelf, run, tmp_path):
        wanted = tmp_path / "elsewhere.csv"
        run(shelf.path, "--errors", wanted, content=HEADER + "create,p,x,,,,,\n", status=1)
        assert wanted.read_text().splitlines()[1].startswith("2,p,openingStock,x,SCHEMA_VIOLATION,")

    def test_a_long_price_list_is_summed_up_by_kind_and_listed_on_demand(self, shelf, run):
        rows = "".join(f"p-{n:02},{n + 1},P,\n" for n in range(30))
        run(shelf.path, content=f"productId,openingStock,name,price\n{rows}p-30,1,Q,9\n")
        prices = "".join(f"p-{n:02},P,{n}\n" for n in range(30)) + "p-30,,9\n"
        content = f"productId,name,price\n{prices}"
        said = run(shelf.path, "--check", "--all", content=content)
        assert said.count("price set to") == 30
        for options in (["--check"], []):
            said = run(shelf.path, *options)
            assert said.count("price set to") == 3
            # A removal is never hidden among the other changes.
            assert '32 p-30 name "Q" removed' in said
            assert "The first 3 of each kind; --all lists all 31. " in said
            assert "30 change: price changed 1 change: name removed 31 lines" in said

    def test_a_report_replaces_no_file_of_another_kind(self, shelf, run, tmp_path):
        said = run(shelf.path, "--errors", shelf.path, content=MIXED, status=2)
        assert "is not a report of bad lines; name another file" in said
        assert shelf.path.read_text() == MIXED
        assert "cannot be written" in run(
            shelf.path, "--errors", tmp_path / "nowhere" / "report.csv", status=2
        )
        assert shelf.rows()[Table.PRODUCTS] == {}

    def test_a_file_that_is_not_a_catalogue_is_an_error_in_one_line(self, shelf, run):
        """The error is printed without a box, so that the suggested command can be copied."""
        run(shelf.path.with_name("missing.csv"), status=2)
        run(shelf.path.parent, status=2)
        shelf.path.write_text('[{"productId": "p"}]')
        with pytest.raises(UserError, match=r"Convert it with: jq -c '.\[\]' catalogue.csv$"):
            app(["load", str(shelf.path)], standalone_mode=False)

    def test_it_reports_what_stopped_it_and_what_to_do(self, shelf, run, monkeypatch):
        shelf.shop.refuse("TransactWriteItems", ServiceError("AccessDeniedException", "no"))
        said = run(shelf.path, content=MIXED, status=1)
        assert "Not finished: DynamoDB failed (AccessDeniedException: no)" in said
        assert "run the same command again" in said
        monkeypatch.setattr(Load, "run", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        assert "it was interrupted" in run(shelf.path, status=130)


def test_a_read_that_stays_incomplete_is_an_error():
    """An incomplete read must not be taken to mean that a product does not exist."""
    clock = FakeClock()
    store = SimpleNamespace(read=lambda keys, **_: Snapshot(unprocessed=tuple(keys)))
    reader = loading._Reader(store, clock)
    with pytest.raises(ThrottledError, match="UNPROCESSED_KEYS"):
        reader.read(["p"])
