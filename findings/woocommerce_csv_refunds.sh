#!/usr/bin/env bash
# @woocommerce/csv-export writes the refunds of WooCommerce's own API as text, so that they are missing from every sum.
#
# A cell that begins with =, +, - or @ may be run as a formula by a spreadsheet, so WooCommerce's own export puts an apostrophe in front of
# it. Numbers are exempt, says the package, to keep negative ones. One expects a refund to stay the number that it is. WooCommerce's API
# sends each amount as text, "-12.50", which becomes '-12.50: a spreadsheet's sum leaves it out, without an error.
# It matters because the total of a day with refunds is too high. Pass amounts through Number().
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
const read = (text) => parse(text, { columns: true });
const sum = (rows) => rows.map(({ total }) => Number(total)).filter(Number.isFinite).reduce((a, b) => a + b, 0);

const sales = [['Tea', 3, '12.50'], ['Tea', 4, '-12.50'], ['Cup', 9, '5.00']];
const totals = sum(read(written(sales)));
const asNumbers = sum(read(written(sales.map(([product, stock, total]) => [product, stock, Number(total)]))));
console.log('Expected: 12.50 - 12.50 + 5.00 = 5');
console.log(`Seen:     ${totals}, as ${written(sales).split('\n').slice(1).join(' / ')}`);
console.log(`Seen:     with amounts as numbers: ${asNumbers}`);

console.log('Why it matters: refunds are missing from the sum.');
const known = totals === 17.5 && asNumbers === 5;
process.exit(known ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
