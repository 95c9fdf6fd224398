"""The service's assumptions about AWS (`assumptions.toml`), as tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
"""Maps the guide of a page to the section of this document."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumption.

    Attributes:
        says: The assumed behaviour of AWS.
        pages: Addresses of the pages that document it, the most important one first.
        test: Name of the test that fails if the service no longer respects it.
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


@cache
def assumptions() -> tuple[Assumption, ...]:
    """Read all assumptions."""
    path = Path(__file__).with_suffix(".toml")
    entries = tomllib.loads(path.read_text("utf-8"))["assumption"]
    found = []
    for entry in entries:
        file, _, test = entry["test"].partition("::")
        pages = tuple(AWS + page for page in entry["pages"])
        found.append(Assumption(entry["says"], pages, test, Path(file)))
    return tuple(found)


def tables() -> str:
    """Write a table for each service, with the assumptions from one page next to each other."""
    found = sorted(assumptions(), key=lambda one: one.pages)
    parts = []
    for service in dict.fromkeys(SERVICES.values()):
        rows = [one.row for one in found if one.service == service]
        parts.append(
            "\n".join(
                [f"## {service}\n", "| behaviour of AWS | page | test |", "|---|---|---|", *rows]
            )
        )
    return "\n\n".join(parts) + "\n"
