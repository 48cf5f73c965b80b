"""The node's own identity: written once, checked at each start, held by one process."""

from __future__ import annotations

import random

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import (
    AlreadyFormatted,
    Instance,
    InstanceFile,
    NotFormatted,
    WrongDirectory,
    format_directory,
    lock_directory,
)
from stelae.host.metadata_files import HEADER_BYTES
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import BadIdentifier, Corrupt, Locked, SyncFailed
from stelae.spi.ids import ZERO, ClusterId, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig

NODE = NodeId("a" * 32)
CLUSTER = ClusterId("c")
LAYOUT = DirectoryLayout("/node")
TABLET = TabletId("t")
CONFIG = TabletConfig(op_id=ZERO, members=(Member(node_id=NODE, address="h:1"),))


def formatted(cluster: ClusterId | None = None) -> VirtualDisk:
    disk = VirtualDisk()
    format_directory(disk, LAYOUT, Instance(node_id=NODE, cluster_id=cluster, wal_engine="segmented"))
    return disk


def start(disk: VirtualDisk, cluster: str = "c") -> Instance:
    file = InstanceFile(disk, LAYOUT)
    return file.start(cluster=ClusterId(cluster), wal_engine="segmented")


def test_format_makes_every_directory_once() -> None:
    disk = formatted()
    assert all(disk.exists(directory) for directory in LAYOUT.directories())
    with pytest.raises(AlreadyFormatted, match="already has a node"):
        format_directory(disk, LAYOUT, InstanceFile(disk, LAYOUT).load())


def test_format_refuses_a_directory_with_tablets_but_no_instance_file() -> None:
    disk = formatted()
    disk.replace(f"{LAYOUT.superblocks}/t1", b"anything")
    disk.remove(LAYOUT.instance)
    with pytest.raises(AlreadyFormatted, match="the directory has tablets"):
        format_directory(disk, LAYOUT, Instance(node_id=NODE, cluster_id=None, wal_engine="segmented"))


@pytest.mark.parametrize("bad", ["", "A" * 32, "a" * 31, "../" + "a" * 29])
def test_format_refuses_a_bad_uuid_and_writes_nothing(bad: str) -> None:
    disk = VirtualDisk()
    with pytest.raises(BadIdentifier):
        format_directory(disk, LAYOUT, Instance(node_id=NodeId(bad), cluster_id=None, wal_engine="segmented"))
    assert not disk.exists(LAYOUT.root)


def test_format_on_a_disk_that_fails_a_sync_is_refused_before_anything_is_written() -> None:
    disk = VirtualDisk()
    disk.make_directory(LAYOUT.root)
    disk.faults.fail_syncs("/")  # That of the directory above the node's, whose name is made durable first.
    with pytest.raises(SyncFailed):
        format_directory(disk, LAYOUT, Instance(node_id=NODE, cluster_id=None, wal_engine="segmented"))
    assert disk.listdir(LAYOUT.root) == []


def test_the_first_join_fixes_the_cluster() -> None:
    disk = formatted()
    start(disk)
    assert InstanceFile(disk, LAYOUT).load().cluster_id == CLUSTER
    with pytest.raises(WrongDirectory, match="belongs to cluster c, not to d"):
        start(disk, cluster="d")


def test_a_node_of_another_cluster_is_refused_unchanged() -> None:
    disk = formatted(ClusterId("other"))
    before = disk.tree()
    with pytest.raises(WrongDirectory):
        start(disk)
    assert disk.tree() == before


def test_another_log_engine_may_not_open_the_directory() -> None:
    with pytest.raises(WrongDirectory, match="written by engine 'segmented', not 'lmdb'"):
        InstanceFile(formatted(), LAYOUT).start(cluster=CLUSTER, wal_engine="lmdb")


def test_the_clean_mark_is_gone_durably_once_started() -> None:
    disk = formatted()
    assert InstanceFile(disk, LAYOUT).load().clean_shutdown is True
    start(disk)
    assert InstanceFile(disk, LAYOUT).load().clean_shutdown is False


def test_a_start_makes_durable_what_a_killed_process_has_renamed() -> None:
    """Otherwise it could act on a vote that a power loss undoes."""
    disk = formatted(CLUSTER)
    metadata = ConsensusMetadata(disk, LAYOUT, TABLET)
    metadata.save(HardState(1, None), CONFIG)
    disk.faults.hook = _killed_before_the_directory_is_synced
    with pytest.raises(KeyboardInterrupt):
        metadata.save(HardState(2, NODE), CONFIG)
    killed = disk.clone()
    start(killed)
    seen = ConsensusMetadata(killed, LAYOUT, TABLET).load()
    assert seen.hard_state == HardState(2, NODE)
    assert ConsensusMetadata(killed.crash(random.Random(1), Survival.LOST), LAYOUT, TABLET).load() == seen


def _killed_before_the_directory_is_synced(operation: str, _path: str) -> None:
    if operation == "sync_directory":
        raise KeyboardInterrupt


def test_an_orderly_stop_sets_the_mark_again_and_changes_nothing_else() -> None:
    disk = formatted(CLUSTER)
    before = InstanceFile(disk, LAYOUT).load()
    assert start(disk) == InstanceFile(disk, LAYOUT).load() != before
    InstanceFile(disk, LAYOUT).mark_clean()
    assert InstanceFile(disk.crash(random.Random(1)), LAYOUT).load() == before


def test_an_unformatted_directory_says_how_to_format_it() -> None:
    with pytest.raises(NotFormatted, match="stelae fs format /node"):
        InstanceFile(VirtualDisk(), LAYOUT).load()
    with pytest.raises(NotFormatted, match="stelae fs format /node"):
        lock_directory(VirtualDisk(), LAYOUT, 1)


def test_a_damaged_instance_file_is_refused_by_name() -> None:
    disk = formatted()
    disk.damage(LAYOUT.instance, HEADER_BYTES)
    with pytest.raises(Corrupt, match="/node/instance"):
        start(disk)


def test_a_process_that_is_kept_out_by_a_command_for_a_stopped_node_is_told_to_wait() -> None:
    disk = formatted()
    lock_directory(disk, LAYOUT, 4711, offline=True)
    with pytest.raises(Locked, match="in use by process 4711, a command for a stopped node; wait for its end"):
        lock_directory(disk, LAYOUT, 4712)


def test_a_second_process_is_kept_out_and_told_by_whom() -> None:
    disk = formatted()
    lock = lock_directory(disk, LAYOUT, 4711)
    with pytest.raises(Locked, match="in use by process 4711"):
        lock_directory(disk, LAYOUT, 4712)
    lock.release()
    lock_directory(disk, LAYOUT, 4712)
    with pytest.raises(Locked, match="process 4712"):
        lock_directory(disk, LAYOUT, 4713)
