"""Columns that a file, or the command line, names twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from stelae_transfer.files import BrokenInput, file_format
from stelae_transfer.readers import open_reader
from tests.unit.cli.test_commands import document, run
from tests.unit.transfer.test_readers import write

TWICE = pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["id", "id"])


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_typed_file_that_names_a_column_twice_is_refused_as_csv_is(tmp_path: Path, name: str) -> None:
    """It was a traceback: KeyError."""
    path = tmp_path / name
    if name == "a.parquet":
        parquet.write_table(TWICE, path)
    else:
        with pa.ipc.new_file(path, TWICE.schema) as writer:
            writer.write_table(TWICE)
    with pytest.raises(BrokenInput, match="has the column 'id' twice; give each column a name of its own"):
        open_reader(path, file_format(path))
    done = run("import", str(path), "--dry-run", "--key", "id", "--json")
    assert done.returncode == 2 and document(done)["code"] == "BROKEN_INPUT"


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_that_the_command_line_names_twice_is_loaded_once(tmp_path: Path, name: str) -> None:
    """The rows of a Parquet file were bad: the column appears twice in the input."""
    path = tmp_path / name
    if name == "a.csv":
        write(path, "id,v\n1,a\n")
    else:
        parquet.write_table(pa.table({"id": [1], "v": ["a"]}), path)
    done = run("import", str(path), "--dry-run", "--key", "id", "--columns", "id,v,id", "--json")
    assert (done.returncode, document(done)["good"], document(done)["bad"]) == (0, 1, 0)
