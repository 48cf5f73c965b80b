"""A crash anywhere in a conversion leaves the old log or the new one, whole, and the next start ends what was begun."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from stelae.convert.conversion import building, convert, settle
from stelae.host.metadata_files import CrashPoints
from stelae.host.settings import ChosenEngine
from stelae.sim.disk import PowerLost, Survival, VirtualDisk
from tests.unit.convert.places import SEGMENTED, SHARED, formatted, found, held, place

ROOT = "/srv/node"
WAYS = [(SEGMENTED, SHARED), (SHARED, SEGMENTED)]
BOTH_WAYS = pytest.mark.parametrize(("source", "target"), WAYS, ids=lambda picked: picked.name)

POINTS = (
    "convert.before_copy",
    "convert.before_compare",
    "convert.before_commit",
    "instance.before_replace",
    "instance.after_replace",
    "convert.before_quarantine",
    "convert.before_rename",
    "convert.before_clear",
    "instance.before_replace",
    "instance.after_replace",
)
"""Every named point in the order of passing; the commit point is passed within the fourth."""
COMMITTED_FROM = 4

SEEDS = 100
"""Few operations, but many ways in which names that were not synced survive: a sync too few shows in one of thirty."""


class PowerOffAt(CrashPoints):
    """Cuts the power of a disk at the point of that number, and notes which were passed."""

    def __init__(self, disk: VirtualDisk, number: int) -> None:
        self._disk = disk
        self._number = number
        self.passed: list[str] = []

    def hit(self, point: str) -> None:
        if len(self.passed) == self._number:
            self._disk.faults.powered = False
            raise PowerLost(point)
        self.passed.append(point)


def prepared(source: ChosenEngine) -> VirtualDisk:
    disk = VirtualDisk()
    formatted(place(disk, ROOT), source)
    return disk.crash(random.Random(0), Survival.KEPT)


def operations(disk: VirtualDisk, work: Callable[[VirtualDisk], object]) -> int:
    """How many operations some work does to a disk."""
    twin = disk.clone()
    work(twin)
    return twin.faults.operations


def check_whole(disk: VirtualDisk, source: ChosenEngine, target: ChosenEngine) -> str:
    """Settle as a start does; return the engine in charge, under which every entry is there."""
    where = place(disk, ROOT)
    settle(disk, where.layout)
    name, models = found(where)
    assert models == held()
    assert not disk.exists(building(where.layout))
    kept = disk.listdir(where.layout.quarantine)
    assert kept == ([] if name == source.name else [f"wals-{source.name}.1"])
    assert name in (source.name, target.name)
    return name


@BOTH_WAYS
@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("number", range(len(POINTS) + 1))
def test_a_crash_at_a_named_point_leaves_the_old_log_before_the_commit_and_the_new_one_after(
    source: ChosenEngine, target: ChosenEngine, survival: Survival, number: int
) -> None:
    disk = prepared(source)
    points = PowerOffAt(disk, number)
    with suppress(PowerLost):
        convert(place(disk, ROOT, points), source, target)
    assert tuple(points.passed) == POINTS[:number]
    name = check_whole(disk.crash(random.Random(number), survival), source, target)
    assert name == (source if number < COMMITTED_FROM else target).name


@BOTH_WAYS
def test_a_crash_at_any_operation_of_the_disk_leaves_one_whole_log(source: ChosenEngine, target: ChosenEngine) -> None:
    disk = prepared(source)
    count = operations(disk, lambda twin: convert(place(twin, ROOT), source, target))
    assert count > 50
    ended = set()
    for number in range(count):
        for seed, survival in enumerate((*Survival, Survival.DRAWN)):
            twin = disk.clone()
            twin.faults.lose_power_after(operations=number)
            with pytest.raises(PowerLost):
                convert(place(twin, ROOT), source, target)
            ended.add(check_whole(twin.crash(random.Random(number * 10 + seed), survival), source, target))
    assert ended == {source.name, target.name}


@BOTH_WAYS
def test_a_crash_at_any_operation_of_the_roll_forward_is_rolled_forward_again(
    source: ChosenEngine, target: ChosenEngine
) -> None:
    disk = prepared(source)
    with pytest.raises(PowerLost):
        convert(place(disk, ROOT, PowerOffAt(disk, COMMITTED_FROM)), source, target)
    disk = disk.crash(random.Random(1), Survival.KEPT)
    layout = place(disk, ROOT).layout
    count = operations(disk, lambda twin: settle(twin, layout))
    assert count >= 8
    for number in range(count):
        for seed in range(SEEDS):
            twin = disk.clone()
            twin.faults.lose_power_after(operations=number)
            with pytest.raises(PowerLost):
                settle(twin, layout)
            assert check_whole(twin.crash(random.Random(seed)), source, target) == target.name


def test_a_start_after_a_kill_rolls_forward_by_a_record_that_no_power_loss_takes_back() -> None:
    """The next process sees the record that a killed one has renamed, whether or not its name was synced."""
    disk, killed = prepared(SEGMENTED), list[VirtualDisk]()
    layout = place(disk, ROOT).layout
    twin = disk.clone()
    twin.faults.hook = lambda _operation, _path: killed.append(twin.clone())
    convert(place(twin, ROOT), SEGMENTED, SHARED)
    unsynced = [moment for moment in killed if not moment.is_durable(layout.instance)]
    assert len(unsynced) == 2, "at the commit and at the end"
    for moment in unsynced:
        for number in range(operations(moment, lambda twin: settle(twin, layout))):
            for seed in range(SEEDS):
                start = moment.clone()
                start.faults.lose_power_after(operations=number)
                with pytest.raises(PowerLost):
                    settle(start, layout)
                check_whole(start.crash(random.Random(seed)), SEGMENTED, SHARED)


def test_a_crash_at_any_operation_of_the_roll_back_is_rolled_back_again() -> None:
    disk = prepared(SEGMENTED)
    with pytest.raises(PowerLost):
        convert(place(disk, ROOT, PowerOffAt(disk, 2)), SEGMENTED, SHARED)
    disk = disk.crash(random.Random(1), Survival.KEPT)
    layout = place(disk, ROOT).layout
    for number in range(operations(disk, lambda twin: settle(twin, layout))):
        for seed in range(8):
            twin = disk.clone()
            twin.faults.lose_power_after(operations=number)
            with pytest.raises(PowerLost):
                settle(twin, layout)
            assert check_whole(twin.crash(random.Random(seed)), SEGMENTED, SHARED) == "segmented"


def test_a_conversion_goes_through_after_any_crash_before_its_commit() -> None:
    disk = prepared(SEGMENTED)
    count = operations(disk, lambda twin: convert(place(twin, ROOT), SEGMENTED, SHARED))
    for number in range(0, count, 7):
        twin = disk.clone()
        twin.faults.lose_power_after(operations=number)
        with pytest.raises(PowerLost):
            convert(place(twin, ROOT), SEGMENTED, SHARED)
        twin = twin.crash(random.Random(number))
        if check_whole(twin, SEGMENTED, SHARED) == "segmented":
            convert(place(twin, ROOT), SEGMENTED, SHARED)
            assert check_whole(twin, SEGMENTED, SHARED) == "shared"
