"""What a warm process remembers, how long it waits in line, and that every way out releases."""

import math
import random

import pytest

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import RejectionReason
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Limits
from inventory_orders.engine.claims import CLAIM_SECONDS, Claims, outwait_claims
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.contention import ContentionStats
from inventory_orders.engine.outcomes import ChangeStatus
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    ConditionFailedError,
    LeaseHeldError,
    OutcomeUnknownError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.retry import RetryPolicy
from tests.support.memory_store import FakeClock, Fault, MemoryStore, product

TIMEOUT = OutcomeUnknownError("ReadTimeoutError", "no answer")
START = FakeClock().seconds
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
        return Claims(self.client, self.engine.contention, self.engine.cache, deadline, self.stats)


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

    def test_a_product_without_rivals_never_pays_for_it(self):
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

    def test_a_claim_at_the_first_request_with_nobody_in_between_ends_the_fight(self):
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

    def test_what_most_want_is_known_from_the_batches_before_too(self):
        bench = Bench(*(product(name, 10) for name in "abc"))
        for _ in range(3):
            bench.apply(bench.order(a=1))
        bench.store.faults.append(Fault(rival=lambda store: [store.sell(n, 1) for n in "abc"]))
        bench.apply(bench.order(a=1, b=1, c=1))
        assert {name for name, _ in bench.store.claims} == {"a"}

    def test_where_others_claim_already_is_where_all_meet(self):
        bench = Bench(*(product(name, 10) for name in "abc"))
        for name in "abc":
            bench.engine.contention.observe_conflict(name)
        bench.engine.contention.observe_conflict("a", 0.1)
        bench.apply(bench.order(a=1, b=1, c=1), bench.order(c=1))
        assert {name for name, _ in bench.store.claims} == {"a"}, "although more want another"

    def test_among_many_products_one_loss_on_one_is_no_fight_yet(self):
        bench = Bench(*(product(name, 10) for name in "abcd"))
        bench.store.faults.append(rival("a"))
        report = bench.apply(bench.order(a=1, b=1, c=1, d=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.claims == 0
        assert len(report.stats.backoffs) == 1, "it waits a little instead"

    def test_a_loss_on_many_products_at_once_is_a_fight(self):
        bench = Bench(*(product(name, 10) for name in "abcdefgh"))
        bench.store.faults.append(Fault(rival=lambda store: [store.sell(n, 1) for n in "abcd"]))
        report = bench.apply(bench.order(**dict.fromkeys("abcdefgh", 1)))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.claims == 1

    def test_in_a_fight_nothing_is_planned_from_a_memory(self):
        bench = Bench(product("a", 10), product("b", 10))
        for _ in range(2):
            bench.apply(bench.order(a=1, b=1))
        bench.engine.contention.observe_conflict("a")
        bench.engine.contention.observe_conflict("a")
        bench.store.sell("b", 1)
        report = bench.apply(bench.order(a=1, b=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert report.stats.version_conflicts == [False], "who fights for a has written b as well"

    def test_losses_under_a_claim_release_it_and_take_one_more_in_the_order_of_ids(self):
        bench = Bench(product("a", 10), product("b", 10))
        bench.engine.contention.observe_conflict("b")
        bench.store.faults.extend([rival("b"), rival("a"), rival("a")])
        report = bench.apply(bench.order(a=1, b=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        names = [name for name, _ in bench.store.claims]
        assert names == ["b", "a", "b"]
        assert [name for name, _ in bench.store.releases] == ["b"]
        owners = [owner for _, owner in bench.store.claims]
        assert len(set(owners)) == 3, "unique for each acquisition"

    def test_a_chain_that_ends_side_by_side_releases_its_claim_when_all_is_written(self):
        bench = Bench(*(product(name, 10) for name in "abcdef"), limits=Limits(actions=5))
        for name in "abcd":
            bench.engine.contention.observe_conflict(name)
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

    def test_a_long_chain_goes_on_with_its_claim(self):
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
        bench.engine.contention.observe_conflict("p")
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
        bench.engine.contention.observe_conflict("p")
        bench.store.claim_faults.append(Fault(rival=lambda store: store.sell("p", 5)))
        report = bench.apply(bench.order(p=5))
        assert report.outcomes[0].rejection.reason is RejectionReason.INSUFFICIENT_STOCK
        assert [name for name, _ in bench.store.releases] == ["p"]
        assert bench.store.products["p"].lock_time is None

    def test_a_claim_is_released_when_the_commit_fails_for_good(self):
        bench = Bench(product("p", 10))
        bench.store.faults.extend(
            [rival(), Fault(error=StoreUnavailableError("AccessDenied", "no"))]
        )
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.RETURNED]
        assert bench.store.products["p"].lock_time is None

    def test_others_do_not_wait_for_the_one_that_is_fought_over(self):
        bench = Bench(product("hot", 10), product("cold", 10))
        bench.engine.contention.observe_conflict("hot")
        bench.store.lock("hot", 1.0, waited=0.0)
        report = bench.apply(bench.order(hot=1), bench.order(cold=1), seconds=0.5)
        assert statuses(report) == [ChangeStatus.RETURNED, ChangeStatus.APPLIED]
        assert report.outcomes[0].cause == "CONTENTION"

    def test_a_lease_that_outlasts_the_invocation_returns_the_messages(self):
        bench = Bench(product("p", 10))
        bench.engine.contention.observe_conflict("p")
        bench.store.lock("p", 600)
        report = bench.apply(bench.order(p=1))
        assert (statuses(report), report.outcomes[0].cause) == ([ChangeStatus.RETURNED], "LEASED")
        assert report.outcomes[0].retry_after == pytest.approx(600, abs=1)

    def test_a_dead_claimer_delays_others_no_longer_than_its_claim(self):
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

    def test_a_claim_whose_answer_was_lost_is_gone_on_with(self):
        bench = Bench(product("p", 10))
        bench.store.faults.append(rival())
        bench.store.claim_faults.append(Fault(error=TIMEOUT, applied=True))
        report = bench.apply(bench.order(p=1))
        assert statuses(report) == [ChangeStatus.APPLIED]
        (first, second) = bench.store.claims
        assert first == second, "the same acquisition"

    def test_a_claim_whose_answer_was_lost_is_released_when_time_runs_out(self):
        bench = Bench(product("p", 10))
        bench.engine.contention.observe_conflict("p")
        bench.store.claim_faults.extend([Fault(error=TIMEOUT, applied=True)] * 50)
        report = bench.apply(bench.order(p=1), seconds=0.5)
        assert statuses(report) == [ChangeStatus.RETURNED]
        assert bench.store.products["p"].lock_time is None

    def test_a_release_that_is_throttled_is_tried_again(self):
        bench = Bench(product("p", 5))
        bench.engine.contention.observe_conflict("p")
        bench.store.claim_faults.append(Fault(rival=lambda store: store.sell("p", 5)))
        bench.store.release_errors.append(ThrottledError("ThrottlingException", "slow down"))
        bench.apply(bench.order(p=5))
        assert len(bench.store.releases) == 2
        assert bench.store.products["p"].lock_time is None


class TestPlanningFromMemory:
    def test_a_product_that_only_this_process_writes_is_not_read_again(self):
        bench = Bench(product("p", 100))
        for _ in range(5):
            assert statuses(bench.apply(bench.order(p=1))) == [ChangeStatus.APPLIED]
        assert len(bench.store.reads) == 2, "the second read shows that nobody else wrote"
        assert bench.store.products["p"].stock_count == 95

    def test_nobody_is_refused_on_its_word(self):
        bench = Bench(product("p", 3))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        bench.store.sell("p", -10)
        report = bench.apply(bench.order(p=5))
        assert statuses(report) == [ChangeStatus.APPLIED]
        assert len(bench.store.reads) == 3

    def test_it_does_not_believe_itself_for_long(self):
        bench = Bench(product("p", 100))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        bench.clock.seconds += 6
        bench.apply(bench.order(p=1))
        assert len(bench.store.reads) == 3

    def test_records_are_read_first_where_replays_were_met_lately(self):
        bench = Bench(product("p", 100))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        replay = Order("o1", "u", {"p": 1})
        assert statuses(bench.apply(replay)) == [ChangeStatus.REPLAYED]
        writes, reads = len(bench.store.writes), len(bench.store.reads)
        assert statuses(bench.apply(replay)) == [ChangeStatus.REPLAYED]
        assert (len(bench.store.writes), len(bench.store.reads)) == (writes, reads + 1)

    def test_what_a_failed_transaction_left_is_not_remembered(self):
        bench = Bench(product("p", 100))
        for _ in range(3):
            bench.apply(bench.order(p=1))
        bench.store.faults.append(Fault(error=StoreUnavailableError("AccessDenied", "no")))
        bench.apply(bench.order(p=1))
        reads = len(bench.store.reads)
        bench.apply(bench.order(p=1))
        assert len(bench.store.reads) == reads + 1


class TestTheLine:
    def test_those_who_wait_together_are_served_fairly(self):
        """20 in line for one product: the slowest of a hundred waits less than three times the average."""
        waits, requests = line_of(20, 3000)
        waits.sort()
        average = sum(waits) / len(waits)
        assert waits[int(0.99 * len(waits))] < 3 * average
        assert requests / len(waits) < 12, "requests for each claim"

    def test_equal_chances_would_not_be_fair(self):
        """The same line with full jitter: what the growing rate is for."""
        waits, _ = line_of(20, 3000, delay=lambda chance: chance.random() * 0.1)
        waits.sort()
        assert waits[int(0.99 * len(waits))] > 3.5 * sum(waits) / len(waits)

    def test_the_first_request_in_peace_goes_out_at_once(self):
        contention = ContentionStats(FakeClock(), random.Random(0).random)
        assert contention.next_claim_delay("p", 0.0) == 0.0

    def test_who_has_waited_longer_asks_sooner(self):
        contention = ContentionStats(FakeClock(), lambda: 0.5)
        contention.observe_conflict("p", 1.0)
        ages = [0.0, 0.1, 0.5, 1.0]
        waits = [contention.next_claim_delay("p", age) for age in ages]
        assert waits == sorted(waits, reverse=True)
        assert waits[-1] < waits[0] / 4

    def test_who_is_older_than_a_line_explains_does_not_crowd_out_the_others(self):
        """After an hour without DynamoDB all messages are an hour old, and a line for it is none."""
        contention = ContentionStats(FakeClock(), lambda: 0.5)
        contention.observe_conflict("p", 1.0)
        assert (
            0 < contention.next_claim_delay("p", 3600.0) == contention.next_claim_delay("p", 60.0)
        )

    def test_a_line_grows_faster_than_it_shrinks(self):
        def after(*waits):
            contention = ContentionStats(FakeClock(), lambda: 0.5)
            for wait in (*[1.0] * 100, *waits):
                contention.observe_conflict("p", wait)
            return contention.next_claim_delay("p", 0.0)

        assert after(1.5) - after() > 1.5 * (after() - after(0.5)) > 0

    def test_waits_of_earlier_invocations_count(self):
        """The second time around the same changes get their turn sooner."""

        def seconds_in_line(age):
            bench = Bench(product("p", 10))
            for _ in range(20):
                bench.engine.contention.observe_conflict("p", 5.0)
            began = bench.clock.seconds
            report = bench.engine.apply([bench.order(p=1)], Deadline.after(60.0, bench.clock), age)
            assert statuses(report) == [ChangeStatus.APPLIED]
            return bench.clock.seconds - began

        assert seconds_in_line(10.0) < seconds_in_line(0.0) / 3

    def test_the_wait_for_a_dead_owner_says_nothing_about_the_line(self):
        """Those behind would ask too seldom for a long time, and leave the product idle."""
        bench = Bench(product("p", 10))
        bench.store.lock("p", CLAIM_SECONDS, waited=0.0)
        bench.claims().take("p")
        assert bench.clock.seconds - START >= CLAIM_SECONDS
        assert bench.store.products["p"].lock_wait < CLAIM_SECONDS / 4
        assert bench.engine.contention.next_claim_delay("p", 0.0) < CLAIM_SECONDS / 4

    def test_an_old_wait_is_forgotten_with_the_fight(self):
        clock = FakeClock()
        contention = ContentionStats(clock, lambda: 0.5)
        for _ in range(50):
            contention.observe_conflict("p", 10.0)
        assert contention.next_claim_delay("p", 0.0) > 1
        clock.seconds += 6
        contention.observe_conflict("p")
        assert contention.next_claim_delay("p", 0.0) < 0.1


class TestOneClaim:
    def test_a_rival_at_work_is_a_refusal(self):
        bench = Bench(product("p", 10))
        bench.store.claim_faults.extend([Fault(error=RIVAL_AT_WORK)] * 2)
        claims = bench.claims()
        claims.take("p")
        assert (bench.stats.claims, bench.stats.claims_refused) == (1, 2)
        claims.release()
        assert bench.store.products["p"].lock_time is None

    def test_a_product_that_is_gone_cannot_be_claimed(self):
        with pytest.raises(ConditionFailedError):
            Bench().claims().take("p")

    def test_it_gives_up_when_the_time_is_up(self):
        bench = Bench(product("p", 10))
        bench.store.lock("p", 1.5, waited=0.0)
        with pytest.raises(ThrottledError):
            bench.claims(seconds=0.2).take("p")

    def test_going_on_with_a_claim_that_is_about_to_end(self):
        bench = Bench(product("p", 10))
        claims = bench.claims()
        claims.take("p")
        bench.clock.seconds += 1.5
        claims.take("p")
        assert claims.held["p"] == pytest.approx(bench.clock.seconds + CLAIM_SECONDS)
        assert len({owner for _, owner in bench.store.claims}) == 1

    def test_going_on_with_a_claim_is_no_sign_of_peace(self):
        bench = Bench(product("p", 10))
        bench.engine.contention.observe_conflict("p", 0.1)
        claims = bench.claims()
        claims.take("p")
        bench.engine.cache.observe_write(bench.store.products["p"])
        claims.take("p")
        assert bench.engine.contention.product_to_claim(["p"]) == "p"


class TestSeveralClaims:
    def test_what_is_held_is_kept_while_another_is_waited_for(self):
        """Or it would end, and be waited for anew, while others end: two that need both would never get there."""
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        bench.store.lock("b", 1.9, waited=0.0)
        bench.engine.contention.observe_conflict("b", 1.0)
        claims.take("b")
        now = bench.clock.seconds
        assert now - START > 1.5
        assert bench.store.products["a"].lease_left(now) > CLAIM_SECONDS / 4
        assert {name: bench.store.owners[name] for name in "ab"} == dict(bench.store.claims)
        assert bench.store.releases == []

    def test_going_on_with_the_first_gives_no_other_up(self):
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("b")
        bench.clock.seconds += 1.5
        claims.take("a")
        assert bench.store.releases == []
        assert claims.held.keys() == {"a", "b"}

    def test_whoever_waits_for_a_product_holds_none_that_comes_later(self):
        bench = Bench(product("a", 10), product("b", 10), product("c", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("c")
        claims.take("b")
        assert [name for name, _ in bench.store.releases] == ["c"]
        assert claims.held.keys() == {"a", "b"}

    def test_a_claim_that_was_taken_over_is_waited_for_with_empty_hands(self):
        bench = Bench(product("a", 10), product("b", 10))
        claims = bench.claims()
        claims.take("a")
        claims.take("b")
        bench.store.lock("a", 1.0, waited=0.0)
        claims.take("a")
        assert [name for name, _ in bench.store.releases] == ["b"]
        assert claims.held.keys() == {"a"}

    def test_who_holds_a_claim_goes_first_in_the_next_line(self):
        def seconds_in_line(*first):
            bench = Bench(product("a", 10), product("b", 10))
            for _ in range(100):
                bench.engine.contention.observe_conflict("b", 4.0)
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

    def test_single_writes_outwait_claims_but_not_leases(self):
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
    """Waits of rivals that come back as soon as they were served, 20 ms each; and the requests they made."""
    clock = FakeClock()
    chance = random.Random(1)
    processes = [ContentionStats(clock, chance.random) for _ in range(rivals)]
    for contention in processes:
        contention.observe_conflict("p")
    start = clock.seconds

    def next_request(who, waited):
        if delay is not None:
            return delay(chance)
        return processes[who].next_claim_delay("p", waited)

    since = [start] * rivals
    at = [start + next_request(who, 0.0) for who in range(rivals)]
    busy_until, holder_waited = -math.inf, 0.0
    waits, requests = [], 0
    while len(waits) < served:
        who = min(range(rivals), key=at.__getitem__)
        clock.seconds = now = at[who]
        waited = now - since[who]
        requests += 1
        if now < busy_until:
            processes[who].observe_conflict("p", holder_waited)
            at[who] = now + next_request(who, waited)
        else:
            processes[who].observe_claim("p", waited)
            waits.append(waited)
            busy_until, holder_waited = now + 0.02, waited
            since[who] = busy_until
            at[who] = busy_until + next_request(who, 0.0)
    return waits[served // 5 :], requests
