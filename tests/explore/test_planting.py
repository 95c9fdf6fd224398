"""Tests that bugs can be injected into code that has changed since the bugs were written."""

from pathlib import Path

import pytest

from tests.explore.planting import Edit, plant

FILE = Path("lanes/lane.py")
CODE = """
class Lane:
    def sell(self, row, quantity):
        if row.available < quantity:
            return None
        return replace(row, stock=row.stock - quantity)
"""
PLANTED = """
class Lane:
    def sell(self, row, quantity):
        if row.available < 0:
            log(quantity)
        return replace(row, stock=row.stock - quantity)
"""
EDIT = Edit(
    "if row.available < quantity: return None",
    """
    if row.available < 0:
        log(quantity)
    """,
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("quantity", "units"),  # a variable
        (".available", ".to_sell"),  # an attribute
        ("row", "available"),  # a variable with the name of an attribute
        ("def sell", "def take"),  # what surrounds the piece
    ],
)
def test_a_mistake_survives_a_rename(old, new):
    assert plant({FILE: CODE.replace(old, new)}, EDIT) == (FILE, PLANTED.replace(old, new))


def test_a_mistake_survives_a_renamed_function():
    edit = Edit("return replace(row, stock=row.stock - quantity)", "return replace(row)")
    _, text = plant({FILE: CODE.replace("replace(", "updated(")}, edit)
    assert text.endswith("        return updated(row)\n")


def test_a_mistake_survives_a_move_to_another_file():
    path = Path("engine/rows.py")
    assert plant({FILE: "", path: CODE}, EDIT) == (path, PLANTED)


def test_a_mistake_survives_comments_and_line_breaks():
    code = 'sell(  # The last units.\n    row,\n    "#version",\n)\n'
    assert plant({FILE: code}, Edit('sell(row, "#version")', "pass")) == (FILE, "pass\n")


def test_a_piece_may_begin_or_end_within_brackets():
    assert plant({FILE: CODE}, Edit("row.stock - quantity)", "row.stock)")) == (
        FILE,
        CODE.replace(" - quantity", ""),
    )


def test_an_equal_piece_is_preferred_to_one_with_other_names():
    other = CODE.replace("quantity", "units")
    assert plant({Path("other.py"): other, FILE: CODE}, EDIT) == (FILE, PLANTED)


@pytest.mark.parametrize("within", ["lanes", "lane", "Lane", "sell"])
def test_an_ambiguous_piece_needs_its_surroundings(within):
    other = CODE.replace("class Lane", "class Depot").replace("def sell", "def lend")
    sources = {Path("engine/depot.py"): other, FILE: CODE}
    with pytest.raises(
        ValueError, match=r"occurs in engine/depot\.py:4, lanes/lane\.py:4: lengthen"
    ):
        plant(sources, EDIT)
    assert plant(sources, EDIT._replace(within=within)) == (FILE, PLANTED)


def test_two_pieces_with_as_many_other_names_are_ambiguous():
    sources = {FILE: CODE.replace("quantity", "units"), Path("b.py"): CODE.replace("row", "line")}
    with pytest.raises(ValueError, match="lengthen it, or set `within`"):
        plant(sources, EDIT)


@pytest.mark.parametrize(
    "code",
    [
        CODE.replace("row.available < quantity", "quantity > row.available"),
        CODE.replace("row.available < quantity", "quantity.available < quantity"),
        CODE.replace("row.available < quantity", "page.units < quantity"),  # most names differ
        CODE.replace("None", "0"),
    ],
)
def test_other_code_is_not_taken_for_the_piece(code):
    with pytest.raises(ValueError, match=r"no longer has .* copy the piece that replaced it"):
        plant({FILE: code}, EDIT)
