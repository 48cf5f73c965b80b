"""Rows written to a path: a file appears when it is complete, and what is no file is written to as it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stelae.cli.kit.json_document import DOCUMENT
from stelae_transfer.commands.row_output import PRINTED, BadOutput, Output

BATCH = pa.record_batch({"id": pa.array([1, 2], pa.int64())})
CSV = b'"id"\n1\n2\n'


def write(path: Path, form: str = "", *, overwrite: bool = False, fails: bool = False) -> None:
    with Output(form, path, overwrite=overwrite).sink(BATCH.schema) as sink:
        sink.write(BATCH)
        if fails:
            raise ValueError("the scan failed")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_named_pipe_gets_the_rows_and_stays_a_pipe(tmp_path: Path, overwrite: bool) -> None:
    """The pipe was replaced by a file, and its reader waited forever. With /dev/null it was the same."""
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    write(path, "csv", overwrite=overwrite)
    assert path.is_fifo()
    reader.join()
    assert got == [CSV]


def test_a_link_keeps_its_place_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "there.csv")
    write(tmp_path / "link.csv", overwrite=True)
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "there.csv").read_bytes() == CSV


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_file_is_left_as_it_was_unless_all_rows_are_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(BadOutput, match="exists; replace it with --overwrite"):
        write(path)
    with pytest.raises(ValueError, match="the scan failed"):
        write(path, overwrite=True, fails=True)
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]
    write(path, overwrite=True)
    assert path.read_bytes() != b"old" and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("form", [*PRINTED, "csv", "tsv", "jsonl", "arrow"])
def test_a_scan_that_fails_before_its_first_row_prints_nothing(form: str, capfdbinary: Any) -> None:
    """A scan of a time that is too old printed a header, and with ``--json`` a document that began with columns."""
    DOCUMENT.begin(asked=False)
    with pytest.raises(ValueError, match="too old"), Output(form, None).sink(BATCH.schema):
        raise ValueError("the time is too old")
    assert capfdbinary.readouterr().out == b"" and not DOCUMENT.printed


@pytest.mark.parametrize("form", [*PRINTED, "csv", "tsv", "arrow"])
def test_a_scan_without_rows_prints_what_one_with_rows_begins_with(form: str, capfdbinary: Any) -> None:
    with Output(form, None).sink(BATCH.schema):
        pass
    empty = capfdbinary.readouterr().out
    assert (b"id" in empty) is (form != "lines")
