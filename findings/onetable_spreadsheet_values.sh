#!/usr/bin/env bash
# dynamodb-onetable stores "False" as true, and an empty cell as a stock of 0.
#
# OneTable converts values to the types of its schema. It reads "false" as false, and refuses a stock of "7 pcs" and a date of
# 31.12.2026, so one expects it to read other spellings of false correctly, or to refuse them. Any other text is true: "False" as Python
# writes it, "FALSE" as spreadsheets do, "no", "off" and "0" (the number 0 is false). A number from an empty or blank cell is 0. A date
# that cannot exist, 30 February, moves to 2 March, and the date in a GS1 barcode, 261231, becomes a day in the year 261231.
# It matters because an import of a spreadsheet offers products that were withdrawn, and sets the stock to 0 wherever a cell was left
# blank because nothing had changed. No error is raised. Convert the cells before you pass them to OneTable.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts \
    dynamodb-onetable@2.7.7 dynalite@4.0.0 @aws-sdk/client-dynamodb@3.1162.0

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import { CreateTableCommand, DynamoDBClient } from '@aws-sdk/client-dynamodb';
import dynalite from 'dynalite';
import { Table } from 'dynamodb-onetable';

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log(`Versions: dynamodb-onetable ${version('dynamodb-onetable')}, dynalite ${version('dynalite')}, node ${process.versions.node}`);

const server = dynalite({ createTableMs: 0 });
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const client = new DynamoDBClient({
  endpoint: `http://127.0.0.1:${server.address().port}`, region: 'us-east-1', credentials: { accessKeyId: 'x', secretAccessKey: 'x' },
});
await client.send(new CreateTableCommand({
  TableName: 'rows', BillingMode: 'PAY_PER_REQUEST',
  AttributeDefinitions: [{ AttributeName: 'pk', AttributeType: 'S' }], KeySchema: [{ AttributeName: 'pk', KeyType: 'HASH' }],
}));
const product = {
  pk: { type: String, value: 'product#${sku}' },
  sku: { type: String, required: true }, active: { type: Boolean }, stock: { type: Number }, expires: { type: Date },
};
const table = new Table({
  client, name: 'rows', logger: false, partial: false,
  schema: {
    version: '1.0.0', format: 'onetable:1.1.0', indexes: { primary: { hash: 'pk' } }, params: { isoDates: true },
    models: { Product: product },
  },
});
const products = table.getModel('Product');
await products.create({ sku: 'TEA', active: true, stock: 5 });

const cases = [
  ['active', 'false', 'false', false], ['active', 'False', 'false or an error', true], ['active', 'FALSE', 'false or an error', true],
  ['active', 'no', 'false or an error', true], ['active', 'off', 'false or an error', true], ['active', '0', 'false or an error', true],
  ['active', 0, 'false', false],
  ['stock', '7 pcs', 'an error', 'error'], ['stock', '', 'no change or an error', 0], ['stock', ' ', 'no change or an error', 0],
  ['expires', '31.12.2026', 'an error', 'error'], ['expires', '2026-02-30', 'an error', '2026-03-02T00:00:00.000Z'],
  ['expires', '261231', '2026-12-31 or an error', '+261231-01-01T00:00:00.000Z'],
];
let same = true;
for (const [field, given, expected, today] of cases) {
  let seen;
  try {
    await products.update({ sku: 'TEA', [field]: given });
    seen = (await products.get({ sku: 'TEA' }))[field];
    if (seen instanceof Date) seen = seen.toISOString();
  } catch (error) {
    seen = 'error';
  }
  console.log(`Expected: ${field} ${JSON.stringify(given)} is ${expected}`);
  console.log(`Seen:     ${seen}`);
  same = same && seen === today;
}
client.destroy();
server.close();
process.exit(same ? 0 : 1);
JAVASCRIPT
node --no-warnings check.mjs
