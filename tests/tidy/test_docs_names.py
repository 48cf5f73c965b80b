"""Names of classes in the docs exist in the code, and pages that list a closed union list all of it."""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, parsed, python_files

PAGES = [path for path in files() if path.suffix == ".md" and path.parts[0] != "changelog"]
"""All pages except the changelog, which also names what was removed."""

NAME = re.compile(r"`(?:\w+\.)*?([A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*)(?:\.\w+)*(?:\([^`]*\))?`")
"""A name with capitals in backquotes: a class, a type or an event. Modules before it and attributes after it pass."""

CODE_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

FOREIGN = {
    *("DataFrame", "LazyFrame", "NaT", "NaN", "Int8", "Int64"),  # pandas, polars, IEEE 754
    *("RecordBatch", "RecordBatchReader"),  # Arrow
    *("DataSourceReader", "FileSystem", "ReadSchema"),  # Spark and Hadoop
    *("Decimal", "NewType", "Struct", "WriteBatch"),  # Python's library, msgspec, RocksDB
    "StartTabletCopy",  # the RPC of the design that copies follow
    "Async",  # what the names of the client begin with that are coroutines
    *("STin", "STck", "STma", "STsb", "STcm"),  # the first bytes of files
}
"""Names of other projects, and what is no name of a class."""

MASTER_EVENTS = Path("kernel/stelae/server/master/core/events.py")


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines anywhere: classes, functions, constants, aliases and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@functools.cache
def names_of_the_code() -> frozenset[str]:
    """The names that kernel and plugins define, and those of Python."""
    found = {name for path in python_files("kernel", "plugins") for name in defined(parsed(path))}
    return frozenset(found | set(dir(builtins)))


def unknown(text: str) -> list[str]:
    """Return the names in a page that neither the code nor the Python of the page defines."""
    own = {name for source in CODE_BLOCK.findall(text) for name in defined(ast.parse(source))}
    return [name for name in NAME.findall(text) if name not in names_of_the_code() | FOREIGN | own]


def test_classes_that_the_docs_name_exist() -> None:
    found = [f"{path}: {name}" for path in PAGES for name in unknown((ROOT / path).read_text())]
    assert not found, "\n".join(found)


def test_each_foreign_name_is_on_a_page_and_is_not_one_of_the_code() -> None:
    named = {name for path in PAGES for name in NAME.findall((ROOT / path).read_text())}
    assert named >= FOREIGN, f"on no page: {FOREIGN - named}"
    assert not FOREIGN & names_of_the_code()


@pytest.mark.parametrize("text", ["`LeaderWasChanged`", "`Tracer`", "`Tracer.stop()`", "see `stelae.host.Tracer`"])
def test_a_class_that_does_not_exist_is_found(text: str) -> None:
    assert len(unknown(text)) == 1


@pytest.mark.parametrize("text", ["`MasterCore`", "`MasterTick.now_us`", "`READY`", "Tracer", "`None`", "`pd.NaT`"])
def test_a_class_that_exists_and_other_words_pass(text: str) -> None:
    assert unknown(text) == []


def union(alias: str) -> set[str]:
    """Return the names of the members of a union among the events of the masters' core."""
    (value,) = (
        node.value
        for node in parsed(MASTER_EVENTS).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == alias and node.value is not None
    )
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def first_column(text: str, heading: str) -> list[str]:
    """Return the names in the first column of the table whose first heading is this one."""
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize(("heading", "alias"), [("event", "Event"), ("effect", "Effect")])
def test_the_page_of_the_masters_lists_each_event_and_effect_of_their_core_once(heading: str, alias: str) -> None:
    listed = first_column((ROOT / "docs/explanation/masters.md").read_text(), heading)
    assert sorted(listed) == sorted(union(alias))
    assert len(listed) > 5
