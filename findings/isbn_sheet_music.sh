#!/usr/bin/env bash
# python-stdnum, isbnlib, isbnid and simple-isbn take sheet music for books.
#
# The barcode of a book is its ISBN, and since ISBNs begin with 978 or 979, a shop can tell books from other goods by it. Sheet music has an ISMN
# instead, and its barcode begins with 979-0, which belongs to no book. One expects a check of ISBNs to refuse it, as isbn3 and isbn-utils for
# JavaScript do. python-stdnum, which has a check of ISMNs as well, isbnlib, isbnid and simple-isbn look at 979 and the check digit only, so
# sheet music is a valid ISBN, although isbnlib and isbnid know no such group of publishers and cannot write it with hyphens.
# It matters because a look-up of the title finds nothing, and rules for books, such as a reduced tax, are applied to other goods.
# Refuse numbers that begin with 9790 before you check.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check isbnlib==3.10.14 isbnid==0.5.2 python-stdnum==2.2 2> /dev/null
cd "$folder"
npm init --yes > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts simple-isbn@1.1.6 isbn3@2.0.11 isbn-utils@1.1.0

cat > check.py <<'PYTHON'
import json
import subprocess
import sys
from importlib.metadata import version

import isbnlib
from isbn import ISBN, ISBNError
from stdnum import isbn, ismn

JAVASCRIPT = """
const { isbn } = require('simple-isbn');
const number = process.argv[1];
console.log(JSON.stringify({
  'simple-isbn': isbn.isValidIsbn(number), 'isbn3': require('isbn3').parse(number) !== null, 'isbn-utils': require('isbn-utils').isValid(number),
}));
"""


def is_isbnid(number):
    try:
        return ISBN(number).isbn13() == number
    except ISBNError:
        return False


def accepted(number):
    node = json.loads(subprocess.run(["node", "-e", JAVASCRIPT, number], capture_output=True, check=True).stdout)
    return {"isbnlib": isbnlib.is_isbn13(number), "isbnid": is_isbnid(number), "python-stdnum": isbn.is_valid(number), **node}


print("Versions:", ", ".join(f"{name} {version(name)}" for name in ("isbnlib", "isbnid", "python-stdnum")) + ", simple-isbn 1.1.6")
book, music = accepted("9791090636071"), accepted("9790260000438")
print("Expected: the book 9791090636071 is an ISBN, and the ISMN 9790260000438 is not")
print(f"Seen:     book {book}")
print(f"Seen:     music {music}")
print("Why it matters: sheet music is sold with the tax and price rules of books.")
known = ["isbnlib", "isbnid", "python-stdnum", "simple-isbn"]
sys.exit(not (all(book.values()) and ismn.is_valid("9790260000438") and [name for name in music if music[name]] == known))
PYTHON
venv/bin/python check.py
