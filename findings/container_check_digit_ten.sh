#!/usr/bin/env bash
# Two packages for Python refuse every eleventh container number, and in one of them a number of the wrong length counts as true.
#
# A shipping container has a number of four letters, six digits and a check digit (ISO 6346): a weighted sum modulo 11, in which a remainder
# of 10 is written as 0. The standard advises owners against such numbers, but they are valid, and containers have them. One expects a check
# to accept them, as python-stdnum does. iso-container and shippingcontainernumbervalidate compare the remainder itself, so these numbers
# are False. For a number that is too long or too short the second returns the text "Not a valid container", which is true in an if.
# Numbers that end with another digit, such as the standard's own example, are right.
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
serials = [f"CSQU{number:06}" for number in range(1, 11000)]
good = [serial + iso6346.calc_check_digit(serial) for serial in serials]
checks = {"iso-container": validate_container, "shippingcontainernumbervalidate": validate_container_number}
refused = {name: [number for number in good if check(number) is not True] for name, check in checks.items()}
short = validate_container_number("CSQU305438")
print(f"Expected: all {len(good):,} good numbers are valid, and CSQU305438, which has no check digit, is not")
for name, numbers in refused.items():
    print(f"Seen:     {name} refuses {len(numbers):,}, such as {numbers[0]} and {numbers[1]}, and accepts CSQU3054383")
print(f"Seen:     CSQU305438 is {short!r}, which counts as {bool(short)} (shippingcontainernumbervalidate)")
print("Why it matters: a container whose number ends with such a 0 cannot be received.")
known = [number for number in good if number[-1] == "0" and number in refused["iso-container"]]
is_known = len(known) == 1000 and all(numbers == known for numbers in refused.values())
sys.exit(not (is_known and all(check("CSQU3054383") is True for check in checks.values()) and short))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
