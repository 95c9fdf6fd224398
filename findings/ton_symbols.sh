#!/usr/bin/env bash
# convert-units reads 2 t of sand as 1,814 kg, and js-quantities as 2,000 kg.
#
# t is the SI's symbol for the tonne of 1,000 kg (SI Brochure, 9th edition, table 8), and shops that sell sand or grain have it on scales,
# invoices and price lists. One expects a library of units to know that, or to refuse the symbol as ambiguous. convert-units takes t for the
# American short ton of 2,000 pounds, while kg, g and mg are metric; its tonne is "mt". The package's fork @ipguk/convert-units
# does the same. js-quantities reads t as a tonne, and calls the short ton "ton".
# It matters because stock, freight and prices by weight are 9 % off, which looks like shrinkage. The way from kg to t and back does not
# show it, and neither does a test with kilograms. Convert with "mt".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts convert-units@2.3.4 @ipguk/convert-units@2.7.0 js-quantities@1.8.0

cat > check.cjs <<'JAVASCRIPT'
const convert = require('convert-units');
const fork = require('@ipguk/convert-units');
const Quantity = require('js-quantities');

const version = (name) => require(`./node_modules/${name}/package.json`).version;
console.log(`Versions: ${['convert-units', '@ipguk/convert-units', 'js-quantities'].map((name) => `${name} ${version(name)}`).join(', ')}`);

const seen = {
  'convert-units': convert(2).from('t').to('kg'),
  '@ipguk/convert-units': fork(2).from('t').to('kg'),
  'js-quantities': Quantity('2 t').to('kg').scalar,
};
console.log('Expected: 2 t are 2,000 kg');
for (const [name, kilograms] of Object.entries(seen)) console.log(`Seen:     ${name}: ${kilograms} kg`);
const metric = convert(2).from('mt').to('kg');
console.log(`Seen:     convert-units: ${metric} kg from 2 mt`);
const same = [...Object.values(seen), metric].map(Math.round).join() === '1814,1814,2000,2000';
process.exit(same ? 0 : 1);
JAVASCRIPT
node check.cjs
