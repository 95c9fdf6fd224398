#!/usr/bin/env bash
# inventorize computes a reorder point that is too low when the supplier's lead time varies.
#
# The safety stock for a varying lead time is z * sqrt(L * s^2 + d^2 * sL^2), with the daily demand d and its deviation s, the lead time L
# in days and its deviation sL. One expects the library to use the textbook's formula. Its function
# reorderpoint_leadtime_variability writes the last square as ^, which in Python is a bitwise exclusive or. The library's own example
# (d 50, s 5, L 6, sL 2) gets a deviation of 72 units instead of 101. With a deviation of 1.5 days it raises a TypeError.
# It matters because the result is plausible: a shop that wants to be in stock for 90 % of its cycles gets about 82 %.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check inventorize==1.2.6 scipy==1.17.1

cat > "$folder/check.py" <<'PYTHON'
import math
import sys
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")
import inventorize
from scipy.stats import norm

print("Versions:", *(f"{name} {version(name)}" for name in ("inventorize", "scipy")))
demand, demand_deviation, days, service = 50, 5, 6, 0.9
seen = []
for days_deviation in (1, 2, 3, 4):
    deviation = math.sqrt(days * demand_deviation**2 + demand**2 * days_deviation**2)
    expected = demand * days + norm.ppf(service) * deviation
    point = inventorize.reorderpoint_leadtime_variability(demand, demand_deviation, days, days_deviation, service)["reorder_point"]
    reached = norm.cdf((point - demand * days) / deviation)
    print(f"{demand} a day, lead time {days} days, deviation {days_deviation} days, service level {service:.0%}")
    print(f"Expected: reorder at {expected:.0f} units")
    print(f"Seen:     reorder at {point:.0f} units, which is a service level of {reached:.0%}")
    seen.append(round(point))
try:
    inventorize.reorderpoint_leadtime_variability(demand, demand_deviation, days, 1.5, service)
    seen.append("no error")
except TypeError as error:
    print(f"Seen:     deviation 1.5 days: TypeError: {error}")
    seen.append("TypeError")
print("Why it matters: the shop reorders too late and runs out more often than it planned, most of all with unreliable suppliers.")
sys.exit(seen != [366, 392, 412, 429, "TypeError"])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
