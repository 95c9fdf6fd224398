#!/usr/bin/env bash
# pharma_datamatrix adds the national number of one pack of medicine to the next pack.
#
# A pack of medicine has a Data Matrix code with its product, AI (01), expiry (17), batch (10) and serial number (21), and in some countries
# a national number, AI (710) to (714). One expects the result of a scan to depend on that code only. The package fills one dictionary,
# which is created at import and returned by each call. A pack without a national number gets that of a pack scanned earlier, and
# a pack whose code has no expiry gets the expiry of the earlier one.
# It matters because goods are received, or a recall is answered, with another product's data, and a test with one pack passes. Before
# each scan, set pharma_datamatrix.gs1_gtin.result to a new dictionary, {"SCHEME": "GS1"}.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pharma-datamatrix==1.4.5 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from pharma_datamatrix import gs1_gtin, pharma_datamatrix

SEPARATOR = "\x1d"
SPANISH = f"01040063813339311749123121S1{SEPARATOR}10A1{SEPARATOR}712654321"
OTHER = f"01040123456789011750063021S2{SEPARATOR}10B2"
WITHOUT_EXPIRY = f"010401234567890110B3{SEPARATOR}21S3"
print("Versions: pharma-datamatrix", version("pharma-datamatrix"))

national = pharma_datamatrix(SPANISH)["NHRN"]
leaked = pharma_datamatrix(OTHER).get("NHRN")
without_expiry = dict(pharma_datamatrix(WITHOUT_EXPIRY))
gs1_gtin.result = {"SCHEME": "GS1"}
reset = pharma_datamatrix(OTHER)

print("Expected: national number 654321 of the first pack, and none of the second")
print(f"Seen:     {national} and {leaked}")
print("Expected: the third pack, batch B3, has no expiry")
print(f"Seen:     {without_expiry}")
print(f"Seen:     the second pack with a new dictionary: {reset}")
print("Why it matters: a pack is booked with the number and the expiry of another product.")
known = {"SCHEME": "GS1", "GTIN": "04012345678901", "EXPIRY": "500630", "SERIAL": "S3", "BATCH": "B3", "NHRN": "654321"}
sys.exit(not (national == leaked == "654321" and without_expiry == known and "NHRN" not in reset))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
