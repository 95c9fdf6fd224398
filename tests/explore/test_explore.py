"""The part of the exploration that runs with all tests, and tests of the explorer itself."""

import sys

import pytest

from local import ROOT
from tests.explore import mutants, workers
from tests.explore.scenarios import SCENARIOS
from tests.explore.workers import in_a_process

PROCESSES = 2
# `make explore` runs all mutants.
MUTANTS = [mutant.name for mutant in mutants.MUTANTS[::20]]


def test_a_schedule_without_a_fault_and_a_random_one_are_clean_in_every_scenario():
    """`make explore` runs all schedules. The random one has three rivals and two faults."""
    tasks = [workers.Task(name, workers.NO_FAULT, most=1) for name in SCENARIOS]
    tasks += [workers.Task(name, seeds=(0,)) for name in SCENARIOS]
    done = list(workers.run(tasks, PROCESSES))
    for part in done:
        assert not part.error, part.error
        assert part.failure is None, f"{part.task.scenario}\n{part.failure}"
        assert part.result.schedules > 0
    assert len(done) == len(tasks)


def test_every_schedule_with_a_fault_is_clean_in_the_most_dangerous_scenarios():
    names = ("order against order on the last unit", "the same order twice at once")
    tasks = [
        workers.Task(name, kind)
        for name in names
        for kind in ("lost", "lost-twice", "crash", "crash-after")
    ]
    for part in workers.run(tasks, PROCESSES):
        assert not part.error, part.error
        assert part.failure is None, f"{part.task.scenario}\n{part.failure}"
        assert part.result.schedules > 1


def test_mutants_are_caught():
    missed = []
    for name, done in workers.catch(MUTANTS, PROCESSES):
        if done.failure is None:
            missed.append(
                f"{name}: {done.error or f'{done.result.schedules} schedules, all clean'}"
            )
        else:
            assert done.failure.trace
            assert done.failure.schedule
    assert not missed


def test_every_mutant_fits_the_code_and_has_scenarios_that_exist():
    assert len(mutants.MUTANTS) >= 40
    for mutant in mutants.MUTANTS:
        assert set(mutant.scenarios) <= SCENARIOS.keys()
        changed = mutant.changes()
        assert changed, mutant.name
        for file, text in changed.items():
            compile(text, f"{mutant.name}: {file}", "exec")


def test_a_failure_can_be_replayed():
    ((_, done),) = workers.catch(["version condition dropped"], 1)
    failure = done.failure
    for _ in range(2):
        trace, message = in_a_process(
            workers.replay,
            *(done.task.scenario, failure.schedule, failure.rivals, failure.faults, failure.clocks),
            "version condition dropped",
        )
        assert message == failure.message
        assert trace == list(failure.trace)
    # The same schedule is clean with the original code.
    _, message = in_a_process(
        workers.replay,
        *(done.task.scenario, failure.schedule, failure.rivals, failure.faults, failure.clocks),
        "",
    )
    assert message == ""


def ends(name, faults, kind, reduce):
    """Collect all final states of a scenario: rows, dead letters and answers, but no times."""
    found = set()

    def note(world):
        found.add(
            repr(
                [
                    sorted(
                        _without_times(row)
                        for table in world.aws.dynamodb.tables
                        for row in world.rows(table)
                    ),
                    sorted(str(end_of(world, m)) for m in world.sent),
                    [
                        (command.get("action"), answer.get("result"))
                        for _, command, answer in world.answers
                    ],
                ]
            )
        )

    explorer = workers.explorer_of(ROOT)(name, 2, faults, reduce=reduce)
    end_of = sys.modules["testing.world.invariants"].end_of
    result = explorer.every(
        lambda step: step.choice.action.removesuffix("-back") == kind, seen=note
    )
    assert result.failure is None, result.failure
    return found, result.schedules


def _without_times(row):
    times = {"createdAt", "lastUpdatedAt", "statusAt", "appliedAt", "lockTime", "lockedBy"}
    kept = {key: value for key, value in row.items() if key not in times}
    if "items" in kept:
        kept["items"] = [
            {key: value for key, value in line.items() if key != "productCreatedAt"}
            for line in kept["items"]
        ]
    if "productCreatedAt" in kept:
        del kept["productCreatedAt"], kept["adjustmentId"]
    return repr(sorted(kept.items()))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("receipt twice against order", "late"),
        ("FIFO groups, redelivered", "crash"),
        ("delist and relist against order", "torn"),
    ],
)
def test_the_reduction_finds_every_end(name, kind):
    reduced, fewer = in_a_process(ends, name, 1, kind, True)
    every, more = in_a_process(ends, name, 1, kind, False)
    assert reduced == every
    assert fewer < more
