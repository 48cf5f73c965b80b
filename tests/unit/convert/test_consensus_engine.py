"""Changing the consensus engine of a stopped node's tablets: what changes, what is refused, and crashes in between."""

from __future__ import annotations

import random
from contextlib import closing

import msgspec
import pytest

from stelae.convert.consensus_engine import ChangedTablet, KeepsItsEngine, change_engine
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.settings import ChosenEngine
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.sim.disk import PowerLost, Survival, VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, TabletConfig, encode_config
from stelae.spi.wal import Append
from stelae_consensus_local import LocalEngine
from stelae_consensus_local.config import LocalConfig
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from tests.unit.convert.places import BUSY, COPIED, EMPTY, NODE, SEGMENTED, append, formatted, held, place, wal_of

ROOT = "/srv/node"
LOCAL = ChosenEngine(name="local", engine=LocalEngine, config=LocalConfig())
RAFT = ChosenEngine(name="raft", engine=RaftEngine, config=RaftConfig())
GONE = TabletId("gone")
ME = Member(node_id=NODE, address="me:1")
OTHER = Member(node_id=NodeId("b" * 32), address="other:1")
TABLETS = (BUSY.tablet_id, COPIED.tablet_id, EMPTY.tablet_id, GONE)


def config(*members: Member, op_id: OpId = ZERO) -> TabletConfig:
    return TabletConfig(op_id=op_id, members=members)


def node(engine: str = "local") -> VirtualDisk:
    """A stopped node with three tablets and a tombstone, all with one consensus engine."""
    disk = VirtualDisk()
    where = place(disk, ROOT)
    formatted(where, SEGMENTED)
    for log in (BUSY, EMPTY, COPIED):
        block = Superblock(
            tablet_id=log.tablet_id, generation=log.generation, consensus_engine=engine, manifest=b"m", results=b"r"
        )
        SuperblockFile(disk, where.layout, log.tablet_id).save(block)
        ConsensusMetadata(disk, where.layout, log.tablet_id).save(HardState(4, NODE), config(ME))
    gone = Superblock(
        tablet_id=GONE, data_state=DataState.DELETED, consensus_engine=engine, tombstone=OpId(1, 2), quarantine=None
    )
    SuperblockFile(disk, where.layout, GONE).save(gone)
    return disk


def change(disk: VirtualDisk, to: ChosenEngine, *, dry_run: bool = False) -> list[ChangedTablet]:
    where = place(disk, ROOT)
    with closing(wal_of(where, SEGMENTED)) as wal:
        return change_engine(where, wal, to, dry_run=dry_run)


def blocks(disk: VirtualDisk) -> dict[TabletId, Superblock]:
    layout = place(disk, ROOT).layout
    return {tablet: SuperblockFile(disk, layout, tablet).load() for tablet in TABLETS}


def engines(disk: VirtualDisk) -> list[str]:
    return [block.consensus_engine for block in blocks(disk).values()]


def add_entry(disk: VirtualDisk, entry: Entry) -> None:
    with closing(wal_of(place(disk, ROOT), SEGMENTED)) as wal:
        append(wal, EMPTY, Append(entries=(entry,)))


@pytest.mark.parametrize(("old", "to"), [("local", RAFT), ("raft", LOCAL)], ids=["to raft", "to local"])
def test_only_the_name_of_the_engine_changes(old: str, to: ChosenEngine) -> None:
    disk = node(old)
    before = blocks(disk)
    assert change(disk, to) == [ChangedTablet(tablet_id=tablet, old_engine=old) for tablet in sorted(TABLETS)]
    wanted = {t: msgspec.structs.replace(block, consensus_engine=to.name) for t, block in before.items()}
    assert blocks(disk) == wanted
    layout = place(disk, ROOT).layout
    found = ConsensusMetadata(disk, layout, BUSY.tablet_id).load()
    assert found.hard_state == HardState(4, NODE) and found.committed_config == config(ME)
    with closing(wal_of(place(disk, ROOT), SEGMENTED)) as wal:
        assert wal.logs()[BUSY].last == held()[BUSY].last
    assert change(disk, to) == [], "the tablets already have the engine"


def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    disk = node()
    assert [one.tablet_id for one in change(disk, RAFT, dry_run=True)] == sorted(TABLETS)
    assert engines(disk) == ["local"] * 4


@pytest.mark.parametrize(
    "members",
    [(ME, OTHER), (OTHER,), (msgspec.structs.replace(ME, member_type=MemberType.NON_VOTER),), ()],
    ids=["two members", "another node", "no vote", "no members"],
)
@pytest.mark.parametrize("where", ["metadata", "log"])
def test_a_tablet_with_other_members_keeps_its_engine_and_nothing_changes(
    members: tuple[Member, ...], where: str
) -> None:
    disk = node("raft")
    if where == "metadata":
        metadata = ConsensusMetadata(disk, place(disk, ROOT).layout, EMPTY.tablet_id)
        metadata.save(HardState(4, NODE), config(*members, op_id=OpId(0, 0)))
    else:
        body = encode_config(config(*members))
        add_entry(disk, Entry(OpId(4, 1), EntryKind.CONFIG, 9, body))
    for to in (LOCAL, ChosenEngine(name="other", engine=RaftEngine, config=RaftConfig())):
        with pytest.raises(KeepsItsEngine, match=r"tablet empty keeps .* 'raft': its members are .* Nothing was cha"):
            change(disk, to)
    assert engines(disk) == ["raft"] * 4


def test_the_newest_config_in_the_log_counts() -> None:
    disk = node("raft")
    metadata = ConsensusMetadata(disk, place(disk, ROOT).layout, EMPTY.tablet_id)
    metadata.save(HardState(4, NODE), config(ME, OTHER))
    add_entry(disk, Entry(OpId(4, 1), EntryKind.CONFIG, 9, encode_config(config(ME))))
    change(disk, LOCAL)
    assert engines(disk) == ["local"] * 4


def test_an_unreadable_file_stops_the_change_before_it_begins() -> None:
    disk = node()
    layout = place(disk, ROOT).layout
    disk.replace(layout.superblock_of(GONE), b"not a superblock at all")
    with pytest.raises(StorageError):
        change(disk, RAFT)
    found = [SuperblockFile(disk, layout, t).load().consensus_engine for t in TABLETS if t != GONE]
    assert found == ["local"] * 3


def test_a_missing_log_stops_the_change_before_it_begins() -> None:
    disk = node()
    with closing(wal_of(place(disk, ROOT), SEGMENTED)) as wal:
        wal.drop(EMPTY)
    with pytest.raises(Corrupt, match="the log of tablet empty is missing"):
        change(disk, RAFT)
    assert engines(disk) == ["local"] * 4


def test_a_crash_anywhere_leaves_each_tablet_with_one_engine_and_the_next_run_completes() -> None:
    base = node().crash(random.Random(0), Survival.KEPT)
    twin = base.clone()
    change(twin, RAFT)
    operations = twin.faults.operations
    seen = set()
    for number in range(operations):
        for seed in range(3):
            disk = base.clone()
            disk.faults.lose_power_after(operations=number)
            with pytest.raises(PowerLost):
                change(disk, RAFT)
            disk = disk.crash(random.Random(seed), Survival.DRAWN)
            found = engines(disk)
            assert set(found) <= {"local", "raft"}
            seen.add(tuple(found))
            change(disk, RAFT)
            assert engines(disk) == ["raft"] * 4
    assert len(seen) >= 4, "the crashes were not between the superblocks"
