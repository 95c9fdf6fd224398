"""A run of all the benchmarks in `make bench`, with tiny cells."""

import importlib.util
import io

import pytest
from rich.console import Console

from bench import __main__ as command
from bench import embedded, studies
from bench.cells import ResultFile, choose

NEEDED = [
    name
    for name in ("aws_xray_sdk", "pydantic", "pynamodb")
    if importlib.util.find_spec(name) is None
]


@pytest.fixture
def run(embedded_aws, monkeypatch, tmp_path):
    engine = embedded.Engine(embedded_aws[1].endpoint)
    monkeypatch.setattr(embedded, "engine", lambda: engine)
    monkeypatch.setattr(embedded, "stop", lambda: None)

    def run(cells):
        """Measure cells and report them. Returns whether a cell failed, whether results are right, and the output."""
        printed = io.StringIO()
        console = Console(file=printed, width=150)
        kept = ResultFile(tmp_path / "bench.jsonl")
        failed = command.measure(cells, kept, console)
        right = command.report(cells, kept, console)
        return failed, right, printed.getvalue()

    return run


def test_a_tiny_run_of_all_studies(run, tmp_path):
    cells = [
        cell for name in studies.USUAL for cell in choose(name, studies.study(name), "tiny", {})
    ]
    failed, right, printed = run(cells)
    assert (failed, right) == (False, True), printed
    for shown in ("a sell-out: simulated", "a sell-out: embedded", "Cold start", "Warm", "Goals"):
        assert shown in printed
    lines = (tmp_path / "bench.jsonl").read_text().splitlines()
    assert len(lines) == len(cells)
    again = run(cells)
    assert f"{len(cells)} of {len(cells)} cells already have results for this code" in again[2]
    assert again[2][again[2].index("\n\n") :] in printed, "the same report"


@pytest.mark.skipif(
    bool(NEEDED),
    reason=f"{', '.join(NEEDED)}: with the benchmarks' own requirements, which `make bench` installs",
)
def test_studies_that_need_the_benchmarks_own_packages(run):
    given = {"handler": ["usual"], "rounds": ["1"], "figure": ["cold ms", "warm us"]}
    failed, _, printed = run(choose("overhead", studies.study("overhead"), "tiny", given))
    assert not failed, printed
