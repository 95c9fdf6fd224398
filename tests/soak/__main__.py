"""The soak sends ten thousand orders and other messages to a stack whose workers, DynamoDB and EventBridge fail.

Workers are killed, and most clocks are two minutes off. DynamoDB throttles requests, cancels transactions, loses
responses, executes requests after their senders have repeated them, and reads the two halves of a batch at different
times. EventBridge has brown-outs. Customers receive the published events and answer with commands: they pay, cancel,
collect and return, and some units are lost. Some products are at three locations, and most orders name locations. The
staff count products while these are being sold, move units between locations, and delist products and locations with
open orders.

The exit status is 0 only if every message has exactly one outcome, the books balance (also by the soak's own
arithmetic), the published events match the changes of orders and product statuses exactly, no event was parked or
overtaken by a later event of the same order, each rejected order really lacked units at that time, and faults did
happen, including some that hit publishers and sweepers.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Set before our modules are imported: the soak's embedded AWS is separate from the developer's.
os.environ["INVENTORY_ORDERS_STATE"] = str(ROOT / ".local" / "soak")

import argparse  # noqa: E402
import contextlib  # noqa: E402
import json  # noqa: E402
import random  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import uuid  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterator, Mapping, Sequence  # noqa: E402
from concurrent.futures import Future, ThreadPoolExecutor  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from functools import partial  # noqa: E402
from operator import attrgetter  # noqa: E402
from typing import Any  # noqa: E402

import psutil  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from inventory_orders.store.tables import Table as StoredTable  # noqa: E402
from local import sample_orders, stack  # noqa: E402
from local.demo import progress_bar, stock_up  # noqa: E402
from local.emulator import Emulator  # noqa: E402
from local.endpoint import use_embedded  # noqa: E402
from local.process import LOGS  # noqa: E402
from operations import emf, queues  # noqa: E402
from operations.audit import read_books, read_rows  # noqa: E402
from operations.aws import Aws, holds  # noqa: E402
from operations.books import Books  # noqa: E402
from operations.dead_letters import DeadLetter, Delivery  # noqa: E402
from operations.errors import LostAnswerError, UserError  # noqa: E402
from operations.follow import listening  # noqa: E402
from testing.world.ends import named  # noqa: E402
from testing.world.streams import overtaken  # noqa: E402
from tests.soak.accounting import Ends, Sent, Tables, account  # noqa: E402
from tests.soak.auditor import Auditor  # noqa: E402
from tests.soak.changes import Change, demanded, read_changes, unfounded  # noqa: E402
from tests.soak.customer import Customers, differences  # noqa: E402
from tests.soak.ledger import (  # noqa: E402
    imbalances,
    wrong_counts,
    wrong_places,
    wrong_transfers,
)
from tests.soak.staff import Staff  # noqa: E402
from tests.soak.workload import SEASONAL, Workload, workload  # noqa: E402
from tests.support.faults import BrownOut, Fault, FaultyBus, FaultyProxy, Shares  # noqa: E402
from tests.support.stack import configure  # noqa: E402

SUMMARY = ROOT / ".local" / "soak.json"
CLOCKS = Path(__file__).with_name("clocks")
SHARES = Shares(
    throttled=0.08, server_error=0.03, conflict=0.04, lost_response=0.04, late=0.03, torn=0.2
)

# A killed worker's messages return after the visibility timeout. The stack's 3 minutes would take too long.
FUNCTION_TIMEOUT_SECONDS = 10
VISIBILITY_SECONDS = 30
MESSAGES_BETWEEN_KILLS = (50, 350)
# After this share of messages, no more workers are killed and the staff stop, so that the other messages can be
# settled.
KILL_UNTIL = 0.9
# Long enough for a hold whose sweeper's clock is two minutes fast and whose worker's clock is two minutes slow. The
# worker ignores the expiry as too early, and the sweeper sends it again ten minutes after the hold has ended.
QUIET_SECONDS = 900

FED_FUNCTIONS = ("PlaceOrders", "AdjustStock", "ManageProducts", "ChangeOrders")
FUNCTIONS = (*FED_FUNCTIONS, "CountStock", "PublishEvents", "Sweep")

# A stack sweeps once a minute. Here, two sweeps start together, and much more often.
SECONDS_BETWEEN_SWEEPS = 10.0
# The run ends once nothing new has been published for this long. A killed publisher is invoked again much sooner.
SILENT_SECONDS = 10.0

# These entries of the summary are empty or 0 in a clean run. Messages and audits are checked separately.
WRONG = (
    *("stillWaiting", "holdsLeft", "notPublished", "rejectedWithoutReason"),
    *("productEventsMissing", "productEventsUnexpected", "undeliverableEvents", "overtakenEvents"),
    *("unexplainedUnits", "wrongBooks", "brokenEquations", "wrongCounts", "wrongDelistings"),
    *("wrongTransfers", "wrongPlaces"),
)
# A run is valid only if each of these happened.
HAPPENED = (
    "entriesFolded",
    "unitsLost",
    "unitsReturned",
    "countsBooked",
    "countsRefused",
    "timesDelisted",
    "ordersSplit",
    "ordersNotFromFirstLocation",
    "transfersBooked",
    "transfersRefused",
)


class Killer:
    """Kills a worker of the embedded AWS whenever another few hundred messages have been settled.

    It counts messages, not seconds, because a busy machine would kill workers faster than they start.

    Attributes:
        kills: Number of workers killed so far, by function.
    """

    def __init__(self, emulator: Emulator, seed: int) -> None:
        self._emulator = psutil.Process(emulator.pid)
        self._chance = random.Random(seed)
        self._next = 0.0
        self.kills: Counter[str] = Counter()

    def strike(self, settled: int) -> None:
        """Kill a worker if enough messages have been settled.

        Args:
            settled: Number of settled messages.
        """
        if settled < self._next:
            return
        # All child processes of the emulator are workers. Each function is equally likely to lose one.
        workers: dict[str, list[psutil.Process]] = {}
        for worker in sorted(self._emulator.children(), key=lambda worker: worker.pid):
            with contextlib.suppress(psutil.Error):
                function = worker.environ().get("AWS_LAMBDA_FUNCTION_NAME", "?")
                workers.setdefault(function, []).append(worker)
        if workers:
            self._next = settled + self._chance.uniform(*MESSAGES_BETWEEN_KILLS)
            function = self._chance.choice(sorted(workers))
            self._chance.choice(workers[function]).kill()
            self.kills[function] += 1


@dataclass(frozen=True)
class Trouble:
    """Injects failures and counts them.

    Attributes:
        killer: Kills workers.
        proxy: Injects faults into DynamoDB.
        bus: Injects brown-outs into EventBridge.
        clocks: The folder in which each worker creates a file whose name is the offset of its clock.
    """

    killer: Killer
    proxy: FaultyProxy
    bus: FaultyBus
    clocks: Path


def prepare(aws: Aws, trouble: Trouble) -> None:
    """Point the functions at the proxies, set their clocks, and shorten their timeouts."""
    faulty = {
        "AWS_ENDPOINT_URL_DYNAMODB": trouble.proxy.endpoint,
        "AWS_ENDPOINT_URL_EVENTBRIDGE": trouble.bus.endpoint,
        "PYTHONPATH": str(CLOCKS),
        "SOAK_CLOCKS": str(trouble.clocks),
    }
    for name in FUNCTIONS:
        function = aws.outputs[f"{name}FunctionName"]
        settings = aws.functions.get_function_configuration(FunctionName=function)
        variables = settings["Environment"]["Variables"]
        configure(
            *(aws, name),
            Timeout=FUNCTION_TIMEOUT_SECONDS,
            Environment={"Variables": variables | faulty},
        )
    for queue in queues.QUEUES:
        aws.sqs.set_queue_attributes(
            QueueUrl=aws.outputs[queue], Attributes={"VisibilityTimeout": str(VISIBILITY_SECONDS)}
        )


def sweep(aws: Aws, over: threading.Event) -> int:
    """Sweep repeatedly until told to stop. Returns how many entries of outbound pages the sweeps reported as folded.

    The entries of a sweep that is killed or reports a failure are not counted.
    """
    folded = 0
    while not over.wait(SECONDS_BETWEEN_SWEEPS):
        with contextlib.suppress(LostAnswerError):
            folded += aws.invoke("Sweep", {"action": "sweep"}).get("folded", 0)
    return folded


def soak(
    aws: Aws,
    emulator: Emulator,
    trouble: Trouble,
    work: Workload,
    customers: Customers,
    staff: Staff,
    console: Console,
) -> tuple[float, int, int]:
    """Send everything while workers are killed, and wait until every message is settled or nothing changes any more.

    Returns:
        The seconds from sending the first message until the last one was settled, the number of unsettled messages, and
        how many entries of outbound pages the sweeps folded.
    """
    sent: list[int] = []
    send = partial(queues.send, aws, on_sent=sent.append)
    killer, proxy = trouble.killer, trouble.proxy
    began = last_change = time.monotonic()
    settled = 0
    over, closing = threading.Event(), threading.Event()
    with (
        listening(aws) as listen,
        ThreadPoolExecutor(len(work.messages) + 4) as pool,
        progress_bar(console) as bar,
    ):
        sweeps = [pool.submit(sweep, aws, over) for _ in range(2)]
        beside: list[Future[Any]] = [
            pool.submit(customers.live, listen, partial(send, queues.COMMANDS), over),
            pool.submit(staff.work, closing),
        ]
        task = bar.add_task("Messages", total=work.count, note="")
        sending = [pool.submit(send, queue, messages) for queue, messages in work.messages.items()]
        try:
            while True:
                emulator.check()
                all_sent = all(future.done() for future in sending)
                waiting = sum(queues.depth(aws, queue).total for queue in queues.QUEUES)
                now, ended = time.monotonic(), max(0, sum(sent) - waiting)
                if ended != settled:
                    settled, last_change = ended, now
                total = work.count + len(customers.commands)
                if settled < KILL_UNTIL * total:
                    killer.strike(settled)
                else:
                    closing.set()
                note = f"{killer.kills.total()} workers killed, {proxy.counts.total():,} faults"
                bar.update(task, completed=settled, total=total, note=note)
                is_silent = now - customers.last_news > SILENT_SECONDS
                if (all_sent and not waiting and is_silent and not holds(aws)) or (
                    now - max(last_change, customers.last_news) > QUIET_SECONDS
                ):
                    break
                time.sleep(0.2)
        finally:
            # This also happens after Ctrl-C, because the pool waits for its threads.
            over.set()
            closing.set()
        for future in (*beside, *sending):
            future.result()
        folded = sum(future.result() for future in sweeps)
    return time.monotonic() - began, waiting, folded


def take_dead_letters(aws: Aws, output: str) -> Iterator[DeadLetter]:
    """Receive and delete all dead letters of a queue. If they were not deleted, at most ten of each FIFO group would be
    visible."""
    url = aws.outputs[output]
    while found := aws.sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    ).get("Messages"):
        for message in found:
            yield Delivery.of(message).content
            aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def read_ends(
    aws: Aws, work: Workload, customers: Customers, books: Books
) -> tuple[Ends, Counter[str]]:
    """Find the outcome of every message. Also returns how many dead letters each cause has, not counting copies."""
    dead_letters = {
        (queue, dead_letter.original_message_id): dead_letter
        for queue, output in zip(queues.QUEUES, queues.DEAD_LETTERS, strict=True)
        for dead_letter in take_dead_letters(aws, output)
    }
    tables = Tables(
        products={(row["productId"],): row for row in read_rows(aws, StoredTable.PRODUCTS)},
        orders={(order_id,): row for order_id, row in books.orders.items()},
        adjustments={
            (row["productId"], row["adjustmentId"]): row
            for row in books.adjustments
            if row["reason"] not in _NOT_SENT
        },
    )
    ends = account(
        [
            *(Sent(queue, m.body) for queue, messages in work.messages.items() for m in messages),
            *(Sent(queues.COMMANDS, message.body) for message in customers.commands),
        ],
        tables,
        ((Sent(queue, dead.body), dead.code) for (queue, _), dead in dead_letters.items()),
        (Sent(queue, body) for queue, bodies in work.invalid.items() for body in bodies),
    )
    return ends, Counter(dead.code for dead in dead_letters.values())


_NOT_SENT = {"OPENING", "CLOSING", "COUNT", "TRANSFER_OUT", "TRANSFER_IN"}
"""Reasons of adjustments that are not booked by a message of the workload."""


def of_messages(
    work: Workload, customers: Customers, ends: Ends, causes: Counter[str]
) -> dict[str, Any]:
    """Summarise messages and their outcomes."""
    distinct = {(queue, m.body) for queue, messages in work.messages.items() for m in messages}
    distinct |= {(queues.COMMANDS, message.body) for message in customers.commands}
    return {
        "messagesSent": work.count + len(customers.commands),
        "distinctMessages": len(distinct),
        "commandsSent": len(customers.commands),
        "inTheTables": dict(sorted(ends.stored.items())),
        "deadLetters": dict(sorted(ends.dead.items())),
        "deadLettersByCause": dict(sorted(causes.items())),
        "inBoth": [message.body for message in ends.both],
        "missing": [message.body for message in ends.missing],
        "fromNowhere": list(ends.strangers),
        "wronglyEnded": list(ends.wrong),
    }


def of_events(
    aws: Aws, customers: Customers, books: Books, changes: Sequence[Change]
) -> dict[str, Any]:
    """Summarise events."""
    of_products, told = demanded(changes), customers.news_of_products
    heard = (heard.event for heard in customers.heard.values())
    return {
        "eventsHeard": dict(sorted(customers.events.items())),
        "eventsRepeated": customers.repeated,
        "notPublished": differences(books.orders, heard),
        "productChanges": len(changes),
        "productEventsDemanded": len(of_products),
        "productEventsMissing": sorted(of_products - told),
        "productEventsUnexpected": sorted(told - of_products),
        "undeliverableEvents": queues.depth(aws, "UndeliverableEventsQueueUrl").total,
    }


def of_locations(books: Books) -> dict[str, Any]:
    """Summarise the locations that orders were placed from."""
    placed = [
        (row.get("locations", [""])[0], {line.get("locationId", "") for line in row["items"]})
        for row in books.orders.values()
        if row["items"] and all("productCreatedAt" in line for line in row["items"])
    ]
    whole = Counter(location for _, (location, *others) in placed if not others)
    return {
        "ordersPlacedFrom": {location or "(default)": n for location, n in sorted(whole.items())},
        "ordersSplit": sum(len(used) > 1 for _, used in placed),
        "ordersNotFromFirstLocation": sum(used != {first} for first, used in placed),
    }


def of_shelf(aws: Aws, books: Books, staff: Staff) -> dict[str, Any]:
    """Summarise units that were handed over, lost, returned, counted and moved."""
    products = list(read_rows(aws, StoredTable.PRODUCTS))
    moved = Counter(transfer.result for transfer in staff.transfers)
    steps = [step for row in books.orders.values() for step in row.get("steps", ())]
    results = Counter(count.result for count in staff.counts)
    closed = sum(row["reason"] == "CLOSING" for row in books.adjustments)
    return {
        "handOvers": sum(step["action"] == "fulfil" for step in steps),
        "unitsLost": sum(
            named(step).total()
            for step in steps
            if step["action"] == "cancel" and step.get("restock") is False
        ),
        "unitsReturned": sum(named(step).total() for step in steps if step["action"] == "return"),
        "countsBooked": results["COMMITTED"],
        "countsRefused": results["REFUSED"],
        "wrongCounts": wrong_counts(staff.counts, books.adjustments),
        "transfersBooked": moved["APPLIED"] + moved["REPLAYED"],
        "transfersRefused": moved["REFUSED"],
        "wrongTransfers": wrong_transfers(staff.transfers, books.adjustments),
        "wrongPlaces": wrong_places(products),
        "timesDelisted": staff.delisted,
        "wrongDelistings": closed - staff.delisted,
        "brokenEquations": imbalances(
            products,
            read_rows(aws, StoredTable.ALLOTMENTS),
            books.adjustments,
            books.orders.values(),
        ),
    }


def of_books(books: Books, baseless: Sequence[str], auditor: Auditor) -> dict[str, Any]:
    """Summarise the orders, the stock, and the audits during the run."""
    wrong = [entry.as_json for entry in books.accounts if not entry.balances]
    return {
        "rejectedWithoutReason": list(baseless),
        "holdsLeft": sum("expiresAt" in row for row in books.orders.values()),
        "orderRows": dict(Counter(str(row["status"]) for row in books.orders.values())),
        "unexplainedUnits": sum(
            abs(units) for entry in books.accounts for units in entry.differences
        ),
        "wrongBooks": [*wrong, *books.corrupt],
        "audits": auditor.audits,
        "wrongAudits": auditor.wrong,
        "theftsFound": auditor.thefts_found,
    }


def of_run(aws: Aws, trouble: Trouble, seconds: float, waiting: int, folded: int) -> dict[str, Any]:
    """Summarise the run and its failures."""
    samples = [
        sample
        for name in FED_FUNCTIONS
        for sample in emf.read_samples(aws, f"{name}LogGroupName", 0)
    ]
    log = (LOGS / "emulator.log").read_text("utf-8", "replace")
    kills, proxy, bus = trouble.killer.kills, trouble.proxy, trouble.bus
    clocks = Counter(file.name.split()[0] for file in trouble.clocks.iterdir())
    return {
        "seconds": round(seconds, 1),
        "overtakenEvents": overtaken(bus.taken),
        "stillWaiting": waiting,
        "entriesFolded": folded,
        "workersKilled": kills.total(),
        "workersKilledByFunction": dict(sorted(kills.items())),
        "invocationsFailed": log.count("failed processing SQS batch"),
        "requestsToDynamoDB": proxy.requests,
        "faults": {fault.value: proxy.counts[fault] for fault in Fault},
        "brownOuts": {kind.value: bus.counts[kind] for kind in BrownOut},
        "workersByClock": dict(sorted(clocks.items())),
        "messagesReturned": int(sum(emf.values_of(samples, "MessagesReturned"))),
        "ordersReplayed": int(sum(emf.values_of(samples, "OrdersReplayed"))),
    }


def is_clean(aws: Aws, result: Mapping[str, Any]) -> bool:
    """Whether orders, stock and events are right, and each kind of fault happened."""
    harmed = {aws.outputs[f"{name}FunctionName"] for name in ("PublishEvents", "Sweep")}
    return (
        not any(result[name] for name in WRONG)
        and harmed <= result["workersKilledByFunction"].keys()
        and result["invocationsFailed"] > 0
        and all((result["faults"] | result["brownOuts"]).values())
        and len(result["workersByClock"]) == 3
        and result["productEventsDemanded"] > 0
        and all(result[name] for name in HAPPENED)
    )


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the summary."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in result.items():
        table.add_row(re.sub(r"(?=[A-Z])", " ", name).capitalize(), _in_words(value))
    console.print(table)
    console.print(
        "[bold green]Clean:[/] every message has exactly one outcome, the books balance, published events match the changes, "
        "and no order was rejected without reason."
        if result["clean"]
        else f"[bold red]Not clean.[/] See {os.path.relpath(SUMMARY)} and {os.path.relpath(LOGS)}."
    )


def _in_words(value: object) -> str:
    """Format an entry of the summary. A list is shown as its length and its first three items."""
    match value:
        case Mapping():
            return ", ".join(f"{count:,} {name}" for name, count in value.items()) or "none"
        case list():
            return f"{len(value):,} {'; '.join(map(str, value[:3]))}".rstrip()
        case bool() | str():
            return str(value)
        case _:
            return f"{value:,}"


def main() -> int:
    """Run the soak. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of messages, kills and faults")
    seed: int = parser.parse_args().seed
    console = Console(highlight=False)
    began = time.monotonic()

    def report(step: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:4.0f} s[/] {step}")

    stack.down()
    try:
        emulator = stack.up(report)
        use_embedded(emulator.endpoint)
        aws = Aws.of_stack(stack.STACK_NAME)
        run_id = f"s{uuid.uuid4().hex[:6]}"
        work = workload(run_id, seed, datetime.now(UTC))
        customers, staff = Customers(seed), Staff(aws, run_id, seed)
        report("Stocking the shop")
        stock_up(aws, [*sample_orders.stocked(), *SEASONAL], run_id)
        with (
            FaultyProxy(emulator.endpoint, SHARES, seed) as proxy,
            FaultyBus(emulator.endpoint, seed) as bus,
            tempfile.TemporaryDirectory() as folder,
        ):
            trouble = Trouble(Killer(emulator, seed), proxy, bus, Path(folder))
            prepare(aws, trouble)
            # These products have plenty of stock, so returning a unit by hand does not change their status.
            stocked = sample_orders.stocked()
            places = [product for product in stocked if "#" in product.product_id]
            plenty = [max(some, key=attrgetter("opening_stock")) for some in (stocked, places)]
            with Auditor(aws, *(product.product_id for product in plenty)) as auditor:
                ended = soak(aws, emulator, trouble, work, customers, staff, console)
            ran = of_run(aws, trouble, *ended)
        report("Reading the books")
        books, changes = read_books(aws), list(read_changes(aws, StoredTable.PRODUCTS))
        baseless = unfounded(read_changes(aws, StoredTable.ORDERS), changes)
        ends, causes = read_ends(aws, work, customers, books)
        result = {
            "seed": seed,
            **ran,
            **of_messages(work, customers, ends, causes),
            **of_events(aws, customers, books, changes),
            **of_locations(books),
            **of_shelf(aws, books, staff),
            **of_books(books, baseless, auditor),
        }
        clean = ends.is_clean and auditor.is_right and is_clean(aws, result)
        result = {"clean": clean, **result}
    except UserError as error:
        console.print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        return 1
    finally:
        stack.down()
    SUMMARY.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    show(result, console)
    return 0 if result["clean"] else 1


if __name__ == "__main__":
    sys.exit(main())
