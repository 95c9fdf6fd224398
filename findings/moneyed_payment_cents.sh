#!/usr/bin/env bash
# py-moneyed shows the customer a total of 23.79 euros and passes 2,378 cents to the payment provider.
#
# Payment providers take amounts in minor units, and py-moneyed's get_amount_in_sub_unit() computes them: 2378 for 23.78 euros. Tax and
# discounts give fractions of a cent, 19.99 plus 19 % is 23.7881. One expects that method to round as the package does elsewhere, or to
# refuse a fraction. str() and format_money() round to 23.79; get_amount_in_sub_unit() drops the fraction. Both come from one object, and no
# warning is given. With 19 % of tax, half of all prices differ by a cent.
# It matters because the invoice and the payment differ by a cent for every second order, and a check that compares them leaves these orders
# unpaid. Call round(2) once, before the amount is shown or sent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check py-moneyed==3.0 babel==2.18.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from decimal import Decimal
from importlib.metadata import version

from moneyed import Money
from moneyed.l10n import format_money

print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("py-moneyed", "babel")))


def with_tax(cents):
    return Money(Decimal(cents) / 100, "EUR") * Decimal("1.19")


total = with_tax(1999)
shown, sent = format_money(total, locale="en_IE"), total.get_amount_in_sub_unit()
rounded = total.round(2).get_amount_in_sub_unit()
print("Expected: €23.79 and 2379, or an error")
print(f"Seen:     {shown} and {sent}; after round(2): {rounded}")
differ = sum(with_tax(cents).get_amount_in_sub_unit() != with_tax(cents).round(2).get_amount_in_sub_unit() for cents in range(1, 10001))
print(f"Seen:     {differ:,} of 10,000 prices differ")
print("Why it matters: the customer pays less than the invoice says.")
sys.exit((shown, sent, rounded, differ) != ("€23.79", 2378, 2379, 4950))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
