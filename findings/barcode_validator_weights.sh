#!/usr/bin/env bash
# @ericblade/barcode-validator refuses four of five good EAN-13 codes, and accepts two check digits for four of five UPC-A codes.
#
# The digits of a GTIN weigh 3, 1, 3, 1 ... from the right, without the check digit (GS1 General Specifications, 7.9). One expects a package
# "for ISBN10, ISBN13, UPC, GTIN" to accept 4006381333931, as the package gtin does. For all codes but UPC-A and ISBN it begins with 1
# instead of 3. Both sums agree for one code in five. Those are accepted, and for the others a wrong check digit is. For a UPC-A it
# accepts either sum, so most codes have two check digits that pass. A book, whose weights are right, does not show the difference.
# It matters because a shop that checks barcodes on import refuses its own catalogue, and a mistyped UPC-A finds another product.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund @ericblade/barcode-validator@2.4.1 gtin@1.0.2

cat > check.js <<'JAVASCRIPT'
const validate = require('@ericblade/barcode-validator');
const { isValid } = require('gtin');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
console.log(`Versions: @ericblade/barcode-validator ${version('@ericblade/barcode-validator')}, gtin ${version('gtin')}, node ${process.versions.node}`);

const check = (digits) => {
  const sum = [...digits].reverse().reduce((total, digit, i) => total + digit * (i % 2 ? 1 : 3), 0);
  return (10 - (sum % 10)) % 10;
};
console.log('Expected: 4006381333931 is valid, as the package gtin says:', isValid('4006381333931'));
console.log('Seen:    ', JSON.stringify(validate('4006381333931')));

// Every good code of 10,000 products, and each other check digit that they could have been mistyped with.
function count(prefix) {
  const found = { good: 0, accepted: 0, wrong: 0, wrongAccepted: 0 };
  for (let item = 0; item < 10000; item += 1) {
    const digits = prefix + String(item).padStart(5, '0');
    for (let last = 0; last < 10; last += 1) {
      const isGood = last === check(digits);
      const { valid } = validate(digits + last);
      found[isGood ? 'good' : 'wrong'] += 1;
      found[isGood ? 'accepted' : 'wrongAccepted'] += valid ? 1 : 0;
      if (isValid(digits + last) !== isGood) throw new Error('gtin disagrees');
    }
  }
  return found;
}
const ean = count('4006381');
const upc = count('036000');
console.log(`Seen:     EAN-13: ${ean.accepted} of ${ean.good} good codes are valid, and ${ean.wrongAccepted} with a wrong check digit`);
console.log(`Seen:     UPC-A: ${upc.accepted} of ${upc.good} good codes are valid, and ${upc.wrongAccepted} with a wrong check digit`);
console.log('Why it matters: the shop refuses its own products, and accepts mistyped codes, some of which are other products.');
const isKnown = [ean.accepted, ean.wrongAccepted, upc.accepted, upc.wrongAccepted].join() === '2000,8000,10000,8000';
process.exit(isKnown ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
