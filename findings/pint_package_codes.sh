#!/usr/bin/env bash
# pint reads the unit codes of orders as physical units: 2 EA, two pieces, become two exaamperes.
#
# Orders in EDIFACT and UBL carry UN/ECE codes: EA is each, KGM a kilogram; for packages, TN is a tin, PK a package, PL a pail.
# One expects a library for units to convert such codes or to raise UndefinedUnitError, so that a check with pint
# rejects codes that it cannot convert. pint knows none of these codes, but it combines any prefix with any unit. E (exa) and A
# (ampere) make EA valid, TN is a teranewton, PL a petalitre, while KGM, GRM, LTR, MTR and H87 (piece) raise the error.
# It matters because the check accepts exactly the wrong codes: 2 PL of paint pass as a volume of 2,000,000,000,000,000 litres.
# Look codes up in a table of your own first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pint==0.25.3

cat > "$folder/check.py" <<'PYTHON'
import sys

import pint

print("Versions: pint", pint.__version__)
registry = pint.UnitRegistry()
codes = {
    "EA": "each", "TN": "tin", "PK": "package", "PA": "packet", "PL": "pail", "TU": "tube",
    "H87": "piece", "KGM": "kilogram", "GRM": "gram", "LTR": "litre", "MTR": "metre",
}
seen = {}
for code, meaning in codes.items():
    try:
        seen[code] = str(registry.Quantity(2, code).units)
    except pint.UndefinedUnitError:
        seen[code] = "UndefinedUnitError"
    print(f"Expected: {code} is {meaning}, or UndefinedUnitError. Seen: {seen[code]}")
litres = registry.Quantity(2, "PL").to("litre").magnitude
print(f"Seen: 2 PL converted to litres: {litres:,.0f}")
print("Why it matters: the codes of physical units are refused, and those of packages become absurd quantities without an error.")
wrong = ["exaampere", "teranewton", "petakelvin", "petaampere", "petaliter", "teraenzyme_unit"]
sys.exit(list(seen.values()) != wrong + 5 * ["UndefinedUnitError"] or round(litres) != 2 * 10**15)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
