#!/usr/bin/env bash
# EPCPyYes leaves the quantities out of an event, and gives all events the time at which the program was started.
#
# An EPCIS event tells trading partners what was received or shipped: single items in a list of numbers, and goods without serial numbers as
# a list of lots with quantities. One expects render() to write both, as render_json() does. The XML has the list of quantities only if the
# event also has a source, a destination or master data of the lot; otherwise it has nothing, and no error is raised. The time may be left
# out, and one expects the time of the event then. It is the default of a parameter, computed once, when the module is imported; it also has no
# time zone, although EPCIS asks for times that do not depend on one. The record time next to it is right, so a test with one event looks right.
# It matters because the partner receives a delivery of nothing, days ago: Lambda keeps a program for hours. Pass event_time for each event,
# and a source for each list of quantities.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check epcpyyes==4.0.5 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import json
import sys
import time
import warnings
from datetime import datetime, timezone
from importlib.metadata import version
from xml.etree import ElementTree

warnings.simplefilter("ignore")
from EPCPyYes.core.v1_2.events import QuantityElement, Source
from EPCPyYes.core.v1_2.template_events import ObjectEvent

print("Versions: epcpyyes", version("epcpyyes"))
LOT = "urn:epc:class:lgtin:4012345.012345.LOT7"
OWNER = Source("urn:epcglobal:cbv:sdt:owning_party", "urn:epc:id:sgln:4012345.00001.0")


def in_xml(event):
    return [element.findtext("quantity") for element in ElementTree.fromstring(event.render()).iter("quantityElement")]


alone = ObjectEvent(quantity_list=[QuantityElement(LOT, quantity=200)])
owned = ObjectEvent(quantity_list=[QuantityElement(LOT, quantity=200)], source_list=[OWNER])
in_json = [element["quantity"] for element in json.loads(alone.render_json())["objectEvent"]["quantityList"]]
time.sleep(2)
late = ElementTree.fromstring(ObjectEvent(epc_list=["urn:epc:id:sgtin:4012345.012345.1"]).render())
event_time, record_time = (datetime.fromisoformat(late.findtext(name)) for name in ("eventTime", "recordTime"))
age = round((datetime.now(timezone.utc).replace(tzinfo=None) - event_time.replace(tzinfo=None)).total_seconds())
print("Expected: 200 of lot LOT7, in XML as in JSON")
print(f"Seen:     {in_xml(alone)} in XML, {in_json} in JSON, and {in_xml(owned)} in XML with a source")
print("Expected: an event that is created now has the time of now, with its time zone")
print(f"Seen:     a time {age} seconds ago, with the time zone {event_time.tzinfo}")
print("Why it matters: a delivery of nothing is reported for the time of the deployment.")
is_late = age >= 2 and (record_time.replace(tzinfo=None) - event_time.replace(tzinfo=None)).total_seconds() >= 2
sys.exit(not (in_xml(alone) == [] and in_json == [200] and in_xml(owned) == ["200"] and is_late and event_time.tzinfo is None))
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
