#!/usr/bin/env bash
# csvtojson takes columns of Shopify's product export apart at their points.
#
# Each metafield is a column of the export, named for people and, in brackets, for programs: `Fabric (product.metafields.custom.fabric)`.
# One expects that a row has a field for each column, under the column's name, as csv-parse and papaparse have it: CSV is flat. The
# library makes nested objects of names with points, so the field is row['Fabric (product'].metafields.custom['fabric)'], and columns with
# equal beginnings become one field.
# It matters because row[column] is undefined for exactly these columns, and a program that writes the file again, or lists its columns
# from the first row, loses them. Pass `flatKeys: true`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts csvtojson@2.0.14 csv-parse@7.0.1 papaparse@5.5.3

cat > check.cjs <<'JAVASCRIPT'
const csvtojson = require('csvtojson');
const { parse } = require('csv-parse/sync');
const papaparse = require('papaparse');
const version = (name) => JSON.parse(require('fs').readFileSync(`node_modules/${name}/package.json`)).version;
const names = ['csvtojson', 'csv-parse', 'papaparse'];
console.log(`Versions: ${names.map((name) => `${name} ${version(name)}`).join(', ')}, node ${process.versions.node}`);

const columns = ['Handle', 'Fabric (product.metafields.custom.fabric)', 'Fabric (product.metafields.custom.fit)'];
const text = `${columns.join(',')}\nshirt,cotton,slim\n`;
(async () => {
  const rows = {
    csvtojson: (await csvtojson().fromString(text))[0],
    'csvtojson, flatKeys': (await csvtojson({ flatKeys: true }).fromString(text))[0],
    'csv-parse': parse(text, { columns: true })[0],
    papaparse: papaparse.parse(text, { header: true, skipEmptyLines: true }).data[0],
  };
  const flat = JSON.stringify({ [columns[0]]: 'shirt', [columns[1]]: 'cotton', [columns[2]]: 'slim' });
  console.log(`Expected: ${flat}`);
  for (const [name, row] of Object.entries(rows)) console.log(`Seen:     ${JSON.stringify(row)} (${name})`);
  console.log('Why it matters: row[column] is undefined for the metafields, and for no other column.');
  const known = JSON.stringify({
    Handle: 'shirt',
    'Fabric (product': { metafields: { custom: { 'fabric)': 'cotton', 'fit)': 'slim' } } },
  });
  process.exit(Object.values(rows).map((row) => JSON.stringify(row)).join() === [known, flat, flat, flat].join() ? 0 : 1);
})();
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
