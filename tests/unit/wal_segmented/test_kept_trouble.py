"""Files of collected segments when something fails: who still reads them, and that none is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Corrupt, Full, Overloaded, StorageError
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import QueuedWorkers, VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, entries
from stelae_wal_segmented import SegmentedConfig, reader
from stelae_wal_segmented.fast.kept_files import KeptFile, ReusedFile
from stelae_wal_segmented.fast.reused_segments import KEPT_MAX
from stelae_wal_segmented.reader import SegmentRead
from stelae_wal_segmented.writer import SegmentWriter
from tests.unit.wal_segmented.scenes import PLACE
from tests.unit.wal_segmented.test_kept import append, collected, roll
from tests.unit.wal_segmented.used import CONFIG, SEGMENT_BYTES, go_on, harness_of, kept, newest, started

GROWING = SegmentedConfig(
    segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=4 * SEGMENT_BYTES, segment_growth=4,
    prewrite_bytes_min=4 * SEGMENT_BYTES,
)  # fmt: skip


def fill_and_repair(harness: VirtualHarness, engine: WalEngine) -> None:
    limit_space(harness, 0)
    last = engine.logs()[LOG].last
    outcome = engine.commit({LOG: Append(entries=entries(last.index + 1, 9, 1, 9000))}, sync=True)[LOG]
    assert isinstance(outcome, Failed) and isinstance(outcome.error, Full)
    limit_space(harness, None)
    engine.repair(LOG)


# -- who reads over a repair -----------------------------------------------------------------------


def with_kept_files() -> tuple[VirtualHarness, WalEngine]:
    """A log of which two files are kept."""
    harness = harness_of()
    engine = started(harness)
    roll(engine, 5)
    append(engine, 1)
    collected(engine)
    assert len(kept(harness)) == 2
    return harness, engine


@pytest.mark.parametrize("config", [CONFIG, GROWING])
def test_a_view_reads_what_it_saw_although_the_log_was_repaired_and_collected(config: SegmentedConfig) -> None:
    """The segments that the repair had read anew once counted nobody."""
    harness = harness_of(config)
    engine = started(harness)
    roll(engine, 5)
    held = engine.read(LOG, 1, engine.logs()[LOG].last.index + 1, READ_BYTES)
    view = engine.snapshot(LOG, 1)
    fill_and_repair(harness, engine)
    fill_and_repair(harness, engine)
    go_on(engine, 1500)
    assert engine.stats()["segments_reused"] > 0, "what came later is used again all the same"
    assert list(view.entries()) == held
    view.release()
    assert engine.logs()[LOG].damage is None
    engine.close()


def test_a_reader_that_is_under_way_reads_what_it_found_although_the_log_is_repaired_and_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It once met the bytes of another segment, and called the log damaged."""
    harness = harness_of()
    engine = started(harness)
    roll(engine, 5)
    wanted = engine.read(LOG, 40, 44, READ_BYTES)
    original = reader.read_entries
    late: list[SegmentRead] = []

    def slow(file: VirtualFile, piece: SegmentRead) -> object:
        if not late:
            late.append(piece)
            fill_and_repair(harness, engine)
            go_on(engine, 300)
        return original(file, piece)

    monkeypatch.setattr(reader, "read_entries", slow)
    assert engine.read(LOG, 40, 44, READ_BYTES) == wanted
    assert late and engine.stats()["segments_reused"] > 0
    assert engine.logs()[LOG].damage is None
    engine.close()


def test_segments_that_nobody_read_during_a_repair_are_used_again() -> None:
    harness = harness_of()
    engine = started(harness)
    roll(engine, 5)
    fill_and_repair(harness, engine)
    roll(engine)
    engine.collect(LOG, engine.logs()[LOG].last.index)
    assert engine.stats()["segments_kept"] == 2
    engine.close()


# -- none is left behind ---------------------------------------------------------------------------


def nameless(harness: VirtualHarness) -> list[str]:
    return [name for name in harness.disk.listdir(PLACE) if name.endswith((".reuse", ".new"))]


