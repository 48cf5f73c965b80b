"""A crash at every step of a copy: a clean tombstone or a finished copy, and a new copy succeeds (T2, T9)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.superblock import DataState
from stelae.lifecycle.copy_stage import CopyStage, read_manifest
from stelae.lifecycle.restore_from_quarantine import BackInTime
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.errors import Corrupt, SyncFailed
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import (
    FOLLOWER,
    LEADER,
    TERM,
    CopyNode,
    FakeNetwork,
    KillAt,
    Killed,
    Served,
    check_complete,
    check_never,
    check_tombstone,
    lagging_disk,
    never_disk,
    served,
    tombstone_disk,
)
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, TABLET, DiskNode, ids, moments
from tests.unit.lifecycle.test_restore_from_quarantine import refused, restored

VOTED, ADOPTED = HardState(4, NODE), HardState(TERM, None)
FILES, EXPORT = served(), served(export=True)

PLACES: dict[str, tuple[Callable[[], VirtualDisk], Served, dict[str, Any]]] = {
    "tombstone": (tombstone_disk, FILES, {}),
    "never": (never_disk, EXPORT, {"member_type": MemberType.PRE_VOTER}),
    "lagging": (lagging_disk, FILES, {"hosted": True}),
    "damaged": (lagging_disk, FILES, {"hosted": True}),
}

POINTS = [
    "superblock.before_replace",
    "superblock.after_replace",
    "copy.after_marked",
    "copy.after_stage_cleaned",
    "copy-stage.before_replace",
    "copy-stage.after_replace",
    "copy.after_chunk",
    "copy.after_item",
    "copy.after_verified",
    "copy.after_log_created",
    "copy.after_log_piece",
    "copy.after_log",
    "copy.after_rows",
    "copy.after_merge",
    "copy.after_ready",
    "copy.after_stage_removed",
]


def node_on(disk: VirtualDisk, place: str, crash: KillAt | None = None) -> CopyNode:
    """Start a node. If its replica is not copied yet, it lags or is damaged."""
    node = CopyNode(disk, FakeNetwork({LEADER: PLACES[place][1], FOLLOWER: PLACES[place][1]}), crash)
    one = node.recovered.get(TABLET)
    if one is not None:
        node.add_replica(TABLET, one.superblock, one.consensus)
        if one.superblock.flushed.index < 20:
            del node.recovered[TABLET]
            if place == "damaged":
                replica: Any = node.peers.replicas[TABLET]
                replica.failure = "damage found: a bad page"
                replica.read_faults.store_failed(replica.failure, Corrupt("a bad page", path="1.parquet"))
    return node


def copy(node: CopyNode, place: str) -> None:
    changed = dict(PLACES[place][2])
    changed["hosted"] = TABLET in node.peers.replicas
    node.ask_until_end(**changed)


def check_after(disk: VirtualDisk, place: str, *, may_lose_stage: bool = False) -> str:
    """Start after a crash, check that the tablet is in no state between, and copy it. Return what it was.

    ``may_lose_stage``: the stage may be without its manifest, because a start has kept it unsynced."""
    node = node_on(disk, place)
    assert not node.loader.failed, node.loader.failed
    found = node.loader.inspect(TABLET, node.wal.logs())
    intact = read_manifest(disk, LAYOUT, TABLET) is not None
    assert intact or may_lose_stage or not disk.exists(LAYOUT.stage_of(TABLET)), "no orphan files"
    if found.decision.action is StartupAction.NOTHING:
        assert place == "never", "the tombstone is gone, and with it what the replica has acknowledged"
        state = "never"
        check_never(node)
    elif node.block().data_state is DataState.DELETED:
        state = "tombstone"
        merged = node.metadata()[0]
        assert merged in (VOTED, ADOPTED), "term and vote never go back"
        check_tombstone(node, merged)
        check_restore(disk.clone(), merged)
    elif TABLET in node.recovered:
        check_complete(node, ADOPTED)
        return "complete"
    else:
        state = place
        assert node.metadata()[0] == VOTED and (place == "damaged" or not intact), "only the damaged is set aside last"
    copy(node, place)
    check_complete(node, ADOPTED)
    return state


def check_restore(disk: VirtualDisk, merged: HardState) -> None:
    """What the replica had can be restored, unless its log lacks the config that the copy has merged."""
    node = DiskNode(disk)
    if merged == ADOPTED:
        refused(node, BackInTime, "an abandoned copy has told this node the committed config")
        return
    restored(node)
    again = DiskNode(node.disk.clone())
    assert ids(again.recovered()[TABLET]) == list(range(1, 10)) and not again.loader.failed


def points_of(place: str) -> list[str]:
    crash = KillAt()
    node = node_on(PLACES[place][0](), place, crash)
    crash.passed.clear()
    copy(node, place)
    check_complete(node, ADOPTED)
    return crash.passed


@pytest.mark.parametrize("place", PLACES)
def test_every_step_has_a_crash_point(place: str) -> None:
    passed = set(points_of(place)) - {point for point in points_of(place) if point.startswith("consensus-meta")}
    assert passed == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("place", PLACES)
def test_a_process_that_is_killed_at_a_step_leaves_a_tombstone_or_a_replica(place: str, point: str) -> None:
    passed = points_of(place)
    ready = len(passed) - passed[::-1].index("superblock.after_replace") - 1
    where = [number for number, name in enumerate(passed) if name == point]
    for nth in sorted({1, (len(where) + 1) // 2, len(where)}):
        disk = PLACES[place][0]().clone()
        node = node_on(disk, place, KillAt(point, nth))
        with pytest.raises(Killed):
            copy(node, place)
        state = check_after(disk.clone(), place)
        assert (state == "complete") == (where[nth - 1] >= ready), (nth, state)


@pytest.mark.parametrize("place", PLACES)
def test_power_lost_at_any_operation_leaves_a_tombstone_or_a_replica(place: str) -> None:
    make = PLACES[place][0]
    clean = node_on(make(), place)
    begun = clean.disk.faults.operations
    copy(clean, place)
    count = clean.disk.faults.operations - begun
    before = {place} if place in ("tombstone", "never") else {place, "tombstone"}
    seen = set()
    for number in range(1, count + 1):
        node = node_on(make(), place)
        node.disk.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            copy(node, place)
        seen.add(check_after(node.disk.crash(random.Random(number)), place))
    assert count > 40 and seen == before | {"complete"}


@pytest.mark.parametrize("place", PLACES)
def test_what_a_start_makes_of_a_copy_that_was_killed_at_any_operation_survives_a_power_loss(place: str) -> None:
    node = node_on(PLACES[place][0](), place)
    killed = moments(node.disk, lambda: copy(node, place))
    seen = set()
    for number, disk in enumerate(killed):
        node_on(start := disk.clone(), place)
        survival = Survival.DRAWN if number % 2 else Survival.LOST
        seen.add(check_after(start.crash(random.Random(number), survival), place, may_lose_stage=True))
    assert len(killed) > 40 and "complete" in seen


@pytest.mark.parametrize("place", PLACES)
def test_a_copy_that_goes_on_after_a_kill_at_any_operation_is_complete_after_a_power_loss(place: str) -> None:
    node = node_on(PLACES[place][0](), place)
    killed = moments(node.disk, lambda: copy(node, place))
    for number, disk in enumerate(killed):
        again = node_on(disk.clone(), place)
        copy(again, place)
        assert check_after(again.disk.crash(random.Random(number), Survival.LOST), place) == "complete", number


def test_a_copy_that_is_asked_for_again_after_any_failed_sync_survives_a_power_loss() -> None:
    """Only a superblock that may not be durable needs a restart of the node."""
    states, syncs = [], 0
    while True:
        node, left = node_on(tombstone_disk(), "tombstone"), [syncs]

        def fails(operation: str, path: str, left: list[int] = left) -> None:
            left[0] -= operation in ("sync", "sync_directory")
            if left[0] == -1 and operation in ("sync", "sync_directory"):
                raise SyncFailed("input/output error", path=path)

        node.disk.faults.hook = fails
        copy(node, "tombstone")
        node.disk.faults.hook = None
        if left[0] >= 0:
            break
        copy(node, "tombstone")
        assert not node.loader.failed or "restart the node" in node.loader.failed[TABLET]
        states.append(check_after(node.disk.crash(random.Random(1), Survival.LOST), "tombstone"))
        syncs += 1
    assert len(states) > 20 and [state for state in states if state != "complete"] == ["tombstone"]


def test_a_stage_whose_names_are_not_synced_when_a_copy_goes_on_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(self: CopyStage, names: set[str], inner: Any = CopyStage._keep_only) -> None:
        files, self._files = self._files, MagicMock(wraps=self._files, sync_directory=lambda _path: None)
        inner(self, names)
        self._files = files

    monkeypatch.setattr(CopyStage, "_keep_only", planted)
    with pytest.raises(AssertionError):
        test_a_copy_that_goes_on_after_a_kill_at_any_operation_is_complete_after_a_power_loss("tombstone")


def test_power_lost_on_the_way_back_leaves_a_tombstone() -> None:
    """The sources are gone when the log is installed: the copy is abandoned, and the power is lost meanwhile."""

    def abandoned(number: int | None) -> VirtualDisk:
        node = node_on(tombstone_disk(), "tombstone")

        def fails(tablet: Any, then: Any) -> None:
            if number is not None:
                node.disk.faults.lose_power_after(operations=number)
            then(None)

        node.tombstones.voter = fails  # type: ignore[method-assign]
        before = node.disk.faults.operations
        with suppress(PowerLost):
            copy(node, "tombstone")
        counts.append(node.disk.faults.operations - before)
        return node.disk

    counts: list[int] = []
    assert check_after(abandoned(None).clone(), "tombstone") == "tombstone"
    for number in range(1, 100):
        disk = abandoned(number)
        powered = disk.faults.powered
        assert check_after(disk.crash(random.Random(number)), "tombstone") == "tombstone"
        if powered:
            assert number > 5
            return
    raise AssertionError("the way back does not end")
