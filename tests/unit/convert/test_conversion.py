"""A conversion carries every log over between any two engines, or refuses and changes nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stelae.convert.conversion import building, convert, settle
from stelae.convert.offline import ProgressMeter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import INSTANCE, Instance, InstanceFile, WrongDirectory, format_directory
from stelae.host.metadata_files import CrashPoints, load, save
from stelae.host.settings import ChosenEngine
from stelae.machine.files import RealFiles
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.errors import CallerError, Corrupt, Full, StorageError, SyncFailed
from stelae.spi.ids import ClusterId, LogId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.wal import Append, LogState, Outcome, WalEngine
from stelae.testing.wal_model import entries, observed
from stelae_wal_shared import SharedWal
from tests.unit.convert.places import (
    ENGINES,
    LMDB,
    NODE,
    SEGMENTED,
    SHARED,
    append,
    formatted,
    found,
    held,
    place,
    wal_of,
)

ROOT = "/srv/node"
PAIRS = [(ENGINES[one], ENGINES[other]) for one, other in permutations(ENGINES, 2)]


class Recorded(ProgressMeter):
    """Notes how many entries each phase announced and did."""

    def __init__(self) -> None:
        self.phases: list[list[Any]] = []

    def begin(self, phase: str, entries: int) -> None:
        self.phases.append([phase, entries, 0])

    def add(self, entries: int, size_bytes: int) -> None:
        self.phases[-1][2] += entries


def prepared() -> VirtualDisk:
    disk = VirtualDisk()
    formatted(place(disk, ROOT), SEGMENTED)
    return disk.crash(random.Random(0), Survival.KEPT)


def metadata(disk: VirtualDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.tree().items() if "/wals/" not in path}


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda picked: picked.name)
def test_every_log_is_the_same_under_the_new_engine_on_a_real_disk(
    tmp_path: Path, source: ChosenEngine, target: ChosenEngine
) -> None:
    where = place(RealFiles(), str(tmp_path / "node"))
    formatted(where, source)
    meter = Recorded()
    plan = convert(where, source, target, meter)
    assert found(where) == (target.name, held())
    assert (plan.logs, plan.entries, plan.body_bytes) == (3, 30, 15 * 900 + 15 * 90)
    assert meter.phases == [["checking", 30, 30], ["copying", 30, 30], ["comparing", 30, 30]]


def test_there_and_back_again_keeps_both_old_logs_in_quarantine(tmp_path: Path) -> None:
    where = place(RealFiles(), str(tmp_path / "node"))
    formatted(where, SEGMENTED)
    for source, target in ((SEGMENTED, LMDB), (LMDB, SEGMENTED), (SEGMENTED, LMDB)):
        convert(where, source, target)
    assert found(where) == ("lmdb", held())
    kept = where.services.files.listdir(where.layout.quarantine)
    assert kept == ["wals-lmdb.1", "wals-segmented.1", "wals-segmented.2"]


def test_a_dry_run_tells_both_sizes_and_changes_nothing_but_what_opening_does() -> None:
    disk = prepared()
    before = metadata(disk)
    plan = convert(place(disk, ROOT), SEGMENTED, SHARED, dry_run=True)
    assert plan.space_left_bytes >= plan.space_wanted_bytes > plan.body_bytes
    assert metadata(disk) == before
    assert found(place(disk, ROOT)) == ("segmented", held())


def test_too_little_space_is_refused_with_both_numbers() -> None:
    disk = prepared()
    disk.faults.capacity_bytes = 10 << 20
    with pytest.raises(Full, match=r"needs 13\d{7} bytes of space, \d+ are left"):
        convert(place(disk, ROOT), SEGMENTED, SHARED)
    assert found(place(disk, ROOT)) == ("segmented", held())


@pytest.mark.parametrize("failure", ["full", "sync"])
def test_a_disk_that_fails_the_copy_leaves_the_old_log_and_no_copy(failure: str) -> None:
    disk = prepared()
    where = place(disk, ROOT)

    class FailFrom(CrashPoints):
        def hit(self, point: str) -> None:
            if point == "convert.before_copy" and failure == "full":
                disk.faults.capacity_bytes = sum(map(len, disk.tree().values())) + 9000
            elif point == "convert.before_copy":
                disk.faults.fail_syncs("wals.converting", 99)

    with pytest.raises(Full if failure == "full" else SyncFailed):
        convert(place(disk, ROOT, FailFrom()), SEGMENTED, SHARED)
    disk.faults.heal()
    assert not disk.exists(building(where.layout))
    assert found(where) == ("segmented", held())


def test_a_disk_that_is_full_at_the_commit_point_keeps_the_old_log_and_gets_its_space_back() -> None:
    disk = prepared()
    where = place(disk, ROOT)

    class FullAtCommit(CrashPoints):
        def hit(self, point: str) -> None:
            if point == "instance.before_replace":
                disk.faults.capacity_bytes = 0

    with pytest.raises(Full):
        convert(place(disk, ROOT, FullAtCommit()), SEGMENTED, SHARED)
    assert not disk.exists(building(where.layout))
    disk.faults.heal()
    assert found(where) == ("segmented", held())


def test_a_damaged_log_is_refused_by_name_with_what_to_do() -> None:
    disk = prepared()
    segment = next(path for path in disk.tree() if "/wals/busy/" in path and path.endswith(".seg"))
    disk.damage(segment, 2000)
    before = metadata(disk)
    with pytest.raises(Corrupt, match=r"1 of 3 logs are damaged; replace these replicas[^\n]*\nbusy/3: .*last good"):
        convert(place(disk, ROOT), SEGMENTED, SHARED)
    assert metadata(disk) == before


@pytest.mark.parametrize(("source", "target"), [(SHARED, SEGMENTED), (SEGMENTED, SEGMENTED)])
def test_a_conversion_from_another_engine_or_to_the_same_one_is_refused(
    source: ChosenEngine, target: ChosenEngine
) -> None:
    disk = prepared()
    with pytest.raises(CallerError, match="is of engine 'segmented'"):
        convert(place(disk, ROOT), source, target)


def test_what_another_conversion_left_is_not_taken_for_part_of_this_one() -> None:
    disk = prepared()
    where = place(disk, ROOT)
    left = SHARED.engine.open(building(where.layout), SHARED.config, where.services)
    left.create(LogId(TabletId("busy"), 3), OpId(9, 9))
    left.close()
    convert(where, SEGMENTED, SHARED)
    assert found(where) == ("shared", held())


def test_a_copy_without_a_log_beside_it_is_never_removed() -> None:
    disk = prepared()
    layout = DirectoryLayout(ROOT)
    disk.rename(layout.wals, building(layout))
    with pytest.raises(Corrupt, match="nothing was touched"):
        settle(disk, layout)
    assert disk.exists(building(layout))


def test_a_pending_record_without_any_log_is_corrupt() -> None:
    disk = prepared()
    layout = DirectoryLayout(ROOT)
    pending = msgspec.structs.replace(load(disk, INSTANCE, layout.instance), converted_from="shared")
    save(disk, INSTANCE, layout.instance, pending)
    disk.remove_tree(layout.wals)
    with pytest.raises(Corrupt, match="the log is gone"):
        settle(disk, layout)
    assert load(disk, INSTANCE, layout.instance) == pending


def test_a_node_does_not_start_on_a_half_converted_log() -> None:
    disk = prepared()
    layout = DirectoryLayout(ROOT)
    pending = msgspec.structs.replace(load(disk, INSTANCE, layout.instance), converted_from="shared")
    save(disk, INSTANCE, layout.instance, pending)
    with pytest.raises(WrongDirectory, match=f"stelae wal convert {ROOT}"):
        InstanceFile(disk, layout).start(cluster=ClusterId("c"), wal_engine="segmented")
    settle(disk, layout)
    InstanceFile(disk, layout).start(cluster=ClusterId("c"), wal_engine="segmented")


def test_a_node_started_with_another_engine_is_told_the_command() -> None:
    with pytest.raises(WrongDirectory, match=f"stelae wal convert {ROOT} --to shared"):
        InstanceFile(prepared(), DirectoryLayout(ROOT)).start(cluster=ClusterId("c"), wal_engine="shared")


@pytest.mark.parametrize("phase", ["checking", "copying", "comparing"])
def test_an_interrupt_in_any_phase_leaves_the_old_log_and_no_copy(phase: str) -> None:
    disk = prepared()
    where = place(disk, ROOT)

    class Impatient(Recorded):
        def add(self, entries: int, size_bytes: int) -> None:
            if self.phases[-1][0] == phase:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(where, SEGMENTED, SHARED, Impatient())
    assert not disk.exists(building(where.layout))
    assert found(where) == ("segmented", held())


def live(engine: WalEngine, rng: random.Random) -> None:
    """A random life of a few logs: appended, replaced, collected, dropped."""
    for number in range(1, 6):
        log = LogId(TabletId(f"t{number}"), rng.randrange(1, 4))
        term, base = rng.randrange(1, 5), rng.choice((0, 0, 7, 1 << 33))
        engine.create(log, OpId(term, base) if base else OpId(0, 0))
        for _ in range(rng.randrange(12)):
            state = engine.logs()[log]
            start = state.last.index + 1
            if rng.random() < 0.3:
                start = rng.randrange(state.base.index + 1, start + 1)
            term += rng.randrange(2)
            given = entries(start, rng.randrange(1, 9), term, rng.randrange(20, 900))
            append(engine, log, Append(entries=given, replace_from=start, commit_hint=start - 1))
            if rng.random() < 0.3:
                engine.collect(log, rng.randrange(state.base.index, given[-1].op_id.index + 1))
        if rng.random() < 0.2:
            engine.drop(log)


@pytest.mark.parametrize("seed", range(30))
def test_logs_with_any_past_are_the_same_there_and_back(seed: int) -> None:
    rng = random.Random(seed)
    disk = VirtualDisk()
    where = place(disk, ROOT)
    first, second = rng.sample((SEGMENTED, SHARED), 2)
    instance = Instance(node_id=NODE, cluster_id=None, wal_engine=first.name)
    format_directory(disk, where.layout, instance)
    engine = wal_of(where, first)
    live(engine, rng)
    models = {log: observed(engine, log) for log in engine.logs()}
    engine.close()
    for source, target in ((first, second), (second, first)):
        convert(where, source, target)
        engine = wal_of(where, target)
        assert {log: observed(engine, log) for log in engine.logs()} == models
        engine.close()


# -- the comparison bites ----------------------------------------------------------------------------


class FlipsABody(SharedWal):
    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        found = super().read(log, first, end, bytes_max)
        return [msgspec.structs.replace(e, body=e.body[:-1] + b"?") if e.op_id.index == 17 else e for e in found]


class LosesATimestamp(SharedWal):
    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        found = super().read(log, first, end, bytes_max)
        return [msgspec.structs.replace(e, timestamp=0) if e.op_id.index == 34 else e for e in found]


class LosesTheLastEntry(SharedWal):
    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        cut = {log: msgspec.structs.replace(given, entries=given.entries[:-1]) for log, given in group.items()}
        return super().commit(cut, sync=sync)


class ForgetsALog(SharedWal):
    def logs(self) -> Mapping[LogId, LogState]:
        return {log: state for log, state in super().logs().items() if log.tablet_id != TabletId("empty")}


class ClaimsMoreIsCommitted(SharedWal):
    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        more = {log: msgspec.structs.replace(given, commit_hint=34) for log, given in group.items()}
        return super().commit(more, sync=sync)


@pytest.fixture(params=[FlipsABody, LosesATimestamp, LosesTheLastEntry, ForgetsALog, ClaimsMoreIsCommitted])
def bugged(request: pytest.FixtureRequest) -> ChosenEngine:
    return ChosenEngine(name="bugged", engine=request.param, config=SHARED.config)


def test_a_copy_that_differs_in_anything_is_refused_and_removed(bugged: ChosenEngine) -> None:
    disk = prepared()
    where = place(disk, ROOT)
    with pytest.raises(StorageError, match="the copy"):
        convert(where, SEGMENTED, bugged)
    assert not disk.exists(building(where.layout))
    assert found(where) == ("segmented", held())
