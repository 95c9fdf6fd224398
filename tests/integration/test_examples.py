"""Each example shows the anomaly with the naive code, and its absence with ours."""

import pytest

from local import ROOT
from local.examples import EXAMPLES, Stage


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_anomaly_happens_with_the_naive_code_and_not_with_ours(shop, name):
    story = EXAMPLES[name](Stage(shop.tables))
    assert story.ours_holds
    assert all(story.ours_holds), story.lines
    assert all(story.naive_fails), story.lines
    if name not in ("decrement-modes", "hot-product"):
        assert story.naive_fails, "there is a naive run beside it"


def test_every_example_is_explained():
    page = (ROOT / "docs" / "patterns.md").read_text()
    for name in EXAMPLES:
        assert f"make example NAME={name}" in page
