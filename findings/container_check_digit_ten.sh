#!/usr/bin/env bash
# shippingcontainernumbervalidate refuses every eleventh container, and a number of the wrong length counts as true.
#
# A shipping container has a number of four letters, six digits and a check digit (ISO 6346): a weighted sum modulo 11, in which a remainder
# of 10 is written as 0. One expects each good number to be valid, as in python-stdnum and the npm package container-validator. The
# package compares the remainder itself, so numbers with the remainder 10 are False. For a number that is too long or too short it returns
# the text "Not a valid container", which is true in an if. Numbers that end with another digit, such as the usual example, are right.
# It matters because containers that stand in the yard cannot be booked in, and a number with a missing digit can. Use stdnum.iso6346.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check shippingcontainernumbervalidate==1.0.8 python-stdnum==2.2 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from ShippingContainerNumberValidate import validate_container_number
from stdnum import iso6346

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("shippingcontainernumbervalidate", "python-stdnum")))
serials = [f"TEXU{number:06}" for number in range(1, 11000)]
good = [serial + iso6346.calc_check_digit(serial) for serial in serials]
refused = [number for number in good if validate_container_number(number) is not True]
short = validate_container_number("TEXU307007")
print(f"Expected: all {len(good):,} good numbers are valid, and TEXU307007, which has no check digit, is not")
print(f"Seen:     {len(refused):,} refused, such as {refused[0]} and {refused[1]}; TEXU307007 is {short!r}, which counts as {bool(short)}")
print("Why it matters: one container in eleven cannot be received.")
all_refused_end_in_0 = {number[-1] for number in refused} == {"0"}
sys.exit(not (len(refused) == 999 and all_refused_end_in_0 and validate_container_number("TEXU3070079") is True and short))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
