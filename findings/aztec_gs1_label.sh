#!/usr/bin/env bash
# aztec-py's batches of GS1 labels are not GS1 codes, and no argument makes them so.
#
# A scanner tells a GS1 code from other text by a mark in the symbol, FNC1, and reports it in the first characters: ]z1 for an Aztec
# code. Without it, warehouse systems do not look for product, lot and expiry. For one label the preset "gs1_label" needs gs1=True as well, as
# the documentation says. Its example for a day's parcels, under "GS1 2027-compliant", is encode_batch() with the same preset, so one expects
# the mark there. The preset sets only the correction level and the border, and encode_batch() has no argument gs1: it raises a TypeError.
# It matters because a phone shows the right text, and the error appears in the customer's warehouse. Make each label with
# AztecCode.from_preset(payload, "gs1_label", gs1=True).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aztec-py==1.2.1 pillow==13.0.0 zxing-cpp==3.1.1 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import io
import sys
from importlib.metadata import version

import zxingcpp
from aztec_py import AztecCode, GS1Element, build_gs1_payload, encode_batch
from PIL import Image, ImageOps

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("aztec-py", "pillow", "zxing-cpp")))


def scanned(png):
    """What a scanner reports: the symbology identifier, whether it is a GS1 code, and the text."""
    (code,) = zxingcpp.read_barcodes(ImageOps.expand(Image.open(io.BytesIO(png)).convert("L"), border=40, fill=255))
    return code.symbology_identifier, code.content_type == zxingcpp.ContentType.GS1, code.text


def png_of(code):
    buffer = io.BytesIO()
    code.save(buffer, module_size=6, format="PNG")
    return buffer.getvalue()


lot = GS1Element("10", "LOT7", variable_length=True)
payload = build_gs1_payload([GS1Element("01", "04006381333931"), GS1Element("17", "261130"), lot, GS1Element("21", "S1", variable_length=True)])
right = scanned(png_of(AztecCode(payload, gs1=True)))
(batch,) = map(scanned, encode_batch([payload], output="png_bytes", preset="gs1_label", module_size=6))
single = scanned(png_of(AztecCode.from_preset(payload, "gs1_label", gs1=True)))
try:
    encode_batch([payload], preset="gs1_label", gs1=True)
    refused = ""
except TypeError as error:
    refused = str(error)
print("Expected:", *right)
print("Seen:    ", *batch, "(batch)")
print("Seen:    ", refused)
print("Seen:    ", *single, "(one label)")
print("Why it matters: the warehouse's scanner finds no product on the label.")
text = "(01)04006381333931(17)261130(10)LOT7(21)S1"
sys.exit(not (right == single == ("]z1", True, text) and batch[:2] == ("]z0", False) and "'gs1'" in refused))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
