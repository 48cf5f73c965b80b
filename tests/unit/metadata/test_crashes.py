"""A crash at every named point and at every disk operation leaves the old record or the new."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from stelae.host.consensus_metadata import CONSENSUS, ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import (
    CLOCK,
    INSTANCE,
    AlreadyFormatted,
    Instance,
    InstanceFile,
    format_directory,
    load_ceiling,
    save_ceiling,
)
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.superblock import SUPERBLOCK, Superblock, SuperblockFile
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.ids import ZERO, ClusterId, NodeId, TabletId
from stelae.spi.members import TabletConfig

NODE = NodeId("a" * 32)
TABLET = TabletId("t")
LAYOUT = DirectoryLayout("/deep/er/node")
CONFIG = TabletConfig(op_id=ZERO, members=())
NEW = Instance(node_id=NODE, cluster_id=None, wal_engine="segmented")


class Crash(BaseException):
    """The process was killed at a named point."""


class KillAt(CrashPoints):
    """Crash points that kill at one of them and note which were passed."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.passed: list[str] = []

    def hit(self, point: str) -> None:
        self.passed.append(point)
        if point == self.point:
            raise Crash(point)


def prepared() -> VirtualDisk:
    disk = VirtualDisk()
    format_directory(disk, LAYOUT, NEW)
    SuperblockFile(disk, LAYOUT, TABLET).save(Superblock(tablet_id=TABLET, generation=1))
    ConsensusMetadata(disk, LAYOUT, TABLET).save(HardState(1, NODE), CONFIG)
    save_ceiling(disk, LAYOUT, 1)
    return disk


def save_superblock(disk: VirtualDisk, crash: CrashPoints) -> None:
    block = Superblock(tablet_id=TABLET, generation=2)
    SuperblockFile(disk, LAYOUT, TABLET, crash).save(block)


def save_vote(disk: VirtualDisk, crash: CrashPoints) -> None:
    ConsensusMetadata(disk, LAYOUT, TABLET, crash).save(HardState(2, NODE), CONFIG)


def save_clock(disk: VirtualDisk, crash: CrashPoints) -> None:
    save_ceiling(disk, LAYOUT, 2, crash)


def join(disk: VirtualDisk, crash: CrashPoints) -> None:
    file = InstanceFile(disk, LAYOUT, crash)
    file.start(cluster=ClusterId("c"), wal_engine="segmented")


def read(disk: VirtualDisk) -> tuple[int, int, int, str | None]:
    return (
        SuperblockFile(disk, LAYOUT, TABLET).load().generation,
        ConsensusMetadata(disk, LAYOUT, TABLET).load().term,
        load_ceiling(disk, LAYOUT),
        InstanceFile(disk, LAYOUT).load().cluster_id,
    )


BEFORE = (1, 1, 1, None)
Step = Callable[[VirtualDisk, CrashPoints], None]
STEPS: dict[str, tuple[Step, tuple[int, int, int, str | None]]] = {
    SUPERBLOCK.name: (save_superblock, (2, 1, 1, None)),
    CONSENSUS.name: (save_vote, (1, 2, 1, None)),
    CLOCK.name: (save_clock, (1, 1, 2, None)),
    INSTANCE.name: (join, (1, 1, 1, "c")),
}


@pytest.mark.parametrize("name", STEPS)
def test_killed_before_the_replacement_the_old_record_stands(name: str) -> None:
    step, _ = STEPS[name]
    disk = prepared()
    with pytest.raises(Crash):
        step(disk, KillAt(f"{name}.before_replace"))
    assert read(disk.crash(random.Random(1))) == BEFORE


@pytest.mark.parametrize("name", STEPS)
def test_killed_after_the_replacement_the_new_record_stands(name: str) -> None:
    step, after = STEPS[name]
    disk = prepared()
    with pytest.raises(Crash):
        step(disk, KillAt(f"{name}.after_replace"))
    assert read(disk.crash(random.Random(1))) == after


@pytest.mark.parametrize("name", STEPS)
def test_both_points_are_passed_in_order(name: str) -> None:
    step, _ = STEPS[name]
    points = KillAt("none")
    step(prepared(), points)
    assert points.passed == [f"{name}.before_replace", f"{name}.after_replace"]


@pytest.mark.parametrize("name", STEPS)
def test_power_lost_at_any_operation_leaves_the_old_or_the_new_record(name: str) -> None:
    step, after = STEPS[name]
    seen = set()
    for operations in range(100):
        for seed in range(30):
            disk = prepared()
            disk.faults.lose_power_after(operations=operations)
            try:
                step(disk, NO_CRASH)
            except PowerLost:
                found = read(disk.crash(random.Random(seed)))
                assert found in (BEFORE, after)
                seen.add(found)
                continue
            assert read(disk.crash(random.Random(seed))) == after
            assert seen == {BEFORE, after}, "the loop has to see both outcomes"
            return
    raise AssertionError("the step never ran to its end")


def test_format_cut_short_anywhere_can_be_repeated_and_done_it_is_durable() -> None:
    for operations in range(200):
        disk = VirtualDisk()
        disk.faults.lose_power_after(operations=operations)
        try:
            format_directory(disk, LAYOUT, NEW)
        except PowerLost:
            survived = disk.crash(random.Random(operations))
            if survived.exists(LAYOUT.instance):
                with pytest.raises(AlreadyFormatted):
                    format_directory(survived, LAYOUT, NEW)
            else:
                format_directory(survived, LAYOUT, NEW)
            assert InstanceFile(survived, LAYOUT).load() == NEW
            assert load_ceiling(survived, LAYOUT) == 0
            continue
        survived = disk.crash(random.Random(operations))
        assert InstanceFile(survived, LAYOUT).load() == NEW
        assert all(survived.exists(directory) for directory in LAYOUT.directories())
        return
    raise AssertionError("format never ran to its end")


def test_format_killed_anywhere_can_be_repeated_and_done_it_is_durable() -> None:
    """The next process sees the directories that the killed one made, whether or not their names were synced."""
    disk, killed = VirtualDisk(), list[VirtualDisk]()
    disk.faults.hook = lambda _operation, _path: killed.append(disk.clone())
    format_directory(disk, LAYOUT, NEW)
    for left in killed:
        with suppress(AlreadyFormatted):
            format_directory(left, LAYOUT, NEW)
        InstanceFile(left, LAYOUT).start(cluster=ClusterId("c"), wal_engine="segmented")
        after = left.crash(random.Random(1), Survival.LOST)
        assert InstanceFile(after, LAYOUT).load().cluster_id == "c" and load_ceiling(after, LAYOUT) == 0
    assert len(killed) > 20
