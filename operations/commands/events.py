"""Commands for events: publish them again, or follow them."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from inventory_orders.domain.location import in_words, key_in

from ..words import counted
from .common import aside, print_problems, screen
from .target import Target, aws_of, on_stack

if TYPE_CHECKING:
    from ..follow import Heard

app = typer.Typer()


@on_stack(app)
def republish(
    order: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Publish this order's events; can be repeated."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Publish the events of all orders changed since this time, such as 2026-11-21T09:30 (UTC). Reads the whole table.",
        ),
    ] = None,
    send: Annotated[
        bool,
        typer.Option(
            "--send", help="Publish the events. Without this option they are only counted."
        ),
    ] = False,
    account: Target | None = None,
) -> None:
    """Publish the current state of orders again, for a consumer that lost events.

    For each order, it publishes the events for its status, a late payment, and each partial fulfilment, partial
    cancellation and return. They have the current version of the row, so most have new event ids. The exit status is 1
    if an event cannot be published.
    """
    from .. import republish  # noqa: PLC0415 - the layer is slow to import

    if (order is None) == (since is None):
        raise typer.BadParameter("choose orders with either --order or --since")
    after = republish.moment(since) if since is not None else ""
    aws = aws_of(account)
    rows = republish.rows_since(aws, after) if order is None else republish.rows_of(aws, order)
    what = "published" if send else "to publish"
    with aside.status("Reading orders") as spinner:
        done = republish.republish(
            aws,
            rows,
            send=send,
            on_progress=lambda n: spinner.update(f"{counted(n, 'order')} {what}"),
        )
    print_problems("Cannot be published", done.problems)
    if send:
        screen.print(f"{counted(done.events, 'event')} published.")
    else:
        screen.print(
            f"Nothing was sent. [dim]--send would publish {counted(done.events, 'event')}.[/]"
        )
    if done.problems:
        raise typer.Exit(1)


@on_stack(app)
def follow(
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Stop after this many seconds. By default, only Ctrl-C stops it."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each full event as one line of JSON.")
    ] = False,
    account: Target | None = None,
) -> None:
    """Print the events of orders and products as the event bus delivers them.

    It creates a queue and a rule named BUS-follow-..., and removes both when it stops. On an account, it may miss
    events in its first minute.
    """
    from ..follow import listening  # noqa: PLC0415 - the layer is slow to import

    # Every line of standard output is an event.
    aws = aws_of(account, aside)
    seen: set[str] = set()
    with listening(aws) as listen, contextlib.suppress(KeyboardInterrupt):
        bus = aws.outputs["EventBusName"]
        aside.print(
            f"[dim]Listening to {bus}. On AWS a new rule may miss events in its first minute. Ctrl-C stops it.[/]"
        )
        for heard in listen(float("inf") if seconds is None else seconds):
            if as_json:
                screen.out(json.dumps(heard.event))
            else:
                _show_event(heard, seen)
            if screen.quiet:
                break


def _show_event(heard: Heard, seen: set[str]) -> None:
    detail = heard.event["detail"]
    metadata, data = detail["metadata"], detail["data"]
    subject = data.get("orderId") or in_words(key_in(data))
    notes = [data.get("reason", ""), f"version {data['version']}" if "version" in data else ""]
    notes += [
        f"{data['onHand']:,} on hand, {data['available']:,} available" if "onHand" in data else ""
    ]
    notes += ["" if heard.delay is None else f"{1000 * heard.delay:,.0f} ms later"]
    notes += ["again" if metadata["eventId"] in seen else ""]
    seen.add(metadata["eventId"])
    screen.print(
        f"{metadata['occurredAt'][11:23]} {heard.event['detail-type']:<20} {escape(subject)} "
        f"[dim]{escape(', '.join(filter(None, notes)))}[/]"
    )
