"""Each example shows an anomaly with naive code, and none with ours."""

import pytest

from local import ROOT, pattern_costs
from local.examples import EXAMPLES, sandbox


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_anomaly_happens_with_naive_code_and_not_with_ours(shop, name, monkeypatch):
    """In tables of its own, which are gone afterwards: the books and lists of the stack keep nothing of it."""
    # A third of what people see.
    monkeypatch.setattr(pattern_costs, "_DECREMENTS", 8)
    monkeypatch.setattr(pattern_costs, "_BATCHES", 3)
    monkeypatch.setattr(pattern_costs, "ORDERS", pattern_costs.ORDERS * 3 // 10)
    tables = shop.aws.dynamodb.list_tables()["TableNames"]
    with sandbox() as apart:
        assert not set(apart.tables.values()) & set(tables)
        result = EXAMPLES[name](apart)
    assert shop.aws.dynamodb.list_tables()["TableNames"] == tables
    assert result.naive_fails
    assert result.ours_holds
    assert result.as_expected, result.lines


def test_every_example_is_explained_in_the_docs():
    page = (ROOT / "docs" / "patterns.md").read_text()
    for name in EXAMPLES:
        assert f"\n## {name}\n" in page
