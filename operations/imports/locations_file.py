"""Reads the file that says which location of another shop system is which location here."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import UserError
from .export_file import BadCellError, ExportFile

_COLUMNS = {"location": (), "locationId": ()}
_LOCATION = re.compile("[A-Za-z0-9._-]{0,32}")


def read_locations(path: Path) -> dict[str, str]:
    """Read the id of each location by its name in the other system; an empty id is the default location.

    Raises:
        UserError: The file cannot be read, or has an error.
    """
    what, advice = "a file of locations", "Its columns are location and locationId"
    file = ExportFile(path, what, _COLUMNS, tuple(_COLUMNS), advice)
    found: dict[str, str] = {}
    for row in file.rows():
        name, location_id = row["location"], row["locationId"]
        if not _LOCATION.fullmatch(location_id):
            fault = "must have 1 to 32 characters of A-Z a-z 0-9 . _ -, or be empty for the default location"
            file.refuse(row, BadCellError("locationId", fault))
        elif name in found or location_id in found.values():
            fault = "the location or its id is in another line, too; one name has one id"
            file.refuse(row, BadCellError("location", fault))
        found[name] = location_id
    if file.bad:
        first = file.bad[0]
        raise UserError(f"{path}, line {first.number}: {first.message}")
    if not found:
        raise UserError(f"{path} has no locations. {advice}")
    return found
