#!/usr/bin/env bash
# croston's method "tsb" still forecasts sales of a product that nobody has bought for a year.
#
# Croston's method forecasts demand that comes now and then, but learns only from periods with a sale. Teunter, Syntetos and Babai (2011)
# changed exactly that: the probability of a sale is updated in each period, so the forecast of a product that sells no more
# falls towards zero. One expects croston_variant="tsb" to do so. The package lists the variant, computes plain Croston, and says nothing.
# It also takes the position of the first sale, counted from 0, as the first interval, so a product that sells 12 units in every fourth
# period is forecast to sell more than 3 a period.
# It matters because reorder points come from this number, and "tsb" is chosen for stock that becomes obsolete.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check croston==0.1.2.4 numpy==2.4.1 pandas==2.3.3 scipy==1.17.1 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
from croston.croston import fit_croston

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("croston", "numpy", "pandas", "scipy")))


def forecast(sales, variant):
    return float(fit_croston(np.array(sales, float), 1, variant)["croston_forecast"][0])


def tsb(sales, alpha=0.1, beta=0.1):
    """The published method, begun with the first sale's size and the share of periods with a sale."""
    size = next(units for units in sales if units)
    chance = sum(units > 0 for units in sales) / len(sales)
    for units in sales:
        chance += beta * ((units > 0) - chance)
        if units:
            size += alpha * (units - size)
    return size * chance


selling = [0, 4, 0, 5, 6, 0, 4, 0, 5, 0, 6, 4]
ended = selling + [0] * 52
seen = {(name, variant): forecast(sales, variant) for name, sales in (("selling", selling), ("ended", ended)) for variant in ("tsb", "original")}
print(f"Expected: after 52 periods without a sale, tsb forecasts almost nothing (by the published formula {tsb(ended):.3f} units a period)")
print(f"Seen:     {seen['ended', 'tsb']:.3f}, and {seen['selling', 'tsb']:.3f} before these 52 periods")
print(f"Seen:     the original method: {seen['ended', 'original']:.3f} and {seen['selling', 'original']:.3f}")
steady = forecast([0, 0, 0, 12] * 3, "original")
print("Expected: 12 units in every fourth period are 3.00 a period")
print(f"Seen:     {steady:.2f}")
print("Why it matters: a product that has stopped selling is ordered again and again.")
is_same = all(abs(seen[name, "tsb"] - seen[name, "original"]) < 1e-9 for name in ("selling", "ended"))
sys.exit(not (is_same and seen["ended", "tsb"] > 2 and steady > 3.2))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
