"""Syntax trees of this project's Python files, for tests that inspect code."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(file: Path) -> ast.Module:
    """Parse a file, once per process."""
    return ast.parse(file.read_text("utf-8"))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """List all nodes of a file's syntax tree."""
    return tuple(ast.walk(tree_of(file)))
