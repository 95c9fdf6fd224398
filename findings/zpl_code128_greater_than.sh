#!/usr/bin/env bash
# jszpl and the Python package zpl print the barcode of another product if the SKU has a > in it.
#
# In the data of a Zebra printer's Code 128, > begins a command: >0 prints the character > itself, >5 to >7 change the code set, >8 is FNC1
# (ZPL II Programming Guide, ^BC). One expects a library that is given the data of a barcode to print just that, or to refuse it, as
# simple-zpl2 does. jszpl and zpl copy the SKU into the command as it is, so HOSE>01M becomes HOSE>1M, without an error.
# It matters because HOSE>1M may be another product, whose stock is then booked. Write > as >0 in the data of Code 128.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check zpl==0.1.13 simple-zpl2==0.3.0 zxing-cpp==3.1.1 pillow==12.0.0 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts jszpl@2.0.1 zpl-renderer-js@3.4.0

cat > print.mjs <<'JAVASCRIPT'
// Prints labels: those of jszpl for the SKUs of the first argument, and the ZPL in the second one.
import { readFileSync, writeFileSync } from 'node:fs';
import * as jszpl from 'jszpl';
import { ready } from 'zpl-renderer-js';

const { api } = await ready;
function label(sku) {
  const made = new jszpl.Label();
  made.printDensity = new jszpl.PrintDensity(jszpl.PrintDensityName['8dpmm']);
  [made.width, made.height] = [100, 50];
  const barcode = new jszpl.Barcode();
  barcode.type = new jszpl.BarcodeType(jszpl.BarcodeTypeName.Code128);
  barcode.height = new jszpl.Size(100, jszpl.SizeType.Absolute);
  barcode.left = new jszpl.Size(50, jszpl.SizeType.Absolute);
  barcode.top = new jszpl.Size(50, jszpl.SizeType.Absolute);
  barcode.fixed = true;
  barcode.data = sku;
  made.content.push(barcode);
  return made.generateZPL();
}
const { skus, zpl } = JSON.parse(readFileSync('labels.json', 'utf8'));
for (const [name, labels] of Object.entries({ jszpl: skus.map(label), zpl })) {
  for (const [i, code] of labels.entries()) {
    writeFileSync(`${name}-${i}.png`, Buffer.from(await api.zplToBase64Async(code, 100, 50, 8), 'base64'));
  }
}
console.log(['jszpl', 'zpl-renderer-js'].map((name) => `${name} ${JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version}`).join(', '));
JAVASCRIPT
cat > check.py <<'PYTHON'
import json
import subprocess
import sys
from importlib.metadata import version

import zpl
import zxingcpp
from PIL import Image
from simple_zpl2 import Code128_Barcode

SKUS = ["HOSE-1M", "HOSE>01M", "BOX>02X", "PIPE>0-5"]
PRINTED = ["HOSE-1M", "HOSE>1M", "BOX>2X", "PIPE>-5"]


def label(sku):
    made = zpl.Label(50, 100, dpmm=8)
    made.origin(5, 5)
    made.barcode("C", sku, height=100, check_digit="N")
    made.endorigin()
    return made.dumpZPL()


def scanned(library):
    images = (Image.open(f"{library}-{number}.png").convert("L") for number in range(len(SKUS)))
    return [",".join(found.text for found in zxingcpp.read_barcodes(image)) for image in images]


with open("labels.json", "w") as file:
    json.dump({"skus": SKUS, "zpl": [label(sku) for sku in SKUS]}, file)
printer = subprocess.run(["node", "print.mjs"], capture_output=True, text=True, check=True).stdout.strip()
print(f"Versions: {printer}, zpl {version('zpl')}, simple-zpl2 {version('simple-zpl2')}, zxing-cpp {version('zxing-cpp')}")
seen = {library: scanned(library) for library in ("jszpl", "zpl")}
print("Expected:", *SKUS)
for library, codes in seen.items():
    print("Seen:    ", *codes, f"(scanned from the label of {library})")
try:
    refused = Code128_Barcode("HOSE>01M", "N", 100, "Y") and "no"
except NotImplementedError as error:
    refused = str(error)
print("Seen:     simple-zpl2 refuses HOSE>01M:", refused)
print("Why it matters: HOSE>01M is booked as HOSE>1M, another product.")
sys.exit(not (seen == {"jszpl": PRINTED, "zpl": PRINTED} and refused != "no"))
PYTHON
"$folder/venv/bin/python" check.py || { echo "The behaviour has changed."; exit 1; }
