#!/usr/bin/env bash
# Two packages for Python refuse every eleventh container, and in one of them a number of the wrong length counts as true.
#
# A shipping container has a number of four letters, six digits and a check digit (ISO 6346): a weighted sum modulo 11, in which a remainder
# of 10 is written as 0. One expects each good number to be valid, as in python-stdnum and the npm package container-validator.
# iso-container and shippingcontainernumbervalidate compare the remainder itself, so numbers with the remainder 10 are False. For a number
# that is too long or too short the second returns the text "Not a valid container", which is true in an if. Numbers that end with
# another digit, such as the usual example, are right.
# It matters because containers that stand in the yard cannot be booked in, and a number with a missing digit can. Use stdnum.iso6346.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    iso-container==1.1.0 shippingcontainernumbervalidate==1.0.8 python-stdnum==2.2 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from iso_container import validate_container
from ShippingContainerNumberValidate import validate_container_number
from stdnum import iso6346

names = ("iso-container", "shippingcontainernumbervalidate", "python-stdnum")
print("Versions:", ", ".join(f"{name} {version(name)}" for name in names))
serials = [f"TEXU{number:06}" for number in range(1, 11000)]
good = [serial + iso6346.calc_check_digit(serial) for serial in serials]
checks = {"iso-container": validate_container, "shippingcontainernumbervalidate": validate_container_number}
refused = {name: [number for number in good if check(number) is not True] for name, check in checks.items()}
short = validate_container_number("TEXU307007")
print(f"Expected: all {len(good):,} good numbers are valid, and TEXU307007, which has no check digit, is not")
for name, numbers in refused.items():
    print(f"Seen:     {name} refuses {len(numbers):,}, such as {numbers[0]} and {numbers[1]}, and accepts TEXU3070079")
print(f"Seen:     TEXU307007 is {short!r}, which counts as {bool(short)} (shippingcontainernumbervalidate)")
print("Why it matters: one container in eleven cannot be received.")
known = [number for number in good if number[-1] == "0" and number in refused["iso-container"]]
is_known = len(known) == 999 and all(numbers == known for numbers in refused.values())
sys.exit(not (is_known and all(check("TEXU3070079") is True for check in checks.values()) and short))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
