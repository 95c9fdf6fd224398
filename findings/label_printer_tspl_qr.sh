#!/usr/bin/env bash
# label-printer writes web addresses into QR codes as text of capitals only, and inch marks in a way that TSPL does not have.
#
# TSPL is the language of TSC's label printers and of many that copy it. In its QRCODE command, mode A lets the printer choose the
# encoding; in mode M the data says it: after an A there are only digits, capitals and nine other characters, and B with four digits of length is
# for the rest. The cells are 1 to 10 dots wide. A quotation mark within a text is written \["] (TSPL/TSPL2 Programming Language, QRCODE and
# TEXT). One expects the package, whose language is TSPL, to write that. It takes mode M and an A for an address in small letters,
# a cell of 0 dots for the example in its own documentation, a backslash and a bare mark in texts, and a bare mark in barcodes.
# It matters because the label of a 24" screen, and the GS1 Digital Link by which shops will scan goods, depend on what a printer makes of
# commands that its manual does not have. Print addresses as images, and write "in." for inches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts label-printer@0.13.10

cat > check.js <<'JAVASCRIPT'
const { labels } = require('label-printer');
const { version } = require('label-printer/package.json');
console.log(`Versions: label-printer ${version}, node ${process.versions.node}`);

async function commandOf(field) {
  const label = new labels.Label(50, 50);
  label.add(field);
  const { commandString } = await label.fullPrintCommand('tspl', 3, 0, 1);
  return commandString.split('\n').find((line) => /^(QRCODE|TEXT|BARCODE)/.test(line));
}
const link = 'https://id.gs1.org/01/04006381333931';
const cases = [
  [`QRCODE 10, 10, H, 6, A, 0, M2, "${link}"`, link, () => new labels.QRCode(link, 10, 10, 200)],
  ['QRCODE with a cell width of 1 to 10', 'the documented example', () => new labels.QRCode('https://example.com', 20, 220, 6)],
  ['TEXT ... "Screen 24\\["] black"', 'a text', () => new labels.Text('Screen 24" black', 10, 10)],
  ['BARCODE ... "SCREEN-24\\["]", or an error', 'a barcode', () => new labels.BarCode('SCREEN-24"', 10, 10, 'CODE128', 80)],
];
(async () => {
  const seen = [];
  for (const [wanted, name, field] of cases) {
    const command = await commandOf(field());
    seen.push(command);
    console.log(`Expected: ${name}: ${wanted}`);
    console.log(`Seen:     ${name}: ${command}`);
  }
  console.log('Why it matters: what the label then has is up to each printer.');
  const asSeen = [/, M, 0, M2, "Ahttps:/, /^QRCODE 20, 220, H, 0, /, /"Screen 24\\" black"$/, /"SCREEN-24""$/];
  process.exit(asSeen.every((pattern, place) => pattern.test(seen[place])) ? 0 : 1);
})();
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
