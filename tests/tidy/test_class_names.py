"""Class names: a name means one thing in the kernel and the plugins."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.tidy.tree import parsed, python_files

EXCEPTIONS: frozenset[str] = frozenset()
"""Names that a contract makes several classes have, each with its reason. No contract does so today."""


def duplicates(trees: Iterable[tuple[Path, ast.Module]]) -> Mapping[str, list[str]]:
    """Return the names of more than one class, with the places of the classes; inner and private classes count."""
    places: dict[str, list[str]] = {}
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_each_class_of_the_kernel_and_the_plugins_has_a_name_of_its_own() -> None:
    found = duplicates((path, parsed(path)) for path in python_files("kernel", "plugins"))
    assert not found.keys() - EXCEPTIONS, "\n".join(f"{name}: {', '.join(places)}" for name, places in found.items())
    assert found.keys() >= EXCEPTIONS, f"no longer used twice: {EXCEPTIONS - found.keys()}"


def test_a_name_that_two_modules_or_one_module_give_twice_is_found() -> None:
    trees = [
        (Path("kernel/stelae/host/a.py"), ast.parse("class Slot:\n    class _Inner: ...\n")),
        (Path("plugins/x/stelae_x/b.py"), ast.parse("class Other: ...\ndef f():\n    class Slot: ...\n")),
        (Path("plugins/x/stelae_x/c.py"), ast.parse("class _Inner: ...\n")),
    ]
    assert duplicates(trees) == {
        "Slot": ["kernel/stelae/host/a.py:1", "plugins/x/stelae_x/b.py:3"],
        "_Inner": ["kernel/stelae/host/a.py:2", "plugins/x/stelae_x/c.py:1"],
    }
