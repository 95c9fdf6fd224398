"""What the service assumes about AWS: the `aws` markers of the tests, as tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local import ROOT

AWS = "https://docs.aws.amazon.com/"

SERVICES = {
    "amazondynamodb": "DynamoDB",
    "AWSSimpleQueueService": "SQS",
    "lambda": "Lambda",
    "eventbridge": "EventBridge",
    "scheduler": "EventBridge",
    "apigateway": "API Gateway",
    "step-functions": "API Gateway",
    "AmazonCloudWatch": "CloudWatch",
    "AmazonCloudWatchLogs": "CloudWatch",
    "AWSCloudFormation": "CloudFormation",
    "cloudformation-cli": "CloudFormation",
    "IAM": "IAM",
    "sns": "SNS",
    "athena": "Athena",
}
"""The guide that a page belongs to -> the section that lists what it says."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """One `aws` marker.

    Attributes:
        says: What AWS does.
        pages: Addresses of the pages that say so, the most important one first.
        test: Name of the test that fails if the service stops respecting it.
        file: The test's file, from the root of the repository.
    """

    says: str
    pages: tuple[str, ...]
    test: str
    file: Path

    @property
    def service(self) -> str:
        """The section of the page."""
        return SERVICES[self.pages[0].removeprefix(AWS).partition("/")[0]]

    @property
    def row(self) -> str:
        """The assumption as a row of a table."""
        links = ", ".join(f"[{page.rpartition('/')[2][:-5]}]({page})" for page in self.pages)
        return f"| {self.says} | {links} | [{self.test}](../../{self.file.as_posix()}) |"


MARKER = "pytest.mark.aws"


@cache
def assumptions() -> tuple[Assumption, ...]:
    """Read the `aws` markers of all tests."""
    return tuple(
        assumption
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if MARKER in (text := path.read_text("utf-8"))
        for assumption in _assumptions_of(path, text)
    )


# The arguments of a marker as `ruff format` writes it, and the next test. To parse whole modules takes twenty times as long.
_MARKED = re.compile(
    r"^( *)@pytest\.mark\.aws(\(.*?\))\n(?=.*?^\1def (\w+))", re.MULTILINE | re.DOTALL
)


def _assumptions_of(path: Path, text: str) -> Iterator[Assumption]:
    found = _MARKED.findall(text)
    if len(found) != text.count(f"@{MARKER}"):
        raise ValueError(f"{path}: a marker is not formatted as `ruff format` does it")
    for _, arguments, test in found:
        says, *pages = ast.literal_eval(arguments)
        yield Assumption(says, tuple(pages), test, path.relative_to(ROOT))


def tables() -> str:
    """Write a table for each service, with what one page says side by side."""
    found = sorted(assumptions(), key=lambda one: one.pages)
    parts = []
    for service in dict.fromkeys(SERVICES.values()):
        rows = [one.row for one in found if one.service == service]
        parts.append(
            "\n".join(
                [f"## {service}\n", "| AWS does | its page | our test |", "|---|---|---|", *rows]
            )
        )
    return "\n\n".join(parts) + "\n"
