#!/usr/bin/env bash
# gs123 cuts a lot number at its colon, and loses lot and expiry date unless both are there and the date comes first.
#
# A scanner sends a pack's product, AI (01), serial number (21), expiry date (17) and lot (10) with the character GS after each value of
# variable length. A label may leave the lot or the date out, and may have them in either sequence (GS1 General Specifications, 7.8).
# gs123 converts such barcodes for an EPCIS system of the pharmaceutical trade, and raises an error for those that it does not know. One expects
# each value as printed, or that error. Its pattern for barcodes with GS matches their beginning only: a lot is cut at a colon, semicolon
# or equals sign, which GS1's character set 82 has, and what does not follow its one sequence is left out.
# It matters because A:7 and A:8 become one lot, A: a recall of one takes both from sale, or misses both. Packs without an expiry date are not
# found when it has passed. Read lot and date with another parser, such as biip.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gs123==4.0.1 biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

import biip
from gs123.conversion import BarcodeConverter

print(f"Versions: gs123 {version('gs123')}, biip {version('biip')}, Python {sys.version.split()[0]}")
SCANS = {
    "date, lot A:7": "17261231|10A:7",
    "date, lot A:8": "17261231|10A:8",
    "lot LOT7, date": "10LOT7|17261231",
    "lot LOT7 alone": "10LOT7",
    "date alone": "17261231",
    "date, lot LOT7": "17261231|10LOT7",
}


def by_biip(scan):
    elements = {each.ai.ai: each.value for each in biip.parse(scan).gs1_message.element_strings}
    return elements.get("17"), elements.get("10")


def by_gs123(scan):
    barcode = BarcodeConverter(scan, company_prefix_length=7)
    return barcode.expiration_date, barcode.lot


seen = {}
for name, rest in SCANS.items():
    scan = "010400638133393121ABC42\x1d" + rest.replace("17261231|", "17261231").replace("|", "\x1d")
    print("Expected: {}: date {}, lot {} (biip)".format(name, *by_biip(scan)))
    seen[name] = by_gs123(scan)
    print("Seen:     {}: date {}, lot {}".format(name, *seen[name]))
print("Why it matters: recalls go by lots, and stock that has expired is found by its date.")
cut, lost = ("261231", "A"), (None, None)
sys.exit(list(seen.values()) != [cut, cut, lost, lost, lost, ("261231", "LOT7")])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
