"""A deletion that an error has interrupted after its tombstone, and that is asked for again (rules 18, 19 and 22)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.metadata_files import decode
from stelae.host.superblock import SUPERBLOCK, DataState, SuperblockFile
from stelae.lifecycle.blocking_steps import Ask, OffLoop, Until
from stelae.lifecycle.deletion import write_tombstone
from stelae.lifecycle.quarantine import DeletionRecord
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.sim.disk import Survival
from stelae.spi.errors import Full, StelaeError, StorageError, SyncFailed
from stelae.spi.ids import LogId, OpId
from tests.unit.lifecycle.copy_network import FakeNetwork
from tests.unit.lifecycle.copy_node import CopyNode
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, TABLET
from tests.unit.lifecycle.test_abandoned_copy import copying, first_copy
from tests.unit.lifecycle.test_tablet_copy import lagging


class Scene:
    """A node on which a deletion was interrupted because the disk had no space for one of the moves."""

    def __init__(self, where: str, *, dropped: bool) -> None:
        self.where = where
        self.answers: list[Any] = []
        self.node = lagging()
        config = self.node.peers._replicas[TABLET].status.committed_config.op_id
        self.seen = None if dropped else config
        self.full(True)
        self.delete()
        assert isinstance(self.answers.pop(), Full)
        self.first = self.node.block()
        assert self.first.data_state is DataState.DELETED and self.first.tombstone == LAST
        assert LogId(TABLET, 1) in self.node.wal.logs()

    def full(self, full: bool) -> None:
        def fills(_operation: str, path: str) -> None:
            if "/quarantine/" in path and self.where in path:
                raise Full("no space", path=path)

        self.node.disk.faults.hook = fills if full else None

    def restart(self) -> None:
        """Start the node again while its disk is still full."""
        disk, hook = self.node.disk.clone(), self.node.disk.faults.hook
        disk.faults.hook = hook
        self.node = CopyNode(disk, FakeNetwork({}))
        assert TABLET in self.node.loader.failed

    def delete(self) -> None:
        self.node.manager.delete(TABLET, "evicted", self.answers.append, seen=self.seen)

    def check_deleted_once(self) -> None:
        assert self.answers == [None]
        block = self.node.block()
        assert (block.tombstone, block.quarantine) == (LAST, self.first.quarantine)
        assert self.node.disk.listdir(LAYOUT.quarantine) == ["t.1"]
        place = f"{LAYOUT.root}/{block.quarantine}"
        kept = decode(SUPERBLOCK, self.node.disk.read_bytes(f"{place}/superblock"), place)
        assert kept.data_state is DataState.READY, "so the quarantine can be restored"
        assert {"data", "wals"} <= set(self.node.disk.listdir(place))
        assert LogId(TABLET, 1) not in self.node.wal.logs()
        assert TABLET not in self.node.loader.failed and TABLET not in self.node.loader.failed_configs
        assert self.node.vote(99) is not None, "the tombstone votes"


@pytest.mark.parametrize("where", ["consensus-meta", "wals"])
@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_it_is_completed_and_its_tombstone_and_its_quarantine_stay(where: str, dropped: bool, restarted: bool) -> None:
    scene = Scene(where, dropped=dropped)
    if restarted:
        scene.restart()
    scene.delete()
    assert isinstance(scene.answers.pop(), Full)
    scene.full(False)
    scene.delete()
    scene.check_deleted_once()
    assert scene.node.block().removed == dropped


@pytest.mark.parametrize("restarted", [True, False])
def test_it_is_completed_also_if_an_operator_has_emptied_the_quarantine(restarted: bool) -> None:
    """As on a full disk. It could never be completed then, and the tablet stayed failed."""
    scene = Scene("consensus-meta", dropped=True)
    scene.node.disk.remove_tree(f"{LAYOUT.quarantine}/t.1")
    if restarted:
        scene.restart()
    scene.full(False)
    scene.delete()
    assert scene.answers == [None] and TABLET not in scene.node.loader.failed
    assert scene.node.block().tombstone == LAST and LogId(TABLET, 1) not in scene.node.wal.logs()
    assert not scene.node.disk.exists(LAYOUT.data_of(TABLET)) and scene.node.vote(99) is not None


@pytest.mark.parametrize("removed", [True, False])
def test_a_master_that_takes_it_for_done_completes_it(removed: bool) -> None:
    """In a running node such a tablet is neither a replica nor failed."""
    scene = Scene("wals", dropped=False)
    scene.node.manager.end_deletion(TABLET, scene.answers.append, removed=removed)
    assert isinstance(scene.answers.pop(), Full)
    scene.full(False)
    scene.node.manager.end_deletion(TABLET, scene.answers.append, removed=removed)
    scene.check_deleted_once()
    assert scene.node.block().removed == removed


def test_a_removal_that_was_noted_is_never_forgotten() -> None:
    scene = Scene("wals", dropped=True)
    scene.full(False)
    _, scene.seen = scene.node.metadata()
    scene.delete()
    scene.check_deleted_once()
    assert scene.node.block().removed


def test_a_removal_whose_sync_failed_is_durable_before_the_deletion_is_reported() -> None:
    """The file says that the table is gone for good, but its save has failed at the sync of the directory."""
    node, answers = lagging(), list[Any]()
    node.manager.delete(
        TABLET, "evicted", answers.append, seen=node.peers.replicas[TABLET].status.committed_config.op_id
    )
    assert answers.pop() is None and not node.block().removed

    def fails(operation: str, path: str) -> None:
        if operation == "sync_directory" and path.endswith("tablet-meta"):
            raise SyncFailed("input/output error", path=path)

    node.disk.faults.hook = fails
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert isinstance(answers.pop(), SyncFailed)
    node.disk.faults.hook = None
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert answers == [None]
    after = node.disk.crash(random.Random(1), Survival.LOST)
    assert SuperblockFile(after, LAYOUT, TABLET).load().removed


def test_a_tombstone_is_never_written_over_a_tombstone() -> None:
    scene = Scene("wals", dropped=False)
    about = DeletionRecord(tablet_id=TABLET, table_name="t", deleted_us=1, reason="again", wal_engine="segmented")
    with pytest.raises(ValueError, match="is a tombstone already"):
        write_tombstone(scene.node.disk, LAYOUT, scene.first, "UNKNOWN", about)
    assert scene.node.disk.listdir(LAYOUT.quarantine) == ["t.1"]


@pytest.mark.parametrize("first", [True, False])
def test_the_copy_that_no_start_could_undo_ends_as_what_was_before_it(first: bool) -> None:
    """Its log is another's: what this node has acknowledged is in its superblock alone."""
    disk = first_copy() if first else copying(OpId(1, 9))

    def fails(operation: str, path: str) -> None:
        if operation.startswith("remove") and path.startswith(LAYOUT.data_of(TABLET)):
            raise StorageError("input/output error", path=path)

    disk.faults.hook = fails
    node = CopyNode(disk, FakeNetwork({}))
    assert TABLET in node.loader.failed
    answers: list[Any] = []
    node.manager.delete(TABLET, "evicted", answers.append, seen=OpId(9, 9))
    assert isinstance(answers.pop(), StorageError)
    disk.faults.hook = None
    node.manager.delete(TABLET, "evicted", answers.append, seen=OpId(9, 9))
    assert answers == [None] and TABLET not in node.loader.failed
    assert not any(log.tablet_id == TABLET for log in node.wal.logs())
    if first:
        assert not node.disk.exists(LAYOUT.superblock_of(TABLET))
    else:
        assert node.block().data_state is DataState.DELETED and node.block().tombstone == OpId(1, 9)


