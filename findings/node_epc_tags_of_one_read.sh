#!/usr/bin/env bash
# node-epc gives all tags that were read together the numbers of the last one.
#
# An RFID reader at a gate or a shelf returns all tags in reach, and the package parses each into its parts: company, article and serial number.
# One expects an object for each tag. parse() returns a new object each time, but all have one object of "parts", which each
# call writes over. After three tags of three articles all results show the third. A pallet parsed before them has an article number and no
# serial reference any more. A test that prints each tag before it reads the next is right, and so is a handler that is called once a tag.
# It matters because a stocktake counts ten products as ten of one. Copy the parts as soon as a tag is parsed, and parse one tag at a time:
# { ...(await parse(tag)).parts }.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts node-epc@0.1.1 epc-tds@1.4.1

cat > check.cjs <<'JAVASCRIPT'
const { parse } = require('node-epc');
const tds = require('epc-tds');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
const ARTICLES = ['000011', '000022', '000033'];
const tags = ARTICLES.map((article, i) => tds.fromTagURI(`urn:epc:tag:sgtin-96:1.4012345.${article}.${i + 1}`).toHexString());
const pallet = tds.fromTagURI('urn:epc:tag:sscc-96:1.4012345.3000000001').toHexString();

(async () => {
  console.log(`Versions: node-epc ${version('node-epc')}, epc-tds ${version('epc-tds')}, node ${process.versions.node}`);
  const copies = [];
  const results = [await parse(pallet)];
  const serial = results[0].parts.SerialReference;
  for (const tag of tags) {
    results.push(await parse(tag));
    copies.push({ ...results[results.length - 1].parts }.ItemReference);
  }
  const together = await Promise.all(tags.map((tag) => parse(tag)));
  const [first, ...rest] = results.map(({ parts }) => parts);
  const seen = rest.map((parts) => parts.ItemReference);
  console.log(`Expected: ${ARTICLES.join(', ')}, and a pallet with the serial reference ${serial}`);
  console.log(`Seen:     ${seen.join(', ')}, and a pallet with ${first.SerialReference} and the article ${first.ItemReference}`);
  console.log(`Seen:     ${together.map(({ parts }) => parts.ItemReference).join(', ')} with Promise.all`);
  console.log(`Seen:     ${copies.join(', ')} if each is copied at once`);
  console.log('Why it matters: the stocktake finds three of one article, and none of two others.');
  const isLast = [...seen, first.ItemReference, ...together.map(({ parts }) => parts.ItemReference)].every((article) => article === '000033');
  process.exit(isLast && first.SerialReference === undefined && serial === 3000000001 && `${copies}` === `${ARTICLES}` ? 0 : 1);
})();
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
