#!/usr/bin/env bash
# Five packages that convert objects for DynamoDB store the date of an order as an empty map.
#
# DynamoDB has no type for dates. AWS's marshall() therefore refuses a Date, and tells the caller to convert it. One expects other
# packages to refuse it, too, or to store it as JSON does, as text. @aws/dynamodb-auto-marshaller, its fork @nova-odm/auto-marshaller,
# dynamodb-data-types, dynamo-converters and @awspilot/dynamodb-util take a Date for an object without fields: {"M": {}}. The rest of the
# row is right. dynamodb-data-types also makes a set of each list of texts or numbers, which DynamoDB refuses if one occurs twice: the
# quantities 2, 1, 1 of three order lines.
# It matters because the time of each order is lost, and that is not noticed until a report or an expiry date needs it. Pass
# date.toISOString().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @aws/dynamodb-auto-marshaller@0.7.1 @nova-odm/auto-marshaller@0.8.3 \
    dynamodb-data-types@4.0.1 dynamo-converters@9.1.1 @awspilot/dynamodb-util@1.1.4 @aws-sdk/util-dynamodb@3.996.9

cat > check.cjs <<'JAVASCRIPT'
const { marshall } = require('@aws-sdk/util-dynamodb');

const version = (name) => require(`./node_modules/${name}/package.json`).version;
const convert = {
  '@aws/dynamodb-auto-marshaller': (row) => new (require('@aws/dynamodb-auto-marshaller').Marshaller)().marshallItem(row),
  '@nova-odm/auto-marshaller': (row) => new (require('@nova-odm/auto-marshaller').Marshaller)().marshallItem(row),
  'dynamodb-data-types': (row) => require('dynamodb-data-types').AttributeValue.wrap(row),
  'dynamo-converters': (row) => require('dynamo-converters').dataToItem(row),
  '@awspilot/dynamodb-util': (row) => require('@awspilot/dynamodb-util').stringify(row).M,
};
const names = Object.keys(convert);
console.log(`Versions: ${[...names, '@aws-sdk/util-dynamodb'].map((name) => `${name} ${version(name)}`).join(', ')}`);

const order = { id: 'order-1042', placedAt: new Date('2026-11-03T09:15:00Z'), quantities: [2, 1, 1] };
try {
  marshall(order);
} catch (error) {
  console.log(`Expected: an error, as from @aws-sdk/util-dynamodb (${error.message.slice(0, 40)}...), or a text`);
}
const seen = names.map((name) => JSON.stringify(convert[name](order)));
names.forEach((name, i) => console.log(`Seen:     ${name}: ${seen[i]}`));
console.log('Why it matters: nobody can say any more when the orders were placed.');
const empty = seen.every((row) => row.includes('"placedAt":{"M":{}}') && row.includes('"id":{"S":"order-1042"}'));
process.exit(empty && seen[2].includes('"quantities":{"NS":["2","1","1"]}') ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
