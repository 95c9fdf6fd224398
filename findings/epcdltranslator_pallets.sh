#!/usr/bin/env bash
# epcdltranslator gives a pallet an address with 14 digits instead of 18, and two pallets the same address.
#
# Readers of RFID tags and EPCIS events name a pallet urn:epc:id:sscc:4012345.3000000001, and this package turns such names into web addresses.
# One expects https://id.gs1.org/00/ with the pallet's number, the SSCC, of 18 digits, as epcpy has it. The package uses the serial's first
# digit twice and computes the check digit with a class for product numbers, which leaves 14 digits: part of the serial is missing. Shipment
# numbers, AI (402), and service numbers, AI (8018), also have 14 digits, instead of 17 and 18. Products, lots and places are right, so a
# test with a product passes.
# It matters because the address leads to no pallet, and pallets of one sender share one. Take the numbers of pallets from epcpy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check epcdltranslator==1.0.0 gtin==1.3.1649173518 epcpy==0.1.8 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from epcdltranslator import epcDLTranslator
from epcpy import epc_pure_identity_to_gs1_key

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("epcdltranslator", "gtin", "epcpy")))
NAMES = {
    "sscc:4012345.0000000001": "https://id.gs1.org/00/34012345000012",
    "sscc:4012345.5000000001": "https://id.gs1.org/00/34012345000012",
    "sscc:4012345.3000300001": "https://id.gs1.org/00/34012345000013",
    "sscc:4012345.3001000001": "https://id.gs1.org/00/34012345000013",
    "gsin:4012345.000000001": "https://id.gs1.org/402/23450000000016",
    "gsrn:4012345.0000000001": "https://id.gs1.org/8018/34500000000012",
}
is_known = True
for name, known in NAMES.items():
    urn = f"urn:epc:id:{name}"
    seen = epcDLTranslator(urn)
    is_known &= seen == known
    print(f"Expected: {name} has {epc_pure_identity_to_gs1_key(urn)}")
    print(f"Seen:     {seen}")
product = epcDLTranslator("urn:epc:id:sgtin:4012345.011111.987")
print(f"Seen:     a product: {product}")
print("Why it matters: a scan of one pallet shows, or receives, another.")
sys.exit(not (is_known and product == "https://id.gs1.org/01/04012345111118/21/987"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
