"""Commands for queues: count messages, redrive dead letters, and send orders from a file."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from .. import queues
from .. import redrive as redrives
from ..columns import ColumnMap
from ..dead_letters import read_dead_letters
from ..errors import UserError
from ..orders_file import OrderMessage, count_orders, read_orders
from ..redrive import MAY_SUCCEED_NOW
from ..words import counted, without_full_stop
from .bad_lines import ErrorsFile, refusals_of, report_bad_lines, report_for
from .common import AsJson, Columns, aside, print_json, reading, screen, table_of
from .target import Target, aws_of, on_stack

if TYPE_CHECKING:
    from ..aws import Aws
    from ..commands_file import CommandLine
    from ..file_errors import FileError

app = typer.Typer()

_SHOWN_ORDERS = 5
"""The maximum number of order ids in a row of the list of dead letters. As JSON, all are listed."""


class QueueName(StrEnum):
    """The queues to which programs send new orders."""

    STANDARD = "standard"
    FIFO = "fifo"


class AnyQueue(StrEnum):
    """All queues, in the sequence of `queues.QUEUES`."""

    STANDARD = "standard"
    FIFO = "fifo"
    EXPRESS = "express"
    STOCK = "stock"
    CATALOGUE = "catalogue"
    COMMAND = "command"
    EXPIRY = "expiry"


@on_stack(app)
def status(as_json: AsJson = False, account: Target | None = None) -> None:
    """Count the rows in the tables and the messages in the queues, and list the causes of dead letters."""
    found = _read_status(aws_of(account, aside if as_json else screen))
    if as_json:
        print_json(found)
        return
    note = "approximate, up to six hours old" if account else ""
    items = [(table, count, note) for table, count in found["items"].items()]
    screen.print(table_of(("table", "items", ""), items, {"items"}), "")
    counts = ("waiting", "in flight", "for later")
    depths = [(queue, *numbers.values()) for queue, numbers in found["queues"].items()]
    screen.print(table_of(("queue", *counts), depths, counts))
    least = "" if found["deadLettersAreAll"] else "at least "
    causes = [
        (code, f"{least}{cause['count']:,}", cause["example"])
        for code, cause in found["deadLetters"].items()
    ]
    if causes:
        screen.print("", table_of(("dead letters", "", "for example"), causes))


def _read_status(aws: Aws) -> dict[str, Any]:
    """Read the counts, in the form of the JSON that `status` prints."""
    items = {
        kind.value: aws.dynamodb.describe_table(TableName=name)["Table"]["ItemCount"]
        for kind, name in aws.tables.items()
    }
    sources, letters = zip(*queues.pairs(aws), strict=True)
    depths = {
        name.removesuffix("Url"): queues.depth(aws, name)
        for name in (*sources, *letters, queues.UNDELIVERABLE_EVENTS)
    }
    with aside.status("Reading dead letters"):
        by_queue, more = read_dead_letters(aws, 1000)
    dead_letters = [delivery.content for some in by_queue.values() for delivery in some]
    causes = Counter(dead_letter.code for dead_letter in dead_letters)
    example = {dead_letter.code: dead_letter.message for dead_letter in dead_letters}
    return {
        "items": items,
        "queues": {
            name: {"waiting": depth.waiting, "inFlight": depth.in_flight, "later": depth.later}
            for name, depth in depths.items()
        },
        "deadLetters": {
            code: {"count": count, "example": example[code]}
            for code, count in sorted(causes.items(), key=lambda item: (-item[1], item[0]))
        },
        "deadLettersAreAll": not more,
    }


@on_stack(app)
def redrive(
    send: Annotated[
        bool,
        typer.Option("--send", help="Send messages back. Without this option, nothing changes."),
    ] = False,
    queue: Annotated[
        AnyQueue | None,
        typer.Option(
            # Typer wraps a list of choices in the middle of words.
            metavar="QUEUE",
            help=f"Only the dead letters of this queue: {', '.join(AnyQueue)}. Default: all.",
        ),
    ] = None,
    cause: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE",
            help=f"Send back only this errorCode; can be repeated. Default: {', '.join(sorted(MAY_SUCCEED_NOW))}, "
            "whose causes may have been fixed since.",
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="Maximum messages per second.")] = 20.0,
    as_json: AsJson = False,
    account: Target | None = None,
) -> None:
    """Show the dead letters by cause, and send back those that may succeed now.

    A message that can never succeed (bad JSON, a schema violation, a reused id) stays: its sender has to correct it and
    send it again. You may interrupt a redrive and run it again: it sends each message before it deletes it, and the
    service recognises messages that it has already processed.
    """
    causes = _known_causes(cause)
    aws = aws_of(account, aside if as_json else screen)
    named = dict(zip(AnyQueue, queues.QUEUES, strict=True))
    if queue is not None:
        queues.url_of(aws, named[queue])
        named = {queue: named[queue]}
    findings = _read_dead_letters(aws, named, causes, rate if send else None)
    if as_json:
        print_json({"sent": send, "deadLetters": list(_by_decision(findings))})
        return
    rows = [
        (
            *(row["queue"], row["cause"], row["count"]),
            *(redrives.Decision[row["decision"]].value, _first(row["orderIds"]), row["example"]),
        )
        for row in _by_decision(findings)
    ]
    headings = ("queue", "cause", "dead letters", "", "orders", "for example")
    table = table_of(headings, rows, {"dead letters"})
    none = "There are no dead letters. [dim]One that was read within the last minute is hidden.[/]"
    screen.print(table if rows else none)
    back = sum(found.count(redrives.Decision.SEND_BACK) for found in findings.values())
    if send:
        screen.print(
            f"{back:,} sent back. [dim]`.venv/bin/inventory-orders status` shows queues and dead letters.[/]"
        )
    else:
        option = "--send" if account else "--send (with make: SEND=1)"
        screen.print(f"Nothing was changed. [dim]{option} would send {back:,} back.[/]")


def _known_causes(given: Sequence[str] | None) -> frozenset[str]:
    """Choose the causes whose dead letters are sent back."""
    causes = frozenset(given) if given else MAY_SUCCEED_NOW
    for unknown in sorted(causes - redrives.CAUSES):
        raise UserError(
            f"there is no cause {unknown}; the causes are {', '.join(sorted(redrives.CAUSES))}"
        )
    return causes


def _read_dead_letters(
    aws: Aws, named: Mapping[AnyQueue, str], causes: frozenset[str], rate: float | None
) -> dict[AnyQueue, redrives.Findings]:
    """Read the dead letters of queues. With a rate (messages per second), send back the ones with the given causes."""
    there = dict(queues.pairs(aws))
    chosen = [(name, source) for name, source in named.items() if source in there]

    def read(one: tuple[AnyQueue, str]) -> redrives.Findings:
        name, source = one
        url = aws.outputs[there[source]]

        def progress(so_far: redrives.Findings) -> None:
            back = so_far.count(redrives.Decision.SEND_BACK)
            spinner.update(f"{name}: {back:,} sent back")

        try:
            if rate is None:
                return redrives.preview(aws.sqs, url, causes)
            return redrives.redrive(
                aws.sqs, url, aws.outputs[source], causes, rate=rate, on_progress=progress
            )
        except (BotoCoreError, ClientError) as error:
            raise UserError(
                f"{name}: {without_full_stop(error)}. Nothing is lost: fix this, then run the command again"
            ) from error

    with (
        aside.status("Reading the dead letters") as spinner,
        ThreadPoolExecutor(len(chosen)) as pool,
    ):
        # A preview reads all queues in parallel. Sending reads one at a time, to keep one rate and to stop promptly on
        # Ctrl-C.
        found = (pool.map if rate is None else map)(read, chosen)
        findings = {name: each for (name, _), each in zip(chosen, found, strict=True)}
    for name, each in findings.items():
        if each.crowded:
            aside.print(
                f"[dim]{counted(len(each.crowded), 'group')} of {name} may hold more dead letters than SQS shows at "
                "a time; --send processes them all.[/]"
            )
    return findings


def _by_decision(findings: Mapping[AnyQueue, redrives.Findings]) -> Iterator[dict[str, Any]]:
    """Yield the number of dead letters by queue, cause and decision."""
    for name, found in findings.items():
        for _, group in sorted(found.groups.items()):
            for decision, count in group.decisions.items():
                yield {
                    "queue": name,
                    "cause": group.code,
                    "decision": decision.name,
                    "count": count,
                    "orderIds": [*group.order_ids[decision]],
                    "example": group.example,
                }


def _first(order_ids: Sequence[str]) -> str:
    """List the first ids of orders, and say how many more there are."""
    more = (
        [f"and {len(order_ids) - _SHOWN_ORDERS:,} more"] if len(order_ids) > _SHOWN_ORDERS else []
    )
    return " ".join([*order_ids[:_SHOWN_ORDERS], *more])


_OrdersFile = Annotated[
    Path,
    typer.Argument(
        help="Orders as JSON lines, or as CSV with the columns orderId, userId, productId and quantity, perhaps locationId, "
        "locations, holdSeconds and attributes.NAME, and one row per order line; may be compressed (.gz)."
    ),
]

_Commands = Annotated[
    bool,
    typer.Option(
        "--commands",
        help="The file has commands on orders instead: as JSON lines, or as CSV with the columns action and orderId, and "
        "perhaps stepId, productId, quantity, locationId, restock, force, until, ifVersion, actor, reference, reason and "
        "attributes.NAME.",
    ),
]

_Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Check the file, and send nothing. Commands are also checked against their orders.",
    ),
]

_Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Send lines that are not orders, too. Without this option an error in the file stops the command. A CSV "
        "file in which an order would be sent only in part is refused in any case.",
    ),
]


@on_stack(app)
def send(
    file: _OrdersFile,
    commands: _Commands = False,
    check: _Check = False,
    queue: Annotated[QueueName, typer.Option(help="The queue to send orders to.")] = (
        QueueName.STANDARD
    ),
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Messages per second. Default: no limit.")
    ] = None,
    duplicates: Annotated[
        float, typer.Option(min=0, max=100, help="Percentage of messages to send twice.")
    ] = 0.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Send only this many orders or commands.")
    ] = None,
    unchecked: _Unchecked = False,
    mapping: Columns = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send to an account without asking.")] = (
        False
    ),
    errors: ErrorsFile = None,
    account: Target | None = None,
) -> None:
    """Send the orders of a file, or commands on orders, through SQS. The whole file is checked before anything is sent.

    JSON lines of orders are sent unchanged. In a CSV file, adjacent rows with the same orderId are one order; if more rows
    of that order follow further down, the file is refused: sort it by orderId. The column locations has an order's locations
    with spaces between them; (default) is the one without a name. An attribute from a file is always a string.

    With `--commands`, the action of a line is confirm, extend, amend, fulfil, unfulfil, cancel or return. Adjacent rows
    that differ only in product, quantity and location are one command. Without a stepId, a command with products gets an id that follows from its
    units and reference, so you may send the file again: no command is carried out twice. `--check` lists by kind which commands would
    be refused or have to wait, but knows neither the stock that an amend needs nor the setting `amendPaid`; after the
    file was sent, it shows which were.
    """
    if commands and (unchecked or queue is not QueueName.STANDARD):
        raise typer.BadParameter("--queue and --unchecked are for orders", param_hint="--commands")
    with refusals_of(file, errors), aside.status(f"Checking {file.name}"):
        given = file, limit, ColumnMap.of(mapping or ())
        work = _commands_in(*given) if commands else _orders_in(*given, queue, unchecked)
    if check:
        bad = _check(work, account, report_for(file, errors), file)
        raise typer.Exit(int(bad))
    aws = aws_of(account)
    url = queues.url_of(aws, work.output)
    if account is not None and not yes:
        what = "every line" if unchecked else work.things
        typer.confirm(f"Send {what} of {file} to {url}?", abort=True)
    began = time.monotonic()
    count = _send(aws, work, duplicates / 100, rate)
    seconds = time.monotonic() - began
    screen.print(
        f"{counted(count, 'message')} sent to {url.rsplit('/', 1)[1]} in {seconds:.1f} s. [dim]{work.then}, and `status` shows "
        "queues and dead letters.[/]"
    )
    _note_on_anonymous(work.commands)


@dataclass(frozen=True)
class _Work:
    """What a file has to send.

    Attributes:
        things: The number of its orders or commands, in words.
        output: Name of the stack output with the URL of their queue.
        messages: The messages.
        then: How to see what came of them.
        commands: Its commands on orders.
    """

    things: str
    output: str
    messages: Iterator[OrderMessage]
    then: str
    commands: Sequence[CommandLine] = ()


def _send(aws: Aws, work: _Work, duplicates: float, rate: float | None) -> int:
    """Send messages, and return their number. `duplicates` is the share to send twice."""
    count = 0

    def progress(more: int) -> None:
        nonlocal count
        count += more
        spinner.update(f"{counted(count, 'message')} of {work.things} sent")

    messages = _with_duplicates(work.messages, duplicates)
    with aside.status("Sending") as spinner:
        queues.send(aws, work.output, messages, rate=rate, on_sent=progress)
    return count


def _orders_in(
    file: Path, limit: int | None, columns: ColumnMap, queue: QueueName, unchecked: bool
) -> _Work:
    return _Work(
        counted(count_orders(file, limit, unchecked=unchecked, columns=columns), "order"),
        queues.STANDARD if queue is QueueName.STANDARD else queues.FIFO,
        islice(read_orders(file, columns), limit),
        "`.venv/bin/inventory-orders orders ID` shows an outcome, `follow` shows all new ones",
    )


def _commands_in(file: Path, limit: int | None, columns: ColumnMap) -> _Work:
    from ..commands_file import read_commands  # noqa: PLC0415 - the layer is slow to import

    found = read_commands(file, limit, columns)
    return _Work(
        counted(len(found), "command"),
        queues.COMMANDS,
        (line.message for line in found),
        "`send --commands --check` with the same file shows what came of them",
        found,
    )


def _note_on_anonymous(commands: Sequence[CommandLine]) -> None:
    """Say which commands would be taken for repetitions if they happen a second time."""
    if number := sum(line.is_anonymous for line in commands):
        have = "has" if number == 1 else "have"
        screen.print(
            f"[dim]{counted(number, 'command')} with products {have} neither a stepId nor a reference. If the same units of an "
            "order are shipped, cancelled or returned once more, give the later command a stepId; otherwise it is taken for a "
            "repetition.[/]"
        )


def _check(work: _Work, account: Target | None, report: Path, file: Path) -> bool:
    """Report what the commands of a file would do now. Returns whether some of them would not succeed."""
    from ..commands_file import expected  # noqa: PLC0415

    bad: Sequence[FileError] = ()
    if work.commands:
        aws = aws_of(account)
        with reading("the orders"), aside.status("Reading the orders"):
            counts, bad = expected(aws, work.commands)
        rows = [
            (number, f"{action}: {'would be carried out' if is_new else 'carried out before'}")
            for (action, is_new), number in sorted(counts.items())
        ]
        if rows:
            screen.print(table_of(("commands", ""), rows, {"commands"}))
        report_bad_lines(bad, report, file)
    _note_on_anonymous(work.commands)
    screen.print(f"{work.things} checked; nothing was sent.")
    return bool(bad)


def _with_duplicates(messages: Iterator[OrderMessage], share: float) -> Iterator[OrderMessage]:
    chance = random.Random(0)
    return chain.from_iterable(
        (message, message) if chance.random() < share else (message,) for message in messages
    )
