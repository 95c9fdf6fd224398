#!/usr/bin/env bash
# csvkit and frictionless turn cable lengths into minutes and shelf positions into dates.
#
# Both guess a column's type from its text. One expects lengths such as "2m" and positions such as "1-2" to stay text, as ids do. csvsort and
# csvjson read metres as minutes (2m becomes 0:02:00), the shelf 4:07 as four minutes and seven seconds, and the position 1-2 as
# 2 January 2001. frictionless leaves lengths and shelves alone, but the position 1-2 becomes the month 1-02, which no shelf is called.
# GTINs lose their leading zeros in both.
# It matters because a stock file that was only sorted, or only converted, does not fit the shelves and products any more.
# Call csvkit with --no-inference, and give frictionless a schema.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check csvkit==2.2.0 agate==1.14.2 frictionless==5.21.0 2> /dev/null
cd "$folder"
cat > stock.csv <<'CSV'
sku,length,shelf,position,gtin
CABLE-B,10m,4:07,2-3,00036000291452
CABLE-A,2m,3:12,1-2,04006381333931
CSV
echo "Versions: $(venv/bin/pip list 2> /dev/null | awk '/^(csvkit|agate|frictionless) / {printf "%s %s  ", $1, $2}')"
expected='CABLE-A,2m,3:12,1-2,04006381333931'
plain=$(venv/bin/csvsort --no-inference --columns sku stock.csv | sed -n 2p)
sorted=$(venv/bin/csvsort --columns sku stock.csv | sed -n 2p)
extracted=$(venv/bin/frictionless extract stock.csv --csv | tail -n +1 | grep CABLE-A)
echo "Expected: the line of CABLE-A is $expected"
echo "Seen:     csvsort:                $sorted"
echo "Seen:     csvsort --no-inference: $plain"
echo "Seen:     frictionless extract:   $extracted"
echo "Why it matters: sorting or converting a file of stock changes what it says."
[ "$plain" = "$expected" ] && [ "$sorted" = 'CABLE-A,0:02:00,0:03:12,2001-01-02,4006381333931' ] \
  && [ "$extracted" = 'CABLE-A,2m,3:12,1-02,4006381333931' ] || { echo "The behaviour has changed."; exit 1; }
