"""When a node whose disk fails ends: once it has nothing left to serve, or no time to give out."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.disk_watch import CEILING_SAVES_MAX, PROBE_NAME, DiskWatch, probe
from stelae.host.node import Node
from stelae.host.ports import BlockingPool
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.ids import TabletId

RED, BLUE = TabletId("red"), TabletId("blue")
EIO = SyncFailed("the sync failed: Input/output error", path="/node/clock")


class World:
    """A node of two replicas, whose disk is tried at once."""

    def __init__(self, found: object = None) -> None:
        self.found = found
        self.observer = MagicMock()
        self.ended: list[StorageError] = []
        self.replicas = {name: SimpleNamespace(failure="") for name in (RED, BLUE)}
        self.probes = 0
        self.watch = DiskWatch(self.observer, MagicMock(), DirectoryLayout("/node"), self.ended.append)
        pool: BlockingPool = MagicMock()
        pool.run.side_effect = self._probe  # type: ignore[attr-defined]
        self.failed: dict[TabletId, str] = {}
        self.watch.watch(self.replicas, self.failed, pool)  # type: ignore[arg-type]

    def _probe(self, _key: str, _work: object, done: object) -> None:
        self.probes += 1
        done(self.found)  # type: ignore[operator]

    def fail(self, name: TabletId) -> None:
        self.replicas[name].failure = "the log cannot be trusted"
        self.watch.replica_failed(name, "RUNNING", "the log cannot be trusted")


def test_while_a_replica_is_left_the_node_stays_and_its_disk_is_not_tried() -> None:
    world = World(EIO)
    world.fail(RED)
    assert world.probes == 0 and not world.ended
    world.observer.replica_failed.assert_called_once()


def test_with_the_last_replica_gone_a_disk_that_fails_ends_the_node_with_path_error_and_next_step() -> None:
    world = World(EIO)
    world.fail(RED)
    world.fail(BLUE)
    (error,) = world.ended
    assert "/node/clock" in str(error) and "Input/output error" in str(error) and "replace the disk" in str(error)


def test_a_node_none_of_whose_tablets_starts_tests_its_disk() -> None:
    world = World(EIO)
    world.watch.started()
    assert world.probes == 0, "replicas run"
    world.replicas.clear()
    world.watch.started()
    assert world.probes == 0, "it has no tablet yet"
    world.failed |= {RED: "the log cannot be read now", BLUE: "the log cannot be read now"}
    world.watch.started()
    (error,) = world.ended
    assert "none of the 2 replicas" in str(error) and "/node/clock" in str(error)


@pytest.mark.parametrize("found", [None, Full("no space", path="/node")])
def test_a_disk_that_works_or_is_full_keeps_the_node_to_say_why_its_replicas_failed(found: object) -> None:
    world = World(found)
    world.fail(RED)
    world.fail(BLUE)
    assert world.probes == 1 and not world.ended


def test_a_ceiling_that_cannot_be_saved_is_told_once_and_then_ends_the_node(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(CEILING_SAVES_MAX - 1):
        world.watch.ceiling_saved(EIO)
    world.watch.ceiling_saved(None)
    assert not world.ended
    for _ in range(CEILING_SAVES_MAX * 3):
        world.watch.ceiling_saved(EIO)
    (error,) = world.ended
    assert "timestamps" in str(error) and "/node/clock" in str(error)
    assert len([r for r in caplog.records if "ceiling" in r.getMessage()]) == 2, "once for each row of failures"


def test_a_full_disk_never_ends_the_node_for_its_clock() -> None:
    world = World()
    for _ in range(CEILING_SAVES_MAX * 3):
        world.watch.ceiling_saved(Full("no handle", path="/node/clock"))
    assert not world.ended


def test_a_probe_leaves_nothing_behind_and_finds_the_directory_that_fails() -> None:
    disk, layout = VirtualDisk(), DirectoryLayout("/node")
    for directory in layout.directories():
        disk.make_directory(directory)
    probe(disk, layout)
    probe(disk, layout)
    assert not [path for path in disk.tree() if PROBE_NAME in path]
    disk.faults.fail_syncs("/node/wals/")
    with pytest.raises(SyncFailed, match="/node/wals"):
        probe(disk, layout)


def test_a_disk_that_does_not_say_how_much_is_left_counts_as_full() -> None:
    """The question is asked on the event loop twice a second: its error ended the node as a defect."""

    def fails(path: str) -> int:
        raise StorageError("Input/output error", path=path)

    node = SimpleNamespace(files=SimpleNamespace(space_left=fails), layout=DirectoryLayout("/node"))
    assert Node.free_bytes(node) == 0  # type: ignore[arg-type]
