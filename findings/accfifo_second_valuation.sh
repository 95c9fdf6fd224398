#!/usr/bin/env bash
# accfifo values the same purchases and sales lower the second time, because the first valuation takes sold goods out of the caller's list.
#
# The package values stock first in, first out: FIFO(entries) takes purchases and sales, and has the stock and its value. One expects the
# same list to give the same value again, and that a shop can value the list's beginning for each month's end. A sale reduces the quantity
# of the purchase that it is served from, in the caller's own list, while the sale stays as it was: the next valuation subtracts it from
# what it has reduced before.
# It matters because stock is valued again and again: for each month, for tax, and for a page that is loaded twice. The later values are
# too low, without an error, and a test that values a list once passes. Pass copies: FIFO([entry.copy() for entry in entries]).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check accfifo==0.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from accfifo import FIFO, Entry

print(f"Versions: accfifo {version('accfifo')}, Python {sys.version.split()[0]}")


def ledger():
    return [Entry(10, 2), Entry(-4, 5), Entry(10, 3), Entry(-4, 5)]


def value(entries):
    fifo = FIFO(entries)
    return fifo.stock, fifo.valuation


entries = ledger()
seen = []
for number in (1, 2):
    print("Expected: valuation {}: {} units, value {}".format(number, *value(ledger())))
    seen.append(value(entries))
    print("Seen:     valuation {}: {} units, value {}".format(number, *seen[-1]))
entries = ledger()
for month, until in (("October", 2), ("November", 4)):
    print("Expected: end of {}: {} units, value {}".format(month, *value(ledger()[:until])))
    seen.append(value(entries[:until]))
    print("Seen:     end of {}: {} units, value {}".format(month, *seen[-1]))
copied = ledger()
safe = [value([entry.copy() for entry in copied]) for _ in range(2)]
print(f"Seen:     with copies, two valuations of one list: {safe}")
print("Why it matters: stock in the books shrinks whenever somebody looks at it.")
sys.exit((seen, safe) != ([(12, 34), (4, 12), (6, 12), (8, 24)], [(12, 34)] * 2))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
