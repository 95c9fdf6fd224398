#!/usr/bin/env bash
# Checkers of carriers' tracking numbers accept the barcodes of products and pallets.
#
# A packer scans the parcel's label into a tracking field, and the shop checks the number, so that a scan of the wrong barcode is refused.
# One expects the check to refuse a product's UPC-A and a pallet's GS1 label. tracking-number-validation calls every UPC-A a valid
# FedEx number, because it checks only the length. ts-tracking-number verifies check digits, but a pallet label, (00) with an SSCC, has
# the length and the check digit of a USPS number, so every one passes. About a tenth of all UPC-A codes pass as FedEx Express.
# It matters because the order is then marked as shipped, with a link to another customer's parcel or to none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund tracking-number-validation@2.0.2 ts-tracking-number@1.0.17

cat > check.mjs <<'JAVASCRIPT'
import { readFileSync } from 'node:fs';
import validation from 'tracking-number-validation';
import { getTracking } from 'ts-tracking-number';

const names = ['tracking-number-validation', 'ts-tracking-number'];
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log(`Versions: ${names.map((name) => `${name} ${version(name)}`).join(', ')}, node ${process.versions.node}`);

const withCheckDigit = (digits) => {
  const sum = [...digits].reverse().reduce((total, digit, i) => total + digit * (i % 2 ? 1 : 3), 0);
  return digits + ((10 - (sum % 10)) % 10);
};
const numbers = Array.from({ length: 1000 }, (_, i) => i);
const codes = {
  'UPC-A': numbers.map((i) => withCheckDigit(`0${String(3_600_029_145 + i * 7919).padStart(10, '0')}`)),
  'EAN-13': numbers.map((i) => withCheckDigit(`40${String(638_133_393 + i * 7919).padStart(10, '0')}`)),
  '(00) SSCC': numbers.map((i) => `00${withCheckDigit(`1061414${String(i * 7919).padStart(10, '0')}`)}`),
};
const seen = {};
for (const [kind, list] of Object.entries(codes)) {
  const carriers = new Set(list.map((code) => getTracking(code)?.courier.name).filter(Boolean));
  seen[kind] = [list.filter((code) => validation.isValid(code)).length, list.filter((code) => getTracking(code)).length];
  console.log(`Expected: 0 of ${list.length} ${kind} codes, such as ${list[1]}, are tracking numbers`);
  console.log(`Seen:     ${names[0]} accepts ${seen[kind][0]}; ${names[1]} ${[seen[kind][1], ...carriers].join(' as ')}`);
}
console.log('Why it matters: a scan of the product or the pallet marks an order as shipped. Refuse valid GTINs and (00) in this field.');
const known = { 'UPC-A': [1000, 98], 'EAN-13': [0, 0], '(00) SSCC': [0, 1000] };
process.exit(JSON.stringify(seen) === JSON.stringify(known) ? 0 : 1);
JAVASCRIPT
node check.mjs || { echo "The behaviour has changed."; exit 1; }
