#!/usr/bin/env bash
# gs1js reads a weight of 1.25 kg as identifier 31, and an order's number with a digit too many.
#
# Each part of a GS1 barcode begins with an application identifier of two to four digits: (01) a product, (240) another number of it, (400) the
# customer's order, (3103) a weight in kilograms with three decimals. One expects a "GS1 barcode content parser" to return each part with its
# identifier. gs1js takes the first two digits. They do decide how long a part is, so each part ends at the right place, and a code of products,
# dates, lots and serial numbers, such as the one in its documentation, is right. The order PO-1001 becomes 40 with the value 0PO-1001, and the
# weight (3103)001250 becomes 31 with 03001250; a length, a width and an area, (311n) to (316n), become 31, too.
# It matters because the number of the order finds nothing, and a metre is taken for a kilogram. Use gs1-barcode-parser-mod, or join the
# identifier and the value, and split them by GS1's list.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts gs1js@0.0.2 gs1-barcode-parser-mod@1.2.1

cat > check.cjs <<'JAVASCRIPT'
const { GS1Reader } = require('gs1js/dist/GS1Reader.js');
const { parseBarcode } = require('gs1-barcode-parser-mod');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
console.log(`Versions: gs1js ${version('gs1js')}, gs1-barcode-parser-mod ${version('gs1-barcode-parser-mod')}, node ${process.versions.node}`);

const separator = String.fromCharCode(29);
const known = {
  '(01)04006381333931(17)261130(10)LOT7': '(01)04006381333931(17)261130(10)LOT7',
  '(01)04006381333931(400)PO-1001': '(01)04006381333931(40)0PO-1001',
  '(01)04006381333931(240)BLUE(10)LOT7': '(01)04006381333931(24)0BLUE(10)LOT7',
  '(01)04006381333931(3103)001250(10)LOT7': '(01)04006381333931(31)03001250(10)LOT7',
  '(01)04006381333931(3113)001250(10)LOT7': '(01)04006381333931(31)13001250(10)LOT7',
  '(01)04006381333931(410)4012345000016(10)LOT7': '(01)04006381333931(41)04012345000016(10)LOT7',
};
let isKnown = true;
for (const [text, value] of Object.entries(known)) {
  // A separator after the identifiers of variable length, and brackets removed.
  const scanned = text.replace(/(\(240\)[^(]+)(?=\()/g, `$1${separator}`).replace(/\((\d+)\)/g, '$1');
  const other = parseBarcode(`]d2${scanned}`).parsedCodeItems.map(({ ai, raw }) => `(${ai})${raw}`).join('');
  const seen = new GS1Reader(scanned).getApplicationIdentifiers().map((part) => `(${part.identifier})${part.value}`).join('');
  isKnown &&= seen === value && other === text;
  console.log(`Expected: ${text}`);
  console.log(`Seen:     ${seen}`);
}
console.log("Why it matters: the customer's order is not found, and a weight, a length and an area look the same.");
process.exit(isKnown ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
