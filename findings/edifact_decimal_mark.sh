#!/usr/bin/env bash
# The npm package edifact changes the decimal mark of prices, but not of quantities.
#
# An EDIFACT interchange may name the comma as its decimal mark in UNA, as those of Germany and France often do. One expects a reader to
# turn all numbers into one form, or to leave all of them as they were sent. The package's Reader returns the price 12,50 as 12.50, and
# the quantity 1,5 of the same order line as 1,5. JavaScript's parseFloat makes 1 of that, and Number makes NaN.
# It matters because an order for 1.5 kg is imported as 1 kg at the right price.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund edifact@1.2.12

cat > check.cjs <<'JAVASCRIPT'
const { Reader } = require('edifact');
const { version } = require('./node_modules/edifact/package.json');
console.log(`Versions: edifact ${version}, node ${process.versions.node}`);

const order = (mark) => [
  `UNA:+${mark}? `, 'UNB+UNOB:1+BUYER+SHOP+261129:0900+1', 'UNH+1+ORDERS:D:96A:UN', 'BGM+220+PO1+9', 'LIN+1++4006381333931:EN',
  `QTY+21:1${mark}5:KGM`, `PRI+AAA:12${mark}50`, `MEA+AAE+G+KGM:1${mark}5`, `MOA+203:18${mark}75`, 'UNT+8+1', 'UNZ+1+1', '',
].join("'");
const numbersIn = (mark) => {
  const found = new Reader().parse(order(mark)).filter(({ name }) => ['QTY', 'PRI', 'MEA', 'MOA'].includes(name));
  return Object.fromEntries(found.map(({ name, elements }) => [name, elements[name === 'MEA' ? 2 : 0][1]]));
};
const [comma, point] = [numbersIn(','), numbersIn('.')];
console.log("Expected: QTY, PRI, MEA and MOA have the same decimal mark, the interchange's or a point");
console.log(`Seen:     with UNA:+.  ${JSON.stringify(point)}`);
console.log(`Seen:     with UNA:+,  ${JSON.stringify(comma)}`);
console.log(`Seen:     parseFloat of the quantity: ${parseFloat(comma.QTY)}`);
console.log('Why it matters: a quantity loses its fraction while the price of the same line is right.');
const isKnown = comma.PRI === '12.50' && comma.QTY === '1,5' && point.QTY === '1.5' && point.PRI === '12.50';
process.exit(isKnown ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
