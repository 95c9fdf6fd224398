#!/usr/bin/env bash
# currency.js refunds a cent less than it charged, and dinero.js a cent more.
#
# Tax, discounts and prices per kilogram give fractions of a cent, and libraries for money round them. One expects that they round -1.125
# to the opposite of what they round 1.125 to, so that a refund is the charge with a minus sign, and a line and its cancellation add up to
# 0. currency.js rounds halves upwards, towards plus infinity: 1.125 is 1.13, and -1.125 is -1.12. dinero.js rounds each fraction
# downwards, towards minus infinity, unless transformScale gets a function: 1.121 is 1.12, and -1.121 is -1.13. Its halfAwayFromZero is
# symmetrical. Both are right for each number by itself.
# It matters because refunded orders leave a cent in the books, and a check that compares a refund with its charge refuses about a tenth
# of the refunds of currency.js, and nine tenths of dinero.js. Round the charge only, and refund what was charged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts currency.js@2.0.4 dinero.js@2.0.2

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import currency from 'currency.js';
import { dinero, halfAwayFromZero, toSnapshot, transformScale } from 'dinero.js';
import { EUR } from 'dinero.js/currencies';

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log(`Versions: currency.js ${version('currency.js')}, dinero.js ${version('dinero.js')}, node ${process.versions.node}`);

const euros = (thousandths) => dinero({ amount: thousandths, currency: EUR, scale: 3 });
const scaled = (thousandths, ...how) => toSnapshot(transformScale(euros(thousandths), 2, ...how)).amount;
const rounded = {
  'currency.js': (thousandths) => Math.round(currency(thousandths / 1000).value * 100),
  'dinero.js': (thousandths) => scaled(thousandths),
  'dinero.js, halfAwayFromZero': (thousandths) => scaled(thousandths, halfAwayFromZero),
};
const seen = {};
console.log('Expected: charge and refund add up to 0 for all amounts from 0.001 to 9.999');
for (const [name, cents] of Object.entries(rounded)) {
  const lines = Array.from({ length: 9999 }, (_, i) => i + 1);
  seen[name] = lines.filter((line) => cents(line) + cents(-line) !== 0).length;
  const examples = [1125, -1125, 1121, -1121].map((line) => `${line / 1000} is ${cents(line) / 100}`);
  console.log(`Seen:     ${name}: ${examples.join(', ')}`);
  console.log(`Seen:     ${name}: ${seen[name]} of 9,999 amounts do not add up`);
}
console.log('Why it matters: the books of a fully refunded order are not balanced.');
process.exit(Object.values(seen).join() === '1000,9000,0' ? 0 : 1);
JAVASCRIPT
node check.mjs || { echo "The behaviour has changed."; exit 1; }
