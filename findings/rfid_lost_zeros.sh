#!/usr/bin/env bash
# node-epc and epc-tds drop the leading zero of a pallet, and of a returnable crate, that is read by radio.
#
# RFID tags hold numbers in bits, and GS1's Tag Data Standard says how many digits each part has. A pallet's number, the SSCC, is made of
# the serial's first digit, the company's prefix and the rest of the serial. One expects a reader to return all digits. node-epc does so for
# products, places and crates, as text, but returns the serial of a pallet as a JavaScript number: that of 040123450000000429, whose first
# digit is 0, is 42 instead of 0000000042. epc-tds has the pallet's number right. Its toBarcode() for a crate, AI (8003), leaves out
# the zero in front of the number, so it is a digit short, and biip finds no GS1 message in it.
# It matters because pallets and crates that come through the gate are not found. Fill the serial with zeros until it has 17 digits
# together with the prefix, and put a 0 in front of the crate's number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check biip==5.2.0 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts node-epc@0.1.1 epc-tds@1.4.1

cat > check.cjs <<'JAVASCRIPT'
const { execFileSync } = require('node:child_process');
const nodeEpc = require('node-epc');
const tds = require('epc-tds');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
const python = 'import sys; from biip import parse; print(parse(sys.argv[1]).gs1_message is not None)';
const isMessage = (text) => execFileSync('venv/bin/python', ['-c', python, text], { encoding: 'utf8' }).trim();

(async () => {
  console.log(`Versions: node-epc ${version('node-epc')}, epc-tds ${version('epc-tds')}, node ${process.versions.node}`);
  const pallet = tds.fromTagURI('urn:epc:tag:sscc-96:1.4012345.0000000042');
  const product = tds.fromTagURI('urn:epc:tag:sgtin-96:1.4012345.000011.7');
  const crate = tds.fromTagURI('urn:epc:tag:grai-96:1.4012345.00001.5');
  // Copies, because the parser uses one object for all tags.
  const parts = { ...(await nodeEpc.parse(pallet.toHexString())).parts };
  const goods = { ...(await nodeEpc.parse(product.toHexString())).parts };
  console.log(`Expected: the tag of ${pallet.toBarcode()} has the prefix "4012345" and the serial "0000000042"`);
  console.log(`Seen:     ${JSON.stringify(parts.CompanyPrefix)} and ${JSON.stringify(parts.SerialReference)} (node-epc)`);
  console.log(`Seen:     a product: ${JSON.stringify(goods.CompanyPrefix)} and ${JSON.stringify(goods.ItemReference)} (node-epc)`);
  const full = isMessage('8003040123450000165');
  const short = isMessage(`8003${crate.toBarcode()}`);
  console.log(`Expected: (8003)040123450000165 for a crate, which biip reads: ${full}`);
  console.log(`Seen:     (8003)${crate.toBarcode()}, which biip reads: ${short} (epc-tds)`);
  console.log('Why it matters: pallets and crates pass the gate unknown.');
  const isKnown = parts.SerialReference === 42 && goods.ItemReference === '000011' && pallet.toBarcode() === '040123450000000429';
  process.exit(isKnown && crate.toBarcode() === '40123450000165' && full === 'True' && short === 'False' ? 0 : 1);
})();
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
