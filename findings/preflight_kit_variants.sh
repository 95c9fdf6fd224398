#!/usr/bin/env bash
# preflight-kit calls each further variant in Shopify's own export a critical error.
#
# The command finds "import-breaking mistakes" in a CSV of products before it goes to Shopify. In Shopify's exports, and in the template of its
# help pages, the names of the options are in a product's first line only, as are its title and its vendor; the lines of the other variants
# have the values. One expects a file that has this form to pass. Each of these lines is reported as critical, rule R05, "Option1 value
# set but Option1 name is empty", and the exit status is 1. A real export of 115 lines has 68 such errors.
# It matters because a check in front of an import stops every shop that has sizes or colours. Ignore R05 for lines whose handle has
# appeared before; an option's name that is missing in the first line is found all the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check preflight-kit==0.2.0 2> /dev/null
cd "$folder"

header='Handle,Title,Body (HTML),Vendor,Type,Tags,Published,Option1 Name,Option1 Value,Variant SKU,Variant Grams,Variant Inventory Tracker'
header+=',Variant Inventory Qty,Variant Inventory Policy,Variant Fulfillment Service,Variant Price,Variant Requires Shipping,Variant Taxable'
header+=',Image Src,Image Position,Gift Card,Variant Weight Unit,Status'
cat > products_export.csv <<CSV
$header
tea-shirt,Tea Shirt,<p>Cotton</p>,Acme,Shirts,"",true,Size,S,TS-S,200.0,shopify,5,deny,manual,19.00,true,true,https://cdn.example.com/1.jpg,1,false,kg,active
tea-shirt,,,,,,,,M,TS-M,210.0,shopify,7,deny,manual,19.00,true,true,,,,kg,
tea-shirt,,,,,,,,L,TS-L,220.0,shopify,2,deny,manual,19.00,true,true,,,,kg,
CSV
sed 's/^\(tea-shirt,,,,,,\),,/\1,Size,/' products_export.csv > repeated.csv

check() {
  local status=0
  venv/bin/preflight check --lang en --no-fix --out-dir "$1" "$1.csv" > /dev/null 2>&1 || status=$?
  echo "exit status $status: $(grep -o 'Summary: .*' "$1/report.md")"
  grep -o '\[R05\].*' "$1/report.md" || true
}
seen=$(check products_export)
repeated=$(check repeated)
echo "Versions: preflight-kit $(venv/bin/pip list 2> /dev/null | awk '$1 == "preflight-kit" {print $2}')"
echo 'Expected: no critical error in a product with three sizes, as Shopify exports it'
echo "Seen:     $seen"
echo "Seen:     with the option's name in each line: $repeated"
echo 'Why it matters: the check refuses each export that has variants.'
[ "$(grep -c 'R05' <<< "$seen")" = 2 ] && grep -q ' 2 critical' <<< "$seen" && grep -q ' 0 critical' <<< "$repeated" ||
  { echo "The behaviour has changed."; exit 1; }
