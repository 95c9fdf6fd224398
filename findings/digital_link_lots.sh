#!/usr/bin/env bash
# digital-link.js writes lot numbers with a slash into addresses that it cannot read, and reads those of others still encoded.
#
# A lot number, AI (10), may contain / ? % & and + (GS1's character set 82), and a GS1 Digital Link has it percent-encoded in its path. One
# expects the library to encode it when it builds the address and to decode it when it reads one. It does neither: LOT/1 becomes two
# path segments, the result is not valid by the library's own check and cannot be parsed, A?1 comes back as lot A, and a proper
# address with LOT%2F1 gives the lot LOT%2F1.
# It matters because the lot of a recall is not found, or another lot is, although each product's label scans.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund digital-link.js@1.4.3

cat > check.cjs <<'JAVASCRIPT'
const { DigitalLink } = require('digital-link.js');
const { version } = require('./node_modules/digital-link.js/package.json');
console.log(`Versions: digital-link.js ${version}, node ${process.versions.node}`);
const product = { domain: 'https://id.gs1.org', identifier: { '01': '04006381333931' } };
const lotIn = (address) => {
  try {
    return DigitalLink(address).getKeyQualifiers()['10'];
  } catch (error) {
    return `${error.name ?? 'Error'}: ${error.message}`;
  }
};
const seen = [];
for (const lot of ['LOT1', 'LOT/1', 'A?1']) {
  const made = DigitalLink({ ...product, keyQualifiers: { 10: lot } }).toWebUriString();
  seen.push(lotIn(made));
  console.log(`Expected: lot ${lot} becomes .../10/${encodeURIComponent(lot)} and is read as ${lot}`);
  console.log(`Seen:     ${made} is read as ${seen.at(-1)}`);
}
seen.push(lotIn('https://id.gs1.org/01/04006381333931/10/LOT%2F1'));
console.log(`Expected: .../10/LOT%2F1 is read as LOT/1`);
console.log(`Seen:     ${seen.at(-1)}`);
console.log('Why it matters: lots that suppliers number with a slash are lost on the way from label to recall.');
const known = ['LOT1', 'Error: Must contain at least the identifier', 'A', 'LOT%2F1'];
process.exit(JSON.stringify(seen) === JSON.stringify(known) ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
