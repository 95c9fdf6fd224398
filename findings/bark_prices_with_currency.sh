#!/usr/bin/env bash
# bark-js gives a price of 12.34 euros the value 97812.34, because it takes the currency's code for part of the number.
#
# The label on weighed goods may have the item's price with its currency, AI (393n): three digits of ISO 4217, then the amount, of which n
# digits are decimals. One expects (3932)9781234 to have the value 12.34, and 978, the euro, next to it, as gs1-barcode-parser-mod has it.
# bark-js converts values: a price without a currency, AI (392n), is 12.34, and a date is 2026-11-30. The value of a price with a
# currency, or of an amount payable, AI (391n), begins with the currency's three digits; the amount is in a field of its own, which other
# elements do not have. Besides, years from 51 are in the last century: goods that keep until the end of 2051 expired in 1951.
# It matters because "97812.34" is a number with two decimals, which no check of the format refuses. Read "amount" for AIs 391n and 393n.
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
const [library, reference] = ['bark-js', 'gs1-barcode-parser-mod'];
console.log(`Versions: ${library} ${version(library)}, ${reference} ${version(reference)}, node ${process.versions.node}`);

const last = (elements) => elements[elements.length - 1];
const known = {
  '(3922)1234': '12.34', '(3932)9781234': '97812.34', '(3932)9780099': '97800.99', '(3912)8400500': '84005.00', '(15)511231': '1951-12-31',
};
let isKnown = true;
for (const [text, value] of Object.entries(known)) {
  const scanned = `0104006381333931${text.replace(/[()]/g, '')}`;
  const other = last(parseBarcode(`]C1${scanned}`).parsedCodeItems);
  const seen = last(bark(scanned).elements);
  isKnown &&= seen.value === value;
  console.log(`Expected: ${text} has the value ${other.isoDate || other.data}`);
  console.log(`Seen:     ${seen.value}${seen.amount ? `, with the amount ${seen.amount} in currency ${seen.isoCurrencyCode}` : ''}`);
}
console.log('Why it matters: a package of cheese costs 97,812.34.');
process.exit(isKnown ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
