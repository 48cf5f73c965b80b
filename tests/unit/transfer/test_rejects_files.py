"""The file of bad rows: a pipe, a device, the input, and the file of another run are not replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stelae_transfer.rejects import Rejects, RejectsFailed, line_of
from stelae_transfer.row_chunks import BadRow
from tests.unit.cli.test_commands import document, run


@pytest.mark.parametrize("size_bytes", [0, 3])
def test_a_named_pipe_is_refused_and_stays(tmp_path: Path, size_bytes: int) -> None:
    """It was removed as an earlier file of bad rows. So was /dev/null, if root ran the import."""
    pipe = tmp_path / "bad"
    os.mkfifo(pipe)
    with pytest.raises(RejectsFailed, match="is not a regular file; choose another file with --bad-rows"):
        Rejects(pipe, size_bytes)
    assert pipe.is_fifo()


@pytest.mark.parametrize("option", ["--bad-rows", "--journal"])
def test_the_input_is_no_file_of_bad_rows_and_no_journal(tmp_path: Path, option: str) -> None:
    """An input that begins like a file of bad rows was removed as one."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"row":1,"text":"a"}\n')
    before = path.read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    words = ["import", str(path), "--dry-run", "--key", "row", option, str(link), "--json"]
    done = run(*words)
    assert done.returncode == 2 and document(done)["error"] == f"{option} {link} is the input; choose another file"
    assert path.read_bytes() == before


def test_a_dry_run_keeps_the_bad_rows_of_an_interrupted_import(tmp_path: Path) -> None:
    """It replaced the file. The import could only start over, because rows that the journal had recorded were gone."""
    path, rows, journal = tmp_path / "a.csv", tmp_path / "bad.jsonl", tmp_path / "a.csv.t.import"
    path.write_text("id,text\n1,a\n")
    rows.write_bytes(line_of(BadRow(1, "BAD_VALUE", "odd", {"id": "x"})))
    before = rows.read_bytes()
    words = ["import", str(path), "--table", "t", "--key", "id", "--dry-run", "--bad-rows", str(rows), "--json"]
    journal.write_text("")
    done = run(*words)
    assert done.returncode == 2 and f"{journal} is the journal of an interrupted import" in document(done)["error"]
    assert rows.read_bytes() == before
    journal.unlink()
    assert run(*words).returncode == 0 and not rows.exists()
