"""Files that a later command depends on are durable with their names, also what a killed command has left unsynced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae_transfer.journal import Journal
from stelae_transfer.rejects import Rejects
from stelae_transfer.row_chunks import BadRow
from tests.unit.transfer.test_journal import POSITIONS, SUBJECT, written
from tests.unit.transfer.test_row_output import write


class Syncs:
    """What was synced, in order: the inode of each file or directory."""

    def __init__(self) -> None:
        self._inodes: list[int] = []

    def note(self, file: int) -> None:
        self._inodes.append(os.fstat(file).st_ino)

    def take(self, *paths: Path) -> list[Path]:
        """Return which of these paths were synced since the last call, in order."""
        names = {path.stat().st_ino: path for path in paths}
        found = [names[inode] for inode in self._inodes if inode in names]
        self._inodes.clear()
        return found


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    found, fsync = Syncs(), os.fsync

    def noted(file: int) -> None:
        fsync(file)
        found.note(file)

    monkeypatch.setattr(os, "fsync", noted)
    yield found


def test_a_resumed_journal_is_durable_before_a_row_is_sent(tmp_path: Path, syncs: Syncs) -> None:
    """Rows up to ``reserved`` are sent without another record. A power loss took the reservation back, and the rows
    that the next import met were errors."""
    path = tmp_path / "j"
    written(path)
    syncs.take(path, tmp_path)
    journal = Journal.open(path, SUBJECT)
    assert journal.position == POSITIONS[-1] and syncs.take(path, tmp_path) == [path, tmp_path]
    journal.close(done=False)


def test_the_name_of_a_file_of_bad_rows_is_durable_with_its_first_row(tmp_path: Path, syncs: Syncs) -> None:
    """The journal counts the bytes of the file. Without its name, the import could not be resumed."""
    path = tmp_path / "bad.jsonl"
    rejects = Rejects(path, 0)
    rejects.add([BadRow(1, "RAGGED", "no")])
    assert syncs.take(path, tmp_path) == [tmp_path, path]
    rejects.add([BadRow(2, "RAGGED", "no")])
    assert syncs.take(path, tmp_path) == [path]
    rejects.close()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_rows_that_were_written_to_a_file_are_there_after_a_power_loss(tmp_path: Path, syncs: Syncs, name: str) -> None:
    write(tmp_path / name)
    assert syncs.take(tmp_path / name, tmp_path) == [tmp_path / name, tmp_path]
