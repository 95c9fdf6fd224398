"""Claims: contention statistics, the product cache, the wait in line, and the release on every path."""

import math
import random
from dataclasses import replace

import pytest
from inventory_orders.engine.claims import CLAIM_SECONDS, Claims, outwait_claims

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import RejectionReason
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Limits
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.contention import ContentionStats
from inventory_orders.engine.outcomes import ChangeStatus
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    LeaseHeldError,
    OutcomeUnknownError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.actions import ConditionFailedError
from tests.support.memory_store import FakeClock, Fault, MemoryStore, product

TIMEOUT = OutcomeUnknownError("ReadTimeoutError", "no answer")
START = FakeClock().seconds
SLOW_DOWN = ThrottledError("ThrottlingException", "slow down")
RIVAL_AT_WORK = ThrottledError("TransactionConflictException", "a transaction is in flight")


def rival(product_id="p"):
    return Fault(rival=lambda store: store.sell(product_id, 1))


class Bench:
    def __init__(self, *products, limits=None):
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, *products)
        chance = random.Random(0)
        policy = RetryPolicy(random=chance.random)
        self.engine = Committer(self.store, policy, self.clock, limits=limits)
        self.client = self.engine.client
        self.number = 0

    def apply(self, *changes, seconds=20.0):
        return self.engine.apply(changes, Deadline.after(seconds, self.clock))

    def order(self, **quantities):
        self.number += 1
        return Order(f"o{self.number}", "u", quantities)

    def claims(self, seconds=20.0):
        self.stats = CommitStats()
        deadline = Deadline.after(seconds, self.clock)
        return Claims(self.client, self.engine.cache, deadline, self.stats)


def statuses(report):
    return [outcome.status for outcome in report.outcomes]


