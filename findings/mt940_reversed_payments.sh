#!/usr/bin/env bash
# mt-940 counts a payment that the bank took back as a second payment.
#
# Banks send statements as MT940. Its lines are marked C (credit), D (debit), RC (a credit is reversed: the money leaves the account
# again) and RD (a debit is reversed). One expects the amount of RC to be negative and that of RD positive, as the parser makes D negative,
# and the amounts to add up to the change from the opening to the closing balance. The parser makes only D negative. A payment of 50 that is
# returned two days later is +50 and +50, and the statement's own closing balance contradicts the sum.
# It matters because a shop that marks orders as paid when their amounts arrive releases goods on the day the money went away. Make the
# amount negative if the status is RC, and compare the sum with the balances.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mt-940==5.1.1 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

import mt940

print("Versions: mt-940", version("mt-940"))
STATEMENT = """
:20:STATEMENT
:25:12345678/0000123456
:28C:1/1
:60F:C261101EUR1000,00
:61:2611031103C50,00NTRFORDER-1042
:86:PAYMENT ORDER-1042
:61:2611051105RC50,00NRTIORDER-1042
:86:RETURN ORDER-1042
:61:2611061106D20,00NCHGFEE
:86:FEE
:61:2611071107RD20,00NCHGFEE
:86:FEE REFUNDED
:62F:C261107EUR1000,00
""".strip()
transactions = mt940.parse(STATEMENT)
print("Expected: C 50.00, RC -50.00, D -20.00, RD 20.00, and a sum of 0")
seen = [(row.data["status"], str(row.data["amount"].amount)) for row in transactions]
total = sum(row.data["amount"].amount for row in transactions)
print(f"Seen:     {', '.join(f'{status} {amount}' for status, amount in seen)}, and a sum of {total}")
balances = [str(transactions.data[name].amount.amount) for name in ("final_opening_balance", "final_closing_balance")]
print(f"Seen:     the balance is {balances[0]} before, and {balances[1]} after")
print("Why it matters: the order is paid twice in the shop's books, and not at all at the bank.")
sys.exit(seen != [("C", "50.00"), ("RC", "50.00"), ("D", "-20.00"), ("RD", "20.00")] or balances != ["1000.00"] * 2)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
