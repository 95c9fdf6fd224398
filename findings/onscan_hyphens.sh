#!/usr/bin/env bash
# onScan.js removes hyphens, points and slashes from what is scanned, so different products have the same code.
#
# The library finds out which key presses come from a scanner, and passes on the code. One expects the code as it is printed: Code 39 and
# Code 128 have hyphens and points, and a browser's event says which character each key gave. By default, the library takes only
# letters, digits and the character of a shifted key: `-`, `_`, `.`, `/` and the space are left out, without an error. A code of five
# characters is not a scan at all.
# It matters because the shop's ids TEA-11-1 and TEA-1-11 are both scanned as TEA111. Give it a `keyCodeMapper` that returns `event.key`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund onscan.js@1.5.2 jsdom@26.1.0

cat > check.cjs <<'JAVASCRIPT'
const { JSDOM } = require('jsdom');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
const { window } = new JSDOM('<body></body>');
Object.assign(global, { window, document: window.document, CustomEvent: window.CustomEvent });
const onScan = require('onscan.js');

// What a browser sends for the keys of a US keyboard, which is what a scanner imitates.
const CODES = { '-': 189, '.': 190, '/': 191, ' ': 32, '_': 189 };
const press = (key, keyCode, shiftKey = false) =>
  document.dispatchEvent(new window.KeyboardEvent('keydown', { key, keyCode, which: keyCode, shiftKey, bubbles: true }));
async function scan(text) {
  for (const key of text) press(key, CODES[key] ?? key.toUpperCase().charCodeAt(0), /[A-Z_]/.test(key));
  press('Enter', 13);
  await new Promise((resolve) => setTimeout(resolve, 250));
}

(async () => {
  console.log(`Versions: onscan.js ${version('onscan.js')}, jsdom ${version('jsdom')}, node ${process.versions.node}`);
  const heard = [];
  onScan.attachTo(document, { onScan: (code) => heard.push(code), onScanError: ({ message }) => heard.push(`error: ${message}`) });
  const known = { 'TEA-11-1': 'TEA111', 'TEA-1-11': 'TEA111', 'CUP_250.5': 'CUP2505', 'BIN 4/12': 'BIN412', 4006381333931: '4006381333931' };
  let isKnown = true;
  for (const [code, expected] of Object.entries(known)) {
    await scan(code);
    const seen = heard.splice(0).join(', ');
    isKnown &&= seen === expected;
    console.log(`Expected: a scan of ${code} is passed on as ${code}`);
    console.log(`Seen:     ${seen}`);
  }
  onScan.detachFrom(document);
  onScan.attachTo(document, { onScan: (code) => heard.push(code), keyCodeMapper: ({ key }) => (key.length === 1 ? key : undefined) });
  await scan('TEA-11-1');
  console.log(`Seen:     with a mapper that returns the event's key: ${heard}`);
  console.log('Why it matters: two products of a shop have the same code, and the wrong one is shipped.');
  process.exit(isKnown && heard[0] === 'TEA-11-1' ? 0 : 1);
})();
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
