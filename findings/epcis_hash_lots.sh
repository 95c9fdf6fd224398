#!/usr/bin/env bash
# epcis-event-hash-generator gives deliveries of the lots 123 and 0123, and of 12E3 and 12000, one hash.
#
# EPCIS events tell trading partners what was received, packed and shipped. Their hash, which this package computes, does not depend on
# order, spaces or time zones, so that partners find an event that they have already, or one that was changed. One expects events of
# different lots to have different hashes: a lot number, AI (10), is text. The package reads each text that Python's float() accepts as a
# number. 0123 becomes 123, 12E3 becomes 12000, and a number of 18 digits in a field of your own loses its last two or three.
# It matters because the second delivery is dropped as a duplicate, and the recall of lot 0123 finds lot 123. Compare the lots of two
# events with one hash, or put a letter that is not E in front of each lot.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    epcis-event-hash-generator==1.9.3 python-dateutil==2.9.0.post0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from epcis_event_hash_generator.hash_generator import calculate_hashes_from_pre_hashes, derive_prehashes_from_events
from epcis_event_hash_generator.json_to_py import event_list_from_epcis_document_json

print("Versions: epcis-event-hash-generator", version("epcis-event-hash-generator"))
CONTEXT = ["https://ref.gs1.org/standards/epcis/2.0.0/epcis-context.jsonld", {"shop": "https://shop.example/epcis/"}]


def event_hash(lot="L1", trailer="T1"):
    event = {
        "type": "ObjectEvent", "action": "ADD", "bizStep": "receiving", "eventTime": "2026-11-03T09:15:00.000+01:00",
        "eventTimeZoneOffset": "+01:00", "epcList": ["urn:epc:id:sscc:4012345.3000000001"],
        "ilmd": {"cbvmda:lotNumber": lot}, "shop:trailer": trailer,
    }
    document = {
        "@context": CONTEXT, "type": "EPCISDocument", "schemaVersion": "2.0", "creationDate": "2026-11-03T09:15:00Z",
        "epcisBody": {"eventList": [event]},
    }
    pre_hashes = derive_prehashes_from_events(event_list_from_epcis_document_json(document))
    return calculate_hashes_from_pre_hashes(pre_hashes, "sha256")[0]


PAIRS = [
    ("lot", "A123", "A0123"), ("lot", "123", "0123"), ("lot", "12E3", "12000"), ("lot", "7.0", "7"),
    ("trailer", "340123450000000017", "340123450000000024"),
]
print("Expected: each pair has two hashes")
same = []
for field, one, other in PAIRS:
    same.append(event_hash(**{field: one}) == event_hash(**{field: other}))
    print(f"Seen:     {field} {one} and {other}: {'one hash' if same[-1] else 'two hashes'}")
print("Why it matters: a delivery of another lot is taken for one that is known already.")
sys.exit(same != [False, True, True, True, True])
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
