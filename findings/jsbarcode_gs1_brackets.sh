#!/usr/bin/env bash
# JsBarcode prints the brackets of a GS1-128 label into the barcode, and zxing-cpp reads it as if it were right.
#
# A GS1 barcode's text is written (01)04006381333931(10)LOT7(21)S1, but the bars have no brackets: a character FNC1 ends each value of
# variable length. One expects a library's mode for GS1-128 to convert that text, as bwip-js does, or to refuse it. JsBarcode's option
# ean128 puts an FNC1 in front and encodes the brackets as data. A check of the printed label with zxing-cpp does not show it: its text of
# a correct symbol has brackets as well, so both labels give the same text. Only the bytes differ, and parsers such as biip, which take
# the bytes, refuse the one with brackets.
# It matters because the customer's scanner cannot read a pallet that was checked before it left. Give JsBarcode the values without
# brackets, with "\xCF" for FNC1, and compare zxing-cpp's bytes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check zxing-cpp==3.1.1 pillow==12.1.0 biip==5.2.0 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts jsbarcode@3.12.3 bwip-js@4.11.4

cat > check.py <<'PYTHON'
import json
import subprocess
import sys
from importlib.metadata import version

import zxingcpp
from biip import parse
from PIL import Image

DRAW = """
const [library, text] = process.argv.slice(1);
let bars;
if (library === 'JsBarcode') {
  const drawn = {};
  require('jsbarcode')(drawn, text.replaceAll('FNC1', '\\xCF'), { format: 'CODE128', ean128: true });
  bars = drawn.encodings.map((each) => each.data).join('');
} else {
  const { sbs } = require('bwip-js').raw({ bcid: 'gs1-128', text })[0];
  bars = sbs.map((width, i) => (i % 2 ? '0' : '1').repeat(width)).join('');
}
console.log(JSON.stringify(bars));
"""


def scanned(library, text):
    bars = json.loads(subprocess.check_output(["node", "-e", DRAW, library, text], text=True))
    label = Image.new("L", (3 * len(bars) + 120, 150), 255)
    for place, bar in enumerate(bars):
        label.paste(255 if bar == "0" else 0, (60 + 3 * place, 0, 63 + 3 * place, 150))
    return zxingcpp.read_barcodes(label)[0]


print(f"Versions: jsbarcode 3.12.3, bwip-js 4.11.4, zxing-cpp {version('zxing-cpp')}, biip {version('biip')}")
TEXT = "(01)04006381333931(10)LOT7(21)S1"
seen = []
print(f"Expected: each label with {TEXT} has the data 010400638133393110LOT7<FNC1>21S1")
for library, text in (("bwip-js", TEXT), ("JsBarcode", "010400638133393110LOT7FNC121S1"), ("JsBarcode", TEXT)):
    code = scanned(library, text)
    message = parse(code.symbology_identifier + code.bytes.decode()).gs1_message
    seen.append((code.text, code.bytes.decode(), message is not None))
    print(f"Seen:     {library} from {text}: data {code.bytes}")
    print(f"Seen:         zxing-cpp's text {code.text}, which biip {'reads' if message else 'cannot read'}")
print("Why it matters: a check by text passes a label that no scanner understands.")
right = "010400638133393110LOT7\x1d21S1"
sys.exit(seen != [(TEXT, right, True), (TEXT, right, True), (TEXT, TEXT, False)])
PYTHON
venv/bin/python check.py || { echo "The behaviour has changed."; exit 1; }
