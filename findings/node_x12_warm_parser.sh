#!/usr/bin/env bash
# A node-x12 parser that is used again returns all earlier orders again.
#
# A Lambda function creates clients and parsers once, outside the handler, so that later invocations start faster. One expects parse() to
# return the document it was given. X12Parser keeps the segments of every document it has parsed and returns them all: the second
# call also returns the first document's orders, and so on. By default, they are merged into one interchange that looks normal.
# A test that parses one document per parser passes.
# It matters because a warm function places each order again with every later document, unless it checks for known order numbers.
# Create a new parser for each document.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund node-x12@1.7.1

cat > check.js <<'JAVASCRIPT'
const { X12Parser } = require('node-x12');
console.log(`Versions: node-x12 ${require('node-x12/package.json').version}, node ${process.versions.node}`);

const document = (n) => [
  `ISA*00*          *00*          *ZZ*BUYER          *ZZ*SELLER         *261128*0930*U*00401*00000000${n}*0*T*>`,
  `GS*PO*BUYER*SELLER*20261128*0930*${n}*X*004010`,
  'ST*850*0001',
  `BEG*00*SA*PO-${n}**20261128`,
  'PO1*1*12*EA*19.90**UP*012345678905',
  'CTT*1',
  'SE*5*0001',
  `GE*1*${n}`,
  `IEA*1*00000000${n}`,
].join('~') + '~';
const numbers = (interchange) => interchange.functionalGroups
  .flatMap((group) => group.transactions)
  .map((transaction) => transaction.segments.find((segment) => segment.tag === 'BEG').valueOf(3))
  .join(' ');

const warm = new X12Parser();
const seen = [1, 2, 3].map((n) => {
  const reused = numbers(warm.parse(document(n)));
  const fresh = numbers(new X12Parser().parse(document(n)));
  console.log(`Expected: document ${n} holds PO-${n}`);
  console.log(`Seen:     a new parser returns ${fresh}; the reused parser returns ${reused}`);
  return `${fresh}: ${reused}`;
});
console.log('Why it matters: the reused parser orders PO-1 three times. Stock is taken three times unless order numbers are checked.');
process.exit(seen.join() === 'PO-1: PO-1,PO-2: PO-1 PO-2,PO-3: PO-1 PO-2 PO-3' ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
