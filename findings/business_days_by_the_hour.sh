#!/usr/bin/env bash
# moment-business-days and two packages for Day.js: from Wednesday morning to Thursday evening are two or three business days.
#
# Shops promise delivery in business days, and count afterwards how many it took: from Wednesday to Thursday is one, at any hour. One
# expects the difference in business days to be a matter of dates, as date-fns's differenceInBusinessDays is. moment-business-days and
# dayjs-business-days2 add a day if the end has a later hour than the start: 8:00 to 18:00 on the next day is two. In dayjs-business-days2
# an order that is delivered the same evening took one day. dayjs-business-time counts a day for each end outside the opening hours, so
# 8:00 to 18:00 on one day is two days, and from a time to the same time is one. Tests with dates only hide it.
# It matters because deliveries within a promise of one day are counted, and refunded, as late. Compare the starts of both days.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund moment@2.30.1 moment-business-days@1.2.0 dayjs@1.11.19 dayjs-business-days2@1.4.0 \
    dayjs-business-time@1.0.4 date-fns@4.1.0

cat > check.js <<'JAVASCRIPT'
const moment = require('moment-business-days');
const dayjs = require('dayjs');
const days2 = require('dayjs-business-days2');
const time = require('dayjs-business-time');
const { differenceInBusinessDays } = require('date-fns');

dayjs.extend(days2.default ?? days2);
dayjs.extend(time.default ?? time);
const packages = {
  'date-fns': (from, to) => differenceInBusinessDays(new Date(to), new Date(from)),
  'moment-business-days': (from, to) => moment(to).businessDiff(moment(from)),
  'dayjs-business-days2': (from, to) => dayjs(to).businessDiff(dayjs(from)),
  'dayjs-business-time': (from, to) => dayjs(from).businessDaysDiff(dayjs(to)),
};
console.log('Versions:', [...Object.keys(packages), 'moment', 'dayjs'].map((name) => `${name} ${require(`./node_modules/${name}/package.json`).version}`).join(', '));
const cases = [
  ['Wednesday 8:00 to Wednesday 8:00', '2026-11-25T08:00', '2026-11-25T08:00', [0, 0, 0, 1]],
  ['Wednesday 8:00 to Wednesday 18:00', '2026-11-25T08:00', '2026-11-25T18:00', [0, 0, 1, 2]],
  ['Wednesday 8:00 to Thursday 18:00', '2026-11-25T08:00', '2026-11-26T18:00', [1, 2, 2, 3]],
  ['Wednesday 18:00 to Thursday 8:00', '2026-11-25T18:00', '2026-11-26T08:00', [1, 1, 1, 1]],
  ['Friday 8:00 to Monday 18:00', '2026-11-27T08:00', '2026-11-30T18:00', [1, 2, 2, 3]],
];
let isKnown = true;
for (const [words, from, to, known] of cases) {
  const seen = Object.values(packages).map((difference) => difference(from, to));
  isKnown &&= JSON.stringify(seen) === JSON.stringify(known);
  console.log(`Expected: ${words}: ${known[0]} business day${known[0] === 1 ? '' : 's'}`);
  console.log(`Seen:     ${Object.keys(packages).map((name, i) => `${name} ${seen[i]}`).join(', ')}`);
}
console.log('Why it matters: a delivery on the next day is counted as late.');
process.exit(isKnown ? 0 : 1);
JAVASCRIPT
node check.js || { echo "The behaviour has changed."; exit 1; }
