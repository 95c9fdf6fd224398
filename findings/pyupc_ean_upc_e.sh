#!/usr/bin/env bash
# PyUPC-EAN reads no small American barcode right, and one in ten as a valid number of another product.
#
# Small packs have a UPC-E, a UPC-A whose zeros were left out. The last digit before the check digit says where they were (GS1 General
# Specifications, "UPC-E"): 04252614 is 042100005264. Both have the same check digit. One expects convert_barcode_from_upce_to_upca() to
# return that number, as biip does. It puts in four zeros, but loses a digit or two of the product: the result has 10 or 11 digits. Except for
# 00000000, no UPC-E is converted into its number. convert_barcode_from_upce_to_ean13() fills the rest with zeros, and returns False if the
# check digit does not fit by then. It fits for one number in nine or ten, and the EAN-13 is then a valid one, of something else.
# It matters because a scanner that sends UPC-E as it is printed needs this conversion before the product is looked up, and because
# a number with a right check digit is believed: stock of another product is booked. Convert with biip, or let the scanner expand UPC-E.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check PyUPC-EAN==2.20.10 biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from biip.upc import Upc
from upcean.convert import convert_barcode_from_upce_to_ean13, convert_barcode_from_upce_to_upca

print(f"Versions: PyUPC-EAN {version('PyUPC-EAN')}, biip {version('biip')}, Python {sys.version.split()[0]}")

seen = {}
for code in ("04252614", "00028868", "01234565"):
    wanted = Upc.parse(code).as_upc_a()
    seen[code] = (convert_barcode_from_upce_to_upca(code), convert_barcode_from_upce_to_ean13(code))
    print(f"Expected: {code} is the UPC-A {wanted} and the EAN-13 0{wanted}")
    print(f"Seen:     {code} is the UPC-A {seen[code][0]} and the EAN-13 {seen[code][1]}")

right = refused = wrong = 0
for number in range(1, 1_000_000, 997):
    for check_digit in range(10):
        code = f"0{number:06d}{check_digit}"
        try:
            wanted = f"0{Upc.parse(code).as_upc_a()}"
        except Exception:
            continue  # The check digit of another number.
        ean = convert_barcode_from_upce_to_ean13(code)
        right += ean == wanted
        refused += ean is False
        wrong += bool(ean) and ean != wanted
print(f"Expected: all of {right + refused + wrong} other numbers are converted")
print(f"Seen:     {right} are converted, {refused} are refused, and {wrong} are a valid EAN-13 of another product")
print("Why it matters: whoever looks a product up by such a number finds nothing, or the wrong product.")
same = seen["04252614"][0] != "042100005264" and seen["00028868"] == ("00028000068", "0000028000068")
sys.exit(not (same and right == 0 and wrong > 50))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
