#!/usr/bin/env bash
# epc-encoding-utils gives a warehouse a name that ends with a point, and epcpy, which refuses that name, gives it none.
#
# The number of a place, the GLN, is printed with AI (414), and a shelf or door within it may have an extension, AI (254). RFID tags and EPCIS
# events name places urn:epc:id:sgln:4006381.00001.12. A place without an extension has 0 there, and 0 is read as no (254)
# (GS1 EPC Tag Data Standard, "SGLN"). One expects that in both directions from a library for the standard. epc-encoding-utils leaves the
# extension empty, in a tag of 195 bits that is meant for text, and writes (254) without a value. epcpy refuses (414) alone. Both read
# the 0 of a warehouse's own tag as the extension (254)0.
# It matters because readPoint and bizLocation of each EPCIS event are such names: partners refuse events with an empty extension, and stock
# that is booked at 4006381000017 with the extension 0 is at another place than that at 4006381000017. Give "0" as the extension
# yourself, and drop (254)0 after reading.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check epc-encoding-utils==1.3 epcpy==0.1.8 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from epc.schemes import SGLN
from epcpy.epc_schemes.sgln import SGLN as OtherSGLN

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("epc-encoding-utils", "epcpy")))


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__


place = SGLN(barcode="4144006381000017", company_prefix_length=7)
other = outcome(lambda: OtherSGLN.from_gs1_element_string("(414)4006381000017", company_prefix_length=7).epc_uri)
door = SGLN(barcode="414400638100001725412", company_prefix_length=7)
tag = "3214f487b400020000000000"
seen = [
    ("(414)4006381000017", "urn:epc:id:sgln:4006381.00001.0", str(place), other),
    ("(414)4006381000017(254)12", "urn:epc:id:sgln:4006381.00001.12", str(door), OtherSGLN.from_epc_uri(str(door)).epc_uri),
    (f"tag {tag}", "(414)4006381000017", SGLN(epc=tag).barcode_humanized, OtherSGLN.from_hex(tag).gs1_element_string()),
]
for name, wanted, *both in seen:
    print(f"Expected: {name}: {wanted}")
    print(f"Seen:     {name}: {both[0]} (epc-encoding-utils), {both[1]} (epcpy)")
refused = outcome(lambda: OtherSGLN.from_epc_uri(str(place)).epc_uri)
print("Expected: tag for (414)4006381000017: urn:epc:tag:sgln-96:0.4006381.00001.0")
print(f"Seen:     tag for (414)4006381000017: {place.tag_uri} (epc-encoding-utils)")
print(f"Seen:     epcpy reads {place}: {refused}")
print("Why it matters: the place of an event is refused, or is another place.")
empty, zero = "urn:epc:id:sgln:4006381.00001.", "(414)4006381000017(254)0"
found = [both for _, _, *both in seen]
wanted = [[empty, "ConvertException"], ["urn:epc:id:sgln:4006381.00001.12"] * 2, [zero, zero]]
sys.exit((found, place.tag_uri, refused) != (wanted, "urn:epc:tag:sgln-195:0.4006381.00001.", "ConvertException"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
