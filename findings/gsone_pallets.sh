#!/usr/bin/env bash
# gsone numbers pallets with 19 digits instead of 18, and its check digit ignores the first of them.
#
# The number of a pallet, the SSCC, has an extension digit, the company's prefix and a serial number, 17 digits together, and a check digit for
# all of them (GS1 General Specifications, 3.2.1 and 7.9). One expects get_barcode_sscc() to return 18 digits after (00), and another
# check digit for another extension digit. It fills prefix and serial number up to 17 digits without the extension digit, computes the
# check digit for those, and puts the extension digit in front. The functions for GTINs have the
# same defaults: a product's number is printed with (00), which says that it is a pallet, and with a digit too many.
# It matters because a reader that checks the number refuses such a label, as biip does, and because a system that takes 18 digits after (00), as the standard
# says, books another pallet, and reads the 19th digit as the beginning of what follows. Give the extension digit as part of the
# prefix, and an empty one as ext; give app_id="" and ext="" for GTINs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gsone==0.1.0 biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from biip.sscc import Sscc
from gsone import gsone

print(f"Versions: gsone {version('gsone')}, biip {version('biip')}, Python {sys.version.split()[0]}")


def verdict(number):
    try:
        return f"{len(number)} digits, biip: {Sscc.parse(number).as_hri()}"
    except Exception as error:
        return f"{len(number)} digits, biip: {type(error).__name__}"


seen = []
for extension in ("0", "3"):
    wanted = gsone.get_barcode_sscc(extension + "4006381", "1", app_id="", ext="")
    number = gsone.get_barcode_sscc("4006381", "1", ext=extension)
    seen.append(number)
    print(f"Expected: extension digit {extension}, pallet 1: (00){wanted} ({verdict(wanted)})")
    print(f"Seen:     extension digit {extension}, pallet 1: {number} ({verdict(number[4:])})")
product = gsone.get_barcode_gtin13("4006381", "33393")
print("Expected: product 33393: 4006381333931")
print(f"Seen:     product 33393: {product}")
print("Why it matters: the pallet cannot be received by its label, or is received as another one.")
lengths = [len(number.removeprefix("(00)")) for number in seen]
sys.exit((lengths, seen[0][-1] == seen[1][-1], product) != ([19, 19], True, "(00)04006381333931"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
