#!/usr/bin/env bash
# cloudevents for JavaScript loses the stock of an event exactly when it is 0.
#
# The data of a CloudEvent may be any JSON value: a stock of 7, a flag false, an empty note. One expects a receiver to return what was
# sent, for every value and in each way to send it. HTTP.toEvent returns 7, but undefined for 0, false and "" if the event comes in
# structured mode, which is one JSON document; the document has the value, as the SDK for Python shows. In binary mode, where the body is
# the data, 7 and 0 come back as texts, and "7" + 1 is "71". Only a batch of events is read as it was sent.
# It matters because the event that matters most, "sold out", has no data: code with `event.data ?? unchanged` keeps the last stock, and
# the shop goes on selling. Send an object, such as {"stock": 0}.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudevents==2.2.0 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts cloudevents@10.0.0

cat > check.cjs <<'JAVASCRIPT'
const { execFileSync } = require('node:child_process');
const { CloudEvent, HTTP } = require('cloudevents');

const python = `
import sys
from importlib.metadata import version
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
print(version("cloudevents"), repr(JSONFormat().read(CloudEvent, sys.argv[1]).get_data()))
`;
const text = (value) => (value === undefined ? 'undefined' : JSON.stringify(value));
const seen = [];
for (const stock of [7, 0, false, '']) {
  const event = new CloudEvent({ id: '1', type: 'stock.changed', source: '/shop', subject: 'CUP', data: stock });
  const structured = HTTP.structured(event);
  const binary = HTTP.binary(event);
  const batch = { headers: { 'content-type': 'application/cloudevents-batch+json' }, body: `[${structured.body}]` };
  const [version, other] = execFileSync('venv/bin/python', ['-c', python, structured.body], { encoding: 'utf8' }).trim().split(' ');
  const npm = require('./node_modules/cloudevents/package.json').version;
  if (!seen.length) console.log(`Versions: cloudevents ${npm} (npm), ${version} (PyPI), node ${process.versions.node}`);
  const read = [HTTP.toEvent(structured).data, HTTP.toEvent({ ...binary, body: String(binary.body) }).data, HTTP.toEvent(batch)[0].data];
  console.log(`Expected: ${text(stock)}`);
  console.log(`Seen:     structured ${text(read[0])}, binary ${text(read[1])}, batch ${text(read[2])}; Python reads ${other}`);
  seen.push(read.map(text).join(' '));
}
console.log('Why it matters: a product that is sold out stays on sale.');
const known = ['7 "7" 7', 'undefined "0" 0', 'undefined "false" false', 'undefined "" ""'];
process.exit(seen.join() === known.join() ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
