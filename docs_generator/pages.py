"""Writes the pages of docs/generated from the code.

The modules of the CDK and of the command line take seconds to import, so each page imports only what it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import unescape
from typing import Any

from docs_generator import assumptions, asyncapi, runbook
from infra.settings import SCHEMA, must_be
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage
from inventory_orders.messages.documents import json_schema
from local import ROOT
from operations import codes

FOLDER = ROOT / "docs" / "generated"
_MESSAGES = ("adjustment", "catalogue_event", "expiry", "order")

Row = tuple[str, ...]


def _table(heading: str, rows: Iterable[Row]) -> str:
    """Format rows as a Markdown table. The heading contains the names of the columns, separated by commas."""
    columns = tuple(heading.split(", "))
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(value: object) -> str:
    return f"`{json.dumps(value).strip(chr(34))}`"


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()).split(". ")[0].removesuffix(".")


# ------------------------------------------------------------------ commands


def make_targets() -> str:
    """List the targets of the Makefile."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    found = re.findall(r"^([a-z]+):.*## (.+)$", makefile, flags=re.MULTILINE)
    return _table(
        "target, does", [(_code(f"make {name}"), does.replace("$$", "$")) for name, does in found]
    )


_WHICH_STACK = re.compile(r"(?:\* `--(?:stage, --account|stack|prefix) .+\n){3}")
"""The options that name a stack, as every command on a stack has them."""


def commands() -> str:
    """Write the `--help` of every command, with the options that name a stack only once."""
    import typer
    from typer.cli import get_docs_for_click

    from local.commands.main import app

    group: Any = typer.main.get_command(app)
    pages = []
    for name, command in group.commands.items():
        page = get_docs_for_click(
            obj=command, ctx=typer.Context(command, info_name=name), indent=1, name=name
        )
        page = unescape(page).replace("* `--help`: Show this message and exit.\n", "")
        page = re.sub(
            r"\*\*Usage\*\*:\n\n```console\n\$ (.*)\n```\n", r"`inventory-orders \1`\n", page
        )
        page = page.replace("**Options**:\n\n\n**Commands**", "**Commands**")
        pages.append(page.removesuffix("**Options**:\n\n\n").strip() + "\n")
    (which_stack,) = {found for page in pages for found in _WHICH_STACK.findall(page)}
    link = "* `--stage`, `--stack`, `--prefix`: [Which stack](#which-stack) to use.\n"
    shortened = [page.replace(which_stack, link) for page in pages]
    intro = "## Which stack\n\nEvery command on a stack has these options:\n\n"
    return "\n".join([intro + which_stack, *shortened])


def checks_of_verify() -> str:
    """List the checks of `make verify`."""
    from operations.verify import CHECKS

    return _table(
        "check, passes if",
        [(_code(name), _first_sentence(check.__doc__)) for name, check in CHECKS.items()],
    )


# ------------------------------------------------------------------ settings


def settings() -> str:
    """List the settings with their defaults, allowed values and meanings."""
    columns = "setting, default, allowed, meaning"
    page = _table(columns, _settings(SCHEMA, ""))
    for name, part in SCHEMA["definitions"].items():
        page += f"\n## {name}\n\n" + _table(columns, _settings(part, ""))
    return page


def _settings(schema: Mapping[str, Any], prefix: str) -> Iterable[Row]:
    for name, part in schema["properties"].items():
        path = prefix + name
        default = _code(part["default"]) if "default" in part else ""
        if "$ref" in part:
            of = part["$ref"].rpartition("/")[2]
            yield _code(path), default, f"[{of}](#{of.lower()})", ""
        elif "properties" not in part or default:
            yield _code(path), default, must_be(part), part["description"]
        if "properties" in part:
            yield from _settings(part, f"{path}.")


# ------------------------------------------------------------------ messages, codes and events


def messages() -> str:
    """List the fields of each message and direct command, from its JSON Schema."""
    page = "## Messages\n"
    for name in _MESSAGES:
        page += f"\n### {name}\n\n" + _fields(json_schema(name))
    page += "\n## Direct commands\n"
    for function, actions in json_schema("commands").items():
        for action, schema in actions.items():
            page += f"\n### {function}: {action}\n\n" + _fields(schema)
    return page


def _fields(schema: Mapping[str, Any]) -> str:
    return _table("field, value, required", _fields_of(schema, ""))


def _fields_of(schema: Mapping[str, Any], prefix: str) -> Iterable[Row]:
    for name, field in schema["properties"].items():
        needed = "yes" if name in schema["required"] else "no"
        yield _code(prefix + name), field["description"], needed
        inner = field.get("items", field)
        if "properties" in inner:
            yield from _fields_of(inner, f"{prefix}{name}{'[]' if 'items' in field else ''}.")


