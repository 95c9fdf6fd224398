#!/usr/bin/env bash
# python-barcode prints a label with another product's number instead of refusing a number that is wrong.
#
# One expects a number with a wrong check digit, or with too many digits, to be refused; JsBarcode refuses both. python-barcode cuts the
# number after the digits that the symbology needs, and computes the check digit anew. A GTIN-14, given as EAN-13, loses its last two
# digits. A UPC-A whose leading zero a spreadsheet removed keeps its old check digit as a digit of the item, in JsBarcode too. Code 39
# gets a check character by default, which a reader with its usual settings returns as part of the text.
# It matters because each label is valid and scans well, but not as the number that was to be printed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'python-barcode[images]==0.16.1' zxing-cpp==3.1.1
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund jsbarcode@3.12.3

cat > check.py <<'PYTHON'
import io
import json
import subprocess
import sys
from importlib.metadata import version

import barcode
import zxingcpp
from barcode.writer import ImageWriter
from PIL import Image

JSBARCODE = """
const [number, format] = process.argv.slice(1), drawn = {};
try { require('jsbarcode')(drawn, number, {format}); console.log('accepted'); } catch { console.log('refused'); }
"""
CASES = [
    ("ean13", "04006381333931", "EAN13", "a GTIN-14, as lists of trading partners have it"),
    ("upca", "036000291459", "UPC", "a UPC-A whose check digit should be 2"),
    ("upca", "36000291452", "UPC", "a UPC-A without its leading zero"),
    ("code39", "TEA-1", "CODE39", "a product's id"),
]
print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("python-barcode", "zxing-cpp")) + ", jsbarcode 3.12.3")
seen = {}
for kind, number, peer, what in CASES:
    image = io.BytesIO()
    barcode.get_barcode_class(kind)(number, writer=ImageWriter()).write(image)
    scanned = [found.text for found in zxingcpp.read_barcodes(Image.open(image))]
    other = subprocess.run(["node", "-e", JSBARCODE, number, peer], capture_output=True, text=True, check=True).stdout.strip()
    seen[number] = [*scanned, other]
    print(f"Expected: {kind} {number}, {what}, scans as the same number or is refused (JsBarcode: {other})")
    print(f"Seen:     it scans as {', '.join(scanned)}")
print("Why it matters: a mistyped or cut number becomes a valid label that names something else.")
known = {
    "04006381333931": ["0400638133390", "refused"],
    "036000291459": ["0036000291452", "refused"],
    "36000291452": ["0360002914522", "accepted"],
    "TEA-1": ["TEA-14", "accepted"],
}
sys.exit(json.dumps(seen) != json.dumps(known))
PYTHON
"$folder/venv/bin/python" check.py || { echo "The behaviour has changed."; exit 1; }
