#!/usr/bin/env bash
# csv-stringify writes false as an empty cell, and true as 1.
#
# The package (Node CSV) is what most programs in JavaScript write CSV with. One expects false and true, as JSON and other writers have
# them, or an error, and that an empty cell stands for a value that is missing. By default false, null and undefined all become an empty
# cell, and true becomes 1; a Date becomes milliseconds. @json2csv/plainjs writes the same rows as expected.
# It matters because imports leave a value alone, or take their default, where a cell is empty: what was switched off, such as
# `Published` of a draft, may be on after the import. Pass `cast: { boolean: String }`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts csv-stringify@6.9.0 @json2csv/plainjs@7.0.6

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import { stringify } from 'csv-stringify/sync';
import { Parser } from '@json2csv/plainjs';

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log(`Versions: csv-stringify ${version('csv-stringify')}, @json2csv/plainjs ${version('@json2csv/plainjs')}, node ${process.versions.node}`);

const rows = [
  { Handle: 'draft', Published: false },
  { Handle: 'unknown', Published: null },
  { Handle: 'tea', Published: true },
];
const written = {
  'csv-stringify': stringify(rows, { header: true }).trim(),
  'csv-stringify, cast': stringify(rows, { header: true, cast: { boolean: String } }).trim(),
  '@json2csv/plainjs': new Parser().parse(rows).replaceAll('"', ''),
};
console.log('Expected: Handle,Published / draft,false / unknown, / tea,true');
for (const [name, text] of Object.entries(written)) {
  console.log(`Seen:     ${text.replaceAll('\n', ' / ')} (${name})`);
}
console.log('Why it matters: an import cannot tell a value that is off from one that is missing.');
const expected = 'Handle,Published\ndraft,false\nunknown,\ntea,true';
const known = 'Handle,Published\ndraft,\nunknown,\ntea,1';
process.exit(Object.values(written).join() === [known, expected, expected].join() ? 0 : 1);
JAVASCRIPT
node check.mjs || { echo "The behaviour has changed."; exit 1; }
