#!/usr/bin/env bash
# Two SKUs that differ only in upper and lower case are one row in ElectroDB.
#
# DynamoDB's keys are case-sensitive, so one expects a row for each SKU. ElectroDB converts the values in keys to lower case unless
# the index sets "casing". The attribute keeps the SKU as written, so a printed item looks right. Adding the second product
# replaces the first, and a sale of one takes the stock of the other, because the conditional update goes to the shared key.
# Short order ids in base 62 have the same problem: 62 characters become 36, and two ids that differ collide.
# It matters because some suppliers' product codes differ only in case. Type checks do not catch it, nor do tests with one product.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund electrodb@3.9.3

cat > check.js <<'JAVASCRIPT'
const { Entity } = require('electrodb');
console.log(`Versions: electrodb ${require('electrodb/package.json').version}, node ${process.versions.node}`);

const products = (casing) => new Entity({
  model: { service: 'shop', entity: 'product', version: '1' },
  attributes: { sku: { type: 'string' }, stock: { type: 'number' } },
  indexes: { product: { pk: { field: 'pk', composite: ['sku'], ...casing }, sk: { field: 'sk', composite: [], ...casing } } },
}, { table: 'products' });
const key = ({ pk, sk }) => `${pk} | ${sk}`;

console.log('Expected: SKU HX7-A and SKU HX7-a (another product) have different keys, as they do in DynamoDB.');
const seen = [undefined, { casing: 'none' }].map((casing) => {
  const entity = products(casing);
  const added = entity.put({ sku: 'HX7-A', stock: 500 }).params().Item;
  const sold = entity.update({ sku: 'HX7-a' }).subtract({ stock: 1 }).where(({ stock }, { gte }) => gte(stock, 1)).params();
  console.log(`Seen:     casing ${casing ? casing.casing : 'not set'}`);
  console.log(`          put    ${added.sku}: ${key(added)}`);
  console.log(`          update HX7-a: ${key(sold.Key)} if ${sold.ConditionExpression}`);
  return key(added) === key(sold.Key);
});
console.log('Why it matters: a sale of the second product succeeds and takes stock from the first. Set casing to "none" on each index.');
process.exit(seen.join() === 'true,false' ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
