"""A pass over a log finds what does not fit, and says where the last good entry is."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from stelae.convert.conversion import ConversionPaths
from stelae.convert.documents import entry_document, report_document, summary
from stelae.convert.log_check import LogReport, check_logs
from stelae.convert.offline import InlineWorkers
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.errors import Full
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae_wal_segmented import SegmentedWal
from tests.unit.convert.places import BUSY, SEGMENTED, formatted, held, place, wal_of

ROOT = "/srv/node"


def prepared() -> tuple[VirtualDisk, ConversionPaths]:
    disk = VirtualDisk()
    formatted(place(disk, ROOT), SEGMENTED)
    disk = disk.crash(random.Random(0), Survival.KEPT)
    return disk, place(disk, ROOT)


def checked(where: ConversionPaths) -> dict[LogId, LogReport]:
    engine = wal_of(where, SEGMENTED)
    reports = check_logs(engine)
    engine.close()
    return {report.log: report for report in reports}


def test_whole_logs_are_reported_whole_with_what_they_hold() -> None:
    _, where = prepared()
    reports = checked(where)
    assert [report.problem for report in reports.values()] == [None] * 3
    assert {log: report.entries for log, report in reports.items()} == {log: len(m.held) for log, m in held().items()}
    assert report_document(reports[BUSY]) == {
        "log": "busy/3",
        "base": "1.4",
        "last": "4.34",
        "commit_hint": 30,
        "entries": 30,
        "body_bytes": 14850,
        "problem": None,
    }


def test_a_flipped_bit_of_any_entry_is_found_right_behind_the_last_good_one() -> None:
    disk, _ = prepared()
    named = set()
    for index in range(5, 35):
        stamp = b"<%d.%d><%d" % ((4 if index > 19 else 1), index, 4 if index > 19 else 1)
        for path in (path for path in disk.tree() if path.endswith(".seg")):
            at = disk.tree()[path].find(stamp)
            if at < 0:
                continue
            twin = disk.clone()
            twin.damage(path, at)
            report = checked(place(twin, ROOT))[BUSY]
            assert report.problem is not None
            assert report.problem.path == path
            assert report.problem.offset is not None and report.problem.offset <= at
            assert report.problem.last_good.index < index
            if report.problem.last_good.index == index - 1 == report.entries + 4:
                named.add(index)
            break
    assert named == set(range(5, 35))


def test_a_log_that_was_damaged_before_it_was_read_is_reported_as_its_engine_says() -> None:
    disk, _ = prepared()
    segments = sorted(path for path in disk.tree() if "/wals/busy/" in path and path.endswith(".seg"))
    assert len(segments) > 2
    disk.remove(segments[1])
    report = checked(place(disk, ROOT))[BUSY]
    assert report.state.damage is not None and report.problem is not None
    assert report.problem.path == report.state.damage.path
    assert report.problem.last_good == report.state.damage.last_good < OpId(4, 34)


def test_work_of_an_engine_that_fails_is_handed_back_as_its_error() -> None:
    def fail() -> None:
        raise Full("no space")

    answers: list[object] = []
    workers = InlineWorkers()
    workers.submit(lambda: 7, answers.append)
    workers.submit(fail, answers.append)
    workers.submit(fail)
    assert answers[0] == 7 and isinstance(answers[1], Full) and len(answers) == 2


class Misbehaves(SegmentedWal):
    """Serves one entry other than it was stored."""

    changed: Any = None

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        found = super().read(log, first, end, bytes_max)
        return [msgspec.structs.replace(e, **self.changed) if e.op_id.index == 21 else e for e in found]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"op_id": OpId(4, 22)}, "entry 4.22 does not follow 4.20"),
        ({"op_id": OpId(3, 21)}, "entry 3.21 does not follow 4.20"),
        ({"timestamp": 5}, "timestamp 5, below 1000020"),
    ],
)
def test_an_entry_that_does_not_continue_the_log_is_told(
    changed: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, where = prepared()
    monkeypatch.setattr(Misbehaves, "changed", changed)
    engine = Misbehaves.open(where.layout.wals, SEGMENTED.config, where.services)
    problem = next(report.problem for report in check_logs(engine) if report.log == BUSY)
    assert problem is not None and told in str(problem)
    assert problem.last_good == OpId(4, 20)
    engine.close()


def test_a_body_that_cannot_be_read_is_told_in_its_line() -> None:
    for kind in (EntryKind.WRITE, EntryKind.CONFIG, EntryKind.SCHEMA):
        assert summary(Entry(OpId(1, 1), kind, 1, b"\xff?")).startswith("UNREADABLE: ")
    assert summary(Entry(OpId(1, 1), EntryKind.NOOP, 1, b"")) == ""


def test_a_body_is_shown_only_when_asked_for() -> None:
    entry = Entry(OpId(1, 1), EntryKind.NOOP, 7, b"\x01\xff")
    plain = entry_document("t/1", entry, bodies=False)
    assert plain == {
        "log": "t/1", "op_id": "1.1", "kind": "NOOP", "timestamp": 7, "size_bytes": 2, "summary": ""
    }  # fmt: skip
    assert entry_document("t/1", entry, bodies=True) == {**plain, "body": "01ff"}
