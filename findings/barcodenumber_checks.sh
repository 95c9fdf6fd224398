#!/usr/bin/env bash
# barcodenumber finds every text a valid UPC-A, and loses the expiry date of medicine if the serial number comes first.
#
# barcodes() returns "the list of barcodes that have check function", and check_code() checks a number of each kind. One expects a wrong check
# digit to be refused, as it is for UPC, EAN13 and GTIN14. UPCA, JAN, ISSN and PZN, Germany's number of medicine, accept every text, "hello"
# included. decode_code() splits a GS1 Data Matrix. The standard leaves the order of its parts to the printer. The package expects product,
# expiry, lot and serial number: if the serial number comes first and the expiry last, the result has neither of them. Other orders, and
# production dates, raise a ValueError about values to unpack. check_code() accepts all of these codes.
# It matters because mistyped numbers enter the catalogue, and goods are stored as if they never expired. Check UPC-A with "upc" and JAN with
# "ean13", and read Data Matrix codes with biip.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check barcodenumber==0.5.0 python-stdnum==2.2 biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from barcodenumber import barcodes, check_code, decode_code
from biip.gs1_messages import GS1Message

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("barcodenumber", "python-stdnum", "biip")))
WRONG = {"UPC": "012345678904", "UPCA": "012345678904", "JAN": "4901234567890", "ISSN": "03178470", "PZN": "12345670"}
accepted = [kind for kind, number in WRONG.items() if kind in barcodes() and check_code(kind, number)]
print("Expected: these wrong numbers are refused:", ", ".join(f"{kind} {number}" for kind, number in WRONG.items()))
print("Seen:     accepted as", ", ".join(accepted))

MEDICINE = ("01040063813339311726123110LOT7\x1d21S1", "010400638133393121S1\x1d10LOT7\x1d17261231")
seen = []
for scanned in MEDICINE:
    seen.append(decode_code("gs1_datamatrix", scanned))
    print("Expected:", GS1Message.parse(scanned).as_hri())
    print("Seen:    ", check_code("gs1_datamatrix", scanned), seen[-1])
print("Why it matters: a code that passes the check has no expiry date.")
complete = {"product_code": "04006381333931", "expiration_date": "261231", "lot": "LOT7", "serial_number": "S1"}
known = [complete, {**complete, "expiration_date": None, "serial_number": None}]
is_any = all(check_code(kind, "hello") for kind in accepted)
sys.exit(not (accepted == ["UPCA", "JAN", "ISSN", "PZN"] and is_any and seen == known))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
