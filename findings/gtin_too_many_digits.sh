#!/usr/bin/env bash
# The Python package gtin turns the number of a pallet into the number of a product.
#
# A product's number, the GTIN, has 14 digits at most, a pallet's, the SSCC, has 18, and one scanner reads both. One expects the package, which
# parses and validates GTINs, to refuse 18 digits, as it refuses a wrong check digit. It checks the check digit of all 18, and then makes 14
# of them: 340123450000000017 becomes 24012345000017. With length=13, the case 14006381333938 becomes 4006381333938; the
# product in it is 4006381333931. The package refuses both results if they are parsed again, because their check digits are wrong.
# It matters because the result is an object called GTIN, so a pallet is booked as a product, which fails only in the next program. Check
# that the text has 8, 12, 13 or 14 digits first, and use length to fill up with zeros only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gtin==1.3.1649173518 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from gtin import GTIN, CheckDigitError

print("Versions: gtin", version("gtin"))


def parsed(text, **length):
    try:
        return str(GTIN(text, **length))
    except CheckDigitError:
        return "refused"


results = [parsed("340123450000000017"), parsed("340123450000000024"), parsed("14006381333938", length=13)]
again = [parsed(result) for result in results]
print("Expected: the pallets 340123450000000017 and 340123450000000024 are refused")
print(f"Seen:     {results[0]} and {results[1]}")
print("Expected: with 13 digits, 14006381333938 is refused, or becomes 4006381333931")
print(f"Seen:     {results[2]}")
print(f"Seen:     the results, parsed again: {', '.join(again)}")
print("Why it matters: a pallet counts as a piece of some product.")
known = ["24012345000017", "24012345000024", "4006381333938"]
sys.exit(not (results == known and again == ["refused"] * 3 and parsed("4006381333931") == "4006381333931"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
