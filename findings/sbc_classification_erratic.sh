#!/usr/bin/env bash
# sbc-classification chooses Croston's method for erratic demand, and its correction for smooth demand, which is the wrong way round.
#
# Syntetos, Boylan and Croston (2005) classify demand by the mean interval p between sales and the squared coefficient of variation of their
# sizes: Croston's own method suits smooth demand, p up to 1.32 and CV squared below 0.49, and Syntetos and Boylan's correction, SBA, everything
# else. One expects a package "SBC" to choose so. It compares CV squared the other way round: smooth demand gets SBA, and erratic demand, sold in
# each period in sizes that vary, is the only one that gets Croston. Intermittent and lumpy demand are right.
# It matters because the class decides the forecast, and so the reorder point, of a product. Compare p and "CV Squared", which are right,
# with the limits yourself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    sbc-classification==0.0.4 numpy==2.4.1 pandas==2.3.3 matplotlib==3.11.2 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

import pandas as pd
from sbc.sbc_class import sbc_class

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("sbc-classification", "numpy", "pandas")))
SALES = {
    "smooth": [10, 11, 9, 10, 10, 11] * 4,
    "erratic": [1, 50, 1, 40, 2, 60] * 4,
    "intermittent": [0, 0, 0, 10] * 6,
    "lumpy": [0, 0, 0, 1, 0, 0, 0, 50] * 3,
}
EXPECTED = {"smooth": "Croston", "erratic": "SBA", "intermittent": "SBA", "lumpy": "SBA"}
table = sbc_class(pd.DataFrame(SALES)).set_index("target")
seen = table["model"].to_dict()
for kind, model in EXPECTED.items():
    p, variation = table.loc[kind, ["p", "CV Squared"]]
    print(f"Expected: {model} for {kind} demand, p {p:.2f} and CV squared {variation:.2f}")
    print(f"Seen:     {seen[kind]}")
print("Why it matters: products that sell evenly and products that sell erratically get each other's forecast.")
sys.exit(seen != {**EXPECTED, "smooth": "SBA", "erratic": "Croston"})
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
