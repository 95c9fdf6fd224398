#!/usr/bin/env bash
# dynoexpr saves order-1042 as the number 1042, and compares GTINs as numbers.
#
# The package builds DynamoDB expressions from objects: { Update: { stock: 'stock - 1' } } takes one from the stock, because the text begins
# with the attribute's own name. One expects arithmetic only where the text is an expression. The spaces are optional, so an id made of the
# attribute's name and a number is taken for one: a return of order-1042 gets the number 1042, and batch-7 in "batch" becomes 7.
# The ids order-1042a and ORDER-1042 stay as they are. Conditions make a number of each operand of digits and points: a filter on
# the GTIN 04012345678901 looks for a number without the zero, and one on the version 1.2.3 looks for NaN.
# It matters because the return no longer leads to its order, and the filter finds nothing, both without an error. Call the attribute
# orderId, and leave out the operator: { gtin: '04012345678901' } stays as it is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @tuplo/dynoexpr@3.5.1

cat > check.cjs <<'JAVASCRIPT'
const { readFileSync } = require('node:fs');
const dynoexpr = require('@tuplo/dynoexpr');

const version = JSON.parse(readFileSync('node_modules/@tuplo/dynoexpr/package.json')).version;
console.log(`Versions: @tuplo/dynoexpr ${version}, node ${process.versions.node}`);

// The value that DynamoDB would receive, and the expression with readable names.
const build = (parameters, kind) => {
  const request = dynoexpr(parameters);
  let expression = request[`${kind}Expression`];
  for (const [short, name] of Object.entries(request.ExpressionAttributeNames)) expression = expression.replaceAll(short, name);
  return { expression: expression.replace(/:v\w+/g, ':value'), value: Object.values(request.ExpressionAttributeValues)[0] };
};
const cases = [
  ['Update', { order: 'order-1042' }, 'order-1042'],
  ['Update', { batch: 'batch-7' }, 'batch-7'],
  ['Update', { order: 'order-1042a' }, 'order-1042a'],
  ['Update', { order: 'ORDER-1042' }, 'ORDER-1042'],
  ['Update', { orderId: 'order-1042' }, 'order-1042'],
  ['Filter', { gtin: '04012345678901' }, '04012345678901'],
  ['Filter', { gtin: 'IN (04012345678901)' }, '04012345678901'],
  ['Filter', { version: '>= 1.2.3' }, '1.2.3'],
];
const seen = cases.map(([kind, given, expected]) => {
  const { expression, value } = build({ [kind]: given }, kind);
  const show = (each) => (typeof each === 'string' ? `'${each}'` : String(each));
  console.log(`Expected: ${kind} ${JSON.stringify(given)} has the value ${show(expected)}`);
  console.log(`Seen:     ${show(value)} in ${expression}`);
  return show(value);
});
const wanted = ['1042', '7', "'order-1042a'", "'ORDER-1042'", "'order-1042'", "'04012345678901'", '4012345678901', 'NaN'];
process.exit(JSON.stringify(seen) === JSON.stringify(wanted) ? 0 : 1);
JAVASCRIPT
node check.cjs
