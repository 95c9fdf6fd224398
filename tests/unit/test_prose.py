"""In files of all kinds, `make lint` finds phrases that a native speaker would not use, and ignores code."""

from pathlib import Path

import pytest

from tests.support.prose import problems_in

PYTHON = """
# Of an order
# that was sent for want of stock.
def f(x):
    '''Calls `is no`; a list of ``so many at most``.'''
    raise ValueError(f"{x} is no number")
"""
MARKDOWN = """# Title

It is *no* longer here; run `there is no`.

| a | b |
|---|---|
| 1 | for want of stock |

```console
$ echo is no
```
"""
YAML = """
info: {summary: "Well", description: "As it is."}
paths: [{get: {description: "Somebody `is no` one"}, title: "is no"}]
"""


@pytest.mark.parametrize(
    ("file", "source", "found"),
    [
        ("a.py", PYTHON, [(6, "x is no"), (2, "Of an order"), (2, "for want of")]),
        ("a.md", MARKDOWN, [(7, "for want of")]),
        (
            "a.js",
            'const T = {\n  a: (x) => `${x} is no id`, b: "meanwhile" };',
            [(2, "X is no"), (2, "meanwhile")],
        ),
        ("a.yaml", YAML, [(3, "Somebody"), (2, "As it is")]),
    ],
)
def test_a_phrase_is_found_where_people_read_it_and_with_its_line(file, source, found):
    problems = problems_in(Path(file), source)
    assert len(problems) == len(found), problems
    for line, phrase in found:
        assert any(f":{line}: " in each and phrase.lower() in each.lower() for each in problems)


@pytest.mark.parametrize("degree", ["very", "most"])
def test_common_mistakes_are_found_too(degree):
    (problem,) = problems_in(Path("a.md"), f"First.\n\nIt is {degree} unique in all respects.\n")
    assert problem.startswith("a.md:3: ")