class EveryOther:
    """Has every other call of a method do something else, if its path ends as said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, ending: str = "") -> None:
        self._original = getattr(owner, name)
        self._ending = ending
        self._count = 0
        monkeypatch.setattr(owner, name, lambda *given, **named: self._call(*given, **named))

    def _call(self, target: object, first: Any, *given: Any, **named: Any) -> Any:
        if not self._ending or first.endswith(self._ending):
            self._count += 1
            if self._count % 2:
                return self.instead(first, *given)
        return self._original(target, first, *given, **named)

    def instead(self, first: Any, *_: Any) -> Any:
        raise Full("no space, handle or memory", path=first)


class Refused(EveryOther):
    def instead(self, first: Any, *given: Any) -> Any:
        (done,) = given
        done(Overloaded("too much to do"))


def fail_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    EveryOther(monkeypatch, VirtualDisk, "rename", ".reuse")


def fail_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    EveryOther(monkeypatch, VirtualDisk, "open", ".new")


def refuse_work(monkeypatch: pytest.MonkeyPatch) -> None:
    Refused(monkeypatch, QueuedWorkers, "submit")


def fail_reads_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that is none of storage."""
    original = VirtualFile.pread

    def pread(file: VirtualFile, size: int, offset: int) -> bytes:
        if file.path.endswith(".new"):
            raise OSError("no memory")
        return original(file, size, offset)

    monkeypatch.setattr(VirtualFile, "pread", pread)


@pytest.mark.parametrize("trouble", [fail_renames, fail_opens, refuse_work, fail_reads_otherwise])
def test_a_kept_file_that_becomes_no_segment_goes(
    monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Each once was forgotten before a worker had it, stayed until the next start, and another was kept."""
    harness = harness_of()
    engine = started(harness)
    trouble(monkeypatch)
    for _ in range(6):
        go_on(engine, 200)
        assert len(nameless(harness)) <= KEPT_MAX + 1, "those that are kept, and the one under way"
    engine.cool(LOG)
    assert not nameless(harness)
    engine.close()


@pytest.mark.parametrize("end", ["cool", "full disk"])
def test_a_kept_file_that_waits_for_a_worker_goes_when_it_is_given_up(end: str) -> None:
    harness, engine = with_kept_files()
    harness.workers.at_once = False
    while engine.stats()["segments_kept"] == 2:
        append(engine, 1)
    assert len(kept(harness)) == 2, "one is kept, and one waits"
    if end == "cool":
        engine.cool(LOG)
    else:
        fill_and_repair(harness, engine)
    assert not nameless(harness)
    assert harness.workers.run() == 1
    assert not nameless(harness)
    engine.close()


def test_a_used_file_goes_when_the_segment_before_it_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, engine = with_kept_files()
    while engine.stats()["segments_kept"] == 2:
        append(engine, 1)
    assert nameless(harness)

    def full(_: SegmentWriter) -> bool:
        raise Full("no space", path=newest(harness))

    monkeypatch.setattr(SegmentWriter, "seal", full)
    outcome: object = None
    while not isinstance(outcome, Failed):
        last = engine.logs()[LOG].last
        outcome = engine.commit({LOG: Append(entries=entries(last.index + 1, 1, size_bytes=150))}, sync=True)[LOG]
    assert isinstance(outcome.error, Full)
    assert not nameless(harness)
    engine.close()


def test_a_damaged_log_gives_its_kept_files_back_when_it_is_cooled() -> None:
    harness, engine = with_kept_files()
    state = engine.logs()[LOG]
    harness.disk.damage(newest(harness), 400)
    with pytest.raises(Corrupt):
        engine.read(LOG, state.base.index + 1, state.last.index + 1, READ_BYTES)
    assert engine.logs()[LOG].damage is not None
    engine.cool(LOG)
    assert not nameless(harness)
    assert engine.stats()["segments_kept"] == 0
    engine.close()


def test_a_worker_that_begins_when_the_file_was_given_up_says_so_and_leaves_nothing() -> None:
    harness = harness_of()
    file = harness.disk.create("/node/g1-000000000001.reuse")
    file.pwritev([bytes(SEGMENT_BYTES)], 0)
    file.close()
    used = ReusedFile(
        harness.disk, KeptFile("/node/g1-000000000001.reuse", None), "/node/g1-0000000000000001.new", SEGMENT_BYTES
    )
    used.remove()
    with pytest.raises(StorageError, match="a kept file is gone"):
        used.make(lambda: True)
    assert harness.disk.listdir("/node") == []
