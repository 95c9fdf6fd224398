"""What is measured: a module for each study.

`contenders`, `overhead` and `patterns` are the benchmarks of `make bench`. The others are measured when they are named.
"""

from __future__ import annotations

from importlib import import_module

from bench.cells import Study

USUAL = ("contenders", "overhead", "patterns")
NAMES = (*USUAL, "scenes", "holds_embedded", "brooker")


def study(name: str) -> Study:
    """Import a study. Some of them load a good part of AWS's SDK."""
    found: Study = import_module(f"bench.studies.{name}").STUDY
    return found
