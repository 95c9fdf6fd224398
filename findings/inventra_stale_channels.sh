#!/usr/bin/env bash
# inventra never corrects a sales channel whose update failed once, and counts the same units once for each channel.
#
# The package keeps the stock that several shops show equal: it reads all channels, takes the lowest quantity, and writes it to those that
# differ. By default, only changes are written. One expects a channel that was unreachable to be corrected at the next sync, which reads
# the old stock from it. It compares the new quantity with the one it last computed, not with what the channel shows. The channel is
# counted as a conflict and skipped in every sync until the stock changes. Its OversellRiskAnalyzer, meant for the same channels, adds up
# what they show: four units in five shops are "20 units remain", a low risk.
# It matters because the shop that was down for a minute goes on selling units that are gone. Call sync(delta_only=False), and give the
# analyser the items of one channel.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check inventra==1.2.2 2> /dev/null

cat > "$folder/check.py" <<'PYTHON'
import logging
import sys
import warnings
from importlib.metadata import version

from inventra import InventoryItem, InventorySync, MockChannelAdapter, OversellRiskAnalyzer

print("Versions: inventra", version("inventra"))
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


class Channel(MockChannelAdapter):
    def __init__(self, name, quantity):
        self.channel_name, self.reachable = name, True
        super().__init__({}, {"CUP": quantity})

    def update_inventory(self, item):
        if not self.reachable:
            raise ConnectionError(self.channel_name)
        return super().update_inventory(item)

    def shown(self):
        return self.get_inventory(["CUP"])[0].quantity


shop, market = Channel("shop", 2), Channel("market", 10)
sync = InventorySync([shop, market])
market.reachable = False
sync.sync()
market.reachable = True
later = [sync.sync().summary() for _ in range(3)]
print("Expected: the market, reachable again, shows 2, as the shop does")
print(f"Seen:     the market shows {market.shown()} after three more syncs: {later[0]['conflicts']} conflict, {later[0]['success']} updates each")
stale = market.shown()
sync.sync(delta_only=False)
print(f"Seen:     the market shows {market.shown()} after sync(delta_only=False)")
items = [InventoryItem(sku="CUP", channel=name, quantity=4) for name in ("shop", "market", "app", "outlet", "partner")]
risk = OversellRiskAnalyzer().analyze(items)[0]
alone = OversellRiskAnalyzer().analyze(items[:1])[0]
print(f"Expected: four units, shown by five channels, are at least as risky as shown by one: {alone.risk_level}")
print(f"Seen:     {risk.risk_level}: {risk.recommendation}")
print("Why it matters: one channel sells units that are not there, and the report about that risk says that there are plenty.")
skipped = [(row["conflicts"], row["success"], row["skipped"]) for row in later] == [(1, 0, 1)] * 3
risks = alone.risk_level, risk.risk_level, risk.net_available
sys.exit(stale != 10 or market.shown() != 2 or not skipped or risks != ("high", "low", 20))
PYTHON
"$folder/venv/bin/python" "$folder/check.py" || { echo "The behaviour has changed."; exit 1; }
