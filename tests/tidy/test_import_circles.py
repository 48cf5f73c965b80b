"""No module imports itself by way of others, so each can be read, tested and moved without the rest of a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tidy.imports import home, imported
from tests.tidy.tree import parsed, python_files


def module_name(path: Path) -> str:
    _, package = home(path)
    return package if path.stem == "__init__" else f"{package}.{path.stem}"


def module_graph(trees: Iterable[tuple[Path, ast.Module]]) -> Mapping[str, set[str]]:
    """Return which modules each module imports; imports for type checking and inside functions count."""
    found = {module_name(path): (home(path)[1], tree) for path, tree in trees}
    graph: dict[str, set[str]] = {}
    for module, (package, tree) in found.items():
        owners = {owner_of(name, found) for _, name in imported(tree, package)}
        graph[module] = owners - {"", module}
    return graph


def owner_of(name: str, modules: Mapping[str, object]) -> str:
    """Return the module that a dotted name is or belongs to; empty if it is none of ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = module_graph((path, parsed(path)) for path in python_files("kernel", "plugins"))
    assert sum(map(len, graph.values())) > len(graph), "the imports were not found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a circle, each module is imported by the next: " + " <- ".join(error.args[1]))


def test_a_circle_through_an_import_for_type_checking_is_found() -> None:
    sources = {
        "kernel/stelae/client/a.py": "from stelae.client.b import B",
        "kernel/stelae/client/b.py": "from stelae.client import c",
        "kernel/stelae/client/c.py": "if TYPE_CHECKING:\n    from stelae.client.a import A",
        "kernel/stelae/client/d.py": "def f():\n    from . import a",
    }
    graph = module_graph((Path(path), ast.parse(source)) for path, source in sources.items())
    assert graph["stelae.client.d"] == {"stelae.client.a"}
    with pytest.raises(CycleError) as caught:
        TopologicalSorter(graph).prepare()
    assert {*caught.value.args[1]} == {f"stelae.client.{name}" for name in "abc"}
