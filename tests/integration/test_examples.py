"""Each example shows an anomaly with naive code, and none with ours."""

import pytest

from local import ROOT, pattern_costs
from local.examples import EXAMPLES, Sandbox


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_anomaly_happens_with_naive_code_and_not_with_ours(shop, name, monkeypatch):
    # A third of what people see.
    monkeypatch.setattr(pattern_costs, "_DECREMENTS", 8)
    monkeypatch.setattr(pattern_costs, "_BATCHES", 3)
    monkeypatch.setattr(pattern_costs, "ORDERS", pattern_costs.ORDERS * 3 // 10)
    result = EXAMPLES[name](Sandbox(shop.tables))
    assert result.ours_holds
    assert all(result.ours_holds), result.lines
    assert all(result.naive_fails), result.lines
    if name not in ("decrement-modes", "hot-product"):
        assert result.naive_fails, "there is no naive run to compare with"


def test_every_example_is_explained_in_the_docs():
    page = (ROOT / "docs" / "patterns.md").read_text()
    for name in EXAMPLES:
        assert f"\n## {name}\n" in page
