"""Sets the clock of a worker so that it is two minutes slow, right, or two minutes fast.

Python imports this at startup, because the worker's `PYTHONPATH` contains this folder.
"""

import os
import time
from pathlib import Path

_AHEAD_SECONDS = (-120, 0, 120)[os.getpid() % 3]
_right = time.time

time.time = lambda: _right() + _AHEAD_SECONDS
Path(os.environ["SOAK_CLOCKS"], f"{_AHEAD_SECONDS:+d} {os.getpid()}").touch()
