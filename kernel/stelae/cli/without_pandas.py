"""Prevents pyarrow from importing pandas in processes that do not use it.

The first ``pyarrow.array([...])`` imports pandas if it is installed, to recognize pandas objects. That costs half a
second and 55 MB in each node and each command. pyarrow tries only once. A later explicit use of pandas, such as
``to_pandas``, still works."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hidden(MetaPathFinder):
    """Import finder that hides pandas and no other module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden while pyarrow looks for it", name=fullname)
        return None


def without_pandas() -> None:
    """Make pyarrow look for pandas now, while pandas is hidden. It does not look again.

    Call this at the start of a process that never passes pandas objects to pyarrow, before it starts threads: the
    import of pandas fails in all threads meanwhile. It has no effect if pandas is imported already."""
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)
