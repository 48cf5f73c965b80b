"""Reads imports out of a syntax tree and judges them against the matrix."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def imported(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of everything that a module imports.

    ``from a import b`` yields ``a.b``: whether ``b`` is a module or a name in one, a rule about
    ``a.b`` or ``a`` can judge it. Imports for type checking and inside functions count, and so do
    ``import_module`` and ``__import__`` of a literal. ``package`` resolves relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            for alias in node.names:
                yield node.lineno, base if alias.name == "*" else f"{base}.{alias.name}"
        elif isinstance(node, ast.Call):
            yield from _dynamic(node)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    kept = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*kept, node.module] if node.module else kept)


def _dynamic(call: ast.Call) -> Iterator[tuple[int, str]]:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    called = call.func.id if isinstance(call.func, ast.Name) else called
    if called in ("import_module", "__import__") and call.args:
        first = call.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield call.lineno, first.value


def home(path: Path) -> tuple[str, str]:
    """Return the layer and the package of a file: ``("host", "stelae.host")``.

    The layer of a plugin's file is ``plugins/<name>``; that of ``stelae/__init__.py`` is empty."""
    if path.parts[0] == "plugins":
        return f"plugins/{path.parts[1]}", ".".join(path.parts[2:-1])
    inner = path.parts[1:-1]
    return (inner[1] if len(inner) > 1 else ""), ".".join(inner)


def refusal(layer: str, own: str, name: str, kernel: Mapping[str, Sequence[str]], allowed: Sequence[str]) -> str | None:
    """Say why a file of ``layer`` may not import ``name``, or ``None`` if it may.

    Args:
        layer: as from :func:`home`.
        own: top package of the file's own distribution folder: ``stelae`` or ``stelae_wal_x``.
        name: absolute dotted name.
        kernel: the layers that exist.
        allowed: what this layer may import besides itself.
    """
    top, _, rest = name.partition(".")
    if top.startswith("stelae_"):
        if top == own or any(name == a or name.startswith(a + ".") for a in allowed):
            return None
        return f"{layer} imports the plugin package {top}"
    if top != "stelae":
        return None
    target = rest.split(".")[0]
    if target not in kernel:
        return None if target in ("", "__version__") else f"{layer} imports {name}: no such layer"
    if target == layer or any(rest == a or rest.startswith(a + ".") for a in allowed):
        return None
    return f"{layer} imports {name}; it may import: {', '.join(allowed) or 'nothing of ours'}"
