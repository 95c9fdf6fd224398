#!/usr/bin/env bash
# x12-parser takes all lines of a purchase order for a part of its address, but only if the order has an address.
#
# An order in X12's message 850 has loops without an end: N1 begins an address, PO1 a line. The package's X12grouper gathers them by a
# schema. Its documentation says that such a loop "will be terminated by either another peer loop", or by its parent's end. One expects
# that PO1 ends the address, as both are loops of the same order. Only a second N1 ends it, or a segment that the schema names under
# terminators: each PO1, its description and the rest of the order are members of the address. An order without an address has its lines.
# No error is raised. A loop's last member also takes what follows it, so the total, CTT, belongs to the last line.
# It matters because the orders of a buyer with a single shop, which need no address, are read in full, and those of the next buyer have no
# lines at all. Give each loop the starts of all loops that may follow it, and CTT, as terminators.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts x12-parser@1.3.0

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { Schema, X12grouper, X12parser } from 'x12-parser';

const { version } = JSON.parse(readFileSync('node_modules/x12-parser/package.json'));
console.log(`Versions: x12-parser ${version}, node ${process.versions.node}`);

const ADDRESS = ['N1*ST*Shop 7', 'N3*1 Main Street', 'N4*Austin*TX*73301'];
const LINES = ['PO1*1*5*EA*9.50**UP*614141000036', 'PID*F****Green tea', 'PO1*2*3*EA*4.50**UP*614141000043'];
const order = (segments) => [
  'ISA*00*          *00*          *ZZ*BUYER          *ZZ*SHOP           *261130*0900*U*00401*000000001*0*P*>',
  'GS*PO*BUYER*SHOP*20261130*0900*1*X*004010', 'ST*850*0001', 'BEG*00*SA*1042**20261130', ...segments, 'CTT*2',
  `SE*${segments.length + 4}*0001`, 'GE*1*1', 'IEA*1*000000001', '',
].join('~');
const schema = (afterAddress, afterLine) => new Schema('004010', {
  start: 'ST', end: 'SE', name: 'order',
  groups: [
    { start: 'N1', name: 'address', ...afterAddress },
    { start: 'PO1', name: 'line', groups: [{ start: 'PID', name: 'description' }], ...afterLine },
  ],
});
async function grouped(segments, loops) {
  const parts = [];
  const stream = Readable.from([Buffer.from(order(segments))]).pipe(new X12parser()).pipe(new X12grouper(loops));
  for await (const part of stream) if (part.isGroup) parts.push(...part.data);
  const content = (part) => (part.isGroup ? `${part.name}(${part.data.map(content).join(' ')})` : part.name);
  return parts.filter((part) => part.isGroup).map(content).join(', ');
}

const plain = await grouped(LINES, schema());
const addressed = await grouped([...ADDRESS, ...LINES], schema());
const named = await grouped([...ADDRESS, ...LINES], schema({ terminators: ['PO1'] }, { terminators: ['CTT'] }));
console.log('Expected: address(N1 N3 N4), line(PO1 description(PID)), line(PO1)');
console.log(`Seen:     ${addressed}`);
console.log(`Seen:     without an address: ${plain}`);
console.log(`Seen:     with terminators: ${named}`);
console.log('Why it matters: an order that has an address has no lines.');
const known = addressed === 'address(N1 N3 N4 PO1 PID PO1 CTT)' && plain === 'line(PO1 description(PID)), line(PO1 CTT)'
  && named === 'address(N1 N3 N4), line(PO1 description(PID)), line(PO1)';
process.exit(known ? 0 : 1);
JAVASCRIPT
node check.mjs || { echo "The behaviour has changed."; exit 1; }
