#!/usr/bin/env bash
# @nasa-gcn/dynamodb-autoincrement calls version 9 of an order the latest, after version 10.
#
# The package numbers the versions of an item in a transaction, and list() returns the numbers that the history has. One expects them in
# the sequence of numbers, as its port for Python, dynamodb-autoincrement, returns them, and as DynamoDB itself sorts them. The package
# sorts them with JavaScript's sort(), which compares text: 1, 10, 11, 2, 3 ... 9. Up to version 9, and so in most tests, both are the same.
# It matters because the last number is taken for the order's last change before the present one: an undo or a comparison of an order with
# ten changes shows or restores a state from long ago, with other quantities. Sort the list yourself, list.sort((a, b) => a - b).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @nasa-gcn/dynamodb-autoincrement@2.2.1 \
    dynalite@4.0.0 @aws-sdk/client-dynamodb@3.1162.0 @aws-sdk/lib-dynamodb@3.1162.0

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import { CreateTableCommand, DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { DynamoDBDocumentClient, QueryCommand } from '@aws-sdk/lib-dynamodb';
import { DynamoDBHistoryAutoIncrement } from '@nasa-gcn/dynamodb-autoincrement';
import dynalite from 'dynalite';

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log('Versions: ' + ['@nasa-gcn/dynamodb-autoincrement', 'dynalite'].map((name) => `${name} ${version(name)}`).join(', '));

const server = dynalite({ createTableMs: 0 });
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const credentials = { accessKeyId: 'x', secretAccessKey: 'x' };
const client = new DynamoDBClient({ endpoint: `http://127.0.0.1:${server.address().port}`, region: 'us-east-1', credentials });
const doc = DynamoDBDocumentClient.from(client);
async function table(TableName, keys) {
  const names = Object.keys(keys);
  await client.send(new CreateTableCommand({
    TableName,
    KeySchema: names.map((AttributeName, i) => ({ AttributeName, KeyType: i ? 'RANGE' : 'HASH' })),
    AttributeDefinitions: names.map((AttributeName) => ({ AttributeName, AttributeType: keys[AttributeName] })),
    BillingMode: 'PAY_PER_REQUEST',
  }));
}
await table('orders', { id: 'S' });
await table('history', { id: 'S', version: 'N' });

const order = new DynamoDBHistoryAutoIncrement({
  doc, counterTableName: 'orders', counterTableKey: { id: '1042' }, attributeName: 'version', tableName: 'history', initialValue: 1,
  // dynalite has no transactions. This option puts the same items without one; list() is not concerned.
  dangerously: true,
});
const before = [];
for (let units = 1; units <= 12; units += 1) {
  await order.put({ units });
  if (units === 10) before.push(...(await order.list()));
}
const listed = await order.list();
const last = await order.get(listed.at(-1));
const { Items } = await doc.send(new QueryCommand({
  TableName: 'history', KeyConditionExpression: 'id = :id', ExpressionAttributeValues: { ':id': '1042' },
}));
server.close();
console.log(`Expected: ${Items.map((item) => item.version)}, as DynamoDB returns them; the last one has 11 units, and the order has 12`);
console.log(`Seen:     ${listed}; the last one has ${last.units} units`);
console.log(`Seen:     after ten changes: ${before}`);
console.log('Why it matters: an undo restores quantities from long before the last change.');
const known = `${listed}` === '1,10,11,2,3,4,5,6,7,8,9' && last.units === 9 && `${before}` === '1,2,3,4,5,6,7,8,9';
process.exit(known ? 0 : 1);
JAVASCRIPT
node check.mjs || { echo "The behaviour has changed."; exit 1; }
