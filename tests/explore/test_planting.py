"""Tests that bugs can be injected into code that has moved since the bugs were written."""

from pathlib import Path

import pytest

from tests.explore.planting import Edit, plant

FILE = Path("lanes/lane.py")
CODE = """
class Lane:
    def sell(self, row, quantity):
        if row.available < quantity:  # not enough
            return None
        return replace(
            row,
            stock=row.stock - quantity,
        )
"""
PLANTED = """
class Lane:
    def sell(self, row, quantity):
        if row.available < 0:
            log(quantity)
        return replace(
            row,
            stock=row.stock - quantity,
        )
"""
EDIT = Edit(
    "if row.available < quantity: return None",
    """
    if row.available < 0:
        log(quantity)
    """,
)


def test_a_mistake_survives_a_move_to_another_file_and_another_layout():
    path = Path("engine/rows.py")
    assert plant({FILE: "", path: CODE}, EDIT) == (path, PLANTED)
    _, text = plant({FILE: CODE}, Edit("replace(row, stock=row.stock - quantity)", "row"))
    assert text.endswith("        return row\n")


def test_a_piece_may_begin_or_end_within_brackets():
    _, text = plant({FILE: CODE}, Edit("row.stock - quantity)", "row.stock)"))
    assert text == CODE.replace(" - quantity,\n        ", "")


@pytest.mark.parametrize("within", ["lanes", "lane", "Lane", "sell"])
def test_an_ambiguous_piece_needs_its_surroundings(within):
    other = CODE.replace("class Lane", "class Depot").replace("def sell", "def lend")
    sources = {Path("engine/depot.py"): other, FILE: CODE}
    with pytest.raises(
        ValueError, match=r"occurs in engine/depot\.py:4, lanes/lane\.py:4: lengthen"
    ):
        plant(sources, EDIT)
    assert plant(sources, EDIT._replace(within=within)) == (FILE, PLANTED)


def test_other_code_is_not_taken_for_the_piece():
    with pytest.raises(ValueError, match=r"no longer has .* copy the piece that replaced it"):
        plant({FILE: CODE.replace("quantity", "units")}, EDIT)
