"""Reads the commands of the runbook."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from botocore import xform_name
from botocore.session import get_session

from docs_generator.runbook import RUNBOOK

_GLOBAL_OPTIONS = {"query", "output"}


def commands(text: str) -> list[str]:
    """List the commands that follow a prompt, with continued lines joined."""
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.strip()[2:] for line in joined.splitlines() if line.strip().startswith("$ ")]


def expand(command: str) -> str:
    """Replace an assignment with its command, and a call of one of the runbook's shell functions with that function's body."""
    command = re.sub(r"^\w+=\$\((.*)\)$", r"\1", command)
    defined = "\n".join(commands(RUNBOOK.read_text("utf-8")))
    functions = dict(re.findall(r"^(\w+)\(\) \{ (.*); \}$", defined, flags=re.MULTILINE))
    name, *arguments = shlex.split(command)
    if name not in functions:
        return command
    body: str = functions[name]
    for number, argument in enumerate(arguments, 1):
        body = body.replace(f'"${number}"', shlex.quote(argument)).replace(f"${number}", argument)
    return body


def aws_call(command: str) -> tuple[str, str, dict[str, Any]]:
    """Translate an AWS CLI command for the SDK: service, operation and parameters.

    A `wait` becomes the operation that it polls.

    Raises:
        ValueError: There is no such operation, or it has no such option.
        UnknownServiceError: There is no such service.
    """
    _, service, name, *options = shlex.split(command)
    model: Any = get_session().get_service_model(service)
    operations = {xform_name(operation, "-"): operation for operation in model.operation_names}
    if name == "wait":
        waiters = get_session().get_waiter_model(service)
        operations = {
            xform_name(waiter, "-"): waiters.get_waiter(waiter).operation
            for waiter in waiters.waiter_names
        }
        name, *options = options
    operation = operations.get(name)
    if operation is None:
        raise ValueError(f"{service} has no {name}")
    members = model.operation_model(operation).input_shape.members
    known = {xform_name(member, "-"): member for member in members}
    parameters: dict[str, Any] = {}
    for option in _grouped(options):
        spelt, *values = option
        if spelt in _GLOBAL_OPTIONS:
            continue
        if spelt.startswith("no-") and spelt.removeprefix("no-") in known:
            parameters[known[spelt.removeprefix("no-")]] = False
            continue
        if spelt not in known:
            raise ValueError(f"aws {service} {name} has no option --{spelt}")
        parameters[known[spelt]] = _value(members[known[spelt]], values)
    return service, xform_name(operation), parameters


def _grouped(words: list[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            groups.append([word[2:]])
        else:
            groups[-1].append(word)
    return groups


def _value(shape: Any, values: list[str]) -> Any:
    match shape.type_name:
        case "boolean":
            return values in ([], ["true"])
        case "integer" | "long":
            return int(values[0])
        case "list" if shape.member.type_name == "structure":
            return [dict(pair.split("=") for pair in value.split(",")) for value in values]
        case "list":
            return values
        case "structure" | "map" if values[0].startswith("{"):
            return json.loads(values[0])
        case "structure" if values[0].startswith("$"):
            # A shell variable that contains JSON.
            return values[0]
        case "structure":
            pairs = (pair.split("=") for pair in values[0].split(","))
            return {name: _value(shape.members[name], [text]) for name, text in pairs}
        case _:
            return values[0]
