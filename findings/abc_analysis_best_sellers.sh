#!/usr/bin/env bash
# abc-analysis leaves the last product of class A out of it: a shop with one best-seller has no class A.
#
# An ABC analysis sorts products by turnover: A has the few that bring most of it, B the next, C the rest. This package finds the limits
# itself and returns the share of products in A ("Effort"), their share of turnover ("Yield"), the turnover of A's last product ("ABLimit"),
# and the members of each class. One expects as many members of A as its own Effort says. A has only products above the limit, though, so
# the product that sets the limit, and each one that sells as much, goes into B. Whoever counts A gets one product too few, or none.
# It matters because A decides what is counted weekly and never runs out: the product with 89 % of turnover is counted with the slow
# ones. Take the products with at least ABLimit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    abc-analysis==0.1.23 matplotlib==3.11.2 numpy==2.4.1 pandas==2.3.3 scipy==1.17.1 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from abc_analysis import abc_analysis

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("abc-analysis", "numpy", "pandas", "scipy")))
SHOPS = {
    "one best-seller": [1000, 40, 30, 20, 10, 9, 8, 7, 6, 5],
    "a slow decline": [1000, 500, 250, 120, 60, 30, 15, 8, 4, 2],
    "three best-sellers": [1000, 900, 800, 50, 40, 30, 20, 15, 10, 5, 4, 3, 2, 1],
}
seen = {}
for shop, turnover in SHOPS.items():
    result = abc_analysis(turnover)
    effort, share = result["A"]["Effort"], result["A"]["Yield"]
    members = [turnover[i] for i in result["Aind"]]
    expected = turnover[: round(effort * len(turnover))]
    print(f"{shop}: {turnover}")
    print(f"Expected: A is {expected}, for {effort:.0%} of {len(turnover)} products with {share:.0%} of turnover")
    print(f"Seen:     A is {members}, with {sum(members) / sum(turnover):.0%} of turnover; ABLimit is {result['ABLimit']}")
    seen[shop] = (expected, members)
sys.exit(
    seen
    != {
        "one best-seller": ([1000], []),
        "a slow decline": ([1000, 500], [1000]),
        "three best-sellers": ([1000, 900, 800], [1000, 900]),
    }
)
PYTHON
MPLCONFIGDIR="$folder" "$folder/venv/bin/python" "$folder/check.py"
