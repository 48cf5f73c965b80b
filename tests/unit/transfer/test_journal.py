"""The journal of an import: whatever of it became durable, nothing is skipped, and nothing else is overwritten."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest

from stelae_transfer.journal import BadJournal, Journal, JournalInUse, Position, Subject, digest_of
from stelae_transfer.rejects import Rejects, RejectsFailed, line_of
from stelae_transfer.row_chunks import BadRow

SUBJECT = Subject(
    input_bytes=10,
    input_digest="d",
    table="readings",
    members=("a", "b"),
    mode="upsert",
    columns=("id",),
    reading=("csv", "", "", ""),
    late_members="",
)
POSITIONS = [Position(acknowledged=n * 100, reserved=n * 100 + 500, written=n * 100) for n in range(1, 4)]


def written(path: Path) -> bytes:
    journal = Journal.open(path, SUBJECT)
    for position in POSITIONS:
        journal.record(position)
    journal.close(done=False)
    return path.read_bytes()


def reopened(path: Path, subject: Subject = SUBJECT, *, restart: bool = False) -> Position:
    journal = Journal.open(path, subject, restart=restart)
    journal.close(done=False)
    return journal.position


def test_a_journal_that_was_cut_anywhere_stands_at_a_position_that_was_written_whole(tmp_path: Path) -> None:
    data = written(tmp_path / "j")
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data) + 1):
        (tmp_path / "cut").write_bytes(data[:length])
        whole = sum(end <= length for end in ends)
        expected = POSITIONS[whole - 2] if whole >= 2 else Position()
        assert reopened(tmp_path / "cut") == expected, length
        # What follows goes behind the last whole line.
        journal = Journal.open(tmp_path / "cut", SUBJECT)
        journal.record(POSITIONS[-1])
        journal.close(done=False)
        assert reopened(tmp_path / "cut") == POSITIONS[-1], length


def test_a_last_line_of_garbage_is_as_if_it_were_not_there_and_one_before_is_an_error(tmp_path: Path) -> None:
    data = written(tmp_path / "j")
    (tmp_path / "j").write_bytes(data + b"\0\0\0\n")
    assert reopened(tmp_path / "j") == POSITIONS[-1]
    first, *others = data.splitlines(keepends=True)
    (tmp_path / "j").write_bytes(first + b"\0\n" + b"".join(others))
    with pytest.raises(BadJournal, match="is not the journal of an import"):
        reopened(tmp_path / "j")


def test_an_import_that_is_done_leaves_no_journal(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j", SUBJECT)
    journal.close(done=True)
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"input_bytes": 11}, "length of the input: the journal has 10, this import has 11"),
        ({"input_digest": "e"}, "the contents of the input"),
        ({"table": "other"}, "the table: the journal has readings, this import has other"),
        ({"mode": "insert"}, "--mode"),
        ({"columns": ("id", "x")}, "the columns"),
        ({"reading": ("csv", "gzip", "", "")}, "how the file is read"),
        ({"members": ("c",)}, "the journal has none of its tablets or nodes"),
    ],
)
def test_the_journal_of_another_import_is_refused_with_what_differs(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    data = written(tmp_path / "j")
    with pytest.raises(BadJournal, match=says):
        reopened(tmp_path / "j", msgspec.structs.replace(SUBJECT, **change))
    assert (tmp_path / "j").read_bytes() == data


def test_a_cluster_whose_members_changed_in_part_is_the_same(tmp_path: Path) -> None:
    written(tmp_path / "j")
    assert reopened(tmp_path / "j", msgspec.structs.replace(SUBJECT, members=("b", "c"))) == POSITIONS[-1]


def test_beginning_again_forgets_the_position_of_any_import(tmp_path: Path) -> None:
    written(tmp_path / "j")
    assert reopened(tmp_path / "j", msgspec.structs.replace(SUBJECT, mode="insert"), restart=True) == Position()
    assert reopened(tmp_path / "j", msgspec.structs.replace(SUBJECT, mode="insert")) == Position()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("data", [b"id,text\n1,a\n", b"precious", b'{"a": 1}\n', b'{"input_bytes":1,"x":2}\n'])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, data: bytes, restart: bool) -> None:
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(BadJournal, match="is not the journal of an import"):
        reopened(tmp_path / "j", restart=restart)
    assert (tmp_path / "j").read_bytes() == data


def test_two_imports_cannot_hold_one_journal(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j", SUBJECT)
    with pytest.raises(JournalInUse, match="another import is using"):
        Journal.open(tmp_path / "j", SUBJECT)
    journal.close(done=False)
    assert reopened(tmp_path / "j") == Position()


def test_a_folder_that_cannot_be_written_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(BadJournal, match="choose another file with --journal"):
        Journal.open(tmp_path / "nowhere" / "j", SUBJECT)


def test_times_with_nanoseconds_can_be_told() -> None:
    """Parquet made by pandas: an import of it ended with a traceback, at every try."""
    values = {"at": pd.Timestamp("2026-01-02T03:04:05.000000007"), "not": pd.NaT}
    told = msgspec.json.decode(line_of(BadRow(6, "BAD_VALUE", "no", values)))
    assert told["values"] == {"at": "2026-01-02 03:04:05.000000007", "not": "NaT"}


def test_bad_rows_behind_the_acknowledged_position_are_told_again_and_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    rejects = Rejects(path, 0)
    rejects.add([BadRow(1, "RAGGED", "expected 3 cells, got 2", "1,2")])
    acknowledged = rejects.size_bytes
    rejects.add([BadRow(5, "BAD_VALUE", "no", {"x": float("nan"), "raw": b"\xff", "odd": "\ud800"}, 3)])
    rejects.close()
    again = Rejects(path, acknowledged)
    again.add([BadRow(5, "BAD_VALUE", "no", {"x": float("nan"), "raw": b"\xff", "odd": "\ud800"}, 3)])
    again.close()
    found = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert found == [
        {"row": 1, "code": "RAGGED", "reason": "expected 3 cells, got 2", "values": "1,2"},
        {"row": 5, "code": "BAD_VALUE", "reason": "no", "rows": 3, "values": {"x": "nan", "raw": "/w==", "odd": "?"}},
    ]


def test_an_import_without_bad_rows_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(line_of(BadRow(1, "RAGGED", "no")))
    Rejects(tmp_path / "bad.jsonl", 0).close()
    assert not (tmp_path / "bad.jsonl").exists()


@pytest.mark.parametrize("size_bytes", [0, 3])
def test_a_file_that_holds_no_bad_rows_is_left_alone(tmp_path: Path, size_bytes: int) -> None:
    (tmp_path / "a.txt").write_text("precious")
    with pytest.raises(RejectsFailed, match="is not a file of bad rows"):
        Rejects(tmp_path / "a.txt", size_bytes)
    assert (tmp_path / "a.txt").read_text() == "precious"


def test_bad_rows_that_were_told_elsewhere_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RejectsFailed, match="pass the same --bad-rows as the interrupted import"):
        Rejects(tmp_path / "another", 10)
    (tmp_path / "short").write_bytes(line_of(BadRow(1, "RAGGED", "no")))
    with pytest.raises(RejectsFailed, match="lacks bad rows"):
        Rejects(tmp_path / "short", 1000)


def test_the_digest_is_of_the_contents(tmp_path: Path) -> None:
    for name, data in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).write_bytes(data)
    assert digest_of(tmp_path / "a") == digest_of(tmp_path / "b") != digest_of(tmp_path / "c")
    assert digest_of(tmp_path / "a")[0] == 3
