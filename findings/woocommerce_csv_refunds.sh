#!/usr/bin/env bash
# @woocommerce/csv-export writes refunds as text, and product names that begin with + or - break their row apart.
#
# A cell that begins with =, +, - or @ may be run as a formula by a spreadsheet, so WooCommerce's own export puts an apostrophe in front of
# it. Numbers are exempt, says the package, to keep negative ones. One expects a refund to stay the number that it is. WooCommerce's API
# sends each amount as text, "-12.50", which becomes '-12.50: a spreadsheet's sum leaves it out, without an error. One also expects quotes
# inside such a cell to be doubled, as in every other cell. They are not: +4" pipe, blue ends its cell at the inch sign, and what follows
# the comma moves into the next column.
# It matters because the total of a day with refunds is too high, and a reader takes part of a name for the stock and the stock for the
# price. Pass amounts through Number(), and leave names that begin with these characters to a CSV library.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @woocommerce/csv-export@1.11.0 csv-parse@6.1.0 jsdom@26.1.0

cat > check.cjs <<'JAVASCRIPT'
const { JSDOM } = require('jsdom');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
// The package can also save a file in a browser, and looks for one when it is loaded.
const { window } = new JSDOM('<body></body>');
Object.defineProperties(globalThis, Object.fromEntries(['self', 'window', 'document', 'navigator']
  .map((name) => [name, { value: name === 'self' ? window : window[name], configurable: true }])));
const { generateCSVDataFromTable } = require('@woocommerce/csv-export');
const { parse } = require('csv-parse/sync');
const names = ['@woocommerce/csv-export', 'csv-parse'].map((name) => `${name} ${version(name)}`);
console.log(`Versions: ${names.join(', ')}, node ${process.versions.node}`);

const headers = ['product', 'stock', 'total'].map((label) => ({ label, key: label }));
const written = (rows) => generateCSVDataFromTable(headers, rows.map((row) => row.map((value) => ({ display: value, value }))));
// Spreadsheets read a quote inside a cell without an error; relax_quotes does the same.
const read = (text) => parse(text, { columns: true, relax_quotes: true, relax_column_count: true });
const sum = (rows) => rows.map(({ total }) => Number(total)).filter(Number.isFinite).reduce((a, b) => a + b, 0);

const sales = [['Tea', 3, '12.50'], ['Tea', 4, '-12.50'], ['Cup', 9, '5.00']];
const totals = sum(read(written(sales)));
const asNumbers = sum(read(written(sales.map(([product, stock, total]) => [product, stock, Number(total)]))));
console.log('Expected: 12.50 - 12.50 + 5.00 = 5');
console.log(`Seen:     ${totals}, as ${written(sales).split('\n').slice(1).join(' / ')}`);
console.log(`Seen:     with amounts as numbers: ${asNumbers}`);

const products = ['4" pipe, blue', '+4" pipe, blue'];
const lines = products.map((name) => written([[name, 7, '12.50']]));
console.log(`Expected: 3 cells in the row of ${products[1]}, with a stock of 7, as for ${products[0]}`);
const rows = lines.map((text) => parse(text, { relax_quotes: true, relax_column_count: true })[1]);
rows.forEach((row, i) => console.log(`Seen:     ${products[i]}: ${row.length} cells, ${row.join(' | ')}`));
console.log('Why it matters: refunds are missing from the sum, and columns move.');
const known = totals === 17.5 && asNumbers === 5 && rows[0][1] === '7' && rows[1].length > 3 && rows[1][1] !== '7';
process.exit(known ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
