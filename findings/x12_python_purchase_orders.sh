#!/usr/bin/env bash
# x12-python refuses purchase orders of version 4010, and reads the buyer's number of an article as its UPC.
#
# Retailers order with X12's message 850, usually in version 4010, which the package lists as "Supply Chain (4010)". Up to that version the
# 11th element of an interchange is U, the standard's name; later it is a character that separates repetitions. One expects both to be read.
# The package takes it for the character, so 4010 is an error: "cannot be alphanumeric". In an order of version 5010, PurchaseOrder850 takes
# the first article number of a line for the UPC, although the element before it says whose number it is: BP is the buyer's, VN the vendor's.
# The next element, which only names the next number, is the description. The order's date is not read, and to_edi() writes 20231127.
# It matters because 4711, a number of the buyer's, finds nothing or another product. Find the element UP in a PO1 yourself, take
# the number after it, and set order_date.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check x12-python==0.1.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from x12 import Delimiters, Parser
from x12.transactions.supply_chain.models import PurchaseOrder850

print("Versions: x12-python", version("x12-python"))


def order(standard, number, release):
    segments = [
        f"ISA*00*          *00*          *ZZ*BUYER          *ZZ*SELLER         *261129*0900*{standard}*{number}*000000001*0*P*>",
        f"GS*PO*BUYER*SELLER*20261129*0900*1*X*{release}",
        "ST*850*0001",
        "BEG*00*SA*PO-1001**20261129",
        "PO1*1*10*EA*9.95**UP*012345678905*VN*TEA-1",
        "PO1*2*4*EA*20**BP*4711*UP*012345678912",
        "CTT*2",
        "SE*6*0001",
        "GE*1*1",
        "IEA*1*000000001",
    ]
    interchange = Parser().parse("".join(f"{segment}~" for segment in segments))
    return PurchaseOrder850.from_transaction(interchange.functional_groups[0].transactions[0])


try:
    order("U", "00401", "004010")
    refused = ""
except ValueError as error:
    refused = str(error)
read = order("^", "00501", "005010")
lines = [(item.upc, item.description) for item in read.line_items]
written = read.to_edi(Delimiters()).split("~")[0]
print("Expected: an order of version 4010 is read")
print(f"Seen:     {refused}")
print("Expected: the lines' UPCs are 012345678905 and 012345678912, and they have no description")
print(f"Seen:     {lines}")
print("Expected: BEG*00*SA*PO-1001**20261129")
print(f"Seen:     {written}")
print("Why it matters: another product is shipped, if the order is read at all.")
known = [("012345678905", "VN"), ("4711", "UP")]
sys.exit(not ("alphanumeric" in refused and lines == known and written == "BEG*00*SA*PO-1001**20231127"))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
