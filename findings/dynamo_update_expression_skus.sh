#!/usr/bin/env bash
# dynamo-update-expression writes the new stock of TEA-1 next to the map of stock, and the map keeps the old one.
#
# The package compares two versions of a row and builds the update for DynamoDB. One expects { stock: { 'TEA-1': 4 } } to become a
# SET of the entry TEA-1 in the map "stock". It does for TEA1, but a key with a hyphen or a point is joined with the name of its map: the
# update creates an attribute "stockTEA-1" of the row. It succeeds, and the map still has the old quantity. The names also leave out
# such characters, so that A-1-11 and A-11-1 share one name and one value. DynamoDB refuses that update, because a path occurs twice.
# A line that is removed from an order as the package's documentation says (set it to null) remains in the list as an empty map.
# It matters because the shop sells what it no longer has: each read of the map returns the stock from before the first sale.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts \
    dynamo-update-expression@1.0.8 dynalite@4.0.0 @aws-sdk/client-dynamodb@3.1162.0 @aws-sdk/lib-dynamodb@3.1162.0

cat > check.cjs <<'JAVASCRIPT'
const dynalite = require('dynalite');
const { CreateTableCommand, DynamoDBClient } = require('@aws-sdk/client-dynamodb');
const { DynamoDBDocumentClient, GetCommand, PutCommand, UpdateCommand } = require('@aws-sdk/lib-dynamodb');
const { getUpdateExpression } = require('dynamo-update-expression');

const version = (name) => require(`./node_modules/${name}/package.json`).version;
const packages = ['dynamo-update-expression', 'dynalite'];
console.log(`Versions: ${packages.map((name) => `${name} ${version(name)}`).join(', ')}, node ${process.versions.node}`);

const server = dynalite({ createTableMs: 0 });
const Key = { id: '1' };

// The row after the update that the package builds, or the name of the error.
async function updated(rows, original, modified) {
  await rows.send(new PutCommand({ TableName: 'rows', Item: { ...Key, ...original } }));
  const expression = getUpdateExpression({ original: { ...Key, ...original }, modified: { ...Key, ...modified } });
  try {
    await rows.send(new UpdateCommand({ TableName: 'rows', Key, ...expression }));
  } catch (error) {
    return error.name;
  }
  const { Item: { id, ...row } } = await rows.send(new GetCommand({ TableName: 'rows', Key }));
  return row;
}

async function main() {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new DynamoDBClient({
    endpoint: `http://127.0.0.1:${server.address().port}`, region: 'us-east-1', credentials: { accessKeyId: 'x', secretAccessKey: 'x' },
  });
  await client.send(new CreateTableCommand({
    TableName: 'rows', BillingMode: 'PAY_PER_REQUEST',
    AttributeDefinitions: [{ AttributeName: 'id', AttributeType: 'S' }], KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }],
  }));
  const rows = DynamoDBDocumentClient.from(client);
  const tea = { sku: 'TEA', quantity: 1 };
  const cases = [
    [{ stock: { TEA1: 5 } }, { stock: { TEA1: 4 } }, { stock: { TEA1: 4 } }],
    [{ stock: { 'TEA-1': 5 } }, { stock: { 'TEA-1': 4 } }, { stock: { 'TEA-1': 5 }, 'stockTEA-1': 4 }],
    [{ stock: { 'A-1-11': 5, 'A-11-1': 6 } }, { stock: { 'A-1-11': 4, 'A-11-1': 3 } }, 'ValidationException'],
    [{ lines: [tea, { sku: 'CUP', quantity: 2 }] }, { lines: [tea, null] }, { lines: [tea, {}] }],
  ];
  let same = true;
  for (const [original, modified, today] of cases) {
    const row = await updated(rows, original, modified);
    console.log(`Expected: ${JSON.stringify(original)} becomes ${JSON.stringify(modified).replace(',null', '')}`);
    console.log(`Seen:     ${JSON.stringify(row)}`);
    const sorted = (each) => JSON.stringify(each, (_, value) =>
      value && value.constructor === Object ? Object.fromEntries(Object.entries(value).sort()) : value);
    same = same && sorted(row) === sorted(today);
  }
  client.destroy();
  server.close();
  return same;
}
main().then((same) => process.exit(same ? 0 : 1), (error) => { console.error(error); process.exit(1); });
JAVASCRIPT
node --no-warnings check.cjs
