#!/usr/bin/env bash
# Shopify's own parseGid returns the same id for the stock levels of different products.
#
# Shopify's ids look like gid://shopify/Product/1, and @shopify/admin-graphql-api-utilities takes the number out of them. One expects that
# different ids of one type have different numbers, and that composeGid makes the id again. The id of an inventory level is
# gid://shopify/InventoryLevel/523463154?inventory_item_id=30322695. Another product's level has the same number, as in two examples of
# Shopify's documentation, and only the parameter says which product it is. parseGid drops parameters without a word;
# parseGidWithParams returns them.
# It matters because a program that keeps levels by parseGid, as it keeps products, has only the last one of those with the same number,
# and takes it for all of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @shopify/admin-graphql-api-utilities@2.2.0

cat > check.cjs <<'JAVASCRIPT'
const { composeGid, parseGid, parseGidWithParams } = require('@shopify/admin-graphql-api-utilities');
const { version } = require('./node_modules/@shopify/admin-graphql-api-utilities/package.json');
console.log(`Versions: @shopify/admin-graphql-api-utilities ${version}, node ${process.versions.node}`);

const levels = [
  { id: 'gid://shopify/InventoryLevel/523463154?inventory_item_id=30322695', available: 2 },
  { id: 'gid://shopify/InventoryLevel/523463154?inventory_item_id=43729076', available: 42 },
];
const kept = new Map(levels.map(({ id, available }) => [parseGid(id), available]));
const again = levels.map(({ id }) => composeGid('InventoryLevel', parseGid(id)));
const items = levels.map(({ id }) => parseGidWithParams(id).params.inventory_item_id);
console.log('Expected: two levels, 2 and 42, and their ids again');
console.log(`Seen:     ${JSON.stringify([...kept])}`);
console.log(`Seen:     ${again.join(' and ')}`);
console.log(`Seen:     products ${items.join(' and ')} (parseGidWithParams)`);
console.log('Why it matters: only the last level is left, and it is taken for both products.');
const known = kept.size === 1 && kept.get('523463154') === 42;
process.exit(known && again[0] === again[1] && items.join() === '30322695,43729076' ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
