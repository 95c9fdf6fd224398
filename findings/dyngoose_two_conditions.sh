#!/usr/bin/env bash
# dyngoose finds one of two ranges of dates, and no hold that was placed before now and expires after it.
#
# The package writes DynamoDB's expressions, in which each value has a name such as :v0. One expects each condition to keep its own value. A
# range's bounds are named after the attribute, so of two ranges of one attribute, joined by or(), both have the bounds of the last one.
# Other values are named by identity: if two conditions are given the same value, they share a name, and the last one decides how it is
# stored. A moment that one attribute stores as text and the other, such as a time to live, as a number, is text or a number for both.
# DynamoDB compares neither with the other, and finds nothing. The conditions of save() have the same faults, and no error is raised.
# It matters because a recall or a markdown by best-before dates misses half of the batches, and holds that are valid are not found, so
# their goods are sold twice. Search for each range by itself, and give each condition a Date of its own: new Date(now).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional \
    dyngoose@4.11.2 dynalite@4.0.0 @aws-sdk/client-dynamodb@3.1162.0

cat > check.cjs <<'JAVASCRIPT'
const { DynamoDB } = require('@aws-sdk/client-dynamodb');
const dynalite = require('dynalite');
const { $DocumentClient, $PrimaryKey, $Table, Attribute, Config, Table } = require('dyngoose');

const versions = ['dyngoose', 'dynalite'].map((name) => `${name} ${require(`./node_modules/${name}/package.json`).version}`);
console.log(`Versions: ${versions.join(', ')}, node ${process.versions.node}`);

// What TypeScript does with the package's decorators, as in @Dyngoose.Attribute.String() lot: string.
async function table(name, key, attributes) {
  const Model = { [name]: class extends Table {} }[name];
  for (const [property, decorate] of Object.entries(attributes)) decorate(Model.prototype, property);
  $PrimaryKey(key)(Model, 'primaryKey');
  $DocumentClient()(Model, 'documentClient');
  $Table({ name })(Model);
  await Config.defaultConnection.client.createTable({
    TableName: name,
    KeySchema: [{ AttributeName: key, KeyType: 'HASH' }],
    AttributeDefinitions: [{ AttributeName: key, AttributeType: 'S' }],
    BillingMode: 'PAY_PER_REQUEST',
  });
  return Model;
}
const found = async (search, key) => [...await search.exec()].map((record) => record[key]).sort().join(' and ') || 'nothing';
const day = (text) => new Date(`${text}T00:00:00Z`);

(async () => {
  const server = dynalite({ createTableMs: 0 });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const credentials = { accessKeyId: 'x', secretAccessKey: 'x' };
  Config.defaultConnection = new DynamoDB({ endpoint: `http://127.0.0.1:${server.address().port}`, region: 'us-east-1', credentials });
  const { String: Text, Date: Moment, Number: Count } = Attribute;
  const Batch = await table('Batch', 'lot', { lot: Text(), bestBefore: Moment({ dateOnly: true }) });
  const Hold = await table('Hold', 'order', { order: Text(), placed: Moment(), expires: Moment({ timeToLive: true }), units: Count() });

  for (const [lot, date] of [['A', '2026-12-10'], ['B', '2027-01-15'], ['C', '2027-02-20']]) {
    await Batch.new({ lot, bestBefore: day(date) }).save();
  }
  const december = [day('2026-12-01'), day('2026-12-31')];
  const february = [day('2027-02-01'), day('2027-02-28')];
  const lots = await found(Batch.search().filter('bestBefore').between(...december).or().filter('bestBefore').between(...february), 'lot');
  console.log('Expected: batches best before a day in December or in February: A and C');
  console.log(`Seen:     ${lots}`);

  const now = new Date();
  await Hold.new({ order: '1042', placed: new Date(now - 60_000), expires: new Date(+now + 900_000), units: 2 }).save();
  const valid = (expiry) => ({ placed: ['<=', now], expires: ['>', expiry] });
  const holds = [await found(Hold.search(valid(now)), 'order'), await found(Hold.search(valid(new Date(now))), 'order')];
  console.log('Expected: holds placed until now that expire after now: 1042');
  console.log(`Seen:     ${holds[0]}; with a Date of its own for each condition: ${holds[1]}`);
  const [hold] = [...await Hold.search().exec()];
  hold.units = 3;
  const saved = await hold.save({ conditions: valid(now) }).then(() => 'saved', (error) => error.name);
  console.log(`Seen:     a change of the hold on the same conditions: ${saved}`);
  console.log('Why it matters: batches stay on the shelf, and goods on hold are sold to others.');
  server.close();
  process.exit([lots, ...holds, saved].join() === 'C,nothing,1042,ConditionalCheckFailedException' ? 0 : 1);
})();
JAVASCRIPT
node check.cjs 2> errors.txt || { cat errors.txt; echo "The behaviour has changed."; exit 1; }
