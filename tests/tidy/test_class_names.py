"""Class names: a name means one thing in the kernel and the plugins, also as an alias of a type."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.tidy.tree import parsed, python_files

EXCEPTIONS: frozenset[str] = frozenset()
"""Names that a contract makes several classes have, each with its reason. No contract does so today."""


def classes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each class; inner and private classes count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno


def aliases(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each public name that a module assigns outside of classes and functions.

    Among them are all of ``TypeAlias``, ``TypeVar`` and ``NewType``."""
    waiting: list[ast.stmt] = [*tree.body]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.If | ast.Try):
            handlers = [stmt for handler in getattr(node, "handlers", ()) for stmt in handler.body]
            waiting += [*node.body, *node.orelse, *handlers]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    yield target.id, node.lineno


def duplicates(trees: Iterable[tuple[Path, ast.Module]]) -> Mapping[str, list[str]]:
    """Return the names of more than one class, and of a class and an alias, with all of their places."""
    of_classes: dict[str, list[str]] = {}
    of_aliases: dict[str, list[str]] = {}
    for path, tree in trees:
        for found, places in ((classes(tree), of_classes), (aliases(tree), of_aliases)):
            for name, line in found:
                places.setdefault(name, []).append(f"{path}:{line}")
    together = {name: [*places, *of_aliases.get(name, ())] for name, places in of_classes.items()}
    return {name: places for name, places in together.items() if len(places) > 1}


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


def test_an_alias_with_the_name_of_a_class_is_found() -> None:
    source = """
Slot: TypeAlias = int
if TYPE_CHECKING:
    Link = TypeVar("Link")
try:
    Node = NewType("Node", str)
except ImportError:
    Row = None
_Entry = int
Alone = int
def f():
    Local = int
class Kind:
    Field: int = 0
"""
    names = ["Slot", "Link", "Node", "Row", "_Entry", "Local", "Field"]
    trees = [
        (Path("a.py"), ast.parse("\n".join(f"class {name}: ..." for name in names))),
        (Path("b.py"), ast.parse(source)),
    ]
    assert duplicates(trees) == {
        "Slot": ["a.py:1", "b.py:2"],
        "Link": ["a.py:2", "b.py:4"],
        "Node": ["a.py:3", "b.py:6"],
        "Row": ["a.py:4", "b.py:8"],
    }
