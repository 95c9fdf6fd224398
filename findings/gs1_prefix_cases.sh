#!/usr/bin/env bash
# gs1-prefix says that another GS1 organisation issued the number of a case than that of the product in it.
#
# The first digits of a barcode say which GS1 organisation issued it: 400 to 440 is Germany. A case has the product's number with another digit
# in front, 1 to 8, which says how it is packed, and another check digit: GTIN-14. One expects a package that takes "a GTIN-8, 12, 13 or 14"
# to skip that digit. It takes the first three digits. The cases of one German product are from nowhere, France, Germany, Belgium or Finland,
# each with a valid check digit. The product itself in 14 digits, with a 0 in front, is reserved for use within a company. A GTIN-12 is
# padded and right.
# It matters because a check of new suppliers' numbers flags genuine cases, and cases arrive more often than single products. Give it the
# 13 digits from the second one on; it does not need the check digit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gs1-prefix==1.0.0 biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from biip.gtin import Gtin
from gs1_prefix import lookup

print("Versions: gs1-prefix", version("gs1-prefix") + ", biip", version("biip"))
CASES = {
    "04006381333931": None,
    "14006381333938": None,
    "34006381333932": "GS1 France",
    "44006381333939": "GS1 Germany",
    "54006381333936": "GS1 Belgium & Luxembourg",
    "64006381333933": "GS1 Finland",
}
is_known = True
for gtin, organisation in CASES.items():
    seen = lookup(gtin)
    found = seen.range and seen.range.issuing_organisation
    is_known &= found == organisation and seen.check_digit_valid
    print(f"Expected: {gtin} is from {Gtin.parse(gtin).prefix.usage}")
    print(f"Seen:     {found}, prefix {seen.prefix}")
base = lookup("4006381333931").range.issuing_organisation
print(f"Seen:     {base} for 4006381333931")
print("Why it matters: one product has cases of four organisations, or of none.")
sys.exit(not (is_known and base == "GS1 Germany" and lookup("34006381333932"[1:]).range.issuing_organisation == base))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
