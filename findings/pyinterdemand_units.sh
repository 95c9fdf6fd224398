#!/usr/bin/env bash
# pyInterDemand calls demand lumpy if it is counted in pieces, and intermittent if the same demand is counted in dozens.
#
# Demand is classified by the mean interval between sales, and by the squared coefficient of variation of their sizes, with limits of 1.32 and
# 0.49. Both have no unit, so one expects 12 pieces and 1 dozen to be in one class, and a variation of 0 if each sale has the same size. The
# package divides the variance by the mean, not by its square, and computes both over all periods, those without sales included. What
# it calls CV is 12 times as large in pieces. Sales of 2 and more on each third day are lumpy, although they never vary.
# It matters because the class chooses the forecast and the safety stock, and a change of the unit alone changes
# both. Compute var/mean² of the periods with sales yourself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    pyinterdemand==1.4.3 numpy==2.4.1 pandas==2.3.3 matplotlib==3.11.2 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import contextlib
import io
import sys
from importlib.metadata import version

import pandas as pd
from pyInterDemand.algorithm import classification

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("pyinterdemand", "numpy", "pandas")))


def seen(sales):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        classification(pd.Series(sales, index=pd.date_range("2026-01-01", periods=len(sales)), dtype=float))
    return " ".join(output.getvalue().split())


def variation(sales):
    sold = pd.Series([size for size in sales if size])
    return sold.var(ddof=0) / sold.mean() ** 2


dozens = [0, 0, 1] * 12
results = [seen(dozens), seen([12 * size for size in dozens]), seen([0, 0, 1500] * 12)]
print(f"Expected: intermittent, with CV squared {variation(dozens):.2f}, in dozens, pieces and grams")
for unit, result in zip(("dozens", "pieces", "grams"), results, strict=True):
    print(f"Seen:     in {unit}, {result}")
print("Why it matters: the unit of the price list decides how much stock is kept.")
kinds = [result.split()[-1] for result in results]
sys.exit(kinds != ["Intermittent", "Lumpy", "Lumpy"])
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
