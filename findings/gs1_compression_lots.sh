#!/usr/bin/env bash
# gs1-compression makes lot 7 of lot 007 when it shortens a product's web address for a QR code.
#
# A GS1 Digital Link has the product, its lot, AI (10), and its serial number, AI (21), in a web address, and GS1's compression makes that
# address short enough for a small QR code. One expects the address to come out as it went in. Lots of letters and digits do, and so do
# GTINs with leading zeros, whose length is known. A lot or serial of digits only is compressed as a number, and its length, which the
# compressed form has as well, is not used to fill in the zeros again: 007 becomes 7, 00042 becomes 42. No error is raised.
# It matters because the printed code has another lot than the text next to it: a recall of lot 007 does not find the goods, or finds
# those of lot 7. Compress, decompress and compare before you print, and print the long address if they differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gs1-compression==0.1.3 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from gs1 import compress_gs1_digital_link, decompress_gs1_digital_link

print("Versions: gs1-compression", version("gs1-compression"))
seen = []
for path in ("10/LOT7", "10/A007", "10/007", "21/00042", "10/700"):
    link = f"https://id.gs1.org/01/04006381333931/{path}"
    short = compress_gs1_digital_link(digital_link_uri=link, use_optimizations=False, compress_other_key_value_pairs=False)
    seen.append(decompress_gs1_digital_link(short, use_short_text=False))
    print(f"Expected: {link}")
    print(f"Seen:     {seen[-1]}, from {short}")
print("Why it matters: the code on the product names another lot.")
values = [link.removeprefix("https://id.gs1.org/01/04006381333931/") for link in seen]
sys.exit(values != ["10/LOT7", "10/A007", "10/7", "21/42", "10/700"])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
