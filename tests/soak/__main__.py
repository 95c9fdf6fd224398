"""The soak sends orders to real processes on the embedded AWS while workers are killed and connections break.

It shows what the runs by chance cannot: sockets, boto3's own retries, and processes that die. The exit status is 0 only
if every message has exactly one outcome, the books balance, the published events match the changes, workers were
killed, and faults of every kind happened.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Set before our modules are imported: the soak's embedded AWS is separate from the developer's.
os.environ["INVENTORY_ORDERS_STATE"] = str(ROOT / ".local" / "soak")

import contextlib  # noqa: E402
import json  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterable, Iterator  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from typing import Any  # noqa: E402

import psutil  # noqa: E402

from inventory_orders.store.rows import decode  # noqa: E402
from inventory_orders.store.tables import KEYS, Table  # noqa: E402
from local import shelf  # noqa: E402
from local.emulator import Emulator  # noqa: E402
from operations import queues  # noqa: E402
from operations.audit import read_books, read_rows  # noqa: E402
from operations.aws import Aws  # noqa: E402
from operations.dead_letters import Delivery  # noqa: E402
from operations.follow import Heard, listening  # noqa: E402
from operations.orders_file import OrderMessage  # noqa: E402
from testing.schedules.by_chance.people import PRODUCTS, Mail, answers, mails  # noqa: E402
from testing.world.ends import is_answered_with_no, is_done  # noqa: E402
from testing.world.ledger import Change, Ledger  # noqa: E402
from testing.world.news import News  # noqa: E402
from testing.world.streams import overtaken  # noqa: E402
from testing.world.tables import FEEDS  # noqa: E402
from testing.world.violation import ViolationError  # noqa: E402
from tests.support.faults import Fault, FaultyBus, FaultyProxy  # noqa: E402
from tests.support.stack import configure, deployed  # noqa: E402

ORDERS = 250
SHARES = {Fault.THROTTLED: 0.08, Fault.SERVER_ERROR: 0.03, Fault.LOST_RESPONSE: 0.04}
SHARES_OF_BUS = {Fault.SERVER_ERROR: 0.15, Fault.LOST_RESPONSE: 0.15}
FUNCTIONS = ("PlaceOrders", "AdjustStock", "ManageProducts", "ChangeOrders", "PublishEvents")
MESSAGES_BETWEEN_KILLS = (5, 20)
# After this share of the messages, no more workers are killed, so that the others can be settled.
KILL_UNTIL = 0.8
# A killed worker's messages return after the visibility timeout. The stack's three minutes would take too long.
TIMEOUT_SECONDS, VISIBILITY_SECONDS = 10, 15
# The run ends once nothing new has been published for this long. A killed publisher is invoked again much sooner.
SILENT_SECONDS = 8.0
MOST_SECONDS = 600.0

Rows = dict[tuple[str, tuple[str, ...]], dict[str, Any]]


class Soak:
    """One run.

    Args:
        aws: The stack.
        emulator: Its embedded AWS, whose child processes are the workers.
        seed: The seed of messages, kills and faults.
    """

    def __init__(self, aws: Aws, emulator: Emulator, seed: int) -> None:
        self.aws = aws
        self.emulator = emulator
        self.chance = random.Random(seed)
        # Holds would have to end before the run does.
        self.sent = [m for m in mails(self.chance, ORDERS) if "holdSeconds" not in m.text]
        self.heard: set[str] = set()
        self.kills = 0

    def run(self, proxy: FaultyProxy, bus: FaultyBus) -> None:
        """Send everything while workers are killed, and wait until every message is settled."""
        for name in FUNCTIONS:
            self._configure(name, proxy, bus)
        for queue in queues.QUEUES:
            attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS)}
            self.aws.sqs.set_queue_attributes(
                QueueUrl=self.aws.outputs[queue], Attributes=attributes
            )
        began = last_news = time.monotonic()
        next_kill = 0.0
        with listening(self.aws) as listen, ThreadPoolExecutor() as pool:
            sending = pool.submit(self._send, list(self.sent))
            while True:
                self.emulator.check()
                news = self._answer(listen(0.5))
                waiting = sum(queues.depth(self.aws, queue).total for queue in queues.QUEUES)
                now, settled = time.monotonic(), len(self.sent) - waiting
                last_news = now if news or waiting or not sending.done() else last_news
                if next_kill <= settled < KILL_UNTIL * len(self.sent):
                    next_kill = settled + self.chance.uniform(*MESSAGES_BETWEEN_KILLS)
                    self._kill()
                if now - last_news > SILENT_SECONDS or now - began > MOST_SECONDS:
                    return sending.result()

    def _configure(self, name: str, proxy: FaultyProxy, bus: FaultyBus) -> None:
        """Point a function at the proxies, and shorten its timeout."""
        function = self.aws.outputs[f"{name}FunctionName"]
        settings = self.aws.functions.get_function_configuration(FunctionName=function)
        faulty = {
            "AWS_ENDPOINT_URL_DYNAMODB": proxy.endpoint,
            "AWS_ENDPOINT_URL_EVENTBRIDGE": bus.endpoint,
        }
        variables = settings["Environment"]["Variables"] | faulty
        configure(self.aws, name, Timeout=TIMEOUT_SECONDS, Environment={"Variables": variables})

    def _send(self, some: Iterable[Mail]) -> None:
        for mail in some:
            queues.send(
                self.aws, output_of(mail.feed), [OrderMessage(mail.text, group=mail.group or "")]
            )

    def _answer(self, news: Iterator[Heard]) -> bool:
        """Let customers answer new events. Returns whether there were any."""
        before = len(self.heard)
        for heard in news:
            event_id, data = (
                heard.event["detail"]["metadata"]["eventId"],
                heard.event["detail"]["data"],
            )
            if event_id not in self.heard:
                self.heard.add(event_id)
                kind = heard.event["detail-type"] if "orderId" in data else ""
                commands = list(answers(kind, data, self.chance))
                asked = [Mail("OrderCommand", json.dumps(command)) for command in commands]
                self.sent += asked
                self._send(asked)
        return len(self.heard) > before

    def _kill(self) -> None:
        """Kill a worker."""
        workers = psutil.Process(self.emulator.pid).children()
        with contextlib.suppress(psutil.Error, IndexError):
            self.chance.choice(sorted(workers, key=lambda worker: worker.pid)).kill()
            self.kills += 1

    # ------------------------------------------------------------------ the end

    def problems(self, bus: FaultyBus) -> Iterator[str]:
        """Describe everything that is wrong at the end."""
        rows = {
            (table.value, tuple(row[key] for key in KEYS[table])): row
            for table in Table
            for row in read_rows(self.aws, table)
        }
        yield from self._wrong_ends(rows)
        books = read_books(self.aws)
        yield from books.corrupt
        yield from (str(entry.as_json) for entry in books.accounts if not entry.balances)
        try:
            Ledger(rows)
        except ViolationError as violation:
            yield str(violation)
        news = News()
        for table in (Table.ORDERS, Table.PRODUCTS):
            news.note(list(read_changes(self.aws, table)))
        required = {event_id for ids in news.required.values() for event_id in ids}
        published = {event_id for event_id in bus.taken if "#" in event_id}
        yield from (f"not published: {event_id}" for event_id in required - published)
        yield from (f"nothing calls for: {event_id}" for event_id in published - required)
        yield from (
            f"overtaken: {event_id}"
            for event_id in overtaken(sorted(published, key=bus.taken.index))
        )

    def _wrong_ends(self, rows: Rows) -> Iterator[str]:
        """Describe the messages that do not have exactly one outcome."""
        dead = set(self._dead_letters())

        def row_of(table: str, *key: str) -> dict[str, Any] | None:
            return rows.get((table, key))

        for mail in self.sent:
            function, is_dead = FEEDS[mail.feed].function, (mail.feed, mail.text) in dead
            if not mail.valid:
                if not is_dead:
                    yield f"invalid, but no dead letter: {mail.text}"
                continue
            body = json.loads(mail.text)
            done = is_done(row_of, function, body)
            if not done and function == "change_orders":
                done = is_answered_with_no(row_of("Orders", body["orderId"]), body)
            if done == is_dead:
                yield f"{'done and dead-lettered' if done else 'lost'}: {mail.text}"

    def _dead_letters(self) -> Iterator[tuple[str, str]]:
        """Receive and delete all dead letters. If they were not deleted, only ten of each FIFO group would be visible."""
        for name in FEEDS:
            url = self.aws.outputs[output_of(name, dead=True)]
            while found := self.aws.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
            ).get("Messages"):
                for message in found:
                    yield name, Delivery.of(message).content.body
                    self.aws.sqs.delete_message(
                        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
                    )


def output_of(feed: str, *, dead: bool = False) -> str:
    """The stack output with the URL of a queue."""
    name = FEEDS[feed].dead_letters if dead else FEEDS[feed].queue
    return f"{name.removesuffix('.fifo')}Url"


def read_changes(aws: Aws, table: Table) -> Iterator[Change]:
    """Yield all changes to a table. An empty page means the end, because nothing is written any more."""
    streams = aws.session.client("dynamodbstreams")
    arn = aws.dynamodb.describe_table(TableName=aws.tables[table])["Table"]["LatestStreamArn"]
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while (page := streams.get_records(ShardIterator=iterator))["Records"]:
            for record in page["Records"]:
                old, new = (record["dynamodb"].get(name) for name in ("OldImage", "NewImage"))
                key = tuple(record["dynamodb"]["Keys"][name]["S"] for name in KEYS[table])
                yield Change((table.value, key), old and decode(old), new and decode(new))
            iterator = page["NextShardIterator"]


def main() -> int:
    """Run the soak. Returns the exit status."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    began = time.monotonic()
    with deployed(enforce_iam=False) as (aws, emulator):
        shelf.create(aws, PRODUCTS)
        soak = Soak(aws, emulator, seed)
        with (
            FaultyProxy(emulator.endpoint, SHARES, seed) as proxy,
            FaultyBus(emulator.endpoint, SHARES_OF_BUS, seed) as bus,
        ):
            soak.run(proxy, bus)
        problems = list(soak.problems(bus))
    faults = Counter({fault.value: proxy.counts[fault] for fault in SHARES})
    faults.update({f"bus: {fault.value}": bus.counts[fault] for fault in SHARES_OF_BUS})
    faults["workers killed"] = soak.kills
    problems += [f"did not happen: {name}" for name, times in faults.items() if not times]
    print(f"{len(soak.sent)} messages, {len(soak.heard)} events, {time.monotonic() - began:.0f} s")
    print(", ".join(f"{times} {name}" for name, times in faults.items()))
    print("\n".join(problems) or "Clean.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
