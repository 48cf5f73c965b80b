"""The repository as the tidy tests see it: its files, its rules, and parsed modules."""

from __future__ import annotations

import ast
import functools
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_GENERATED = {
    ".git",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "_build",
    "build",
    "dist",
}


@functools.cache
def rules() -> dict[str, Any]:
    """The contents of ``rules.toml``."""
    with (Path(__file__).parent / "rules.toml").open("rb") as file:
        return tomllib.load(file)


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file that people wrote, relative to the root, in a fixed order."""
    found: list[Path] = []
    for directory, names, plain in os.walk(ROOT):
        names[:] = [n for n in names if n not in _GENERATED and not n.endswith(".egg-info")]
        found += [(Path(directory) / name).relative_to(ROOT) for name in plain]
    return tuple(sorted(found))


def python_files(*tops: str) -> Iterator[Path]:
    """The ``.py`` files below the given top-level folders, or everywhere if none is given."""
    for path in files():
        if path.suffix == ".py" and (not tops or path.parts[0] in tops):
            yield path


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse((ROOT / path).read_bytes(), filename=str(path))
