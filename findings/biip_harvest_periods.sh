#!/usr/bin/env bash
# biip refuses the whole label of a box of fish or fruit that was caught or picked over several days.
#
# A GS1 label may have the date of the harvest, AI (7007): six digits for a day, or twelve for a period, its first and last day. biip's
# own table has YYMMDD[YYMMDD]. One expects a period to be read, perhaps without a date, and the GTIN and the lot next to it in any case.
# parse() and GS1Message.parse() take the twelve digits for one date, fail, and return no message at all, so that product and lot are
# lost, too. The same label with one day works, and so does the setting that keeps wrong dates.
# It matters because the date of the catch is on the label wherever fish must be traced, and these boxes cannot be scanned. Use
# ParseConfig(gs1_element_strings_verify_date=False), and check the dates that you need yourself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check biip==5.2.0 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import sys
from importlib.metadata import version

from biip import ParseConfig, parse
from biip.gs1_application_identifiers import GS1ApplicationIdentifier

print("Versions: biip", version("biip"))
tolerant = ParseConfig(gs1_element_strings_verify_date=False)
seen = []
for what, date, config in (
    ("one day", "261101", ParseConfig()),
    ("a period", "261101261104", ParseConfig()),
    ("a period, verify_date=False", "261101261104", tolerant),
):
    result = parse(f"]C101040063813339317007{date}\x1d10LOT7", config=config)
    message = result.gs1_message
    seen.append(message and {value.ai.ai: value.value for value in message.element_strings})
    print(f"Expected: {what}: product, harvest and lot")
    print(f"Seen:     {what}: {', '.join(f'({ai}) {value}' for ai, value in seen[-1].items()) if message else result.gs1_message_error}")
described = GS1ApplicationIdentifier.extract("7007").description
print(f"Seen:     (7007) in biip's table: {described}")
print("Why it matters: goods with a correct label cannot be booked in.")
lots = [values and (values["01"], values["10"]) for values in seen]
sys.exit(lots != [("04006381333931", "LOT7"), None, ("04006381333931", "LOT7")] or "YYMMDD[YYMMDD]" not in described)
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
