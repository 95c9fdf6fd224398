#!/usr/bin/env bash
# mt-940 and mt940-js count a payment that the bank took back as a second payment.
#
# Banks send statements as MT940. Its lines are marked C (credit), D (debit), RC (a credit is reversed: the money leaves the account
# again) and RD (a debit is reversed). One expects the amount of RC to be negative and that of RD positive, so that the amounts add up to
# the change from the opening to the closing balance, as in mt940js, whose name lacks the hyphen. mt-940 makes only D negative: a payment
# of 50 that is returned two days later is +50 and +50. In mt940-js both are 50 with isCredit, and nothing in them tells one from the
# other.
# It matters because a shop that marks orders as paid when their amounts arrive releases goods on the day the money went away. Make the
# amount negative in mt-940 if the status is RC, and compare the sum with the balances.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mt-940==5.1.1 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts mt940-js@1.0.0 mt940js@1.3.5 tslib@2.8.1

cat > check.py <<'PYTHON'
import json
import subprocess
import sys
from importlib.metadata import version

import mt940

READERS = """
const signed = (row) => (row.isCredit ? row.amount : -row.amount);
require('mt940-js').read(Buffer.from(process.argv[1])).then(([statement]) => {
  const other = new (require('mt940js').Parser)().parse(process.argv[1])[0];
  console.log(JSON.stringify([statement.transactions.map(signed), other.transactions.map((row) => row.amount)]));
});
"""
print(f"Versions: mt-940 {version('mt-940')}, mt940-js 1.0.0, mt940js 1.3.5")
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
print(f"Seen:     mt-940: {', '.join(f'{status} {amount}' for status, amount in seen)}, and a sum of {total}")
balances = [str(transactions.data[name].amount.amount) for name in ("final_opening_balance", "final_closing_balance")]
print(f"Seen:     the balance is {balances[0]} before, and {balances[1]} after")
mt940_js, mt940js = json.loads(subprocess.check_output(["node", "-e", READERS, STATEMENT + "\n-\n"], text=True))
print(f"Seen:     mt940-js, with the sign of isCredit: {mt940_js}; mt940js: {mt940js}")
print("Why it matters: the order is paid twice in the shop's books, and not at all at the bank.")
known = seen == [("C", "50.00"), ("RC", "50.00"), ("D", "-20.00"), ("RD", "20.00")] and balances == ["1000.00"] * 2
sys.exit(not known or mt940_js != [50, 50, -20, -20] or mt940js != [50, -50, -20, 20])
PYTHON
venv/bin/python check.py || { echo "The behaviour has changed."; exit 1; }
