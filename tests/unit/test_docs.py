"""The documents keep to the code: links resolve, and the way of a record names the lines where its calls begin."""

import ast
import re

import pytest

from local import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGE = ROOT / "layers" / "core" / "python" / "inventory_orders"


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


def lines_of_definitions(source):
    """The line of each function and method by its qualified name."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node.lineno
        if isinstance(node, ast.ClassDef):
            methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
            found |= {f"{node.name}.{method.name}": method.lineno for method in methods}
    return found


def test_the_way_of_a_record_names_the_lines_where_its_calls_begin():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    (way,) = re.findall(r"## The way of one SQS record\n.*?```\n(.*?)```", text, flags=re.DOTALL)
    wrong, depths = [], []
    for line in filter(None, way.splitlines()):
        indent, file, number, name = re.fullmatch(r"( *)(\S+):(\d+) +([\w.]+).*", line).groups()
        path = ROOT / file if file.startswith("functions/") else PACKAGE / file
        true = lines_of_definitions(path.read_text("utf-8")).get(name)
        depths.append(len(indent))
        if true != int(number):
            wrong.append(f"{file}:{number} {name} begins at line {true}")
    assert wrong == []
    assert depths[0] == 0
    assert all(deeper - depth <= 2 for depth, deeper in zip(depths, depths[1:], strict=False))


def test_the_readme_is_read_to_the_end():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1000
