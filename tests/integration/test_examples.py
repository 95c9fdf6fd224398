"""Each example shows an anomaly with naive code, and none with the service's code."""

import pytest

from local import ROOT, pattern_costs
from local.examples import EXAMPLES, sandbox


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_anomaly_happens_with_naive_code_and_not_with_the_service(shop, name, monkeypatch):
    """The example uses separate tables, which are deleted afterwards, so the stack's books and lists stay unchanged."""
    # This is less than a third of the documented example's size.
    monkeypatch.setattr(pattern_costs, "_DECREMENTS", 8)
    monkeypatch.setattr(pattern_costs, "_BATCHES", 2)
    monkeypatch.setattr(pattern_costs, "ORDERS", pattern_costs.ORDERS * 2 // 10)
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
