#!/usr/bin/env bash
# pharma_datamatrix adds the national number of one pack of medicine to the next pack.
#
# A pack of medicine has a Data Matrix code with its product, AI (01), expiry (17), batch (10) and serial number (21), and in some countries
# a national number, AI (710) to (714). One expects the result of a scan to depend on that code only. The package fills one dictionary,
# which is created at import and returned by each call. A pack without a national number gets that of a pack scanned earlier. A code
# with nothing but a serial number has the other pack's product, expiry and batch, and counts as complete. Results that were kept in
# a list are all the last scan.
# It matters because goods are received, or a recall is answered, with another product's number, and a test with one pack passes. Before
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
SERIAL_ONLY = f"21S3{SEPARATOR}"
print("Versions: pharma-datamatrix", version("pharma-datamatrix"))

results = [pharma_datamatrix(SPANISH)]
national = results[0]["NHRN"]
results.append(pharma_datamatrix(OTHER))
leaked = results[1].get("NHRN")
serial_only = dict(pharma_datamatrix(SERIAL_ONLY))
batches = [result["BATCH"] for result in results]
gs1_gtin.result = {"SCHEME": "GS1"}
reset = pharma_datamatrix(OTHER)

print("Expected: national number 654321 of the first pack, and none of the second")
print(f"Seen:     {national} and {leaked}")
print("Expected: a code with a serial number only is INCOMPLETE DATA")
print(f"Seen:     {serial_only}")
print("Expected: the two results that were kept have the batches A1 and B2")
print(f"Seen:     {batches[0]} and {batches[1]}")
print(f"Seen:     the second pack with a new dictionary: {reset}")
print("Why it matters: a pack is booked with the number of another product.")
known = {"SCHEME": "GS1", "GTIN": "04012345678901", "EXPIRY": "500630", "SERIAL": "S3", "BATCH": "B2", "NHRN": "654321"}
sys.exit(not (national == leaked == "654321" and serial_only == known and batches == ["B2"] * 2 and "NHRN" not in reset))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
