"""What the tests assume about AWS: their `aws` markers, as a page.

`python -m tests.support.assumptions` prints it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local import ROOT

AWS = "https://docs.aws.amazon.com/"

HEAD = """# What is assumed about AWS

For readers who doubt a claim about AWS. Each assumption has the page of AWS's documentation, and the test that holds our side of it.
The most important ones, and those that only an account can tell, are in [aws.md](../aws.md).
"""

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
    "IAM": "IAM",
    "sns": "SNS",
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


def assumptions() -> Iterator[Assumption]:
    """Read the `aws` markers of all tests."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for marker in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.aws":
                    says, *pages = map(ast.literal_eval, marker.args)
                    yield Assumption(says, tuple(pages), node.name, path.relative_to(ROOT))


def page() -> str:
    """Write the page, a table for each service."""
    found = sorted(assumptions(), key=lambda one: one.pages)
    parts = [HEAD]
    for service in dict.fromkeys(SERVICES.values()):
        rows = [one.row for one in found if one.service == service]
        head = "| AWS does | its page | our test |\n|---|---|---|\n"
        parts.append(f"## {service}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
