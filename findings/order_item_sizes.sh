#!/usr/bin/env bash
# dyno-item-size and dynamodb-item-size: an order of 30 lines takes two write units, and both count one.
#
# DynamoDB charges a write by the item's size, so programs estimate the size first. AWS's page says that a list or map has 3 bytes of
# overhead, and each element 1 byte more: docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
# dyno-item-size wants "to be accurate within a byte", so one expects both parts. Both packages count the 3 bytes and leave out the
# elements: three bytes for each line of an order with a product and a quantity, however short the line is.
# The newer one also counts characters instead of bytes, and the digits of trailing zeros that DynamoDB does not store.
# It matters because orders are lists of maps: the longer the order, the more is missing, until the bill has a unit that the plan lacks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-fund --no-audit dyno-item-size@0.3.3 dynamodb-item-size@0.0.1

cat > check.js <<'JAVASCRIPT'
const dyno = require('dyno-item-size');
const { calculateItemSize } = require('dynamodb-item-size');

// The rules of the page, for the types that an order has.
const digits = (number) => String(number).replace(/0+$/, '').length;
const bytes = (value) => {
  if (typeof value === 'string') return Buffer.byteLength(value);
  if (typeof value === 'number') return Math.ceil(digits(value) / 2) + 1;
  if (Array.isArray(value)) return 3 + value.reduce((sum, each) => sum + 1 + bytes(each), 0);
  return 3 + Object.keys(value).length + item(value);
};
const item = (map) => Object.entries(map).reduce((sum, [name, value]) => sum + Buffer.byteLength(name) + bytes(value), 0);

const order = (lines) => ({
  orderId: 'o-1',
  userId: 'u-1',
  status: 'PENDING',
  createdAt: '2026-01-01T00:00:00.000000+00:00',
  items: Array.from({ length: lines }, (_, number) => ({ productId: `tea-${100 + number}`, quantity: 2 })),
});
const versions = ['dyno-item-size', 'dynamodb-item-size'].map((name) => `${name} ${require(`${name}/package.json`).version}`);
console.log('Versions:', versions.join(', '));
const seen = [1, 10, 30].map((lines) => [lines, item(order(lines)), dyno(order(lines)), calculateItemSize(order(lines))]);
for (const [lines, expected, first, second] of seen) {
  console.log(`Expected: an order of ${lines} lines has ${expected} bytes, ${Math.ceil(expected / 1024)} write unit(s)`);
  console.log(`Seen:     ${first} and ${second} bytes; dyno-item-size.write: ${dyno.write(order(lines))}`);
}
console.log('Why it matters: capacity is planned, and a budget set, with a unit less than each long order takes.');
const short = seen.every(([lines, expected, first, second]) => expected - first === 3 * lines && first === second);
process.exit(short && seen[2][1] > 1024 && dyno.write(order(30)) === 1 ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
