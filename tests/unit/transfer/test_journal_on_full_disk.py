"""A journal on a disk that becomes full: the error is typed, and the import can be resumed any number of times."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from stelae.spi.errors import CallerError
from stelae_transfer.journal import Journal, JournalFailed, Position
from stelae_transfer.rejects import Rejects, RejectsFailed
from stelae_transfer.row_chunks import BadRow
from tests.unit.transfer.test_journal import POSITIONS, SUBJECT, reopened


@contextmanager
def room_up_to(size_bytes: int) -> Iterator[None]:
    """Files cannot grow beyond a length: the write that reaches it writes a part, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_position_that_is_written_in_part_is_taken_back(tmp_path: Path) -> None:
    """The loader records once more when it stops. That line was appended to the part, and the next to that line."""
    path = tmp_path / "j"
    journal = Journal.open(path, SUBJECT)
    journal.record(POSITIONS[0])
    data = path.read_bytes()
    with (
        room_up_to(len(data) + 8),
        pytest.raises(JournalFailed, match=r"cannot write the journal .*File too large; .* run the same command again"),
    ):
        journal.record(POSITIONS[1])
    assert path.read_bytes() == data and journal.position == POSITIONS[0]
    journal.record(POSITIONS[1])
    journal.close(done=False)
    journal = Journal.open(path, SUBJECT)
    assert journal.position == POSITIONS[1]
    journal.record(POSITIONS[2])
    journal.close(done=False)
    assert reopened(path) == POSITIONS[2]


def test_a_full_disk_is_no_misuse() -> None:
    """Exit code 1: the import stopped before the end."""
    assert not issubclass(JournalFailed, CallerError)


@pytest.mark.parametrize("torn", [b'{"acknow', b'{"acknow{"acknowledged":7}\n', b"\0\0\0\n", b"\0\r\0\n"])
def test_what_follows_a_torn_last_line_replaces_it(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "j"
    journal = Journal.open(path, SUBJECT)
    journal.record(POSITIONS[0])
    journal.close(done=False)
    data = path.read_bytes()
    path.write_bytes(data + torn)
    for position in POSITIONS[1:]:
        journal = Journal.open(path, SUBJECT)
        journal.record(position)
        journal.close(done=False)
    assert path.read_bytes() == data + b"".join(msgspec.json.encode(p) + b"\n" for p in POSITIONS[1:])
    assert reopened(path) == POSITIONS[2]


@pytest.mark.parametrize("room_bytes", [0, 8, 30])
@pytest.mark.parametrize("restart", [False, True])
def test_a_journal_that_cannot_be_begun_is_a_typed_error_and_is_begun_later(
    tmp_path: Path, room_bytes: int, restart: bool
) -> None:
    path = tmp_path / "j"
    if restart:
        Journal.open(path, SUBJECT).close(done=False)
    with room_up_to(room_bytes), pytest.raises(JournalFailed, match="cannot write the journal"):
        Journal.open(path, SUBJECT, restart=restart)
    assert path.read_bytes() == b""
    assert reopened(path) == Position()


def test_a_record_that_was_abandoned_ends_before_the_journal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves a record in its thread. The loader records and closes at once, and the number of the file may
    then be that of another file."""
    syncing, closed = threading.Event(), threading.Event()
    order: list[str] = []
    sync, close = os.fsync, os.close

    def slow_sync(file: int) -> None:
        syncing.set()
        closed.wait(0.05)
        order.append("synced")
        sync(file)

    def watched_close(file: int) -> None:
        order.append("closed")
        closed.set()
        close(file)

    journal = Journal.open(tmp_path / "j", SUBJECT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", slow_sync)
        patched.setattr(os, "close", watched_close)
        abandoned = threading.Thread(target=journal.record, args=(POSITIONS[0],))
        abandoned.start()
        assert syncing.wait(30)
        journal.close(done=False)
        abandoned.join()
    assert order == ["synced", "closed"]
    assert reopened(tmp_path / "j") == POSITIONS[0]
    with pytest.raises(JournalFailed, match="is closed"):
        journal.record(POSITIONS[1])


def test_bad_rows_on_a_full_disk_are_a_typed_error_and_can_be_closed(tmp_path: Path) -> None:
    """Closing the file wrote the rest of its buffer once more: a traceback instead of the error."""
    rejects = Rejects(tmp_path / "bad.jsonl", 0)
    with room_up_to(8):
        with pytest.raises(RejectsFailed, match="File too large"):
            rejects.add([BadRow(1, "RAGGED", "no")])
        rejects.close()
