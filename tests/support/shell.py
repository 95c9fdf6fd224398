"""Runs the command blocks of the documents on the tests' stack, as a reader would."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from typing import Any
from unittest.mock import patch

import boto3
import jmespath

from local import ROOT, shelf
from operations import queues
from operations.aws import Aws
from tests.support.runbook import aws_call, commands
from tests.support.stack import cli

NOT_RUN = {
    r"make demo": "tests/e2e/test_deployed_stack.py runs it",
    r"make verify": "tests/e2e/test_verify.py runs it with fewer orders",
    r"make test": "it runs this test",
    r"make wheel|pip install \S+\.whl|inventory-orders .*": "tests/e2e/test_wheel.py builds it, and uses it without the checkout",
    r"make (dashboard|desk)": "opens a browser; tests/pages/test_dashboard_page.py opens one",
    r"npx cdk .*|make (setup|bootstrap|synth|diff|deploy|verify|destroy)\b.*": "needs an account",
    r"\w+=\$\(aws iam create-policy .*": "for a role of an account; tests/infra/test_deployment_policy.py holds the policy",
    r"\.venv/bin/inventory-orders .* --(?:account|stage) \S+": "needs an account",
    r"\.venv/bin/python -m pytest .*": "separate tests, which `make test` runs",
    r"aws lambda (list-versions-by-function|update-alias) .*": "would move an alias that other tests call; "
    "tests/e2e/test_upgrade.py moves it with the stack",
    r"aws cloudformation update-termination-protection .* --no-.*"
    r"|aws dynamodb (update-table .* --no-deletion-protection-enabled|delete-table .*)": "of a production stage",
}
"""Commands that are not run, with the reason."""

OURS = ".venv/bin/inventory-orders "
_made: list[str] = []
"""The command that `make` has run."""
# The reader answers every question with yes.
YES = "y\n"


def is_run(command: str) -> bool:
    return not any(re.fullmatch(pattern, command) for pattern in NOT_RUN)


def commands_of(name: str, begin: str = "", end: str = "") -> list[str]:
    """Return the commands between two given texts of a document, without comments."""
    text = (ROOT / name).read_text("utf-8")
    text = text[text.index(begin) :]
    text = text[: text.index(end)] if end else text
    return [re.sub(r"\s+# .*$", "", command) for command in commands(text)]


class Shell:
    """Runs the commands of documents.

    AWS commands go through the SDK, the project's own commands run in this process, and all others run in a shell.

    Args:
        aws: The tests' stack.
    """

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._clients: dict[str, Any] = {}
        self._defined: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def run(self, command: str) -> Any:
        """Run a command, and return its output or AWS's answer."""
        if command.startswith("output() "):
            return None
        if command == "make down":
            # The tests' stack keeps running, but looks as if `make down` and `make up` had been run.
            make_fresh(self._aws)
            return None
        if defined := re.fullmatch(r"(\w+)\(\) \{ (.*?)(?:; echo)?; \}", command):
            self._defined[defined[1]] = defined[2]
            return None
        if assigned := re.fullmatch(r"(\w+)=\$\((.*)\)", command):
            name, inner = assigned.groups()
            value = self.variables[name] = str(self.run(inner))
            return value
        if called := re.fullmatch(r'output "?(\w+)"?', command):
            return self._aws.outputs[called[1]]
        if command == 'eval "$(make env)"':
            exported = dict(re.findall(r"export (\w+)=(\S+)", self._program("make env")))
            assert exported["AWS_ENDPOINT_URL"] == os.environ["AWS_ENDPOINT_URL"]
            return None
        if command == 'eval "$(make tokens)"':
            self.variables |= dict(
                re.findall(r"export (\w+)='?([^'\n]+)", self._program("make tokens"))
            )
            return None
        first, _, rest = command.partition(" ")
        if first in self._defined:
            command = self._defined[first].replace('"$@"', rest)
            for number, argument in enumerate(shlex.split(rest), 1):
                command = command.replace(f'"${number}"', shlex.quote(argument))
                command = command.replace(f"${number}", argument)
        known = {f"$(output {name})": value for name, value in self._aws.outputs.items()}
        known |= {f"${name}": value for name, value in (os.environ | self.variables).items()}
        for spelt in sorted(known, key=len, reverse=True):
            command = command.replace(spelt, known[spelt])
        if command.startswith(OURS):
            return self._ours(command.removeprefix(OURS))
        if not command.startswith("aws "):
            return self._program(command)
        service, method, parameters = aws_call(command)
        if service not in self._clients:
            client_of: Any = boto3.client
            self._clients[service] = client_of(service)
        answer = getattr(self._clients[service], method)(**parameters)
        query = re.search(r"""--query (?:"([^"]+)"|(\S+))""", command)
        return jmespath.search(query[1] or query[2], answer) if query else answer

    def run_all(self, page: list[str]) -> list[Any]:
        """Run the commands of a document from top to bottom, except the ones in `NOT_RUN`."""
        return [self.run(command) for command in page if is_run(command)]

    def _ours(self, arguments: str) -> str:
        with patch("sys.stdin", io.StringIO(YES)):
            return cli(*shlex.split(arguments)).stdout

    def _program(self, command: str) -> str:
        is_make = command.startswith("make ")
        # One real run is enough. After that, make only says which of the project's commands it would run.
        if is_make and _made:
            said = subprocess.run(
                [*shlex.split(command), "--dry-run", "--no-print-directory"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            assert said.startswith(OURS), said
            return self._ours(said.removeprefix(OURS))
        if is_make:
            _made.append(command)
        done = subprocess.run(
            shlex.split(command),
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "200"},
            input=YES,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def make_fresh(aws: Aws) -> None:
    """Reset a stack to its state after `make up`: the sample products, and no orders or messages."""
    for name in (*queues.QUEUES, *queues.DEAD_LETTERS, queues.UNDELIVERABLE_EVENTS):
        aws.sqs.purge_queue(QueueUrl=aws.outputs[name])
    for name in aws.tables.values():
        table = boto3.resource("dynamodb").Table(name)
        keys = [key["AttributeName"] for key in table.key_schema]
        # A scan reads 1 MB at a time.
        while rows := table.scan(ConsistentRead=True)["Items"]:
            with table.batch_writer() as batch:
                for row in rows:
                    batch.delete_item(Key={key: row[key] for key in keys})
    shelf.fill(aws)
