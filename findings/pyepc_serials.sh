#!/usr/bin/env bash
# pyepc and epcpy write the serial numbers 0042 and 42 of a product to one RFID tag.
#
# A label's serial number, AI (21), is text: 0042 and 42 are two items. The tag format SGTIN-96 has room for a number only, so GS1's Tag
# Data Standard excludes serials with leading zeros from it; SGTIN-198 stores text. One expects 0042 to get SGTIN-198, or an error. pyepc
# chooses the format itself, SGTIN-198 for A42, but SGTIN-96 for 0042, and reads 42 from that tag. epcpy refuses 0042 when it writes the
# tag as a URI, but binary(), which returns the bits for the tag, drops the zeros.
# It matters because two items have the same tag: one is counted twice and the other is missing, and a returned item is not found by its
# serial number. Choose SGTIN-198 for serials that begin with 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyepc==0.5.0 epcpy==0.1.8 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from epcpy import ConvertException
from epcpy.epc_schemes.sgtin import SGTIN as Epcpy
from epcpy.epc_schemes.sgtin import SGTINFilterValue
from pyepc import SGTIN, decode

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("pyepc", "epcpy")))
GTIN = "04006381333931"
seen = {}
print("Expected: the tag of 0042 is read as 0042")
for serial in ("42", "0042", "A42"):
    item = SGTIN.from_sgtin(GTIN, serial, company_prefix_len=7)
    tag = item.encode()
    seen[serial] = tag, decode(tag).gs1_element_string
    print(f"Seen:     pyepc, serial {serial}: tag {tag[:24]} is read as {seen[serial][1]}")
kept = decode(SGTIN.from_sgtin(GTIN, "0042", company_prefix_len=7).encode(SGTIN.BinarySchemes.SGTIN_198)).gs1_element_string
print(f"Seen:     pyepc, serial 0042 with SGTIN-198: read as {kept}")
item = Epcpy.from_gtin_plus_serial(GTIN, "0042", 7)
scheme = Epcpy.BinaryCodingScheme.SGTIN_96, SGTINFilterValue.POS_ITEM
binary = Epcpy.from_binary(item.binary(*scheme)).gs1_element_string()
print(f"Seen:     epcpy, serial 0042 with SGTIN-96: binary() is read as {binary}")
try:
    refused = ""
    item.tag_uri(*scheme)
except ConvertException as error:
    refused = str(error)
print(f"Seen:     epcpy, serial 0042 with SGTIN-96: tag_uri() says {refused}")
print("Why it matters: two items cannot be told apart by their tags.")
same = seen["42"] == seen["0042"] and seen["A42"][1].endswith("(21)A42") and binary.endswith("(21)42")
sys.exit(not same or not kept.endswith("(21)0042") or not refused)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
