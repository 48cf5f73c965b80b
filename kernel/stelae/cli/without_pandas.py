"""Keeps pandas out of processes of ours that have no use for it.

At its first ``pyarrow.array([...])`` pyarrow imports pandas where that is installed, to know its
objects if it meets one: half a second of work and 55 MB, in each node and each command. It looks
once; what asks for pandas later (``to_pandas``) still gets it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hidden(MetaPathFinder):
    """Finds every module elsewhere, and pandas nowhere."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=fullname)
        return None


def without_pandas() -> None:
    """Let pyarrow look for pandas now, while it cannot be found; it does not look again of itself.

    For the start of a process whose values are never pandas objects, before threads: the import of
    pandas fails in all of them meanwhile. Harmless if pandas is imported already."""
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)
