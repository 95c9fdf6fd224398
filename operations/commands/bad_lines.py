"""Reports the bad lines of a file: by kind on the screen, and all of them in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ..errors import UserError
from .common import screen

if TYPE_CHECKING:
    from ..file_errors import FileError

ErrorsFile = Annotated[
    Path | None,
    typer.Option(
        "--errors",
        metavar="FILE",
        dir_okay=False,
        help="Where to report bad lines, as CSV with their ids, columns and values. Default: FILE.errors.csv, in the folder of "
        "FILE. Text that begins with =, +, - or @ gets an apostrophe in front, because a spreadsheet would read it as a formula; "
        "load never removes one.",
    ),
]


def report_for(file: Path, wanted: Path | None) -> Path:
    """Choose where the bad lines of a file are reported, and check that a report may be written there.

    Raises:
        BadParameter: It may not.
    """
    from ..file_errors import objection_to, report_of  # noqa: PLC0415 - the layer is slow to import

    report = wanted or report_of(file)
    if objection := objection_to(report):
        raise typer.BadParameter(f"{objection}; name another file", param_hint="--errors")
    return report


def report_bad_lines(bad: Collection[FileError], report: Path, file: Path) -> None:
    """Print bad lines by kind, and write all of them to the report. If there are none, an earlier report is removed."""
    from ..file_errors import by_kind, write_report  # noqa: PLC0415

    if not bad:
        # It could be mistaken for this command's report.
        report.unlink(missing_ok=True)
        return
    write_report(report, bad, file)
    screen.print(
        f"[bold red]Bad lines: {len(bad):,}[/]. {escape(str(report))} lists all of them with ids, columns and values"
    )
    for line in by_kind(bad):
        screen.print(escape(line))


@contextmanager
def refusals_of(file: Path, wanted: Path | None) -> Iterator[None]:
    """If a file is refused for its errors, write all of them to a report, and name it in the message.

    Unlike `report_for`, this needs no writable folder for a file without errors.
    """
    from ..file_errors import (  # noqa: PLC0415
        FileRefusedError,
        is_report,
        objection_to,
        report_of,
        write_report,
    )

    report = wanted or report_of(file)
    try:
        yield
    except FileRefusedError as error:
        if objection := objection_to(report):
            raise UserError(f"{error}\n{objection}, so they are not listed there") from None
        write_report(report, error.bad, file)
        raise UserError(
            f"{error}\n{report} lists all of them with ids, columns and values"
        ) from None
    with suppress(OSError):
        if is_report(report):
            report.unlink()
