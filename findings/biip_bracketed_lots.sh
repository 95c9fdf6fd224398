#!/usr/bin/env bash
# biip reads a lot with a bracket in it from its own output as another lot.
#
# Brackets belong to GS1's character set 82, so a lot number, AI (10), may be A(B)C. biip reads it from an element string and writes it
# in the form that is printed below a barcode: (01)04006381333931(10)A(B)C. One expects parse_hri() to read what as_hri() has written, or
# to refuse it. It returns lot A, without an error: the text from the first bracket on is dropped.
# It matters because goods of lot A(B)C are booked, and later recalled, as lot A. Replace each (digits) by FNC1 and the digits, and use
# parse() instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import re
import sys
from importlib.metadata import version

from biip.gs1_messages import GS1Message


def lot_in(message):
    return message.element_strings.get(ai="10").value


print(f"Versions: biip {version('biip')}, Python {sys.version.split()[0]}")
seen = []
for lot in ("A(B)C", "L7(2)", "(A)1"):
    message = GS1Message.parse(f"010400638133393110{lot}")
    printed = message.as_hri()
    found = GS1Message.parse_hri(printed).element_strings.get(ai="10")
    again = "none" if found is None else found.value
    seen.append((lot_in(message), again))
    print(f"Expected: lot {lot} is written as {printed} and read as {lot}")
    print(f"Seen:     lot {seen[-1][0]} is written as {printed} and read as {again}")
by_fnc1 = lot_in(GS1Message.parse(re.sub(r"\((\d{2,4})\)", "\x1d\\1", "(01)04006381333931(10)A(B)C")))
print(f"Seen:     lot {by_fnc1} (with FNC1 and parse)")
sys.exit((seen[0], by_fnc1) != (("A(B)C", "A"), "A(B)C"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
