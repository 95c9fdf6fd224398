"""Tests of the contention simulator: time, DynamoDB's rules, published latencies, and real handlers."""

import io
import json
from functools import partial

import pytest
from rich.console import Console

from bench import studies
from bench.cells import ResultFile, choose
from bench.simulator import engine
from bench.simulator.callers import Callers, Doors
from bench.simulator.handovers import CalledHandOvers, QueuedHandOvers
from bench.simulator.holds import Holds
from bench.workloads import Workload, at_locations, hot_product, sell_out, zipf
from inventory_orders.store.tables import Index
from testing.aws import DynamoDB, ServiceError, answered_directly_by
from testing.schedules.by_time.contention import ContendedDynamoDB
from testing.schedules.by_time.latency import PUBLISHED, VISIBILITY_SECONDS, TokenBucket
from testing.schedules.by_time.queues import FifoQueue, Message, Poller, Queue
from testing.schedules.by_time.world import TimedWorld
from testing.schedules.scheduler import Scheduler, SchedulerError, VirtualExecutor
from testing.world.tables import creation


class TestScheduler:
    def test_an_executor_runs_as_many_concurrent_calls_as_it_has_workers(self):
        scheduler, ends = Scheduler(), []

        def work(seconds):
            scheduler.sleep(seconds)
            ends.append(scheduler.now)
            return seconds

        def main():
            executor = VirtualExecutor(scheduler, 2)
            assert list(executor.map(work, [3.0, 1.0, 1.0])) == [3.0, 1.0, 1.0]

        scheduler.start(main)
        scheduler.run()
        assert ends == [1.0, 2.0, 3.0]

    def test_an_executor_raises_errors_where_the_result_is_read(self):
        scheduler, caught = Scheduler(), []

        def fail():
            scheduler.sleep(1.0)
            raise ValueError("lost")

        def main():
            future = VirtualExecutor(scheduler, 1).submit(fail)
            with pytest.raises(ValueError, match="lost"):
                future.result()
            caught.append(scheduler.now)

        scheduler.start(main)
        scheduler.run()
        assert caught == [1.0]

    def test_an_error_of_a_task_ends_the_run(self):
        scheduler = Scheduler()
        scheduler.start(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scheduler.run()

    def test_only_a_task_can_wait(self):
        with pytest.raises(SchedulerError, match="start one"):
            Scheduler().sleep(1.0)


class _Network:
    """A network in which each request takes one second to reach the service, two seconds there, and one second to
    return."""

    def __init__(self, late=()):
        self._late = iter(late)

    def times(self, operation, items):
        return 1.0, 2.0, 1.0

    def reads_late(self):
        return next(self._late, False)


def _decrement(version, key="a"):
    return {
        "TableName": "Rows",
        "Key": {"id": {"S": key}},
        "UpdateExpression": "SET #v = :next",
        "ConditionExpression": "#v = :version",
        "ExpressionAttributeNames": {"#v": "v"},
        "ExpressionAttributeValues": {
            ":version": {"N": str(version)},
            ":next": {"N": str(version + 1)},
        },
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _transaction(*updates):
    return "TransactWriteItems", {"TransactItems": [{"Update": update} for update in updates]}


def _read(key="a"):
    return "GetItem", {"TableName": "Rows", "Key": {"id": {"S": key}}, "ConsistentRead": True}


def _put(key, shard):
    item = {"id": {"S": key}, "shard": {"S": shard}, "at": {"S": "2026"}}
    return {"Put": {"TableName": "Rows", "Item": item}}


def _puts(*entries):
    return "TransactWriteItems", {"TransactItems": [_put(*entry) for entry in entries]}


class _Rows:
    """Rows `a` and `b` at version 1, which are not in the index `byShard`, and calls at given times.

    Each row has a partition to itself.
    """

    def __init__(self, late=(), **limits):
        self.scheduler = Scheduler()
        self.store = DynamoDB(lambda: self.scheduler.now)
        by_shard = Index("byShard", ("shard", "at"))
        self.store.answer("CreateTable", creation("Rows", ["id"], [by_shard]))
        for key in ("a", "b"):
            item = {"id": {"S": key}, "v": {"N": "1"}}
            self.store.answer("PutItem", {"TableName": "Rows", "Item": item})
        self.contended = ContendedDynamoDB(
            *(self.scheduler, self.store, _Network(late)),
            partitions={"Rows": 1_000_000},
            **limits,
        )
        self.answers = {}

    def at(self, moment, name, operation, request):
        def call():
            self.scheduler.sleep(moment)
            try:
                self.answers[name] = self.contended.answer(operation, request)
            except ServiceError as error:
                reasons = error.extra.get("CancellationReasons", ())
                self.answers[name] = [reason["Code"] for reason in reasons] or error.code

        self.scheduler.start(call)

    def run(self):
        self.scheduler.run()
        assert not self.contended.in_flight
        return self.answers

    def version(self, key="a"):
        return int(self.store.tables["Rows"].items[key,]["v"]["N"])


class TestConflicts:
    def test_a_transaction_in_flight_makes_others_fail_immediately(self):
        rows = _Rows()
        rows.at(0.0, "first", *_transaction(_decrement(1)))
        rows.at(0.5, "second", *_transaction(_decrement(1), _decrement(1, "b")))
        rows.at(0.5, "plain", "UpdateItem", _decrement(1))
        answers = rows.run()
        assert answers["first"] == {}
        assert answers["second"] == ["TransactionConflict", "None"]
        assert answers["plain"] == "TransactionConflictException"
        assert (rows.version("a"), rows.version("b")) == (2, 1)

    def test_a_moved_version_cancels_the_transaction(self):
        rows = _Rows()
        rows.at(0.0, "first", *_transaction(_decrement(1)))
        rows.at(3.0, "second", *_transaction(_decrement(1), _decrement(1, "b")))
        rows.at(6.0, "plain", "UpdateItem", _decrement(1))
        answers = rows.run()
        assert answers["second"] == ["ConditionalCheckFailed", "None"]
        assert answers["plain"] == "ConditionalCheckFailedException"

    def test_a_cancelled_transaction_keeps_items_that_accepted_it_in_flight(self):
        rows = _Rows()
        rows.at(0.0, "lost", *_transaction(_decrement(7), _decrement(1, "b")))
        rows.at(0.5, "on the other", *_transaction(_decrement(1, "b")))
        rows.at(0.5, "on the moved", *_transaction(_decrement(1, "a")))
        answers = rows.run()
        assert answers["lost"] == ["ConditionalCheckFailed", "None"]
        assert answers["on the other"] == ["TransactionConflict"]
        assert answers["on the moved"] == {}

    def test_reads_are_not_blocked_and_see_applied_writes(self):
        rows = _Rows()
        rows.at(0.0, "write", *_transaction(_decrement(1)))
        rows.at(1.5, "in between", *_read())
        rows.at(2.5, "afterwards", *_read())
        answers = rows.run()
        assert answers["in between"]["Item"]["v"] == {"N": "1"}
        assert answers["afterwards"]["Item"]["v"] == {"N": "2"}

    def test_a_batch_reads_its_items_at_different_moments(self):
        rows = _Rows(late=[True, False])
        keys = [{"id": {"S": key}} for key in ("a", "b")]
        rows.at(0.0, "write", *_transaction(_decrement(1), _decrement(1, "b")))
        rows.at(1.0, "both", "BatchGetItem", {"RequestItems": {"Rows": {"Keys": keys}}})
        found = {
            item["id"]["S"]: item["v"]["N"] for item in rows.run()["both"]["Responses"]["Rows"]
        }
        assert found == {"a": "2", "b": "1"}

    def test_the_token_of_a_cancelled_transaction_is_not_remembered(self):
        rows = _Rows()
        operation, request = _transaction(_decrement(1, "b"))
        request["ClientRequestToken"] = "token"
        rows.at(0.0, "rival", *_transaction(_decrement(9), _decrement(1, "b")))
        rows.at(0.5, "lost", operation, request)
        rows.at(9.0, "again", operation, request)
        answers = rows.run()
        assert answers["lost"] == ["TransactionConflict"]
        assert answers["again"] == {}
        assert rows.version("b") == 2


class TestCapacity:
    def test_a_token_bucket_refills_up_to_its_burst(self):
        bucket = TokenBucket(rate=10.0, burst=10.0)
        assert bucket.take(10.0, 0.0)
        assert not bucket.take(1.0, 0.05)
        assert bucket.take(1.0, 0.1)
        assert not bucket.take(11.0, 100.0), "at most the burst is kept"
        assert bucket.take(10.0, 100.0)

    def test_a_hot_item_is_throttled(self):
        rows = _Rows(write_units=2.0, read_units=1.0)
        rows.at(0.0, "first", *_transaction(_decrement(1)))
        rows.at(0.1, "second", *_transaction(_decrement(1)))
        rows.at(0.1, "plain", "UpdateItem", _decrement(1))
        rows.at(0.2, "read", *_read())
        rows.at(0.3, "again", *_read())
        answers = rows.run()
        assert answers["first"] == {}
        assert answers["second"] == ["ThrottlingError"]
        assert answers["plain"] == "ThrottlingException"
        assert "Item" in answers["read"]
        assert answers["again"] == "ThrottlingException"

    def test_a_large_item_takes_more_of_the_units(self):
        rows = _Rows(write_units=8.0)
        rows.store.tables["Rows"].items["b",]["text"] = {"S": "x" * 3_000}
        rows.at(0.0, "large", *_transaction(_decrement(1, "b")))
        rows.at(0.1, "large again", *_transaction(_decrement(1, "b")))
        rows.at(0.1, "small", *_transaction(_decrement(1)))
        answers = rows.run()
        assert answers["large"] == answers["small"] == {}
        assert answers["large again"] == ["ThrottlingError"]

    def test_a_single_write_takes_units_by_its_larger_item(self):
        rows = _Rows(write_units=5.0)
        rows.store.tables["Rows"].items["b",]["text"] = {"S": "x" * 2_500}
        rows.at(0.0, "large", "UpdateItem", _decrement(1, "b"))
        rows.at(0.1, "large again", "UpdateItem", _decrement(2, "b"))
        rows.at(0.1, "small", "UpdateItem", _decrement(1))
        answers = rows.run()
        assert answers["large"] == answers["small"] == {}
        assert answers["large again"] == "ThrottlingException"

    def test_reads_take_units_by_size_and_consistency(self):
        rows = _Rows(read_units=2.0)
        rows.store.tables["Rows"].items["a",]["text"] = {"S": "x" * 5_000}
        operation, consistent = _read()
        eventual = consistent | {"ConsistentRead": False}
        for name, request in (("one", eventual), ("two", eventual), ("three", eventual)):
            rows.at(0.0, name, operation, request)
        rows.at(5.0, "four", operation, consistent)
        rows.at(5.0, "five", operation, eventual)
        answers = rows.run()
        assert answers["one"] == answers["two"] == answers["four"]
        assert answers["three"] == answers["five"] == "ThrottlingException"

    def test_a_batch_leaves_out_throttled_items(self):
        rows = _Rows(read_units=1.0)
        keys = [{"id": {"S": key}} for key in ("a", "b")]
        rows.at(0.0, "one", *_read())
        rows.at(0.1, "both", "BatchGetItem", {"RequestItems": {"Rows": {"Keys": keys}}})
        answer = rows.run()["both"]
        assert [item["id"]["S"] for item in answer["Responses"]["Rows"]] == ["b"]
        assert answer["UnprocessedKeys"]["Rows"]["Keys"] == [{"id": {"S": "a"}}]


class TestIndexes:
    def test_a_throttled_key_throttles_the_whole_transaction(self):
        rows = _Rows(write_units=4.0)
        rows.at(0.0, "full", *_puts(*((f"r-{n}", "s") for n in range(4))))
        rows.at(0.1, "transaction", *_puts(("r-8", "s"), ("r-9", "t")))
        rows.at(0.1, "single", "PutItem", _put("r-5", "s")["Put"])
        rows.at(0.1, "other key", *_puts(("r-6", "t")))
        answers = rows.run()
        assert answers["full"] == {}, "four units, because a transaction does not double them"
        assert answers["transaction"] == ["ThrottlingError", "None"]
        assert answers["single"] == "ThrottlingException"
        assert answers["other key"] == {}
        assert rows.store.tables["Rows"].consumed.index_writes == {"byShard": 5}

    def test_an_entry_that_moves_takes_units_of_both_keys(self):
        rows = _Rows(write_units=4.0)
        rows.at(0.0, "place", *_puts(("r-1", "s")))
        rows.at(5.0, "others", *_puts(("r-2", "s"), ("r-3", "s"), ("r-4", "s")))
        rows.at(5.0, "move", *_puts(("r-1", "t")))
        rows.at(5.0, "left", *_puts(("r-5", "s")))
        rows.at(5.0, "entered", *_puts(*((f"r-{n}", "t") for n in range(6, 10))))
        answers = rows.run()
        assert answers["move"] == {}
        assert answers["left"] == ["ThrottlingError"]
        assert answers["entered"] == ["ThrottlingError"] * 4

    def test_a_cancelled_transaction_takes_no_units(self):
        rows = _Rows(write_units=4.0)
        operation, request = _puts(*((f"r-{n}", "s") for n in range(4)))
        lost = {"TransactItems": [*request["TransactItems"], {"Update": _decrement(9)}]}
        rows.at(0.0, "lost", operation, lost)
        rows.at(5.0, "again", operation, request)
        answers = rows.run()
        assert answers["lost"][-1] == "ConditionalCheckFailed"
        assert answers["again"] == {}
        assert rows.store.tables["Rows"].consumed.index_writes == {"byShard": 4}


class TestLatencies:
    def test_latencies_have_the_published_percentiles(self):
        five = PUBLISHED.of("TransactWriteItems", 5, 0.5)
        assert five == pytest.approx(0.0253)
        assert PUBLISHED.of("TransactWriteItems", 25, 0.99) == pytest.approx(0.0975)
        assert PUBLISHED.of("TransactWriteItems", 100, 0.5) == pytest.approx(0.0576, abs=1e-4)
        assert PUBLISHED.of("PutItem", 1, 0.9) == pytest.approx(0.0113)


def test_the_queue_delivers_in_the_order_of_sending():
    scheduler = Scheduler()
    queue = Queue(scheduler, [Message(f"o-{n}", "", {}, n) for n in range(4)])
    taken = []

    def work():
        first = queue.wait(2)
        for message in first:
            message.visible_at = 1.0
        queue.give_back(first)
        taken.append([message.order_id for message in queue.wait(1)])
        scheduler.sleep(2.0)
        taken.append([message.order_id for message in queue.wait(3)])

    scheduler.start(work)
    scheduler.run()
    assert taken == [["o-2"], ["o-0", "o-1", "o-3"]], "returned messages were sent before the rest"


def test_a_fifo_queue_holds_a_group_back_while_one_message_is_in_flight():
    scheduler = Scheduler()
    sent = [Message(f"{group}-{n}", "", {}, n, group) for n, group in enumerate("aababc")]
    queue = FifoQueue(scheduler, sent, depth=5)
    taken = []

    def take(most):
        batch = queue.wait(most)
        taken.append([message.order_id for message in batch])
        return batch

    def work():
        first = take(2)
        take(9)
        for message in first:
            message.visible_at = 1.0 + message.sent
        queue.give_back(first[:1])
        queue.end(first[1:])
        take(9)

    scheduler.start(work)
    scheduler.run()
    assert taken == [["a-0", "a-1"], ["b-2", "b-4", "c-5"], ["a-0", "a-3"]]
    assert scheduler.now == 1.0


class TestPollers:
    def _handle(self, queue, most, interval=0.0, works=0.0):
        """Handle two batches. Returns the time, the size, and the open messages of each."""
        scheduler, seen = queue._scheduler, []

        def work():
            for batch in Poller(scheduler, queue, most, interval).batches():
                began = scheduler.now
                scheduler.sleep(works)
                seen.append((round(began, 3), len(batch), len(queue.open)))
                if len(seen) == 2:
                    queue.close()

        scheduler.start(work)
        scheduler.run()
        return seen

    def _queue(self, count, **more):
        return Queue(Scheduler(), [Message(f"o-{n}", "", {}, n) for n in range(count)], **more)

    def test_a_receive_takes_15_ms_and_brings_at_most_ten_messages(self):
        assert self._handle(self._queue(200), 96) == [(0.15, 96, 96), (0.3, 96, 192)]

    def test_the_next_batch_is_gathered_while_the_worker_is_busy_and_no_more(self):
        assert self._handle(self._queue(99), 5, works=9.0) == [(0.015, 5, 10), (9.015, 5, 15)]

    def test_a_provisioned_poller_makes_ten_receives_a_second(self):
        assert self._handle(self._queue(99), 20, 0.1) == [(0.115, 20, 20), (0.315, 20, 40)]

    def test_a_batch_is_handed_over_when_its_window_ends(self):
        queue = self._queue(7, stays=True)
        late = Message("late", "", {}, 8, visible_at=5.0)
        queue._scheduler.start(lambda: queue.give_back([late]))
        first, second = self._handle(queue, 20)
        assert first == (pytest.approx(1.015, abs=0.015), 7, 7)
        assert second == (pytest.approx(6.0, abs=0.015), 1, 8), "a receive waits for a message"

    def test_batches_of_ten_have_no_window(self):
        assert self._handle(self._queue(13), 10) == [(0.015, 10, 10), (0.03, 3, 13)]

    def test_messages_that_wait_for_the_worker_are_in_flight(self):
        scheduler = Scheduler()
        sent = [Message(f"{group}-{n}", "", {}, n, group) for n, group in enumerate("aab")]
        queue = FifoQueue(scheduler, sent, depth=9)
        first, second = Poller(scheduler, queue, 1, 0.0), Poller(scheduler, queue, 9, 0.0)
        taken = []

        def work(poller):
            for batch in poller.batches():
                taken.append((scheduler.now, [message.order_id for message in batch]))
                scheduler.sleep(1.0)
                queue.end(batch)

        scheduler.start(lambda: work(first))
        scheduler.start(lambda: work(second))
        scheduler.run()
        assert [ids for _, ids in taken] == [["a-0"], ["b-2"], ["a-1"]]
        assert taken[2][0] > 1.0

    def test_the_visibility_timeout_begins_with_the_receive(self):
        queue = self._queue(20)
        scheduler, times = queue._scheduler, []

        def work():
            for batch in Poller(scheduler, queue, 10, 0.0).batches():
                times.append(scheduler.now)
                scheduler.sleep(10.0)
                if len(times) == 2:
                    queue.give_back(batch)
                else:
                    queue.end(batch)

        scheduler.start(work)
        scheduler.run()
        assert times[1:] == [10.015, pytest.approx(0.03 + VISIBILITY_SECONDS)]


@pytest.mark.parametrize("contender", ["ours_99", "textbook"])
def test_concurrent_writers_leave_balanced_books(contender):
    cell = engine.run(contender, hot_product(200, 1), workers=10)
    assert cell.clean
    assert cell.placed == 200
    assert cell.given_up == cell.unfinished == 0
    assert cell.conflicts > 0


@pytest.fixture
def without_botocore(monkeypatch):
    """Skip botocore's work, which takes most of the time. Our handlers' clients repeat no request on their own."""
    monkeypatch.setattr(TimedWorld, "answered_by", staticmethod(answered_directly_by))


@pytest.mark.usefixtures("without_botocore")
class TestHandlers:
    def test_a_sell_out_rejects_the_rest(self):
        cell = engine.run("ours_99", sell_out(120, 1), workers=4)
        assert cell.clean
        assert cell.placed > 0
        assert cell.refused > 0
        assert cell.placed + cell.refused == 120

    @pytest.mark.parametrize("seed", [1, 2])
    def test_single_units_at_three_locations_sell_out_before_an_order_is_refused(self, seed):
        orders = {
            f"o-{n}": json.dumps(
                {
                    "orderId": f"o-{n}",
                    "userId": "u",
                    "items": [{"productId": "drop", "quantity": 1}],
                }
            )
            for n in range(300)
        }
        singles = Workload("singles", "single units", {"drop": 151}, orders)
        spread = at_locations(singles, ["", "berlin", "lyon"])
        conditions = engine.Conditions(batch=20)
        cell = engine.run("ours_lanes", spread, 8, seed, conditions)
        assert cell.clean
        assert (cell.placed, cell.refused) == (151, 149)

    def test_a_seed_determines_a_run(self):
        workload = hot_product(100, 1)
        cells = [engine.run("ours_99", workload, 5, seed) for seed in (1, 1, 2)]
        assert cells[0] == cells[1]
        assert cells[0].p99_ms != cells[2].p99_ms

    def test_a_window_ends_while_the_queue_is_full(self):
        conditions = engine.Conditions(window=0.2)
        cell = engine.run("ours_99", hot_product(400, 1), 4, conditions=conditions)
        assert cell.seconds <= 0.2
        assert cell.clean
        assert cell.orders < 400

    def test_endless_orders_are_sold_from_lanes_that_start_full(self):
        conditions = engine.Conditions(window=0.5, warm_up=0.5, warm=True, endless=True, batch=96)
        cell = engine.run("ours_lanes", hot_product(50, 1), 2, conditions=conditions)
        assert cell.clean
        assert cell.placed > 500
        assert cell.conflicts == 0
        assert cell.write_units < 2.1, "two for each order, and some for the pages"
        assert cell.orders_per_second == pytest.approx(cell.placed / 0.5, rel=0.5), "no warm-up"

    def test_holds_that_end_together_return_each_unit_once(self):
        conditions = engine.Conditions(window=1_000.0, batch=10, endless=True)
        holds = Holds(hot_product(50, 1), 1, 240, 1.0, 1, conditions)
        holds.run()
        found = holds.result()
        assert found.clean
        assert holds._sent == 240
        assert 3.0 < holds._expired[0] - 1.0 < found.took < 10.0, "not during the grace period"
        assert found.rate > 25
        left = holds.items("Orders").values()
        assert all(row["status"]["S"] != "PENDING" for row in left if "holdSeconds" in row)

    @pytest.mark.parametrize(
        ("kind", "workers"), [(partial(QueuedHandOvers, 2), 1), (partial(CalledHandOvers, 60.0), 0)]
    )
    def test_earlier_orders_are_handed_over_once_and_the_books_balance(self, kind, workers):
        conditions = engine.Conditions(window=1.0, warm_up=0.3, endless=True, batch=96)
        hand_overs = kind(zipf(100, 1, 40), workers, 0.4, 40, 1, conditions)
        hand_overs.run()
        found = hand_overs.result()
        assert found.clean
        assert found.handed_over > 30
        assert found.again < 0.3
        assert (found.rate > 300) == bool(workers)
        hand_overs._books.owed["product-0001"] += 1
        assert not hand_overs.result().clean

    def test_an_acknowledged_hand_over_that_did_not_happen_counts_as_lost(self):
        conditions = engine.Conditions(window=1.0)
        hand_overs = QueuedHandOvers(1, hot_product(10, 1), 1, 0.4, 0, 1, conditions)
        hand_overs._fill_tables()
        hand_overs._enter_hand_over(next(hand_overs._backlog()))
        assert hand_overs._audit().lost == 1

    def test_callers_sell_from_lanes_while_the_queue_is_served(self):
        conditions = engine.Conditions(window=0.5, warm_up=1.0)
        callers = Callers(hot_product(60, 1), Doors(10, queued=1), 0, conditions)
        callers.run()
        found = callers.result()
        assert found.clean
        assert found.rate > 150
        assert found.queued > 150, "at least a batch of 96 in half a second"
        assert found.conflicts < 0.05
        assert found.requests < 1.0, "most orders come from the queue, in batches"

    def test_a_rejection_while_units_are_left_is_seen(self, monkeypatch):
        sale = sell_out(60, 1)
        callers = Callers(sale, Doors(20, once=True), 0, engine.Conditions(window=100.0))
        callers.run()
        found = callers.result()
        assert found.clean
        assert found.took == max(one.at for one in callers._answered)
        with monkeypatch.context() as more:
            more.setattr(Callers, "stock", lambda *_: 1)
            callers = Callers(sale, Doors(20, once=True), 0, engine.Conditions(window=100.0))
            callers.run()
        assert not callers.result().clean


def test_scenes_measure_their_cells_and_show_them(tmp_path, without_botocore):
    scenes = "FIFO hot 8,cold sell-out 4,an order a minute,recalls to count 8"
    scenes += ",hand-overs hot 5 and 8,calls to hand over zipf 100"
    names = [*scenes.split(","), "callers hot 20, queue 8"]
    given = {"scene": names, "scale": ["0.02"]}
    study, kept = studies.study("scenes"), ResultFile(tmp_path / "bench.jsonl")
    cells = choose("scenes", study, "short", given)
    for cell in cells:
        kept.add(cell, study.measure(**cell.values))
    printed = io.StringIO()
    found = [(cell.values, kept.get(cell)) for cell in cells]
    assert study.show(found, Console(file=printed, width=200))
    assert len(printed.getvalue().splitlines()) > 2
