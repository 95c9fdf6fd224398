#!/usr/bin/env bash
# @point-of-sale/keyboard-barcode-scanner finds no product once the scanner says what kind of barcode it has read.
#
# A scanner that acts as a keyboard can put three characters in front of each code, such as ]E0 for EAN-13 and ]C1 for GS1-128 (ISO/IEC
# 15424). The library documents them as the way to know the kind of code; without them it can only guess. One expects ]E0 and 4006381333931
# to give the symbology "ean13" and the GTIN 04006381333931, as the guess does. The symbology is an object instead, {symbology: "ean13"},
# which none of the library's own comparisons expect. There is no GTIN, a GS1-128 label is parsed only if it happens to contain a separator,
# and with allowedSymbologies, as the documentation shows for shops, each scan is dropped without an event. The guess fails for UPC-E: it
# verifies the check digit as if the code were EAN-8, so it does not recognise 04252614.
# It matters because a packing table stops finding products, or receives no scans at all, once its scanner is set up better. Read the
# property aim, which is right, and find the product by value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @point-of-sale/keyboard-barcode-scanner@1.1.4 jsdom@26.1.0

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import { JSDOM } from 'jsdom';

const { window } = new JSDOM('<body></body>');
Object.assign(globalThis, { window, document: window.document });
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
const name = '@point-of-sale/keyboard-barcode-scanner';
// Its package.json offers the module to browsers only, so Node has to be told the file.
const { default: Scanner } = await import(`./node_modules/${name}/dist/keyboard-barcode-scanner.esm.js`);
console.log(`Versions: ${name} ${version(name)}, jsdom ${version('jsdom')}, node ${process.versions.node}`);

const press = (key, ctrlKey = false) => document.body.dispatchEvent(new window.KeyboardEvent('keydown', { key, ctrlKey, bubbles: true }));
async function scan(text, options) {
  const scanner = new Scanner(options);
  const heard = [];
  scanner.addEventListener('barcode', (code) => heard.push(code));
  await scanner.connect();
  // A separator, character 29, is typed as control and ].
  for (const key of text) key === '\x1d' ? press(']', true) : press(key);
  press('Enter');
  await new Promise((resolve) => setTimeout(resolve, 500));
  await scanner.disconnect();
  return heard.map(({ symbology, data }) => `symbology ${JSON.stringify(symbology)}, GTIN ${data?.gtin}`).join('; ') || 'no event';
}

const retail = { allowedSymbologies: ['ean13', 'ean8', 'upca', 'upce'] };
const guess = { guessSymbology: true };
const checks = [
  ['an EAN-13, guessed', '4006381333931', { ...guess, ...retail }, 'symbology "ean13", GTIN 04006381333931'],
  ['an EAN-13 with ]E0', ']E04006381333931', {}, 'symbology {"symbology":"ean13"}, GTIN undefined'],
  ['the same, only codes of products allowed', ']E04006381333931', retail, 'no event'],
  ['GS1-128, lot last', ']C1010400638133393110LOT7', {}, 'symbology {"symbology":"gs1-128","fnc1":1}, GTIN undefined'],
  ['GS1-128, lot first', ']C110LOT7\x1d0104006381333931', {}, 'symbology {"symbology":"gs1-128","fnc1":1}, GTIN 04006381333931'],
  ['a UPC-E, guessed, whose GTIN is 00042100005264', '04252614', guess, 'symbology undefined, GTIN undefined'],
];
let isKnown = true;
console.log('Expected: a symbology as text, and a GTIN, for each scan');
for (const [what, text, options, known] of checks) {
  const seen = await scan(text, options);
  isKnown &&= seen === known;
  console.log(`Seen:     ${what}: ${seen}`);
}
console.log('Why it matters: with a scanner that is set up better, no product is found.');
process.exit(isKnown ? 0 : 1);
JAVASCRIPT
node check.mjs || { echo "The behaviour has changed."; exit 1; }
