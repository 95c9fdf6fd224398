"""`python -m tests.planted` tries each planted bug; here, they must only fit the code."""

from local import ROOT
from tests.planted.bugs import BUGS


def test_every_bug_fits_the_code_and_names_tests_that_exist():
    assert len(BUGS) >= 60
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    for bug in BUGS:
        assert bug.tests
        assert all((ROOT / test).is_file() for test in bug.tests), bug.name
        path, text = bug.change()
        assert text != (ROOT / path).read_text("utf-8"), bug.name
        if path.suffix == ".py":
            compile(text, f"{bug.name}: {path}", "exec")
