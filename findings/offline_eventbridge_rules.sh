#!/usr/bin/env bash
# serverless-offline-aws-eventbridge gives the rules of the bus orders-archive what was sent to orders, and any shop's orders to a rule with $or.
#
# The plugin stands in for EventBridge on a developer's computer: it decides for each event which functions get it. One expects the
# answers of AWS: a rule belongs to one bus; all fields of a pattern have to match, and of $or one of its list beside those (EventBridge
# User Guide, "$or"); numeric compares numbers only. The plugin looks for the bus's name anywhere in the name of the rule's bus.
# If a pattern has $or, it drops the other fields of the detail. It takes the number at the beginning of a text for a number.
# It matters because a rule is tried out here before it is deployed: a function that works here, as it gets orders, may get none in
# AWS, and a pattern that excludes nothing here hides that. Let bus names have no other's in them, and repeat each field in
# every part of $or.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
# serverless-offline, which only runs the functions, is left out.
npm install --silent --no-audit --no-fund --ignore-scripts --legacy-peer-deps serverless-offline-aws-eventbridge@2.2.4

cat > check.js <<'JAVASCRIPT'
const Plugin = require('serverless-offline-aws-eventbridge');
const { version } = require('serverless-offline-aws-eventbridge/package.json');
console.log(`Versions: serverless-offline-aws-eventbridge ${version}, node ${process.versions.node}`);

const plugin = new Plugin({ service: { custom: {}, provider: {} } }, {}, { log: { notice() {} } });
const isSent = (eventBus, detailPattern, detail) => plugin.verifyIsSubscribed(
  { functionKey: 'handle', event: { eventBus, pattern: { source: ['shop'], detail: detailPattern } } },
  { EventBusName: 'orders', Source: 'shop', DetailType: 'placed', Detail: JSON.stringify(detail) },
);
const express = [{ total: [{ numeric: ['>', 100] }] }, { express: [true] }];
const repeated = express.map((part) => ({ shop: ['berlin'], ...part }));
const order = { shop: 'paris', total: 5, express: true };
const cases = [
  ['the bus orders-archive, shop paris', false, 'orders-archive', { shop: ['paris'] }, order],
  ['the bus archive, shop paris', false, 'archive', { shop: ['paris'] }, order],
  ['shop berlin', false, 'orders', { shop: ['berlin'] }, order],
  ['shop berlin, and $or express', false, 'orders', { shop: ['berlin'], $or: express }, order],
  ['$or express, both parts with shop berlin', false, 'orders', { $or: repeated }, order],
  ['a total above 100', false, 'orders', { total: [{ numeric: ['>', 100] }] }, { total: '120 or less' }],
  ['shop paris', true, 'orders', { shop: ['paris'] }, order],
];
const seen = cases.map(([name, wanted, ...rest]) => {
  const sent = isSent(...rest);
  console.log(`Expected: ${JSON.stringify(rest[2])} to the bus orders, rule for ${name}: ${wanted ? 'sent' : 'not sent'}`);
  console.log(`Seen:     ${JSON.stringify(rest[2])} to the bus orders, rule for ${name}: ${sent ? 'sent' : 'not sent'}`);
  return sent;
});
console.log('Why it matters: rules that work here get other orders in AWS, or none.');
process.exit(seen.join() === 'true,false,false,true,false,true,true' ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
