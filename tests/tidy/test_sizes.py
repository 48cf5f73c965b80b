"""Sizes: the kernel proper stays small enough to be read, and no file grows into a maze."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, python_files, rules


def lines(path: Path) -> int:
    """As ``wc -l`` counts."""
    return (ROOT / path).read_bytes().count(b"\n")


def code_lines(source: str) -> int:
    """Logical lines of code: a statement counts once however many lines it takes; docstrings, comments and blank
    lines count nothing."""
    texts = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type == tokenize.NEWLINE and token.start[0] not in texts for token in tokens)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""A module."""\n\n# Why.\nx = 1  # One.\n', 1),
        ("x = f(\n    1,\n    2,\n)\n", 1),
        ('class A:\n    """Text\n    of two lines."""\n\n    b: int\n    """Of a field."""\n', 2),
        ("if x: y = 1\nelse:\n    y = 2\n", 3),
    ],
)
def test_texts_count_nothing_and_a_statement_counts_once(source: str, count: int) -> None:
    assert code_lines(source) == count


def test_the_kernel_proper_is_within_its_budget() -> None:
    """One person can read all of it before changing any of it. Contracts are explained, not squeezed: text is free."""
    counts = dict.fromkeys(("spi", "wire", "host"), 0)
    for path in python_files("kernel"):
        if path.parts[2] in counts:
            counts[path.parts[2]] += code_lines((ROOT / path).read_text(encoding="utf-8"))
    assert all(counts.values()), f"nothing was counted: {counts}"
    budget = rules()["limits"]["kernel_code_lines_max"]
    assert sum(counts.values()) <= budget, f"{counts} are above {budget} lines of code: make room first"


def test_no_python_file_is_longer_than_the_limit() -> None:
    limit = rules()["limits"]["file_lines_max"]
    found = [f"{path}: {lines(path)}" for path in python_files() if lines(path) > limit]
    assert not found, f"above {limit} lines, split by job:\n" + "\n".join(found)
