"""The path of an order through the code, as a reader follows it."""

from tests.support.way import follow

# A reader cannot keep more than this in mind. A change that makes the path longer must be worth it.
MODULES, FUNCTIONS, TYPES = 21, 175, 31


def test_the_path_of_an_order_gets_no_longer():
    way = follow(lanes=False)
    functions = sum(map(len, way.functions.values()))
    assert len(way.functions) <= MODULES
    assert functions <= FUNCTIONS
    assert len(way.types) <= TYPES


def test_without_lanes_an_order_enters_none_of_their_code():
    assert not [module for module in follow(lanes=False).functions if module.startswith("lanes/")]
    assert any(module.startswith("lanes/") for module in follow(lanes=True).functions)
