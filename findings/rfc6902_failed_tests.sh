#!/usr/bin/env bash
# rfc6902 changes an order although the patch's own test of the order's version fails.
#
# A JSON Patch (RFC 6902) may begin with a test, such as that the order still has version 7. If one operation fails, the whole patch has
# failed, and nothing may change (section 5, as HTTP's PATCH). One expects applyPatch to stop at the test that fails. It goes on, and
# applies every later operation; the errors are in the list that it returns. It changes the object that it is given, so what the caller
# saves next is half a patch. fast-json-patch throws, but the operations before the failed one are in the object as well.
# It matters because two people who amend one order overwrite each other, although the test was there to prevent exactly that, and the
# amended order is saved by every program that does not read the list. Apply the patch to a copy, and keep the copy only if each element
# of the list is null.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts rfc6902@5.4.0 fast-json-patch@3.1.1

cat > check.cjs <<'JAVASCRIPT'
const rfc6902 = require('rfc6902');
const fast = require('fast-json-patch');

const version = (name) => require(`./node_modules/${name}/package.json`).version;
console.log(`Versions: rfc6902 ${version('rfc6902')}, fast-json-patch ${version('fast-json-patch')}, node ${process.versions.node}`);

const test = { op: 'test', path: '/version', value: 7 };
const change = { op: 'replace', path: '/quantity', value: 3 };
const seen = [];
for (const [name, patch] of [['test first', [test, change]], ['test last', [change, test]]]) {
  const orders = Array.from({ length: 2 }, () => ({ version: 8, quantity: 1 }));
  const results = rfc6902.applyPatch(orders[0], patch).map((result) => result?.name ?? 'applied');
  let error = 'nothing';
  try {
    fast.applyPatch(orders[1], patch);
  } catch (thrown) {
    error = thrown.name;
  }
  console.log(`Expected: ${name}: the quantity is still 1`);
  console.log(`Seen:     ${name}: rfc6902 returns ${results.join(', ')}: the quantity is ${orders[0].quantity}`);
  console.log(`Seen:     ${name}: fast-json-patch throws ${error}: the quantity is ${orders[1].quantity}`);
  seen.push(orders[0].quantity, orders[1].quantity);
}
console.log('Why it matters: the later of two changes wins, although it was made for a version that is no longer there.');
process.exit(seen.join() === '3,1,3,3' ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
