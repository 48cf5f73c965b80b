"""Measures functions. Long ones may only go down (``ratchet``): a function that outgrew it is to be split."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tidy.tree import parsed, python_files, rules


class Function(NamedTuple):
    """A function, its place, and its length in lines without decorators and docstring."""

    length: int
    place: str


def functions(tree: ast.Module, path: Path) -> Iterator[Function]:
    """Yield every function of a module, methods and nested ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(_length(node), f"{path}:{node.lineno} {node.name}")


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def measured() -> list[Function]:
    """Every function of kernel and plugins, longest first."""
    found = [f for path in python_files("kernel", "plugins") for f in functions(parsed(path), path)]
    return sorted(found, reverse=True)


def figures(found: list[Function]) -> dict[str, int]:
    """What the ratchet records."""
    long = rules()["limits"]["function_lines_long"]
    return {
        "longest_lines": max((f.length for f in found), default=0),
        "long_count": sum(f.length > long for f in found),
    }
