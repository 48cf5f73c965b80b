"""Processes of ours do not import pandas for nothing, and can still have it."""

from __future__ import annotations

import subprocess
import sys


def printed(program: str) -> list[str]:
    """What a process of its own prints: in this one pandas has been imported long since."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_arrays_are_made_without_pandas_which_is_there_once_it_is_asked_for() -> None:
    program = """
import sys
from stelae.cli.without_pandas import without_pandas
finders = list(sys.meta_path)
without_pandas()
import pyarrow as pa
table = pa.table({"a": [1, None], "b": pa.array(["x", "y"])})
print("pandas" in sys.modules, sys.meta_path == finders)
frame = table.to_pandas()
print(type(frame).__name__, pa.Table.from_pandas(frame).num_rows, pa.array(frame["a"]).null_count)
"""
    assert printed(program) == ["False", "True", "DataFrame", "2", "1"]


def test_it_would_be_imported_otherwise() -> None:
    assert printed("import sys, pyarrow; pyarrow.array([1]); print('pandas' in sys.modules)") == ["True"]
