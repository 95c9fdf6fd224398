#!/usr/bin/env bash
# node-x12 gives a line of a purchase order the product of another line.
#
# An X12 850 has one PO1 segment for each line. A line names its product by UPC, or by the seller's own number. node-x12 maps these lines
# to objects with queries such as FOREACH(PO1)=>PO107:PO106["UP"]: the UPC, where the line has one. One expects no UPC for a line
# that has none. The library collects the values that it finds and assigns them from the first line on. Each later UPC moves up a
# line, and the last line gets the text of the query as its UPC. There is no error, and the mode "loose" does not help here.
# It matters because the quantity of one product is ordered for another: the shop ships 12 caps instead of 12 red shirts and 10 caps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund node-x12@1.7.1

cat > check.js <<'JAVASCRIPT'
const { X12Parser, X12TransactionMap } = require('node-x12');
console.log(`Versions: node-x12 ${require('node-x12/package.json').version}, node ${process.versions.node}`);

const order = [
  'ISA*00*          *00*          *ZZ*BUYER          *ZZ*SELLER         *261128*0930*U*00401*000000001*0*T*>',
  'GS*PO*BUYER*SELLER*20261128*0930*1*X*004010',
  'ST*850*0001',
  'BEG*00*SA*PO-1**20261128',
  'PO1*1*12*EA*19.90**VN*SHIRT-RED',
  'PO1*2*10*EA*5.00**UP*012345678905',
  'CTT*2',
  'SE*6*0001',
  'GE*1*1',
  'IEA*1*000000001',
].join('~') + '~';
const map = { order: 'BEG03', lines: { quantity: 'FOREACH(PO1)=>PO102', upc: 'FOREACH(PO1)=>PO107:PO106["UP"]' } };
const transaction = new X12Parser(true).parse(order).functionalGroups[0].transactions[0];

console.log('Sent:     line 1: 12 of the seller\'s SHIRT-RED, no UPC; line 2: 10 caps with UPC 012345678905');
console.log('Expected: line 1 has no UPC; line 2 has UPC 012345678905');
const seen = ['strict', 'loose'].map((mode) => {
  const { lines } = new X12TransactionMap(map, transaction, 'internal', mode).toObject();
  lines.forEach((line, i) => console.log(`Seen:     ${mode}, line ${i + 1}: ${line.quantity} of ${line.upc}`));
  return lines.map((line) => line.upc);
});
console.log('Why it matters: the order reserves and ships 12 caps. The customer wanted 12 red shirts and 10 caps.');
const shifted = ['012345678905', map.lines.upc];
process.exit(JSON.stringify(seen) === JSON.stringify([shifted, shifted]) ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
