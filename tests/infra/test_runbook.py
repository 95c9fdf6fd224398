"""Every alarm has a section in the runbook, and every command in these sections exists."""

import re
import shlex

import pytest
import typer

from docs_generator.runbook import RUNBOOK, families, sections
from local import ROOT
from local.commands.main import app
from tests.support.runbook import aws_call, commands, expand
from tests.support.template import alarms_of, synthesise

PARTS = ("**Means.**", "**Look.**", "**Do.**")


def family_of(name):
    """Find the longest heading that an alarm's name ends with."""
    return max((suffix for suffix in families() if name.endswith(suffix)), key=len, default=None)


@pytest.fixture(scope="module")
def alarms():
    return alarms_of(synthesise("dev"))


def test_every_alarm_has_a_section_and_every_section_an_alarm(alarms):
    names = [properties["AlarmName"] for properties in alarms.values()]
    found = {name: family_of(name) for name in names}
    assert [name for name, family in found.items() if family is None] == []
    assert set(found.values()) == set(families())


def test_every_alarm_refers_to_the_runbook(alarms):
    for properties in alarms.values():
        assert RUNBOOK.relative_to(ROOT).as_posix() in properties["AlarmDescription"]


def test_every_section_has_all_its_parts_in_order():
    for heading, text in sections().items():
        places = [text.find(part) for part in PARTS]
        assert -1 not in places, heading
        assert places == sorted(places), heading
        assert commands(text), f"{heading} names no command"


def check(command):
    """Fail unless a command exists with these options."""
    words = shlex.split(expand(command))
    if words[0] == "aws":
        aws_call(expand(command))
    elif words[0] == ".venv/bin/inventory-orders":
        name, *arguments = words[1:]
        typer.main.get_command(app).commands[name].make_context(name, arguments)
    elif words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert words[1] in targets, command
    elif words[0] == "join":
        # tests/integration/test_runbook.py runs the pipeline.
        assert command.count("versions | sort") == 2
        check("versions")
    else:
        assert words[0].endswith("()"), f"no check for this command: {command}"


def test_every_command_exists_with_these_options():
    text = RUNBOOK.read_text()
    found = commands(text)
    assert len(found) > 15
    for command in found:
        check(command)
    for inline in re.findall(r"`((?:make|\.venv/bin/inventory-orders) [^`]+)`", text):
        check(inline)


def undefined(page):
    """Find the variables that a command uses although no earlier command sets them."""
    known = set()
    for command in page:
        yield from set(re.findall(r"\$([A-Za-z_]\w*)", command)) - known
        known |= set(re.findall(r"^(\w+)=\$\(", command))


def test_the_commands_of_a_section_set_the_variables_that_they_use():
    assert {heading: [*undefined(commands(text))] for heading, text in sections().items()} == {
        heading: [] for heading in sections()
    }


def test_the_commands_name_outputs_of_the_stack():
    found = {
        name
        for command in commands(RUNBOOK.read_text("utf-8"))
        if not command.partition(" ")[0].endswith("()")
        for name in re.findall(r"\$\(output (\w+)\)", expand(command))
    }
    assert len(found) > 10
    assert found <= synthesise("dev").find_outputs("*").keys()


def test_every_message_that_the_runbook_searches_for_is_logged():
    folders = (ROOT / "functions", ROOT / "layers/core/python/inventory_orders")
    sources = "".join(p.read_text("utf-8") for folder in folders for p in folder.rglob("*.py"))
    searched = re.findall("""'"(.+?)"'""", RUNBOOK.read_text("utf-8"))
    assert len(searched) > 5
    assert [message for message in searched if f'"{message}"' not in sources] == []
