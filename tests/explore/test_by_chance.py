"""A few seeds of the runs by chance, of which `make explore` runs many."""

import pytest

from tests.explore import workers
from tests.explore.workers import in_a_process

PROCESSES = 2
MUTANTS = ["lost unit back on sale", "record condition dropped"]


def a_small_run(seed):
    return workers.town_of().run(seed, orders=120)


@pytest.mark.parametrize("seed", range(2))
def test_a_seed_is_clean(seed):
    result = in_a_process(a_small_run, seed)
    assert result.failure is None, result.failure
    assert result.happened["crash"]
    assert result.happened["order FULFILLED"]
    assert result.happened["answer 201"]


def trace_of(seed):
    town = workers.town_of().Town(seed, 20)
    with town.open():
        town.begin()
        town.live(400)
    return town.trace


def test_a_seed_repeats_itself_exactly():
    first, again = (in_a_process(trace_of, 3) for _ in range(2))
    assert len(first) > 100
    assert first == again


def steal(key, attribute):
    """Take a unit out of a row by hand. Returns what the books then say."""
    town = workers.town_of().Town(1, 60)
    with town.open():
        town.begin()
        town.live(400)
        units = int(town.item("Products", key)[attribute]["N"])
        town.edit("Products", key, **{attribute: {"N": str(units - 1)}})
        try:
            town.live(900)
        except AssertionError as violation:
            return str(violation)
    return ""


@pytest.mark.parametrize("key", ["hot", "hot#berlin"])
@pytest.mark.parametrize(
    ("attribute", "figure", "loss"),
    [
        ("stockCount", "available", {"available": -1, "committed": 1}),
        ("onHand", "on hand", {"on_hand": -1, "committed": -1}),
    ],
)
def test_a_unit_that_is_taken_by_hand_is_missed(key, attribute, figure, loss):
    """Whichever comes first finds it: the next write of the product, or an audit."""
    found = in_a_process(steal, key, attribute)
    by_audit = f"an audit of the open shop found { ({key: loss}) }"
    assert found == by_audit or (found.startswith(f"{key} has ") and f" {figure}, but" in found)


def test_mutants_are_caught_by_chance():
    for name, done in workers.catch(MUTANTS, PROCESSES, by_chance=True):
        assert done.failure is not None, f"{name}: {done.error}"
        assert done.failure.schedule.isdigit()
