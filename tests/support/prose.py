"""Finds phrases that a native speaker would not use, in documents, docstrings, comments, messages and the desk's texts.

Proselint knows the common mistakes, and `HABITS` lists our own. `make lint` checks all files; given names of files,
this module checks only these.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from proselint.checks import __register__ as known_checks
from proselint.checks.uncomparables import UNCOMPARABLES, check_fancy_uncomparables
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from local import ROOT

HABITS = {
    r"(?<!there )\b(is|are|was|were|be) (no|none)\b(?! (longer|more|fewer|less|later|doubt)\b)": "say what it is not: `is not a ...`",
    r"\bof then\b": "name the time",
    r"\bin the place of\b": "`instead of`",
    r"\bfor want of\b": "`because ... is short`",
    r"\b(at|for) the most\b": "`at most`",
    r"\bso (many|much)\b[^.;:\n]*\bat most\b": "``at most `limit` ...``",
    r"(^|[.!?:] )Of (?!course)": "begin with the subject",
    r"\b(somebody|nobody|whoever)\b": "say who",
    r"\bmeanwhile\b": "name the time, or leave it out",
    r"(?<!long )\bas it is\b": "`unchanged`",
    r"\b(gives?|gave|given|giving) ((it|them|units|all) )?back\b": "`return`",
    r"\b(brings?|brought) ((it|them) )?home\b": "`reclaim`",
    r"\b(have|has|had|been|is|are|was) heard\b|\bhears? (of|from)\b": "`receive`",
    r"\btells? of\b|\btold of\b": "`show`, `report`",
    r"\bbeside (the|a|an|it|them|each|that|those|these|which|what)\b": "`next to`, `besides`, `compared with`",
    r"\bto be wished\b": "`missing`",
    r"\bis nothing that\b": "say what it cannot do",
    # Proselint's own check of these two words takes longer than all others together.
    rf"(?<!at )\b(least|most) ({'|'.join(UNCOMPARABLES)})\b": "it is or it is not, without degrees",
}
"""Patterns, each with advice on what to write instead."""

_SKIPPED = (
    *("docs/generated/", "events/README.md"),  # written from code, which is checked itself
    *("tests/support/prose.py", "tests/unit/test_prose.py"),  # full of examples
)

# Proselint's checks of typography, hedging, redundancy and spelling are left out: they take code and terms of AWS for
# mistakes.
_PROSELINT = dict.fromkeys(
    [
        "archaism",
        "cliches",
        "malapropisms",
        "mondegreens",
        "needless_variants",
        "nonwords",
        "oxymorons",
        "uncomparables",
    ],
    True,
)
# Faster than `tokenize`. A string may contain `#`, so strings are matched too.
_STRING_OR_COMMENT = re.compile(
    r"""(?P<quote>\"{3}|'{3}|"|')(\\.|.)*?(?P=quote)|#(?P<comment>[^\n]*)""", re.DOTALL
)
Text = tuple[int, str]
"""The number of a text's first line, and its words. Code within it is `X`."""


def _plain(text: str) -> str:
    """Replace code in a text with `X`, and lone surrogates, which some tests need, with `?`."""
    text = text.encode("utf-8", "replace").decode()
    return re.sub(r"``.*?``|`[^`]*`", "X", text)


def _in_markdown(source: str) -> Iterator[Text]:
    for token in MarkdownIt("commonmark").enable("table").parse(source):
        if token.type == "inline" and token.map:
            parts = [
                "X" if child.type == "code_inline" else child.content or " "
                for child in token.children or ()
            ]
            yield token.map[0] + 1, "".join(parts)


def _in_python(source: str) -> Iterator[Text]:
    nodes = list(ast.walk(ast.parse(source)))
    templates = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    within = {id(part) for template in templates for part in template.values}
    for template in templates:
        parts = [v.value if isinstance(v, ast.Constant) else "X" for v in template.values]
        yield template.lineno, _plain("".join(map(str, parts)))
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in within
        ):
            yield node.lineno, _plain(node.value)
    comments = [
        (source.count("\n", 0, found.start()) + 1, found["comment"].lstrip("#: "))
        for found in _STRING_OR_COMMENT.finditer(source)
        if found["comment"]
    ]
    # A comment may have several lines.
    for _, group in groupby(enumerate(comments), key=lambda each: each[1][0] - each[0]):
        lines = [comment for _, comment in group]
        yield lines[0][0], _plain(" ".join(text for _, text in lines))


def _in_script(source: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), 1):
        for text in re.findall(r'"[^"]*"|`[^`]*`|// .*', line):
            yield number, re.sub(r"\$\{[^}]*\}", "X", text.strip('"`/ '))


def _in_yaml(source: str) -> Iterator[Text]:
    pending = [yaml.compose(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value in ("description", "summary") and isinstance(value.value, str):
                    yield value.start_mark.line + 1, _plain(value.value)
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value


_READERS = {".md": _in_markdown, ".py": _in_python, ".js": _in_script, ".yaml": _in_yaml}


def problems_in(path: Path, source: str) -> list[str]:
    """Find odd phrases in a file, each as `path:line: phrase: advice`."""
    texts = [(line, " ".join(text.split())) for line, text in _READERS[path.suffix](source)]
    # Each text is one line.
    together = "\n".join(text for _, text in texts) or " "
    found = []
    for habit, instead in HABITS.items():
        flags = re.MULTILINE if "Of (" in habit else re.MULTILINE | re.IGNORECASE
        for match in re.finditer(habit, together, flags):
            line, _ = texts[together.count("\n", 0, match.start())]
            around = together[max(0, match.start() - 20) : match.end() + 20].replace("\n", " ")
            found.append(f"{path}:{line}: ...{around}...: {instead}")
    if not CheckRegistry().checks:
        CheckRegistry().register_many(
            tuple(check for check in known_checks if check is not check_fancy_uncomparables)
        )
    checks = {"max_errors": 100, "checks": _PROSELINT}
    for result in LintFile(str(path), together).lint(checks):
        line, _ = texts[result.pos[0] - 1]
        found.append(f"{path}:{line}: {result.check_result.message}")
    return found


def main(names: list[str]) -> int:
    """Check all files of the repository, or only the given ones."""
    kinds = [f"*{suffix}" for suffix in _READERS]
    listed = subprocess.run(
        ["git", "ls-files", *(names or kinds)], capture_output=True, check=True, cwd=ROOT
    )
    files = [name for name in listed.stdout.decode().splitlines() if not name.startswith(_SKIPPED)]
    found = [
        problem
        for name in files
        if Path(name).suffix in _READERS
        for problem in problems_in(Path(name), (ROOT / name).read_text("utf-8"))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
