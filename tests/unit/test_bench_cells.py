"""The cells of a benchmark study: which ones exist, and how their results are kept."""

import io
import math

import pytest
from rich.console import Console

from bench import __main__ as command
from bench import cells as bench_cells
from bench import contenders, studies, workloads
from bench.cells import Cell, ResultFile, Study, choose
from bench.studies import scenes
from bench.studies.contenders import SIZES
from operations.errors import UserError


def chosen(**given):
    study = studies.study("contenders")
    return choose("contenders", study, "short", {name: [v] for name, v in given.items()})


def test_a_short_run_measures_all_on_the_hot_product_and_some_elsewhere():
    values = [cell.values for cell in chosen() if not cell.is_simulated]
    on = {
        workload: {(v["contender"], v["workers"]) for v in values if v["workload"] == workload}
        for workload in workloads.NAMES
    }
    assert len(on["hot"]) == 6 * 5
    for workload in ("zipf", "real", "sell-out"):
        assert {contender for contender, _ in on[workload]} == {
            *("textbook", "ours_99", "ours_lanes")
        }
        assert {workers for _, workers in on[workload]} == {1, 4, 8}
    assert on["real-scarce"] == {("textbook", 8), ("ours_lanes", 8)}


def test_a_given_value_selects_cells_or_replaces_their_values():
    found = chosen(engine="simulated", workload="zipf", workers="8")
    assert [cell.values["contender"] for cell in found] == [*("textbook", "ours_99", "ours_lanes")]
    found = chosen(engine="embedded", contender="atomic", workload="zipf", workers="3")
    assert [(cell.values["contender"], cell.values["workers"]) for cell in found] == [("atomic", 3)]
    with pytest.raises(UserError, match="workers must be of type int, but is many"):
        chosen(workers="many")
    with pytest.raises(
        UserError, match="foo is not a parameter; the parameters are engine, workload"
    ):
        command._choose(["contenders"], "short", {"foo": "1"})
    with pytest.raises(UserError, match="foo is not a study; the studies are contenders"):
        command._choose(["foo"], "short", {})


@pytest.mark.parametrize("size", ["tiny", "short", "full"])
@pytest.mark.parametrize("name", studies.NAMES)
def test_every_cell_of_a_study_has_the_same_parameters(name, size):
    found = choose(name, studies.study(name), size, {})
    assert len(found) == len(set(found)) > 0
    assert len({tuple(cell.values) for cell in found}) == 1
    if name == "contenders":
        assert {cell.values["workload"] for cell in found} <= SIZES[size].orders.keys()
    if (name, size) == ("overhead", "short"):
        assert {*contenders.NAMES, "usual"} < {cell.values["handler"] for cell in found}


class Thing:
    """A fake study that records which cells were measured."""

    def __init__(self):
        self.measured = []
        self.faults = {}
        self.study = Study("", self.cells, self.measure, lambda found, screen: True)

    def cells(self, size):
        return [{"number": number} for number in range(4)]

    def measure(self, number):
        if number in self.faults:
            raise self.faults[number]
        self.measured.append(number)
        return {"half": number / 2, "nothing": math.nan, "each": [1.0, {"most": math.inf}]}


@pytest.fixture
def thing(monkeypatch):
    made = Thing()
    monkeypatch.setattr(studies, "study", lambda name: made.study)
    return made


CELLS = [Cell.of("thing", number=number) for number in range(4)]


def measured(path):
    printed = io.StringIO()
    failed = command.measure(CELLS, ResultFile(path), Console(file=printed, width=200))
    return failed, printed.getvalue()


def test_an_interrupted_run_keeps_its_results_and_the_next_one_continues(thing, tmp_path):
    path = tmp_path / "a" / "bench.jsonl"
    thing.faults[2] = KeyboardInterrupt()
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(command.typer.Exit):
        command.measure(CELLS, ResultFile(path), console)
    assert "2 of 4 results are saved. To measure the rest" in console.file.getvalue()
    thing.faults.clear()
    failed, printed = measured(path)
    assert not failed
    assert "2 of 4 cells already have results for this code." in printed
    assert thing.measured == [0, 1, 2, 3]
    result = ResultFile(path).get(CELLS[3])
    assert result["half"] == 1.5
    assert math.isnan(result["nothing"])
    assert result["each"][1]["most"] == math.inf


@pytest.mark.parametrize("fault", [KeyError(96), UserError("a worker died")])
def test_a_failed_cell_does_not_affect_others(thing, tmp_path, fault):
    thing.faults[1] = fault
    failed, printed = measured(tmp_path / "bench.jsonl")
    assert failed
    assert thing.measured == [0, 2, 3]
    assert "thing number=1:" in printed
    assert str(fault) in printed
    assert ("Traceback" in printed) == isinstance(fault, KeyError)
    thing.faults.clear()
    assert measured(tmp_path / "bench.jsonl")[0] is False
    assert thing.measured == [0, 2, 3, 1]


def test_a_line_that_a_killed_run_left_torn_is_measured_again(thing, tmp_path):
    path = tmp_path / "bench.jsonl"
    measured(path)
    path.write_bytes(path.read_bytes()[:-5])
    measured(path)
    assert thing.measured == [0, 1, 2, 3, 3]
    assert all(ResultFile(path).get(cell) for cell in CELLS)


def test_anew_drops_results_and_results_of_other_code_do_not_count(thing, tmp_path, monkeypatch):
    path = tmp_path / "bench.jsonl"
    measured(path)
    ResultFile(path).forget(CELLS[:1])
    measured(path)
    assert thing.measured == [0, 1, 2, 3, 0]
    monkeypatch.setattr(bench_cells, "_digest", lambda: "other")
    assert ResultFile(path).get(CELLS[0]) is None


def test_the_scenes_of_two_checkouts_are_compared_where_both_have_them(tmp_path):
    figures = dict.fromkeys(("rate", "requests", "write_units", "p99", "conflicts", "took"), 2.0)
    paths = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    for path, rate, lanes in zip(paths, (2.0, 3.0), (0, 5), strict=True):
        for scene in ("standard hot 1", path.stem):
            cell = Cell.of("scenes", scene=scene, lanes=lanes, pollers="provisioned", seed=0)
            ResultFile(path).add(cell, figures | {"rate": rate, "clean": True})
    console = Console(file=io.StringIO(), width=150)
    scenes.compare(*paths, console)
    (shown,) = (line for line in console.file.getvalue().splitlines() if "2.00" in line)
    assert shown.split() == [
        "provisioned:",
        "standard",
        "hot",
        "1",
        "2.00",
        "3.00",
        "1.50",
        *["1.00"] * 4,
    ]