class TestBatches:
    def test_a_loss_is_followed_by_a_claim_which_the_commit_releases(self):
        bench = Bench(product("p", 10))
        bench.store.faults.append(rival())
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert len(bench.store.claims) == 1
        assert bench.store.releases == [], "the commit has done it"
        assert bench.store.products["p"].lock_time is None
        assert bench.store.products["p"].version == 3, "a claim is no change of the product"
        assert (report.stats.claims, report.stats.claims_refused) == (1, 0)
        assert report.retries == (1,)

    def test_a_product_without_rivals_is_never_claimed(self):
        bench = Bench(product("p", 100))
        for _ in range(10):
            report = bench.apply(bench.order(p=1))
            assert report.stats.claims == report.stats.claims_refused == 0

    def test_the_next_batch_claims_before_it_writes(self):
        bench = Bench(product("p", 10))
        bench.store.faults.append(rival())
        bench.apply(bench.order(p=1))
        bench.store.sell("p", 1)
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.version_conflicts == [False], "no transaction was lost"
        assert report.stats.claims == 1

    def test_after_some_seconds_without_a_rival_it_is_optimistic_again(self):
        bench = Bench(product("p", 10))
        bench.store.faults.append(rival())
        bench.apply(bench.order(p=1))
        bench.clock.seconds += 6
        report = bench.apply(bench.order(p=1))
        assert (report.stats.claims, statuses(report)) == (0, [ChangeStatus.APPLIED])

    def test_an_immediate_claim_without_a_rival_in_between_ends_the_contention(self):
        bench = Bench(product("p", 10))
        bench.store.faults.append(rival())
        claims = [bench.apply(bench.order(p=1)).stats.claims for _ in range(4)]
        assert claims == [1, 1, 0, 0]

    def test_a_product_that_is_read_as_claimed_is_claimed_without_a_loss(self):
        bench = Bench(product("p", 10))
        bench.store.lock("p", 0.5, waited=0.0)
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.claims == 1
        assert report.stats.claims_refused > 0
        assert report.stats.version_conflicts == [False]
        assert report.stats.lease_wait >= 0.5

    def test_one_claim_guards_the_whole_chain(self):
        bench = Bench(*(product(name, 10) for name in "cab"))
        bench.store.faults.append(Fault(rival=lambda store: [store.sell(n, 1) for n in "abc"]))
        report = bench.apply(bench.order(c=1, a=1, b=1), bench.order(b=1))
        assert statuses(report) == [ChangeStatus.APPLIED] * 2
        assert {name for name, _ in bench.store.claims} == {"b"}, "what most want"

    def test_the_most_wanted_product_is_known_from_earlier_batches_too(self):
        bench = Bench(*(product(name, 10) for name in "abc"))
        for _ in range(3):
            bench.apply(bench.order(a=1))
        bench.store.faults.append(Fault(rival=lambda store: [store.sell(n, 1) for n in "abc"]))
        bench.apply(bench.order(a=1, b=1, c=1))
        assert {name for name, _ in bench.store.claims} == {"a"}

    def test_a_product_that_rivals_claim_already_is_claimed_first(self):
        bench = Bench(*(product(name, 10) for name in "abc"))
        for name in "abc":
            bench.engine.client.contention.observe_conflict(name)
        bench.engine.client.contention.observe_conflict("a", 0.1)
        bench.apply(bench.order(a=1, b=1, c=1), bench.order(c=1))
        assert {name for name, _ in bench.store.claims} == {"a"}, "although more want another"

    def test_one_loss_among_many_products_is_not_contention_yet(self):
        bench = Bench(*(product(name, 10) for name in "abcd"))
        bench.store.faults.append(rival("a"))
        report = bench.apply(bench.order(a=1, b=1, c=1, d=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.claims == 0
        assert len(report.stats.backoffs) == 1, "it waits a little instead"

    def test_a_loss_on_many_products_at_once_is_contention(self):
        bench = Bench(*(product(name, 10) for name in "abcdefgh"))
        bench.store.faults.append(Fault(rival=lambda store: [store.sell(n, 1) for n in "abcd"]))
        report = bench.apply(bench.order(**dict.fromkeys("abcdefgh", 1)))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.claims == 1

    def test_under_contention_nothing_is_planned_from_the_product_cache(self):
        bench = Bench(product("a", 10), product("b", 10))
        for _ in range(2):
            bench.apply(bench.order(a=1, b=1))
        bench.engine.client.contention.observe_conflict("a")
        bench.engine.client.contention.observe_conflict("a")
        bench.store.sell("b", 1)
        report = bench.apply(bench.order(a=1, b=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.version_conflicts == [False], "rival fights for a has written b as well"

    def test_a_loss_under_a_claim_releases_it_and_claims_two_in_order_of_ids(self):
        bench = Bench(product("a", 10), product("b", 10))
        bench.engine.client.contention.observe_conflict("b")
        bench.store.faults.extend([rival("b"), rival("a"), rival("a")])
        report = bench.apply(bench.order(a=1, b=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        names = [name for name, _ in bench.store.claims]
        assert names == ["b", "a", "b"]
        assert [name for name, _ in bench.store.releases] == ["b"]
        owners = [owner for _, owner in bench.store.claims]
        assert len(set(owners)) == 3, "unique for each acquisition"

    def test_a_chain_with_a_parallel_last_step_releases_its_claim_at_the_end(self):
        bench = Bench(*(product(name, 10) for name in "abcdef"), limits=Limits(actions=5))
        for name in "abcd":
            bench.engine.client.contention.observe_conflict(name)
        first, left, right = dict.fromkeys("abcd", 1), {"a": 1, "e": 1}, {"d": 1, "f": 1}
        report = bench.apply(bench.order(**first), bench.order(**left), bench.order(**right))
        assert statuses(report) == [ChangeStatus.APPLIED] * 3
        ((claimed, owner),) = bench.store.claims
        assert bench.store.releases == [(claimed, owner)]
        assert bench.store.products[claimed].lock_time is None

    def test_the_first_claim_is_released_last(self):
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("b")
        claims.release()
        assert [name for name, _ in bench.store.releases] == ["b", "a"]

    def test_a_long_chain_extends_its_claim(self):
        bench = Bench(product("p", 10), limits=Limits(changes=1))
        slow = Fault(rival=lambda store: bench.clock.sleep(0.9))
        bench.store.faults.extend([rival(), slow, slow, slow])
        report = bench.apply(*(bench.order(p=1) for _ in range(4)))
        assert statuses(report) == [ChangeStatus.APPLIED] * 4
        assert report.stats.version_conflicts == [True] + [False] * 4
        assert len({owner for _, owner in bench.store.claims}) == 1
        assert len(bench.store.claims) == 2, "taken once, gone on with once"
        assert bench.store.products["p"].lock_time is None

    def test_a_claim_that_the_last_write_does_not_touch_is_released_after_it(self):
        bench = Bench(product("p", 10), product("q", 10), limits=Limits(changes=1))
        bench.engine.client.contention.observe_conflict("p")
        bench.store.faults.append(rival("p"))
        report = bench.apply(bench.order(p=1, q=1), bench.order(q=1))
        assert statuses(report) == [ChangeStatus.APPLIED] * 2
        assert [name for name, _ in bench.store.releases] == ["p"]
        assert bench.store.products["p"].lock_time is None

    def test_a_claim_is_kept_until_the_last_transaction_of_its_chain(self):
        bench = Bench(product("p", 10), limits=Limits(changes=1))
        bench.store.faults.append(rival())
        report = bench.apply(bench.order(p=1), bench.order(p=1), bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED] * 3
        assert report.stats.version_conflicts == [True, False, False, False]
        assert len(bench.store.claims) == 1
        assert bench.store.products["p"].lock_time is None

    def test_a_claim_is_released_when_nothing_is_left_to_write(self):
        bench = Bench(product("p", 5))
        bench.engine.client.contention.observe_conflict("p")
        bench.store.claim_faults.append(Fault(rival=lambda store: store.sell("p", 5)))
        report = bench.apply(bench.order(p=5))
        assert report.outcomes[0].rejection.reason is RejectionReason.INSUFFICIENT_STOCK
        assert [name for name, _ in bench.store.releases] == ["p"]
        assert bench.store.products["p"].lock_time is None

    def test_a_claim_is_released_when_the_commit_fails_permanently(self):
        bench = Bench(product("p", 10))
        bench.store.faults.extend(
            [rival(), Fault(error=StoreUnavailableError("AccessDenied", "no"))]
        )
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.RETURNED]
        assert bench.store.products["p"].lock_time is None

    def test_changes_of_other_products_do_not_wait_for_a_claim(self):
        bench = Bench(product("hot", 10), product("cold", 10))
        bench.engine.client.contention.observe_conflict("hot")
        bench.store.lock("hot", 1.0, waited=0.0)
        report = bench.apply(bench.order(hot=1), bench.order(cold=1), seconds=0.5)
        assert statuses(report) == [ChangeStatus.RETURNED, ChangeStatus.APPLIED]
        assert report.outcomes[0].cause == "CONTENTION"

    def test_a_lease_that_outlasts_the_invocation_returns_the_messages(self):
        bench = Bench(product("p", 10))
        bench.engine.client.contention.observe_conflict("p")
        bench.store.lock("p", 600)
        report = bench.apply(bench.order(p=1))
        assert (statuses(report), report.outcomes[0].cause) == ([ChangeStatus.RETURNED], "LEASED")
        assert report.outcomes[0].retry_after == pytest.approx(600, abs=1)

    def test_a_crashed_owner_delays_others_no_longer_than_its_claim(self):
        bench = Bench(product("p", 10))
        bench.store.lock("p", CLAIM_SECONDS, waited=0.0)
        began = bench.clock.monotonic()
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert bench.clock.monotonic() - began < CLAIM_SECONDS * 1.25
        assert report.stats.claims_refused < 200

    def test_a_commit_whose_claim_was_taken_over_changes_nothing(self):
        bench = Bench(product("p", 10))

        def paused(store):
            bench.clock.seconds += CLAIM_SECONDS + 1
            store.lock("p", 1.0, waited=0.0)

        bench.store.faults.extend([rival(), Fault(rival=paused)])
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.version_conflicts == [True, True, False]
        assert bench.store.products["p"].stock_count == 8, "one of the rival's, one of the order's"

    def test_a_claim_whose_response_was_lost_is_used(self):
        bench = Bench(product("p", 10))
        bench.store.faults.append(rival())
        bench.store.claim_faults.append(Fault(error=TIMEOUT, applied=True))
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        (first, second) = bench.store.claims
        assert first == second, "the same acquisition"

    def test_a_claim_whose_response_was_lost_is_released_when_time_runs_out(self):
        bench = Bench(product("p", 10))
        bench.engine.client.contention.observe_conflict("p")
        bench.store.claim_faults.extend([Fault(error=TIMEOUT, applied=True)] * 50)
        report = bench.apply(bench.order(p=1), seconds=0.5)
        assert statuses(report) == [ChangeStatus.RETURNED]
        assert bench.store.products["p"].lock_time is None

    def test_a_throttled_release_is_retried(self):
        bench = Bench(product("p", 5))
        bench.engine.client.contention.observe_conflict("p")
        bench.store.claim_faults.append(Fault(rival=lambda store: store.sell("p", 5)))
        bench.store.release_errors.append(ThrottledError("ThrottlingException", "slow down"))
        bench.apply(bench.order(p=5))
        assert len(bench.store.releases) == 2
        assert bench.store.products["p"].lock_time is None


class TestPlanningFromTheCache:
    def test_a_product_that_only_this_process_writes_is_not_read_again(self):
        bench = Bench(product("p", 100))
        for _ in range(5):
            assert statuses(bench.apply(bench.order(p=1))) == [ChangeStatus.APPLIED]
        assert len(bench.store.reads) == 2, "the second read shows that no rival wrote"
        assert bench.store.products["p"].stock_count == 95

    def test_no_order_is_rejected_without_a_read(self):
        bench = Bench(product("p", 3))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        bench.store.sell("p", -10)
        report = bench.apply(bench.order(p=5))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert len(bench.store.reads) == 3

    def test_a_cached_product_expires(self):
        bench = Bench(product("p", 100))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        bench.clock.seconds += 6
        bench.apply(bench.order(p=1))
        assert len(bench.store.reads) == 3

    def test_records_are_read_first_after_recent_replays(self):
        bench = Bench(product("p", 100))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        replay = Order("o1", "u", {"p": 1})
        assert statuses(bench.apply(replay)) == [ChangeStatus.REPLAYED]
        writes, reads = len(bench.store.writes), len(bench.store.reads)
        assert statuses(bench.apply(replay)) == [ChangeStatus.REPLAYED]
        assert (len(bench.store.writes), len(bench.store.reads)) == (writes, reads + 1)

    def test_a_failed_transaction_is_not_cached(self):
        bench = Bench(product("p", 100))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        bench.store.faults.append(Fault(error=StoreUnavailableError("AccessDenied", "no")))
        bench.apply(bench.order(p=1))
        reads = len(bench.store.reads)
        bench.apply(bench.order(p=1))
        assert len(bench.store.reads) == reads + 1


class TestTheLine:
    def test_the_line_is_fair(self):
        """With 20 rivals for one product the slowest of a hundred waits less than three times the average."""
        waits, requests = line_of(20, 3000)
        waits.sort()
        average = sum(waits) / len(waits)
        assert waits[int(0.99 * len(waits))] < 3 * average
        assert requests / len(waits) < 12, "requests for each claim"

    def test_a_line_with_equal_chances_is_not_fair(self):
        """The same line with full jitter, which shows why the rate grows with the wait."""
        waits, _ = line_of(20, 3000, delay=lambda chance: chance.random() * 0.1)
        waits.sort()
        assert waits[int(0.99 * len(waits))] > 3.5 * sum(waits) / len(waits)

    def test_the_first_request_without_contention_is_sent_at_once(self):
        contention = ContentionStats(FakeClock(), random.Random(0).random)
        assert contention.next_claim_delay("p", 0.0) == 0.0

    def test_a_batch_that_has_waited_longer_asks_sooner(self):
        contention = ContentionStats(FakeClock(), lambda: 0.5)
        contention.observe_conflict("p", 1.0)
        ages = [0.0, 0.1, 0.5, 1.0]
        waits = [contention.next_claim_delay("p", age) for age in ages]
        assert waits == sorted(waits, reverse=True)
        assert waits[-1] < waits[0] / 4

    def test_a_very_old_batch_does_not_crowd_out_the_others(self):
        """After an outage of an hour all messages are an hour old, but not because of a line."""
        contention = ContentionStats(FakeClock(), lambda: 0.5)
        contention.observe_conflict("p", 1.0)
        assert (
            0 < contention.next_claim_delay("p", 3600.0) == contention.next_claim_delay("p", 60.0)
        )

    def test_the_average_wait_grows_faster_than_it_shrinks(self):
        def after(*waits):
            contention = ContentionStats(FakeClock(), lambda: 0.5)
            for wait in (*[1.0] * 100, *waits):
                contention.observe_conflict("p", wait)
            return contention.next_claim_delay("p", 0.0)

        assert after(1.5) - after() > 1.5 * (after() - after(0.5)) > 0

    def test_waits_of_earlier_invocations_count(self):
        """Redelivered changes wait less than new ones."""

        def seconds_in_line(age):
            bench = Bench(product("p", 10))
            for _ in range(20):
                bench.engine.client.contention.observe_conflict("p", 5.0)
            began = bench.clock.seconds
            report = bench.engine.apply([bench.order(p=1)], Deadline.after(60.0, bench.clock), age)
            assert statuses(report) == [ChangeStatus.APPLIED]
            return bench.clock.seconds - began

        assert seconds_in_line(10.0) < seconds_in_line(0.0) / 3

    def test_the_wait_for_a_crashed_owner_does_not_count_as_a_wait_in_line(self):
        """Otherwise the others would ask too seldom for a long time, and leave the product idle."""
        bench = Bench(product("p", 10))
        bench.store.lock("p", CLAIM_SECONDS, waited=0.0)
        bench.claims().take("p")
        assert bench.clock.seconds - START >= CLAIM_SECONDS
        assert bench.store.products["p"].lock_wait < CLAIM_SECONDS / 4
        assert bench.engine.client.contention.next_claim_delay("p", 0.0) < CLAIM_SECONDS / 4

    def test_an_old_wait_is_forgotten_when_contention_ends(self):
        clock = FakeClock()
        contention = ContentionStats(clock, lambda: 0.5)
        for _ in range(50):
            contention.observe_conflict("p", 10.0)
        assert contention.next_claim_delay("p", 0.0) > 1
        clock.seconds += 6
        contention.observe_conflict("p")
        assert contention.next_claim_delay("p", 0.0) < 0.1


class TestOneClaim:
    def test_a_claim_is_refused_while_a_rival_holds_the_product(self):
        bench = Bench(product("p", 10))
        bench.store.claim_faults.extend([Fault(error=RIVAL_AT_WORK)] * 2)
        claims = bench.claims()
        claims.take("p")
        assert (bench.stats.claims, bench.stats.claims_refused) == (1, 2)
        claims.release()
        assert bench.store.products["p"].lock_time is None

    def test_a_delisted_product_cannot_be_claimed(self):
        with pytest.raises(ConditionFailedError):
            Bench().claims().take("p")

    def test_a_claim_is_given_up_at_the_deadline(self):
        bench = Bench(product("p", 10))
        bench.store.lock("p", 1.5, waited=0.0)
        with pytest.raises(ThrottledError):
            bench.claims(seconds=0.2).take("p")

    def test_a_throttled_claim_is_left_to_a_later_delivery_unless_nothing_else_waits(self):
        bench = Bench(product("p", 10))
        bench.store.claim_faults.extend([Fault(error=SLOW_DOWN)] * 12)
        with pytest.raises(ThrottledError):
            bench.claims(seconds=60).take("p")
        assert len(bench.store.claim_faults) == 4
        bench.claims(seconds=60).take("p", alone=True)
        assert bench.stats.claims == 1

    def test_a_refusal_between_throttles_does_not_end_their_backoff(self):
        bench = Bench(product("p", 10))
        bench.client.policy = RetryPolicy(random=lambda: 1.0)
        for number in range(12):
            claimed = replace(
                product("p", 10), locked_by="r", lock_time=START + 100 + number, lock_wait=0.0
            )
            refused = ConditionFailedError(claimed)
            bench.store.claim_faults.extend([Fault(error=SLOW_DOWN), Fault(error=refused)])
        bench.claims(seconds=60).take("p")
        # The backoff doubles up to a second: begun anew after each refusal, it would take a fraction of one in all.
        assert bench.clock.seconds - START > 5

    def test_a_claim_that_is_about_to_end_is_extended(self):
        bench = Bench(product("p", 10))
        claims = bench.claims()
        claims.take("p")
        bench.clock.seconds += 1.5
        claims.take("p")
        assert claims.held["p"] == pytest.approx(bench.clock.seconds + CLAIM_SECONDS)
        assert len({owner for _, owner in bench.store.claims}) == 1

    def test_extending_a_claim_does_not_end_the_contention(self):
        bench = Bench(product("p", 10))
        bench.engine.client.contention.observe_conflict("p", 0.1)
        claims = bench.claims()
        claims.take("p")
        bench.engine.cache.observe_write(bench.store.products["p"])
        claims.take("p")
        assert bench.engine.client.contention.product_to_claim(["p"]) == "p"


class TestSeveralClaims:
    def test_a_held_claim_is_extended_while_another_is_waited_for(self):
        """Otherwise it would expire, and two batches that need both products might never get them."""
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        bench.store.lock("b", 1.9, waited=0.0)
        bench.engine.client.contention.observe_conflict("b", 1.0)
        claims.take("b")
        now = bench.clock.seconds
        assert now - START > 1.5
        assert bench.store.products["a"].lease_left(now) > CLAIM_SECONDS / 4
        assert {name: bench.store.owners[name] for name in "ab"} == dict(bench.store.claims)
        assert bench.store.releases == []

    def test_extending_the_first_claim_keeps_the_others(self):
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("b")
        bench.clock.seconds += 1.5
        claims.take("a")
        assert bench.store.releases == []
        assert claims.held.keys() == {"a", "b"}

    def test_a_batch_that_waits_for_a_product_holds_no_later_one(self):
        bench = Bench(product("a", 10), product("b", 10), product("c", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("c")
        claims.take("b")
        assert [name for name, _ in bench.store.releases] == ["c"]
        assert claims.held.keys() == {"a", "b"}

    def test_a_batch_that_lost_a_claim_holds_no_other_while_it_waits(self):
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("b")
        bench.store.lock("a", 1.0, waited=0.0)
        claims.take("a")
        assert [name for name, _ in bench.store.releases] == ["b"]
        assert claims.held.keys() == {"a"}

    def test_a_batch_that_holds_a_claim_asks_sooner_in_the_next_line(self):
        def seconds_in_line(*first):
            bench = Bench(product("a", 10), product("b", 10))
            for _ in range(100):
                bench.engine.client.contention.observe_conflict("b", 4.0)
            claims = bench.claims(seconds=60.0)
            for name in first:
                claims.take(name)
            claims.take("b")
            return bench.clock.seconds - START

        assert seconds_in_line("a") < seconds_in_line() / 3

    def test_a_claim_is_known_by_what_it_is_and_not_by_a_clock(self):
        """The clock of its owner is five minutes ahead."""
        bench = Bench(product("p", 10))
        bench.store.lock("p", 300, waited=0.0)
        bench.clock.on_sleep = lambda: bench.store.products.update(
            p=bench.store.products["p"].unlocked()
        )
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert bench.clock.seconds - START < 1

    def test_a_lease_that_is_about_to_end_is_no_claim(self):
        bench = Bench(product("p", 10))
        bench.store.lock("p", 1.0)
        report = bench.apply(bench.order(p=1))
        assert (statuses(report), report.stats.claims) == ([ChangeStatus.APPLIED], 0)

    def test_a_transaction_in_flight_is_waited_out_though_nothing_is_known_of_the_line(self):
        bench = Bench(product("p", 10))
        bench.store.claim_faults.extend([Fault(error=RIVAL_AT_WORK)] * 3)
        bench.claims().take("p")
        assert len([seconds for seconds in bench.clock.slept if seconds > 0]) == 3

    def test_single_writes_wait_for_claims_but_not_for_leases(self):
        bench = Bench()
        left, is_claim = [0.5, 0.2, 0.0], True

        def operation():
            if left:
                raise LeaseHeldError("p", left.pop(0), is_claim=is_claim)
            return "done"

        deadline = Deadline.after(5, bench.clock)
        assert outwait_claims(operation, deadline, bench.client) == "done"
        is_claim = False
        left.append(0.0)
        assert outwait_claims(operation, deadline, bench.client) == "done", "it has expired"
        left.append(0.5)
        with pytest.raises(LeaseHeldError):
            outwait_claims(operation, deadline, bench.client)


def line_of(rivals, served, delay=None):
    """Simulate rivals that return as soon as they are served, 20 ms each. Returns their waits and their requests."""
    clock = FakeClock()
    chance = random.Random(1)
    processes = [ContentionStats(clock, chance.random) for _ in range(rivals)]
    for contention in processes:
        contention.observe_conflict("p")
    start = clock.seconds

    def next_request(rival, waited):
        if delay is not None:
            return delay(chance)
        return processes[rival].next_claim_delay("p", waited)

    since = [start] * rivals
    at = [start + next_request(rival, 0.0) for rival in range(rivals)]
    busy_until, holder_waited = -math.inf, 0.0
    waits, requests = [], 0
    while len(waits) < served:
        rival = min(range(rivals), key=at.__getitem__)
        clock.seconds = now = at[rival]
        waited = now - since[rival]
        requests += 1
        if now < busy_until:
            processes[rival].observe_conflict("p", holder_waited)
            at[rival] = now + next_request(rival, waited)
        else:
            processes[rival].observe_claim("p", waited)
            waits.append(waited)
            busy_until, holder_waited = now + 0.02, waited
            since[rival] = busy_until
            at[rival] = busy_until + next_request(rival, 0.0)
    return waits[served // 5 :], requests
