#!/usr/bin/env bash
# mikrowerk-edi-invoicing reads the price of 100 screws as the price of one.
#
# In a UBL or Peppol invoice, PriceAmount is the price of BaseQuantity units: EUR 2.50 for 100 screws is 2.50 with a base of 100. The
# line's amount is quantity * price / base. One expects a parser to return the base, or the price of one unit. This parser drops
# the base and returns 2.50 as unit_price, with the quantity of 300 and the line's correct total of 7.50. No error is raised.
# It matters because a shop that books receipts at unit_price values a screw at 2.50 instead of 0.025, and 300 of them at 750
# instead of 7.50. Cheap goods, which are the ones priced by the hundred, distort margins and the value of stock. Compare quantity *
# unit_price with the total, and divide the total by the quantity if they differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mikrowerk-edi-invoicing==0.7.4

cat > "$folder/check.py" <<'PYTHON'
import dataclasses
import sys
from importlib.metadata import version

from edi_invoice_parser import parse_and_map_x_rechnung

SPACE = "urn:oasis:names:specification:ubl:schema:xsd:"
VAT = "<cbc:ID>S</cbc:ID><cbc:Percent>20</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme>"


def amount(tag, value):
    return f'<cbc:{tag} currencyID="EUR">{value}</cbc:{tag}>'


def party(role, name):
    address = "<cac:PostalAddress><cac:Country><cbc:IdentificationCode>AT</cbc:IdentificationCode></cac:Country></cac:PostalAddress>"
    legal = f"<cac:PartyLegalEntity><cbc:RegistrationName>{name}</cbc:RegistrationName></cac:PartyLegalEntity>"
    return f"<cac:Accounting{role}Party><cac:Party>{address}{legal}</cac:Party></cac:Accounting{role}Party>"


def invoice(price):
    return f"""<Invoice xmlns="{SPACE}Invoice-2" xmlns:cac="{SPACE}CommonAggregateComponents-2" xmlns:cbc="{SPACE}CommonBasicComponents-2">
<cbc:CustomizationID>urn:cen.eu:en16931:2017</cbc:CustomizationID><cbc:ID>INV-1</cbc:ID><cbc:IssueDate>2026-11-28</cbc:IssueDate>
<cbc:InvoiceTypeCode>380</cbc:InvoiceTypeCode><cbc:DocumentCurrencyCode>EUR</cbc:DocumentCurrencyCode>
{party("Supplier", "Screws Ltd")}{party("Customer", "Shop Ltd")}
<cac:TaxTotal>{amount("TaxAmount", "1.50")}<cac:TaxSubtotal>{amount("TaxableAmount", "7.50")}{amount("TaxAmount", "1.50")}
<cac:TaxCategory>{VAT}</cac:TaxCategory></cac:TaxSubtotal></cac:TaxTotal>
<cac:LegalMonetaryTotal>{amount("LineExtensionAmount", "7.50")}{amount("TaxExclusiveAmount", "7.50")}
{amount("TaxInclusiveAmount", "9.00")}{amount("PayableAmount", "9.00")}</cac:LegalMonetaryTotal>
<cac:InvoiceLine><cbc:ID>1</cbc:ID><cbc:InvoicedQuantity unitCode="C62">300</cbc:InvoicedQuantity>{amount("LineExtensionAmount", "7.50")}
<cac:Item><cbc:Name>Screw</cbc:Name><cac:ClassifiedTaxCategory>{VAT}</cac:ClassifiedTaxCategory></cac:Item>
<cac:Price>{price}</cac:Price></cac:InvoiceLine></Invoice>"""


print("Versions: mikrowerk-edi-invoicing", version("mikrowerk-edi-invoicing"))
base = '<cbc:BaseQuantity unitCode="C62">100</cbc:BaseQuantity>'
seen = []
for title, price in (("0.025 each", amount("PriceAmount", "0.025")), ("2.50 for 100", amount("PriceAmount", "2.50") + base)):
    (line,) = parse_and_map_x_rechnung(invoice(price).encode()).trade_line_items
    print(f"Expected: 300 screws at {title}: a unit price of 0.025, or a field with the base; total 7.50")
    print(f"Seen:     unit_price {line.unit_price}, quantity {line.quantity:.0f}, total {line.total_amount_net}")
    seen.append((line.unit_price, line.total_amount_net, any(value in (100, "100") for value in dataclasses.astuple(line))))
print("Why it matters: goods priced by the hundred enter the stock at 100 times their cost.")
sys.exit(seen != [(0.025, 7.5, False), (2.5, 7.5, False)])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
