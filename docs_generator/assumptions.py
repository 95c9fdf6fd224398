"""Writes tables of the service's assumptions about AWS, which are in `assumptions.toml`."""

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
    "cognito-user-identity-pools": "Cognito",
    "sns": "SNS",
    "athena": "Athena",
}
"""Maps the guide of a page to the section of this document."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """A behaviour of AWS that the service relies on.

    Attributes:
        says: The assumed behaviour of AWS.
        pages: URLs of the pages that document the behaviour, the most important one first.
        test: The name of the test that fails if the service no longer respects the behaviour.
        file: The path of the test's file from the root of the repository.
    """

    says: str
    pages: tuple[str, ...]
    test: str
    file: Path

    @property
    def service(self) -> str:
        """The AWS service that the assumption is about."""
        return SERVICES[self.pages[0].removeprefix(AWS).partition("/")[0]]

    @property
    def row(self) -> str:
        """Format the assumption as a row of a Markdown table."""
        links = ", ".join(f"[{page.rpartition('/')[2][:-5]}]({page})" for page in self.pages)
        return f"| {self.says} | {links} | [{self.test}](../../{self.file.as_posix()}) |"


@cache
def assumptions() -> tuple[Assumption, ...]:
    """Read the assumptions from `assumptions.toml`."""
    path = Path(__file__).with_suffix(".toml")
    entries = tomllib.loads(path.read_text("utf-8"))["assumption"]
    found = []
    for entry in entries:
        file, _, test = entry["test"].partition("::")
        pages = tuple(AWS + page for page in entry["pages"])
        found.append(Assumption(entry["says"], pages, test, Path(file)))
    return tuple(found)


def tables() -> str:
    """Write a table for each AWS service, sorted by the page that documents the assumption."""
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
