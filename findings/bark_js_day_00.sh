#!/usr/bin/env bash
# bark-js makes the 0th of December of an expiry that is the whole December.
#
# A GS1 label's expiry, AI (17), may have the day 00: 261200 means the last day of December 2026 (GS1 General Specifications, 3.4.7), as
# packs of medicine may have it. bark-js returns each date as text in the form of ISO 8601. One expects 2026-12-31, as from
# gs1-barcode-parser-mod, or the year and the month alone. The text is 2026-12-00, which is no date: JavaScript makes "Invalid Date" of
# it, and Python and databases refuse it. Where it stays text, it sorts before 2026-12-01.
# It matters because stock is picked by its expiry: goods that are good until the end of the month are sent out first or written off a month
# early, and a comparison with "Invalid Date" is always false, so they never count as expired. Take the element's raw digits instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts bark-js@1.2.1 gs1-barcode-parser-mod@1.2.1

cat > check.cjs <<'JAVASCRIPT'
const bark = require('bark-js');
const { parseBarcode } = require('gs1-barcode-parser-mod');

const version = (name) => require(`./node_modules/${name}/package.json`).version;
const versions = ['bark-js', 'gs1-barcode-parser-mod'].map((name) => `${name} ${version(name)}`).join(', ');
console.log(`Versions: ${versions}, node ${process.versions.node}`);

const seen = [];
for (const [day, last] of [['261200', '2026-12-31'], ['280200', '2028-02-29']]) {
  const label = `010400638133393117${day}`;
  const value = bark(label).elements.find((element) => element.ai === '17').value;
  const other = parseBarcode(`]d2${label}`).parsedCodeItems.find((item) => item.ai === '17').isoDate;
  const date = new Date(value);
  console.log(`Expected: (17)${day} is ${last}`);
  console.log(`Seen:     (17)${day} is ${other} (gs1-barcode-parser-mod)`);
  console.log(`Seen:     (17)${day} is ${value} (bark-js), as a date: ${date}, expired in 2031: ${date < new Date('2031-01-01')}`);
  seen.push(value);
}
const lots = [...seen, '2026-12-05'].sort();
console.log(`Expected: a lot that expires on 2026-12-05 is picked before 2026-12-31`);
console.log(`Seen:     ${lots[0]} is picked before ${lots[1]}`);
console.log('Why it matters: the order in which lots are picked and written off follows these dates.');
process.exit(seen.join() === '2026-12-00,2028-02-00' ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
