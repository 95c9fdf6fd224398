"""The documents keep to the code: links resolve, and functions that a document names exist."""

import ast
import re

import pytest

from local import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(text):
    """As GitHub makes them: of headings, without punctuation, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
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
    """The functions and methods of a module, such as `Committer.apply`."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
            yield from names_in(node, f"{prefix}{node.name}.")


def test_the_calls_on_the_way_of_an_order_exist():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    (section,) = re.findall(r"## The way of an order\n(.*?)\n## ", page, flags=re.DOTALL)
    ways = "".join(re.findall(r"```\n(.*?)```", section, flags=re.DOTALL))
    calls = [re.match(r" *(\S+\.py) +([\w.]+)", line).groups() for line in ways.splitlines()]
    assert calls
    package = ROOT / "layers" / "core" / "python" / "inventory_orders"
    for file, name in calls:
        path = (ROOT if file.startswith("functions/") else package) / file
        assert name in names_in(ast.parse(path.read_text("utf-8"))), f"{file} has no {name}"


ASSUMPTIONS = (ROOT / "docs" / "aws.md").read_text("utf-8")


def rows_of_assumptions():
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", ASSUMPTIONS, flags=re.MULTILINE)
    return [row for row in rows if row[0] != "what is assumed"]


def test_every_assumption_about_aws_names_its_page_and_what_holds_us_to_it():
    tests = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        tests |= set(re.findall(r"^ *def (test_\w+)", file.read_text("utf-8"), flags=re.MULTILINE))
    pages = dict(re.findall(r"^\[(\w+)\]: https://(\S+)$", ASSUMPTIONS, flags=re.MULTILINE))
    rows = rows_of_assumptions()
    assert rows
    for assumed, said, held in rows:
        cited = re.findall(r"\]\[(\w+)\]", said)
        assert cited, f"no page says: {assumed}"
        assert set(cited) <= pages.keys(), assumed
        named = set(re.findall(r"`(test_\w+)`", held))
        assert named or "only an account can tell" in held, f"nothing holds us to: {assumed}"
        assert named <= tests, f"no such test: {named - tests}"


def test_every_page_of_aws_that_the_code_cites_is_among_the_assumptions():
    listed = set(re.findall(r"docs\.aws\.amazon\.com/[\w./-]+", ASSUMPTIONS))
    cited = set()
    for room in ("functions", "layers", "infra", "operations", "bench", "simulated_aws", "local"):
        for file in (ROOT / room).rglob("*.py"):
            text = re.sub(r"\n\s*#?\s*", "", file.read_text("utf-8"))
            cited |= set(re.findall(r"docs\.aws\.amazon\.com/[\w./-]+?\.html", text))
    assert cited
    assert cited <= listed


def test_every_query_is_sorted_as_old_versions_of_curl_have_to_sign_it():
    """curl before 8.3 signs a query as it stands, and AWS sorts it first."""
    found = []
    for document in [*DOCUMENTS, ROOT / "docs" / "openapi.yaml"]:
        found += re.findall(
            r"[?&](\w+=[^\s`\"'|)&]*(?:&\w+=[^\s`\"'|)&]*)+)", document.read_text("utf-8")
        )
    assert found
    for query in found:
        names = [pair.split("=")[0] for pair in query.split("&")]
        assert names == sorted(names), query


def test_the_readme_is_read_to_the_end():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1000


def test_a_decision_is_told_in_150_words():
    decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    assert decisions
    for page in decisions:
        assert len(page.read_text("utf-8").split()) <= 150, page.name
        assert f"({page.name})" in index, f"docs/decisions/README.md does not list {page.name}"