def test_the_last_op_id_of_a_failed_replica_is_read_behind_its_last_append() -> None:
    """Its executor never becomes idle, so an append may still be queued. The log must not grow behind the tombstone."""
    queued = [True]
    writer: Any = SimpleNamespace(has_queued=lambda _log: queued[0], acknowledged=lambda _log: OpId(1, 9 - queued[0]))
    replica = MagicMock(failure="damaged rows", log=LogId(TABLET, 1))
    replica.applier.idle, replica.flusher.saving, replica.executor.saving = True, False, False
    steps = TabletManager.shut_down(SimpleNamespace(_node=SimpleNamespace(writer=writer, peers=MagicMock())), replica)  # type: ignore[arg-type]
    try:
        while True:
            step = next(steps)
            assert isinstance(step, Until | OffLoop | Ask)
            if isinstance(step, Until) and not step.condition():
                replica.executor.halt.assert_called_once()
                queued[0] = False
                assert step.condition()
    except StopIteration as ended:
        assert ended.value == OpId(1, 9)
    assert not queued[0]


@pytest.mark.parametrize("failure", ["", "damaged rows"])
def test_a_store_is_closed_when_the_last_group_is_applied(failure: str) -> None:
    """Entries were committed while the executor came to its end. They were applied while another thread closed the
    store, which failed the replica, and might have crashed an engine."""
    writer: Any = SimpleNamespace(has_queued=lambda _log: False, acknowledged=lambda _log: OpId(1, 9))
    replica = MagicMock(failure=failure, log=LogId(TABLET, 1))
    replica.applier.idle, replica.flusher.busy, replica.flusher.saving, replica.executor.saving = True, *[False] * 3
    steps = TabletManager.shut_down(SimpleNamespace(_node=SimpleNamespace(writer=writer, peers=MagicMock())), replica)  # type: ignore[arg-type]
    asked = [step for step in steps if isinstance(step, Ask | OffLoop)]
    assert asked == [Ask(replica.applier.stop), OffLoop(replica.applier.store.close)]


@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("error", [Full, StorageError, FileNotFoundError])
def test_a_replica_of_which_no_tombstone_was_written_runs_until_it_is_deleted(
    dropped: bool, error: type[Exception]
) -> None:
    """It was shut down, and neither a replica nor failed: the next order took it for deleted, and its data stayed."""
    node, answers = lagging(), list[Any]()
    seen = None if dropped else node.peers.replicas[TABLET].status.committed_config.op_id

    def fails(_operation: str, path: str) -> None:
        if path.startswith(f"{LAYOUT.quarantine}/"):
            raise error("no space")

    node.disk.faults.hook = fails
    node.manager.delete(TABLET, "evicted", answers.append, seen=seen)
    assert isinstance(answers.pop(), StelaeError)
    assert node.block().data_state is DataState.READY and TABLET in node.peers.replicas
    assert TABLET not in node.loader.failed
    node.disk.faults.hook = None
    node.manager.delete(TABLET, "evicted", answers.append, seen=seen)
    assert answers == [None]
    block = node.block()
    assert (block.data_state, block.tombstone, block.removed) == (DataState.DELETED, LAST, dropped)
    assert LogId(TABLET, 1) not in node.wal.logs() and TABLET not in node.peers.replicas
