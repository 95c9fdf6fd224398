"""The model of lanes: capacity, transactions, the books and the fences of its policies, and what they lend."""

import json
import random
from dataclasses import replace

import pytest

from bench import workloads
from bench.simulator.lanes import depot, model, store, study
from bench.simulator.lanes.model import Scenario, simulate
from bench.simulator.lanes.store import Cancelled, Client, Item, Store, Table, Write
from simulated_aws.latency import PUBLISHED, Region
from simulated_aws.scheduler import Scheduler

ZIPF = workloads.zipf(200, 1)
HOT = workloads.hot_product(400, 1)
ENDING = Scenario(workers=4, depth=2.0, seconds=5.0)


class TestCapacity:
    def test_a_partition_takes_a_thousand_units_a_second(self):
        table = Table(4)
        assert table.take(0, 1000, 0.0)
        assert not table.take(0, 2, 0.0)
        assert table.take(0, 500, 0.5)

    def test_partitions_do_not_share_their_units(self):
        table = Table(2)
        assert table.take(0, 1000, 0.0)
        assert table.take(store.KEYS - 1, 1000, 0.0)
        assert not table.take(store.KEYS // 2 - 1, 2, 0.0)

    @pytest.mark.parametrize(("splits", "partitions"), [(True, 5), (False, 4)])
    def test_a_partition_that_stays_too_busy_splits_if_it_may(self, splits, partitions):
        table = Table(4, splits=splits)
        for second in range(int(store.SPLIT_SECONDS) + 1):
            table.take(0, 2000, second)
        assert table.partitions == partitions

    def test_a_partition_that_is_busy_now_and_then_does_not_split(self):
        table = Table(4, splits=True)
        for minute in range(20):
            table.take(0, 2000, 60.0 * minute)
        assert table.partitions == 4

    @pytest.mark.parametrize(("size", "units"), [(1, 2), (1024, 2), (1025, 4), (15_000, 30)])
    def test_a_write_in_a_transaction_costs_two_units_for_each_kb(self, size, units):
        assert store.write_units(size) == units


class TestTransactions:
    def setup_method(self):
        self.scheduler = Scheduler()
        region = Region(PUBLISHED, random.Random(1))
        self.store = Store(self.scheduler, region, Table(4), random.Random(1))
        self.table = Table(4)
        self.item = Item(self.table, 0, "before")

    def transact(self, *writes, after=0.0, orders=()):
        answers = []

        def call():
            self.scheduler.sleep(after)
            answers.append(self.store.transact("test", writes, orders))

        self.scheduler.start(call, Client())
        return answers

    def test_a_write_raises_the_version_and_a_check_does_not(self):
        checked = Item(self.table, 1, "same")
        done = self.transact(Write(self.item, 0, "after"), Write(checked, 0, None))
        self.scheduler.run()
        assert done == [None]
        assert (self.item.version, self.item.value) == (1, "after")
        assert (checked.version, checked.value) == (0, "same")

    def test_of_two_at_the_same_time_one_loses(self):
        first = self.transact(Write(self.item, 0, "first"))
        second = self.transact(Write(self.item, 0, "second"), after=0.005)
        self.scheduler.run()
        assert first == [None]
        assert second == [Cancelled({self.item})]
        assert self.item.value == "first"

    def test_an_old_version_loses_and_writes_nothing(self):
        other = Item(self.table, 1, "before")
        done = self.transact(Write(self.item, 7, "after"), Write(other, 0, "after"))
        self.scheduler.run()
        assert done == [Cancelled({self.item})]
        assert (self.item.value, other.value) == ("before", "before")

    def test_a_cancelled_transaction_burns_its_units(self):
        self.transact(Write(self.item, 7, "after", units=30), orders=[4, 4])
        self.scheduler.run()
        assert self.store.counts["write units"] == 38

    def test_a_throttled_transaction_names_the_table(self):
        self.table.take(0, 1000, 0.0)
        done = self.transact(Write(self.item, 0, "after", units=30))
        self.scheduler.run()
        assert done == [Cancelled(set(), {self.table})]


class TestPolicies:
    @pytest.mark.parametrize("policy", ["depot", "depot alone", "growing", "fixed", "one"])
    def test_every_unit_is_explained_when_the_stock_has_ended(self, policy):
        result = simulate(replace(ENDING, policy=policy), ZIPF, seed=1)
        assert result.faults == []
        assert result.placed < 1.0

    @pytest.mark.parametrize("policy", ["depot", "growing"])
    def test_a_seed_gives_the_same_figures_again_and_another_seed_others(self, policy):
        scenario = Scenario(policy=policy, workers=3, seconds=1.5)
        first, again, other = (simulate(scenario, ZIPF, seed) for seed in (1, 1, 2))
        assert first == again
        assert first.counts != other.counts

    def test_a_hot_product_is_sold_to_the_last_unit(self):
        result = simulate(replace(ENDING, until=0.0), HOT, seed=1)
        assert result.faults == []
        assert result.placed < 1.0


class TestFences:
    """A rule is dropped, and the check of the books and the rules must see it."""

    @pytest.mark.parametrize("policy", ["depot", "fixed"])
    def test_without_versions_units_are_lost_or_sold_twice(self, monkeypatch, policy):
        monkeypatch.setattr(store, "is_current", lambda *_: True)
        monkeypatch.setattr(Item, "is_claimed_by_another", lambda *_: False)
        assert simulate(replace(ENDING, policy=policy), ZIPF, seed=1).faults

    def test_safety_does_not_rest_on_the_lease_of_the_depot(self, monkeypatch):
        monkeypatch.setattr(Item, "is_claimed_by_another", lambda *_: False)
        result = simulate(ENDING, ZIPF, seed=1)
        assert result.faults == []
        assert result.counts["lost"] > 0

    def test_a_worker_that_dies_at_the_depot_stops_the_others_for_two_seconds(self, monkeypatch):
        stand_in_line = depot.DepotWorker._stand_in_line

        def die(self):
            found = stand_in_line(self)
            if self.number == 0 and self.now > 1.0:
                self.run.scheduler.block()
            return found

        monkeypatch.setattr(depot.DepotWorker, "_stand_in_line", die)
        result = simulate(Scenario(workers=3, depth=20.0, seconds=6.0), HOT, seed=1)
        assert result.faults == []
        assert all(answered > 0 for answered in result.by_second[4:6])

    def test_a_row_that_does_not_know_its_lanes_is_seen(self, monkeypatch):
        class Forgetful(depot.Depot):
            def __init__(self, *args):
                super().__init__(*args)
                self.wide = self.narrow

        monkeypatch.setattr(model, "Depot", Forgetful)
        assert simulate(ENDING, ZIPF, seed=1).faults

    def test_a_rejection_while_other_lanes_hold_units_is_seen(self, monkeypatch):
        def forget(self, draft, product):
            row = draft.row(product)
            draft.new_rows[product] = replace(row, lent=frozenset())

        monkeypatch.setattr(depot.DepotWorker, "_return_to_row", forget)
        assert simulate(ENDING, ZIPF, seed=1).faults

    def test_lent_down_to_the_last_unit_of_the_row_is_seen(self, monkeypatch):
        draw = depot.DepotWorker._draw

        def all_of_it(self, draft, *args):
            draw(self, draft, *args)
            for product, row in draft.new_rows.items():
                shelf = draft.stock[product % depot.PAGES]
                shelf[product] = shelf.get(product, 0) + row.stock
                draft.new_rows[product] = replace(row, stock=0)

        monkeypatch.setattr(depot.DepotWorker, "_draw", all_of_it)
        assert simulate(replace(ENDING, seconds=1.0), ZIPF, seed=1).faults


def seldom_sold(count):
    """Make orders for a product each."""
    bodies = {
        f"order-{n}": json.dumps({"items": [{"productId": f"product-{n}", "quantity": 1}]})
        for n in range(count)
    }
    return workloads.Workload("seldom", "", {f"product-{n}": 100 for n in range(count)}, bodies)


def run(scenario, workload, monkeypatch):
    """Run a scenario. Returns the shop and its workers as they are at the end."""
    runs = []
    result = model._result
    monkeypatch.setattr(model, "_result", lambda s, r, *a: (runs.append(r), result(s, r, *a))[1])
    simulate(scenario, workload, seed=1)
    return runs[0].shop


class TestWhatIsLent:
    def held(self, shop):
        """Units in each lane but the depot."""
        return {
            lane: sum(
                sum(p.value.values()) for (owner, _), p in shop.pages.items() if owner == lane
            )
            for lane, _ in shop.pages
            if lane != depot.DEPOT
        }

    def test_every_lane_holds_stock_while_there_is_plenty(self, monkeypatch):
        shop = run(Scenario(workers=4, seconds=5.0), HOT, monkeypatch)
        assert all(units > 500 for units in self.held(shop).values())

    def test_no_lane_but_the_depot_holds_stock_if_it_is_alone(self, monkeypatch):
        shop = run(Scenario("depot alone", workers=2, seconds=1.0), HOT, monkeypatch)
        assert sum(shop.sold) > 0
        assert sum(self.held(shop).values()) == 0

    def test_no_lane_holds_what_has_become_scarce(self, monkeypatch):
        full = Scenario(workers=4, depth=40.0, full=True, seconds=60.0, until=0.01)
        shop = run(full, HOT, monkeypatch)
        assert sum(self.held(shop).values()) == 0

    def test_products_that_are_seldom_sold_are_not_lent(self, monkeypatch):
        shop = run(Scenario(workers=1, batch=5, seconds=0.5), seldom_sold(100), monkeypatch)
        assert sum(shop.sold) > 0
        assert not any(row.value.lent for row in shop.rows)

    @pytest.mark.parametrize(
        ("depth", "full", "more"), [(float("inf"), False, True), (10.0, True, False)]
    )
    def test_lanes_that_grow_do_so_with_the_stock(self, monkeypatch, depth, full, more):
        made = []
        lanes = model.Lanes

        def make(*args, **kwargs):
            made.append(lanes(*args, **kwargs))
            return made[0]

        monkeypatch.setattr(model, "Lanes", make)
        scenario = Scenario("growing", 4, depth, seconds=12.0, full=full, until=0.1)
        simulate(scenario, ZIPF, seed=1)
        assert (made[0].number.value[0] > 2) == more


class TestStudy:
    def test_figures_tell_the_spread_of_the_seeds_and_the_worst_window(self):
        results = [simulate(Scenario(workers=1, seconds=12.0), HOT, seed) for seed in (1, 2)]
        found = study.summarise(results)
        assert found.rate[1] <= found.rate[0] <= found.rate[2]
        assert found.worst == min(result.least for result in results) > 0

    def test_titles_of_cells_are_unique(self):
        titles = [(cell.section, cell.title) for cell in study.cells()]
        assert len(titles) == len(set(titles))
