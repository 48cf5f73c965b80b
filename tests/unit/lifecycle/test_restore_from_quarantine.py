"""Restoring from quarantine: what comes back is all that was there, and nothing that would be older does (rule 23)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle import restore_from_quarantine
from stelae.lifecycle.quarantine import list_quarantine, purge
from stelae.lifecycle.restore_from_quarantine import BackInTime, restore
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.errors import CallerError, Full, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.services import EngineServices
from stelae.spi.wal import LogState
from stelae_wal_segmented import SegmentedWal
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, NODE, OTHER, TABLET, DiskNode, NoService, ids, moments

NAME = "t.1"


def opener(disk: VirtualDisk) -> Callable[[str, LogId], AbstractContextManager[tuple[LogState, Iterator[Entry]]]]:
    service = NoService()
    services = EngineServices(disk, service, service, service)
    return lambda directory, log: SegmentedWal.opened_aside(directory, log, SegmentedWal.Config(), services)


def restored(node: DiskNode, name: str = NAME) -> None:
    restore(node.disk, LAYOUT, node.wal, name, opener(node.disk), node.crash)


def deleted() -> DiskNode:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete()
    return node


def refused(node: DiskNode, error: type[Exception], fact: str, name: str = NAME) -> None:
    """Restoring is refused with this fact, and changes no byte."""
    before = node.disk.tree()
    with pytest.raises(error, match=fact):
        restored(node, name)
    assert node.disk.tree() == before, "a refused request changes nothing"


def test_a_deleted_replica_comes_back_with_every_row_and_keeps_its_vote() -> None:
    node = deleted()
    ConsensusMetadata(node.disk, LAYOUT, TABLET).save(HardState(7, NODE), _config(node))
    restored(node)
    again = DiskNode(node.disk.clone())
    recovered = again.recovered()
    assert ids(recovered[TABLET]) == list(range(1, 10)) and recovered[TABLET].log.last == LAST
    assert again.block().data_state is DataState.READY and again.block().generation == 2
    assert ConsensusMetadata(again.disk, LAYOUT, TABLET).load().hard_state == HardState(7, NODE), "its vote since"
    assert list_quarantine(again.disk, LAYOUT) == [], "what is back is not kept twice"


def test_it_can_be_deleted_and_restored_again() -> None:
    node = deleted()
    for number in (1, 2):
        restored(node)
        assert ids(DiskNode(node.disk.clone()).recovered()[TABLET]) == list(range(1, 10))
        again = DiskNode(node.disk.clone())
        again.delete()
        assert [one.name for one in list_quarantine(again.disk, LAYOUT)] == [NAME], number
        node = again


@pytest.mark.parametrize("seed", range(2))
def test_power_lost_at_any_operation_leaves_the_tombstone_or_the_whole_replica(seed: int) -> None:
    clean = deleted()
    begun = clean.disk.faults.operations
    restored(clean)
    seen = set()
    for number in range(1, clean.disk.faults.operations - begun + 1):
        node = deleted()
        node.disk.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            restored(node)
        after = DiskNode(node.disk.crash(random.Random(seed * 1000 + number)))
        recovered = after.recovered()
        assert not after.loader.failed
        assert ids(recovered[OTHER]) == list(range(1, 10)), "nobody else is disturbed"
        if TABLET in recovered:
            assert ids(recovered[TABLET]) == list(range(1, 10))
            seen.add("READY")
            continue
        seen.add("DELETED")
        assert after.block().tombstone == LAST and not after.disk.exists(LAYOUT.data_of(TABLET)), "no orphan files"
        assert not [log for log in after.wal.logs() if log.tablet_id == TABLET]
        restored(after)
        assert ids(DiskNode(after.disk.clone()).recovered()[TABLET]) == list(range(1, 10)), "and can be restored again"
    assert seen == {"READY", "DELETED"}


def test_a_replica_that_a_killed_process_restored_is_durable_before_its_quarantine_is_purged() -> None:
    node = deleted()
    seen = set()
    for killed in moments(node.disk, lambda: restored(node)):
        state = SuperblockFile(killed, LAYOUT, TABLET).load().data_state
        seen.add(state)
        if state is DataState.READY:
            purge(killed, LAYOUT, [NAME])
            after = DiskNode(killed.crash(random.Random(1), Survival.LOST))
            assert ids(after.recovered()[TABLET]) == list(range(1, 10))
    assert seen == {DataState.DELETED, DataState.READY}


def test_metadata_of_the_quarantine_that_replaces_a_newer_term_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first test catches it: the vote of the tombstone is forgotten."""

    def planted(files: VirtualDisk, layout: DirectoryLayout, names: list[str]) -> None:
        for name in names:
            old = files.read_bytes(f"{layout.quarantine}/{name}/consensus-meta")
            files.replace(layout.consensus_of(TABLET), old)
        purge(files, layout, names)

    monkeypatch.setattr(restore_from_quarantine, "purge", planted)
    with pytest.raises(AssertionError, match="its vote since"):
        test_a_deleted_replica_comes_back_with_every_row_and_keeps_its_vote()


