"""The studies, one module each.

`contenders` and `overhead` are the benchmarks of `make bench`. The other studies run only when named.
"""

from __future__ import annotations

from importlib import import_module

from bench.cells import Study

USUAL = ("contenders", "overhead")
NAMES = (*USUAL, "scenes", "growth")


def study(name: str) -> Study:
    """Import a study only when needed, because some import a large part of AWS's SDK."""
    found: Study = import_module(f"bench.studies.{name}").STUDY
    return found
