"""The documents match the code: links resolve, and every function that a document names exists."""

import ast
import re

import pytest

from docs_generator.assumptions import AWS, assumptions
from docs_generator.pages import FOLDER, NEED_THE_CDK, PAGES, text_of
from local import ROOT
from tests.explore.mutants import MUTANTS
from tests.explore.scenarios import SCENARIOS
from tests.support.sources import tree_of

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))

MAX_WORDS_IN_ALL = 32_770

MAX_WORDS = {
    "README.md": 625,
    "docs/README.md": 256,
    "docs/architecture.md docs/lanes.md": 3_685,
    "docs/benchmarks.md": 1_335,
    "docs/locations.md": 600,
    "docs/exploration.md": 960,
    "docs/aws.md": 680,
    "docs/reference.md": 4_050,
    "docs/runbook.md docs/operations.md": 4_365,
    "docs/orders.md docs/api.md docs/data-model.md": 6_460,
    "docs/patterns.md": 1_495,
    "docs/threat-model.md docs/costs.md docs/contributing.md": 3_950,
    "docs/glossary.md": 600,
    "docs/tutorial.md": 636,
    "docs/limits.md": 590,
    "docs/drops.md": 240,
    "docs/desk.md": 1_385,
    "docs/import.md": 215,
    "docs/package.md": 285,
    "docs/testing.md": 160,
    "docs/versions.md": 170,
}
"""The pages that are written by hand, in groups with a word limit each."""


def is_by_hand(document):
    """Whether a page is written by hand and counts towards the total number of words."""
    parts = document.relative_to(ROOT).parts
    return parts[1:2] not in (("generated",), ("decisions",)) and document.name != "changelog.md"


def words_of(document):
    return len(document.read_text("utf-8").split())


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(text):
    """Make anchors from headings as GitHub does: without punctuation, and with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_link_leads_somewhere(document):
    broken = []
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", without_code(document.read_text("utf-8")))
    for link in links:
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    assert broken == []


def names_in(scope, prefix=""):
    """Yield the names of functions and methods in a module, such as `Engine.apply`."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
            yield from names_in(node, f"{prefix}{node.name}.")


def test_the_calls_on_the_path_of_an_order_exist():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    (section,) = re.findall(r"## The path of an order\n(.*?)\n## ", page, flags=re.DOTALL)
    ways = "".join(re.findall(r"```\n(.*?)```", section, flags=re.DOTALL))
    calls = [re.match(r" *(\S+\.py) +([\w.]+)", line).groups() for line in ways.splitlines()]
    assert calls
    package = ROOT / "layers" / "core" / "python" / "inventory_orders"
    for file, name in calls:
        path = (ROOT if file.startswith("functions/") else package) / file
        assert name in names_in(tree_of(path)), f"{file} has no {name}"


def test_every_assumption_about_aws_cites_a_page_of_its_documentation():
    found = list(assumptions())
    assert found
    for one in found:
        assert re.fullmatch(r"[A-Z`].*\.", one.says), one.says
        assert f"def {one.test}(" in (ROOT / one.file).read_text("utf-8"), one.test
        assert one.pages, f"no page says: {one.says}"
        for page in one.pages:
            assert re.fullmatch(rf"{AWS}[\w./-]+\.html", page), page


def test_every_page_of_aws_that_the_code_cites_is_among_the_assumptions():
    by_hand = (ROOT / "docs" / "aws.md").read_text("utf-8")
    listed = {page for one in assumptions() for page in one.pages}
    listed |= set(re.findall(rf"{AWS}[\w./-]+", by_hand))
    cited = set()
    for room in (
        "functions",
        "layers",
        "infra",
        "operations",
        "docs_generator",
        "bench",
        "testing",
        "local",
    ):
        for file in (ROOT / room).rglob("*.py"):
            text = re.sub(r"\n\s*#?\s*", "", file.read_text("utf-8"))
            cited |= set(re.findall(r"docs\.aws\.amazon\.com/[\w./-]+?\.html", text))
    assert cited
    assert {f"https://{page}" for page in cited} <= listed


def test_every_query_is_sorted_as_old_versions_of_curl_have_to_sign_it():
    """curl before 8.3 signs a query in its given order, while AWS sorts it first."""
    found = []
    for document in [*DOCUMENTS, ROOT / "docs" / "openapi.yaml"]:
        found += re.findall(
            r"[?&](\w+=[^\s`\"'|)&]*(?:&\w+=[^\s`\"'|)&]*)+)", document.read_text("utf-8")
        )
    assert found
    for query in found:
        names = [pair.split("=")[0] for pair in query.split("&")]
        assert names == sorted(names), query


@pytest.mark.parametrize("pages", MAX_WORDS)
def test_a_group_of_pages_keeps_to_its_word_limit(pages):
    words = sum(words_of(ROOT / page) for page in pages.split())
    assert words <= MAX_WORDS[pages], "shorten the page, or raise its limit in MAX_WORDS"


def test_all_hand_written_pages_keep_to_their_word_limit_and_belong_to_a_group():
    by_hand = [document for document in DOCUMENTS if is_by_hand(document)]
    assert {str(page.relative_to(ROOT)) for page in by_hand} == set(" ".join(MAX_WORDS).split())
    assert sum(map(words_of, by_hand)) <= MAX_WORDS_IN_ALL


@pytest.mark.parametrize("page", sorted(PAGES.keys() - NEED_THE_CDK))
def test_a_generated_page_says_what_the_code_says(page):
    assert (FOLDER / page).read_text("utf-8") == text_of(page), "out of date: run `make docs`"


def test_the_page_of_the_exploration_counts_its_mutants_and_scenarios():
    page = (ROOT / "docs" / "exploration.md").read_text("utf-8")
    (counts,) = re.findall(r"There are (\d+) mutants and (\d+) scenarios\.", page)
    assert counts == (str(len(MUTANTS)), str(len(SCENARIOS)))


def test_no_generated_page_is_left_over():
    assert {path.name for path in FOLDER.iterdir()} == PAGES.keys()


def test_the_page_of_an_example_has_at_most_400_words():
    assert EXAMPLES
    for page in EXAMPLES:
        assert words_of(page) <= 400, page.parent.name


def test_a_decision_has_at_most_150_words():
    decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    assert decisions
    for page in decisions:
        assert len(page.read_text("utf-8").split()) <= 150, page.name
        assert f"({page.name})" in index, f"docs/decisions/README.md does not list {page.name}"
