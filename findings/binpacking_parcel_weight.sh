#!/usr/bin/env bash
# binpacking packs an item of 35 kg into a parcel for 30 kg, or leaves it out of all parcels, without a word.
#
# to_constant_volume() distributes items to as few bins as possible, none of which holds more than V_max. If an item alone is heavier than
# that, there is no solution; one expects an error, or a list of what did not fit, as py3dbp and the npm package binpackingjs have. The
# package gives the item a bin of its own, above the limit, which looks like any other. With upper_bound, which excludes such
# weights, the item is in no bin, and nothing in the result says so.
# It matters because the carrier refuses the parcel, or the order is shipped without its largest item. Compare the heaviest item with
# V_max first, and the number of items with those in the bins afterwards.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check binpacking==2.0.1 py3dbp==1.1.2 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from binpacking import to_constant_volume
from py3dbp import Bin, Item, Packer

LIMIT = 30
ORDER = {"treadmill": 35, "weights": 20, "bench": 12, "mat": 2}


def parcels(**bounds):
    return [sorted(parcel) for parcel in to_constant_volume(ORDER, LIMIT, **bounds)]


packer = Packer()
packer.add_bin(Bin("parcel", 100, 100, 100, LIMIT))
packer.add_item(Item("treadmill", 50, 50, 50, ORDER["treadmill"]))
packer.pack()
unfitted = [item.name for item in packer.bins[0].unfitted_items]

print(f"Versions: binpacking {version('binpacking')}, py3dbp {version('py3dbp')}")
print(f"Packed:   {ORDER} kg into parcels of at most {LIMIT} kg")
print("Expected: the treadmill is refused, as by py3dbp, whose unfitted_items are", unfitted)
plain, bounded = parcels(), parcels(upper_bound=LIMIT)
print("Seen:    ", *plain)
print(f"Seen:     with upper_bound={LIMIT}:", *bounded)
print("Why it matters: a parcel is too heavy for its carrier, or the treadmill is not shipped.")
rest = [["weights"], ["bench", "mat"]]
sys.exit(not (plain == [["treadmill"], *rest] and bounded == rest and unfitted == ["treadmill"]))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
