#!/usr/bin/env bash
# @begin/data counts the lines of orders as orders, and stops counting at the first megabyte.
#
# The package keeps several tables of documents in one table of DynamoDB, with sort keys such as production#order#1042, and count({ table })
# returns "the number of documents for a given table". One expects the number of orders. It counts the keys that begin with
# production#order, without the # after it, so tables whose names begin in the same way are counted as well: order-line, orders or
# orders/2025. get() and page() filter them out. A query of DynamoDB ends after one megabyte, and the package does not ask for the rest: of 40
# documents of 40 KB, it counts 26. One error can offset the other, and neither shows in a test with one small table.
# It matters because this number is compared with that of the shop or the bank, and is wrong without an error. Count the documents that
# page() returns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @begin/data@5.0.5 dynalite@4.0.0

cat > check.cjs <<'JAVASCRIPT'
const dynalite = require('dynalite');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
console.log(`Versions: @begin/data ${version('@begin/data')}, dynalite ${version('dynalite')}, node ${process.versions.node}`);

(async () => {
  const server = dynalite({ createTableMs: 0 });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  Object.assign(process.env, {
    ARC_ENV: 'testing', ARC_SANDBOX: JSON.stringify({ ports: { tables: port } }), BEGIN_DATA_TABLE_NAME: 'data',
    AWS_ACCESS_KEY_ID: 'x', AWS_SECRET_ACCESS_KEY: 'x', AWS_REGION: 'us-west-2',
  });
  const data = require('@begin/data');
  const { default: plugin } = await import('@aws-lite/dynamodb');
  const client = await require('@aws-lite/client')({ protocol: 'http', host: 'localhost', port, plugins: [plugin], region: 'us-west-2' });
  await client.dynamodb.CreateTable({
    TableName: 'data',
    KeySchema: [{ AttributeName: 'scopeID', KeyType: 'HASH' }, { AttributeName: 'dataID', KeyType: 'RANGE' }],
    AttributeDefinitions: ['scopeID', 'dataID'].map((AttributeName) => ({ AttributeName, AttributeType: 'S' })),
    BillingMode: 'PAY_PER_REQUEST',
  });
  async function save(table, number, note = '') {
    for (let i = 0; i < number; i += 1) await data.set({ table, key: `${1000 + i}`, note: `${note}.` });
  }
  async function paged(table) {
    let number = 0;
    for await (const page of data.page({ table, limit: 20 })) number += page.length;
    return number;
  }
  await save('order', 3);
  const alone = await data.count({ table: 'order' });
  await save('order-line', 7);
  const both = await data.count({ table: 'order' });
  await save('invoice', 40, 'x'.repeat(40_000));
  const large = await data.count({ table: 'invoice' });
  const pages = [await paged('order'), await paged('invoice')];
  server.close();
  console.log('Expected: 3 orders, and 40 invoices');
  console.log(`Seen:     ${alone} orders; ${both} orders after 7 documents were saved in the table order-line`);
  console.log(`Seen:     ${large} invoices of 40 KB`);
  console.log(`Seen:     with page(): ${pages[0]} orders, ${pages[1]} invoices`);
  console.log('Why it matters: a check of the number of orders fails, or passes, for no reason.');
  process.exit([alone, both, large, ...pages].join() === '3,10,26,3,40' ? 0 : 1);
})();
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
