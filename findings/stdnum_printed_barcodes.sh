#!/usr/bin/env bash
# python-stdnum reads the expiry date below a barcode as part of the lot, and writes lots with spaces that other readers do not understand.
#
# The text below a GS1 barcode has its application identifiers in brackets: (01)04006381333931(10)LOT7(17)261231. It needs no separators,
# because the brackets show where each value ends. The functions of stdnum.gs1_128 accept such text, as their own examples show. One
# expects the lot LOT7 and an expiry on 31 December. The brackets are removed first: the lot is LOT717261231, there is no expiry, and no
# error. The other way round, encode() without a separator fills the lot with spaces up to 20 characters. GS1 has no spaces in a lot: biip
# raises an error, bark-js returns the lot with 16 spaces, and gs1-barcode-parser-mod adds the serial number to the lot.
# It matters because goods typed in from their label never expire, and a recall of LOT7 does not find them. Read such text with a parser
# for it, such as biip's parse_hri() unless lots have brackets, and give encode() the separator "\x1d".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-stdnum==2.2 biip==5.2.0 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts bark-js@1.2.1 gs1-barcode-parser-mod@1.2.1

cat > check.py <<'PYTHON'
import json
import subprocess
import sys
from importlib.metadata import version

from biip import ParseError
from biip.gs1_messages import GS1Message
from stdnum import gs1_128

READERS = """
const lots = [
  require('bark-js')(process.argv[1]).elements[0].value,
  require('gs1-barcode-parser-mod').parseBarcode(process.argv[1]).parsedCodeItems[0].data,
];
console.log(JSON.stringify(lots));
"""

versions = ", ".join(f"{name} {version(name)}" for name in ("python-stdnum", "biip"))
print(f"Versions: {versions}, bark-js 1.2.1, gs1-barcode-parser-mod 1.2.1")
text = "(01)04006381333931(10)LOT7(17)261231"
read = gs1_128.info(text)
print(f"Expected: {text} has the lot LOT7 and an expiry")
print(f"Seen:     stdnum: lot {read['10']}, expiry {read.get('17')}")
right = {value.ai.ai: value.value for value in GS1Message.parse_hri(text).element_strings}
print(f"Seen:     biip: lot {right['10']}, expiry {right['17']}")
written = gs1_128.encode({"10": "LOT7", "21": "S1"})
print("Expected: what encode() writes for the lot LOT7 and the serial S1 is read as LOT7")
try:
    GS1Message.parse(written)
    error = ""
except ParseError as raised:
    error = str(raised)
lots = json.loads(subprocess.check_output(["node", "-e", READERS, written], text=True))
print(f'Seen:     "{written}" is written')
print(f"Seen:     biip: {error}")
print(f'Seen:     bark-js: "{lots[0]}", gs1-barcode-parser-mod: "{lots[1]}"')
print("Why it matters: the lot of an article and its expiry are wrong, although the label is right.")
padded = "LOT7" + 16 * " "
sys.exit(read != {"01": "04006381333931", "10": "LOT717261231"} or not error or lots != [padded, f"{padded}21S1"])
PYTHON
venv/bin/python check.py || { echo "The behaviour has changed."; exit 1; }