def all_codes() -> str:
    """List the codes of dead letters, rejections, returned messages, answers, parked events, and bad lines of files."""
    subject = "X"
    rejections = [
        (
            _code(reason),
            Rejection(reason, subject, (Shortage(subject, 3, 2),), places=("berlin", "lyon")).words,
        )
        for reason in RejectionReason
    ]
    return (
        "## Dead letters\n\n"
        + _table(
            "`errorCode`, cause, what to do, [redriven](../reference.md#dead-letters)",
            [
                (
                    *(_code(code), cause.meaning),
                    cause.repair + cause.redrive.value.format(code=code),
                    "yes" if cause.redrive is codes.Redrive.ALWAYS else "no",
                )
                for code, cause in codes.DEAD_LETTERS.items()
            ],
        )
        + "\n## Rejections\n\nThe `reason` of an order, and the `code` of the answer `REFUSED`. X is the product or the order.\n\n"
        + _table("code, message", rejections)
        + "\n## Refusals of direct commands\n\n"
        + _simple("code", codes.REFUSED)
        + "\n## Later\n\nThe `code` of a returned message, and of the answer `RETRY_LATER`.\n\n"
        + _simple("code", codes.LATER)
        + "\n## From AWS\n\nThe `code` of a returned message, and of the answers `RETRY_LATER` and `UNAVAILABLE`, unchanged as AWS sends it. "
        + "[Other codes of DynamoDB][errors] mean that an operator has to repair permissions, tables or configuration.\n\n"
        + _simple("code", codes.FROM_AWS)
        + "\n[errors]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html\n"
        + "\n## Other answers\n\nThese codes only occur in answers to direct commands and API requests.\n\n"
        + _simple("code", codes.ANSWERS)
        + "\n## Undeliverable events\n\n"
        + "EventBridge's own [error codes][bus] occur, too.\n\n"
        + _simple("`errorCode`", codes.UNDELIVERABLE)
        + "\n[bus]: https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html\n"
        + "\n## Bad lines of files\n\n"
        + _simple("code", codes.BAD_LINES)
    )


def _simple(heading: str, meanings: Mapping[str, str]) -> str:
    return _table(
        f"{heading}, meaning", [(_code(code), meaning) for code, meaning in meanings.items()]
    )


def events() -> str:
    """List the events on the bus, from their JSON Schemas."""
    schemas = asyncapi.schemas()
    rows = [
        (
            f"[`{name}`](../events/{name}.schema.json)",
            schemas[name]["description"],
            f"[example](../events/examples/{name}.json)",
        )
        for name in asyncapi.EVENTS
    ]
    return _table("`detail-type`, meaning, example", rows)


# ------------------------------------------------------------------ what is watched, and the stack


def metrics() -> str:
    """List the metrics of the handlers."""
    from inventory_orders.invocation.telemetry import METRICS as UNITS
    from operations.metrics import METRICS

    return _table(
        "metric, unit, one value per, meaning",
        [
            (_code(name), UNITS[name].value, metric.each, metric.meaning)
            for name, metric in METRICS.items()
        ],
    )


def alarms() -> str:
    """List the alarms with their conditions."""
    from infra.watched import ALARMS, Alarm

    def condition(alarm: Alarm) -> str:
        metric, when = alarm.metric, alarm.when
        side = "<" if when.comparison.name.startswith("LESS") else ">"
        period = "a minute" if metric.minutes == 1 else f"{metric.minutes} minutes"
        said = f"{metric.statistic} of `{metric.name}` over {period} {side} {when.threshold:,g}"
        if when.periods == 1:
            return said
        said += f", in {when.breaching or when.periods} of {when.periods} periods"
        if when.warm_up_minutes:
            said += f"; a new alarm waits up to {when.warm_up_minutes} minutes for values"
        return said

    def section(alarm: Alarm) -> str:
        families = [ending for ending in runbook.families() if alarm.name.endswith(ending)]
        heading = runbook.families()[max(families, key=len)]
        return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")

    def consequences(alarm: Alarm) -> str:
        names: dict[str, list[str]] = {}
        for name, then in alarm.then.items():
            names.setdefault(then, []).append(f"`{name}`")
        return " ".join(f"{', '.join(those)}: {then}" for then, those in names.items())

    def in_basic(alarm: Alarm) -> str:
        if "{name}" not in alarm.name:
            return "yes" if alarm.basic else "no"
        return ", ".join(map(_code, alarm.basic)) or "no"

    rows = [
        (
            f"[`{alarm.name.format(name='<name>')}`](../runbook.md#{section(alarm)})",
            condition(alarm),
            alarm.text.format(name="`<name>`", then=consequences(alarm)),
            in_basic(alarm),
        )
        for alarm in ALARMS
    ]
    return _table("alarm, on if, meaning and first step, with `monitoring: basic`", rows)


def stack() -> str:
    """List the outputs of the stack and the environment variables of its functions."""
    from infra.functions import VARIABLES
    from infra.stack import OUTPUTS

    outputs = {name.format(name="<Function>"): meaning for name, meaning in OUTPUTS.items()}
    return (
        "## Outputs\n\n"
        + _simple("output", outputs)
        + "\n## Environment variables\n\nThe stack sets these for its functions.\n\n"
        + _simple("variable", VARIABLES)
    )


PAGES = {
    "make-targets.md": ("Make targets", make_targets),
    "commands.md": ("Commands", commands),
    "checks.md": ("Checks of `make verify`", checks_of_verify),
    "settings.md": ("Settings", settings),
    "messages.md": ("Fields of messages and direct commands", messages),
    "codes.md": ("Codes", all_codes),
    "events.md": ("Events", events),
    "metrics.md": ("Metrics", metrics),
    "alarms.md": ("Alarms", alarms),
    "aws-assumptions.md": ("Assumptions about AWS", assumptions.tables),
    "stack.md": ("Outputs and environment variables", stack),
}
"""The pages by file name, with title and writer."""

NEED_THE_CDK = {"alarms.md", "stack.md"}


def text_of(page: str) -> str:
    """Return the content of a page, as Markdown."""
    title, write = PAGES[page]
    return f"# {title}\n\n[Reference](../reference.md). `make docs` generates this page from the code.\n\n{write()}"
