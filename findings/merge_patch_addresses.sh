#!/usr/bin/env bash
# json-merge-patch merges two changes of an address into one that keeps parts of the old address.
#
# A queue of changes of one order can be made shorter if two JSON Merge Patches (RFC 7396) become one. The package has merge(first,
# second) for this. One expects apply(order, merge(first, second)) to be what apply(apply(order, first), second) is. It is not if the
# first patch removes a member with null and the second sets it to an object. Applied in turn, the order is collected in the shop, then
# sent to a new address, of which all fields are new. Merged, the null is gone: the new fields are added to the old address. No Merge
# Patch can express that an object is replaced as a whole, so merge() has no right answer here, and it does not say so.
# It matters because the parcel goes to the new street on the old floor, in the old country. Apply the patches one by one, or do not merge
# a patch that contains null.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts json-merge-patch@1.0.2

cat > check.cjs <<'JAVASCRIPT'
const { apply, merge } = require('json-merge-patch');

console.log(`Versions: json-merge-patch ${require('./node_modules/json-merge-patch/package.json').version}, node ${process.versions.node}`);
const order = () => ({ id: 'order-1042', delivery: { street: 'Old Street 1', floor: '3', country: 'AT' } });
const collected = { delivery: null };
const moved = { delivery: { street: 'New Street 2' } };
const inTurn = JSON.stringify(apply(apply(order(), collected), moved).delivery);
const merged = JSON.stringify(apply(order(), merge(collected, moved)).delivery);
console.log(`Expected: ${inTurn}, as if applied in turn`);
console.log(`Seen:     ${merged}`);
console.log('Why it matters: the address on the label is one that nobody has given.');
const known = merged === '{"street":"New Street 2","floor":"3","country":"AT"}' && inTurn === '{"street":"New Street 2"}';
process.exit(known ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
