#!/usr/bin/env bash
# Castore's storage for DynamoDB returns all events of an order if it is asked for the last two, and sends a request for every two of them.
#
# Castore keeps an order as a series of events, and getEvents() has the options limit and reverse. One expects two events and one request
# for { reverse: true, limit: 2 }, as its storage in memory, which is for tests, returns two. The storage for DynamoDB passes the limit to
# each query, where it is the size of a page, and then reads every further page until there are no more. So the limit makes the read slower
# instead of faster: 100 events take 51 consistent reads, and without a limit one.
# It matters because a program that handles the next two events handles all of them, and the bill and the time for an order's last change
# grow with its age: a product whose stock has changed 10,000 times is read in 5,001 requests, one after the other. No test in memory shows
# it. Leave the limit out, take what is needed from the result, and bound it with minVersion and maxVersion.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @castore/core@2.4.2 @castore/event-storage-adapter-dynamodb@2.4.2 \
    @castore/event-storage-adapter-in-memory@2.4.2 dynalite@4.0.0 @aws-sdk/client-dynamodb@3.1162.0

cat > check.cjs <<'JAVASCRIPT'
const { CreateTableCommand, DynamoDBClient } = require('@aws-sdk/client-dynamodb');
const { EventStore, EventType } = require('@castore/core');
const { DynamoDBSingleTableEventStorageAdapter } = require('@castore/event-storage-adapter-dynamodb');
const { InMemoryEventStorageAdapter } = require('@castore/event-storage-adapter-in-memory');
const dynalite = require('dynalite');

const name = '@castore/event-storage-adapter-dynamodb';
const versions = [name, 'dynalite'].map((each) => `${each} ${require(`./node_modules/${each}/package.json`).version}`);
console.log(`Versions: ${versions.join(', ')}, node ${process.versions.node}`);
const CHANGES = 100;

(async () => {
  const server = dynalite({ createTableMs: 0 });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const credentials = { accessKeyId: 'x', secretAccessKey: 'x' };
  const client = new DynamoDBClient({ endpoint: `http://127.0.0.1:${server.address().port}`, region: 'us-east-1', credentials });
  await client.send(new CreateTableCommand({
    TableName: 'events',
    KeySchema: [{ AttributeName: 'aggregateId', KeyType: 'HASH' }, { AttributeName: 'version', KeyType: 'RANGE' }],
    AttributeDefinitions: [{ AttributeName: 'aggregateId', AttributeType: 'S' }, { AttributeName: 'version', AttributeType: 'N' }],
    BillingMode: 'PAY_PER_REQUEST',
  }));
  let requests = 0;
  client.middlewareStack.add((next) => (args) => { requests += 1; return next(args); }, { step: 'initialize' });
  const adapters = {
    'in memory': new InMemoryEventStorageAdapter(),
    DynamoDB: new DynamoDBSingleTableEventStorageAdapter({ tableName: 'events', dynamoDBClient: client }),
  };
  const seen = {};
  for (const [where, eventStorageAdapter] of Object.entries(adapters)) {
    const orders = new EventStore({
      eventStoreId: 'ORDERS', eventTypes: [new EventType({ type: 'CHANGED' })], reducer: (_, event) => event, eventStorageAdapter,
    });
    for (let version = 1; version <= CHANGES; version += 1) await orders.pushEvent({ aggregateId: '1042', version, type: 'CHANGED' });
    requests = 0;
    const { events } = await orders.getEvents('1042', { reverse: true, limit: 2 });
    const sent = requests;
    requests = 0;
    await orders.getEvents('1042');
    seen[where] = [events.length, sent, requests];
    console.log(`${where === 'in memory' ? 'Expected:' : 'Seen:    '} ${where}: ${events.length} events, ${sent} requests to DynamoDB; without a limit: ${requests}`);
  }
  server.close();
  console.log('Why it matters: the last change of an order takes more requests the older the order is.');
  process.exit(JSON.stringify(seen) === '{"in memory":[2,0,0],"DynamoDB":[100,51,1]}' ? 0 : 1);
})();
JAVASCRIPT
node check.cjs 2> errors.txt || { cat errors.txt; echo "The behaviour has changed."; exit 1; }
