#!/usr/bin/env bash
# prices takes a discount off the net price in full, so the tax on goods at half price is that of the full price.
#
# The package, which Saleor wrote for its shop, has prices with and without tax, and discounts in percent. 50 % off 100.00 net and 119.00
# gross are 50.00 and 59.50: the tax halves too. One expects that of percentage_discount and fractional_discount. They compute half of the
# gross price, 59.50, and take that amount off both: 40.50 net and 59.50 gross, and the tax remains 19.00, which is 47 % of the net price.
# At 90 % off, the net price is 0 and the tax is nearly all that is left. The gross price is right, so nothing looks wrong at checkout.
# It matters because a shop pays the tax of the full price for goods that it sells at a discount, or its invoices are wrong. Discount the
# gross price, a Money, and compute the tax from the result with flat_tax(gross, rate, keep_gross=True).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check prices==1.1.1 babel==2.18.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from decimal import Decimal
from importlib.metadata import version

from prices import Money, TaxedMoney, flat_tax, percentage_discount

print("Versions: prices", version("prices"))


def euros(text):
    return Money(Decimal(text), "EUR")


full = TaxedMoney(net=euros("100.00"), gross=euros("119.00"))
seen = []
for percent in (50, 90):
    gross = percentage_discount(full.gross, percent)
    right = flat_tax(gross, Decimal("0.19"), keep_gross=True)
    price = percentage_discount(full, percent)
    seen.append((str(price.net.amount), str(price.gross.amount), str(price.tax.amount)))
    print(f"Expected: {percent} % off: net {right.net.amount}, gross {right.gross.amount}, tax {right.tax.amount}")
    print(f"Seen:     {percent} % off: net {price.net.amount}, gross {price.gross.amount}, tax {price.tax.amount}")
print("Why it matters: more tax is declared than is due.")
sys.exit(seen != [("40.50", "59.50", "19.00"), ("0", "11.90", "11.90")])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