# -- what would go back in time ------------------------------------------------------------------


def test_what_is_older_than_the_last_deletion_is_refused() -> None:
    node = deleted()
    node.disk.make_directory(f"{LAYOUT.quarantine}/t.7")
    refused(node, BackInTime, "not of the last deletion", "t.7")


def test_a_replica_that_lives_again_is_not_taken_back() -> None:
    node = deleted()
    before = node.disk.clone()
    restored(node)
    for name in ("about", "superblock", "consensus-meta"):
        path = f"{LAYOUT.quarantine}/{NAME}"
        node.disk.make_directory(path)
        node.disk.replace(f"{path}/{name}", before.read_bytes(f"{path}/{name}"))
    refused(node, BackInTime, "is READY on this node")


def test_a_log_that_ends_before_what_the_tombstone_acknowledged_is_refused() -> None:
    node = deleted()
    block = node.block()
    SuperblockFile(node.disk, LAYOUT, TABLET).save(type(block)(**{**_fields(block), "tombstone": OpId(1, 10)}))
    refused(node, BackInTime, "can be read up to 1.9, but the replica acknowledged entries up to 1.10")


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_log_that_was_damaged_in_quarantine_is_refused(part: int) -> None:
    node = deleted()
    place = f"{LAYOUT.quarantine}/{NAME}/wals"
    segment = next(name for name in node.disk.listdir(place) if "base" not in name)
    size = len(node.disk.read_bytes(f"{place}/{segment}"))
    node.disk.damage(f"{place}/{segment}", size * part // 4)
    refused(node, StorageError, "checksum") if _readable(node) else refused(node, BackInTime, "can be read up to")


def test_a_replica_that_does_not_know_its_last_op_id_never_comes_back() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete(last="UNKNOWN")
    refused(node, CallerError, "never votes again")


def test_a_deletion_that_is_not_finished_is_ended_first() -> None:
    node = deleted()
    node.wal.create(LogId(TABLET, 1), OpId(0, 0))
    refused(node, CallerError, "was interrupted")


def test_a_tablet_that_was_never_here_a_name_that_is_none_and_lost_metadata_are_refused() -> None:
    node = deleted()
    refused(node, CallerError, "never on this node", "nobody.1")
    refused(node, CallerError, "directory of the quarantine", "t")
    node.disk.remove(LAYOUT.consensus_of(TABLET))
    refused(node, CallerError, "what was promised is unknown")


def test_parts_that_are_gone_and_a_disk_without_space_are_refused() -> None:
    node = deleted()
    node.disk.remove_tree(f"{LAYOUT.quarantine}/{NAME}/wals")
    refused(node, StorageError, "no log in quarantine")
    node.disk.remove(f"{LAYOUT.quarantine}/{NAME}/superblock")
    refused(node, StorageError, "no superblock in quarantine")
    purged = deleted()
    purge(purged.disk, LAYOUT, [NAME])
    refused(purged, StorageError, "there is no")


def test_without_space_for_a_copy_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    node = deleted()
    monkeypatch.setattr(node.disk, "space_left", lambda path: 10)
    refused(node, Full, "nothing was changed")


def _readable(node: DiskNode) -> bool:
    with opener(node.disk)(f"{LAYOUT.quarantine}/{NAME}/wals", LogId(TABLET, 1)) as (state, _):
        return state.last == LAST


def _config(node: DiskNode) -> TabletConfig:
    return ConsensusMetadata(node.disk, LAYOUT, TABLET).load().committed_config


def _fields(block: object) -> dict[str, object]:
    return {name: getattr(block, name) for name in type(block).__struct_fields__}  # type: ignore[attr-defined]
