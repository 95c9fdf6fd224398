"""The embedded AWS and the developer's command line: `python -m local --help`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".local"

# The domain code is a Lambda layer, not an installed package.
sys.path.insert(0, str(ROOT / "layers" / "core" / "python"))
