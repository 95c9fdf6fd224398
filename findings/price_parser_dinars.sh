#!/usr/bin/env bash
# price-parser reads half a dinar as 500 dinars.
#
# Kuwait, Bahrain, Oman, Jordan and Tunisia have currencies of three decimals (ISO 4217), so a price list says 0.500 and KWD 1.250. One
# expects 0.5: no number in groups of thousands begins with 0, and the currency is there to tell the other case. The library takes three
# digits after the only separator for thousands, whatever comes before them, and whatever currency it has recognised.
# It matters because prices of these currencies become a thousand times too high, except those with another number of digits: a column of
# 0.500, 0.75 and 1.250 comes out as 500, 0.75 and 1250. Pass `decimal_separator`, which the library has for this.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check price-parser==0.5.1 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from price_parser import Price

print("Versions: price-parser", version("price-parser"))
CASES = {"0.500": "0.500", "0,500": "0.500", "KWD 1.250": "1.250", "0.750 BHD": "0.750", "0.75": "0.75"}
seen = {}
for text, expected in CASES.items():
    price = Price.fromstring(text)
    seen[text] = str(price.amount)
    print(f"Expected: {text} is {expected}")
    print(f"Seen:     {price.amount} {price.currency or ''}".rstrip())
told = str(Price.fromstring("0.500", decimal_separator=".").amount)
print(f"Seen:     0.500 with decimal_separator: {told}")
print("Why it matters: imported prices are a thousand times too high, line by line.")
known = {"0.500": "500", "0,500": "500", "KWD 1.250": "1250", "0.750 BHD": "750", "0.75": "0.75"}
sys.exit(seen != known or told != "0.500")
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
