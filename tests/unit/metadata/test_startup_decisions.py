"""The start-up table: total, without overlap, and one bad file fails one tablet."""

from __future__ import annotations

import itertools

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.host.metadata_files import HEADER_BYTES
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.startup_decisions import (
    ROWS,
    LogFinding,
    MetadataFinding,
    StartupAction,
    SuperblockFinding,
    TabletFinding,
    decide,
    scan_tablets,
)
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.wal import Damage, LogState

ALL = list(itertools.product(SuperblockFinding, MetadataFinding, LogFinding))
LAYOUT = DirectoryLayout("/node")
NODE = NodeId("a" * 32)


@pytest.mark.parametrize("found", ALL, ids=lambda found: "-".join(found))
def test_every_finding_meets_exactly_one_row(found: tuple[SuperblockFinding, MetadataFinding, LogFinding]) -> None:
    rows = [row.letter for row in ROWS if row.meets(*found)]
    assert rows == [decide(*found).letter]


def test_every_row_is_needed() -> None:
    assert {decide(*found).letter for found in ALL} == {row.letter for row in ROWS}
    assert len({row.letter for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("found", "action", "letter"),
    [
        ((SuperblockFinding.ABSENT, MetadataFinding.ABSENT, LogFinding.ABSENT), StartupAction.NOTHING, "A"),
        ((SuperblockFinding.ABSENT, MetadataFinding.INITIAL, LogFinding.ABSENT), StartupAction.NOTHING, "A"),
        ((SuperblockFinding.ABSENT, MetadataFinding.INITIAL, LogFinding.EMPTY), StartupAction.NOTHING, "A"),
        ((SuperblockFinding.ABSENT, MetadataFinding.COMMITTED, LogFinding.PRESENT), StartupAction.FAIL, "B"),
        ((SuperblockFinding.UNREADABLE, MetadataFinding.COMMITTED, LogFinding.PRESENT), StartupAction.FAIL, "C"),
        ((SuperblockFinding.READY, MetadataFinding.UNREADABLE, LogFinding.PRESENT), StartupAction.FAIL, "D"),
        ((SuperblockFinding.ABSENT, MetadataFinding.UNREADABLE, LogFinding.ABSENT), StartupAction.FAIL, "D"),
        ((SuperblockFinding.DELETED, MetadataFinding.ABSENT, LogFinding.ABSENT), StartupAction.FAIL, "E"),
        ((SuperblockFinding.DELETED, MetadataFinding.COMMITTED, LogFinding.ABSENT), StartupAction.TOMBSTONE, "F"),
        ((SuperblockFinding.DELETED, MetadataFinding.COMMITTED, LogFinding.PRESENT), StartupAction.ROLL_FORWARD, "G"),
        ((SuperblockFinding.DELETED, MetadataFinding.COMMITTED, LogFinding.DAMAGED), StartupAction.ROLL_FORWARD, "G"),
        ((SuperblockFinding.LOST, MetadataFinding.UNREADABLE, LogFinding.ABSENT), StartupAction.TOMBSTONE, "S"),
        ((SuperblockFinding.LOST, MetadataFinding.ABSENT, LogFinding.ABSENT), StartupAction.TOMBSTONE, "S"),
        ((SuperblockFinding.LOST, MetadataFinding.UNREADABLE, LogFinding.PRESENT), StartupAction.ROLL_FORWARD, "T"),
        ((SuperblockFinding.COPYING, MetadataFinding.COMMITTED, LogFinding.PRESENT), StartupAction.DELETE_SELF, "H"),
        ((SuperblockFinding.COPYING, MetadataFinding.ABSENT, LogFinding.ABSENT), StartupAction.FAIL, "E"),
        ((SuperblockFinding.FIRST_COPY, MetadataFinding.ABSENT, LogFinding.ABSENT), StartupAction.REMOVE, "Q"),
        ((SuperblockFinding.FIRST_COPY, MetadataFinding.COMMITTED, LogFinding.PRESENT), StartupAction.REMOVE, "Q"),
        ((SuperblockFinding.FIRST_COPY, MetadataFinding.UNREADABLE, LogFinding.ABSENT), StartupAction.FAIL, "D"),
        ((SuperblockFinding.COPYING, MetadataFinding.COMMITTED, LogFinding.DAMAGED), StartupAction.DELETE_SELF, "H"),
        ((SuperblockFinding.DELETED, MetadataFinding.OLDER, LogFinding.ABSENT), StartupAction.FAIL, "R"),
        ((SuperblockFinding.COPYING, MetadataFinding.OLDER, LogFinding.PRESENT), StartupAction.FAIL, "R"),
        ((SuperblockFinding.READY, MetadataFinding.ABSENT, LogFinding.PRESENT), StartupAction.FAIL, "E"),
        ((SuperblockFinding.READY, MetadataFinding.COMMITTED, LogFinding.ABSENT), StartupAction.FAIL, "I"),
        ((SuperblockFinding.READY, MetadataFinding.COMMITTED, LogFinding.DAMAGED), StartupAction.FAIL, "J"),
        ((SuperblockFinding.READY, MetadataFinding.COMMITTED, LogFinding.UNREAD), StartupAction.OFFLINE, "O"),
        ((SuperblockFinding.ABSENT, MetadataFinding.COMMITTED, LogFinding.UNREAD), StartupAction.FAIL, "B"),
        ((SuperblockFinding.DELETED, MetadataFinding.COMMITTED, LogFinding.UNREAD), StartupAction.ROLL_FORWARD, "G"),
        ((SuperblockFinding.READY, MetadataFinding.COMMITTED, LogFinding.CONTRADICTS), StartupAction.FAIL, "P"),
        ((SuperblockFinding.ABSENT, MetadataFinding.COMMITTED, LogFinding.CONTRADICTS), StartupAction.FAIL, "B"),
        (
            (SuperblockFinding.DELETED, MetadataFinding.COMMITTED, LogFinding.CONTRADICTS),
            StartupAction.ROLL_FORWARD,
            "G",
        ),
        ((SuperblockFinding.READY, MetadataFinding.VOTED, LogFinding.PRESENT), StartupAction.START, "K"),
        ((SuperblockFinding.READY, MetadataFinding.COMMITTED, LogFinding.PRESENT), StartupAction.START, "K"),
        ((SuperblockFinding.READY, MetadataFinding.INITIAL, LogFinding.EMPTY), StartupAction.START, "L"),
        ((SuperblockFinding.READY, MetadataFinding.VOTED, LogFinding.EMPTY), StartupAction.START, "L"),
        ((SuperblockFinding.READY, MetadataFinding.COMMITTED, LogFinding.EMPTY), StartupAction.FAIL, "M"),
        ((SuperblockFinding.ABSENT, MetadataFinding.VOTED, LogFinding.ABSENT), StartupAction.FAIL, "N"),
        ((SuperblockFinding.ABSENT, MetadataFinding.VOTED, LogFinding.EMPTY), StartupAction.FAIL, "N"),
        ((SuperblockFinding.ABSENT, MetadataFinding.COMMITTED, LogFinding.ABSENT), StartupAction.FAIL, "N"),
        ((SuperblockFinding.ABSENT, MetadataFinding.COMMITTED, LogFinding.EMPTY), StartupAction.FAIL, "N"),
    ],
)
def test_each_row_says_what_the_design_says(
    found: tuple[SuperblockFinding, MetadataFinding, LogFinding], action: StartupAction, letter: str
) -> None:
    decision = decide(*found)
    assert (decision.action, decision.letter) == (action, letter)


def test_nothing_starts_or_votes_whose_promises_are_unknown() -> None:
    for block, meta, log in ALL:
        decision = decide(block, meta, log)
        if block is SuperblockFinding.LOST:
            assert decision.action in (StartupAction.TOMBSTONE, StartupAction.ROLL_FORWARD), "it never votes"
        elif meta in (MetadataFinding.ABSENT, MetadataFinding.UNREADABLE, MetadataFinding.OLDER):
            assert decision.action not in (StartupAction.START, StartupAction.TOMBSTONE, StartupAction.ROLL_FORWARD)


def node() -> VirtualDisk:
    disk = VirtualDisk()
    instance = Instance(node_id=NODE, cluster_id=None, wal_engine="segmented")
    format_directory(disk, LAYOUT, instance)
    return disk


def add(
    disk: VirtualDisk, name: str, state: DataState = DataState.READY, flushed: OpId = ZERO, committed: OpId = ZERO
) -> LogId:
    tablet = TabletId(name)
    block = Superblock(tablet_id=tablet, generation=3, data_state=state, flushed=flushed)
    SuperblockFile(disk, LAYOUT, tablet).save(block)
    config = TabletConfig(op_id=committed, members=())
    ConsensusMetadata(disk, LAYOUT, tablet).save(HardState(5), config)
    return block.log_id


def scan(disk: VirtualDisk, logs: dict[LogId, LogState]) -> dict[str, TabletFinding]:
    def op_id_at(log: LogId, index: int) -> OpId:
        """Of logs with one term."""
        state = logs[log]
        return state.base if index == state.base.index else OpId(state.last.term, index)

    return {found.tablet_id: found for found in scan_tablets(disk, LAYOUT, logs, op_id_at)}


def test_one_unreadable_file_fails_its_own_tablet_and_no_other() -> None:
    disk = node()
    state = LogState(base=ZERO, last=OpId(4, 9))
    logs = {add(disk, name): state for name in ("a", "b", "c")}
    disk.damage(LAYOUT.superblock_of(TabletId("a")), HEADER_BYTES)
    disk.damage(LAYOUT.consensus_of(TabletId("b")), HEADER_BYTES)
    found = scan(disk, logs)
    assert [f.decision.action for f in found.values()] == [StartupAction.FAIL, StartupAction.FAIL, StartupAction.START]
    assert "tablet-meta/a" in found["a"].failure
    assert "consensus-meta/b" in found["b"].failure
    assert found["c"].failure == ""


PROMISES = [
    (HardState(), ZERO, "A", "L"),
    (HardState(1), ZERO, "N", "L"),
    (HardState(0, NODE), ZERO, "N", "L"),
    (HardState(1, NODE), ZERO, "N", "L"),
    (HardState(3, NODE), OpId(1, 1), "N", "M"),
    (HardState(), OpId(1, 1), "N", "M"),
]


@pytest.mark.parametrize(("promised", "op_id", "without", "with_one"), PROMISES)
@pytest.mark.parametrize("has_superblock", [False, True])
def test_what_metadata_promises_decides_about_an_empty_log(
    promised: HardState, op_id: OpId, without: str, with_one: str, has_superblock: bool
) -> None:
    """A replica that forgot its log may neither be created anew nor vote as one at 0.0."""
    disk, tablet = node(), TabletId("a")
    config = TabletConfig(op_id=op_id, members=())
    ConsensusMetadata(disk, LAYOUT, tablet).save(promised, config)
    if has_superblock:
        SuperblockFile(disk, LAYOUT, tablet).save(Superblock(tablet_id=tablet, generation=1))
    found = scan(disk, {LogId(tablet, 1): LogState(base=ZERO, last=ZERO)})["a"]
    assert found.decision.letter == (with_one if has_superblock else without)


def test_a_directory_in_the_place_of_a_file_fails_its_own_tablet() -> None:
    disk = node()
    log = add(disk, "b")
    disk.make_directory(LAYOUT.superblock_of(TabletId("a")))
    found = scan(disk, {log: LogState(base=ZERO, last=OpId(4, 9))})
    assert found["a"].decision.letter == "C"
    assert found["b"].decision.action is StartupAction.START


def test_a_damaged_log_fails_with_file_and_offset() -> None:
    disk = node()
    damage = Damage(path="wals/a/7", offset=4711, last_good=OpId(1, 2), detail="bad checksum")
    log = add(disk, "a")
    found = scan(disk, {log: LogState(base=ZERO, last=OpId(1, 2), damage=damage)})
    assert "wals/a/7@4711: bad checksum" in found["a"].failure


def test_only_a_log_of_the_superblocks_generation_counts() -> None:
    disk = node()
    log = add(disk, "a", DataState.DELETED)
    other = LogId(log.tablet_id, log.generation + 1)
    state = LogState(base=ZERO, last=OpId(1, 1))
    assert scan(disk, {other: state})["a"].decision.action is StartupAction.TOMBSTONE
    assert scan(disk, {log: state})["a"].decision.action is StartupAction.ROLL_FORWARD


def test_a_log_without_a_superblock_is_found_and_fails() -> None:
    logs = {LogId(TabletId("lost"), 1): LogState(base=ZERO, last=OpId(1, 1))}
    assert scan(node(), logs)["lost"].decision.letter == "B"


def test_a_log_that_was_collected_to_its_end_is_not_an_empty_one() -> None:
    disk = node()
    log = add(disk, "a", flushed=OpId(5, 5), committed=OpId(5, 4))
    found = scan(disk, {log: LogState(base=OpId(5, 5), last=OpId(5, 5))})
    assert found["a"].decision.action is StartupAction.START


CONTRADICTIONS = [
    (OpId(4, 7), ZERO, OpId(4, 8), OpId(4, 20), "begins after 4.8"),
    (ZERO, ZERO, OpId(4, 1), OpId(4, 1), "begins after 4.1"),
    (OpId(4, 9), ZERO, OpId(1, 2), OpId(4, 8), "ends at 4.8"),
    (OpId(4, 9), ZERO, ZERO, ZERO, "ends at 0.0"),
    (OpId(4, 9), ZERO, OpId(4, 8), OpId(4, 8), "ends at 4.8"),
    (OpId(4, 9), ZERO, ZERO, OpId(3, 9), "holds 3.9"),
    (OpId(4, 9), ZERO, OpId(3, 9), OpId(5, 12), "holds 3.9"),
    (OpId(4, 9), ZERO, ZERO, OpId(5, 30), "holds 5.9"),
    (OpId(4, 2), OpId(4, 9), ZERO, OpId(4, 8), "committed config is of 4.9"),
    (ZERO, OpId(4, 3), ZERO, OpId(3, 8), "holds 3.3"),
    (ZERO, ZERO, ZERO, OpId(6, 1), "the last op id is 6.1, but the durable term is 5"),
    (OpId(6, 9), ZERO, OpId(6, 9), OpId(6, 9), "the last op id is 6.9, but the durable term is 5"),
]


@pytest.mark.parametrize(("flushed", "config", "base", "last", "says"), CONTRADICTIONS)
def test_a_log_that_contradicts_what_was_saved_beside_it_is_a_lost_log(
    flushed: OpId, config: OpId, base: OpId, last: OpId, says: str
) -> None:
    disk = node()
    log = add(disk, "a", flushed=flushed, committed=config)
    found = scan(disk, {log: LogState(base=base, last=last)})["a"]
    assert (found.decision.letter, found.decision.action) == ("P", StartupAction.FAIL)
    assert says in found.failure


AGREEMENTS = [
    (OpId(4, 9), OpId(4, 9), OpId(4, 9), OpId(4, 9)),
    (OpId(4, 9), OpId(4, 2), OpId(4, 3), OpId(4, 9)),
    (OpId(4, 9), OpId(4, 12), OpId(4, 9), OpId(4, 12)),
    (ZERO, OpId(4, 1), ZERO, OpId(4, 1)),
    (ZERO, ZERO, ZERO, ZERO),
]


@pytest.mark.parametrize(("flushed", "config", "base", "last"), AGREEMENTS)
def test_a_log_that_holds_what_was_saved_beside_it_starts(flushed: OpId, config: OpId, base: OpId, last: OpId) -> None:
    disk = node()
    log = add(disk, "a", flushed=flushed, committed=config)
    assert scan(disk, {log: LogState(base=base, last=last)})["a"].decision.action is StartupAction.START


def test_a_log_whose_op_ids_cannot_be_read_now_is_looked_at_again_at_the_next_start() -> None:
    disk = node()
    log = add(disk, "a", flushed=OpId(4, 5))

    def op_id_at(name: LogId, index: int) -> OpId:
        raise StorageError("input/output error", path="wals/a/1")

    (found,) = scan_tablets(disk, LAYOUT, {log: LogState(base=ZERO, last=OpId(4, 9))}, op_id_at)
    assert (found.decision.letter, found.decision.action) == ("O", StartupAction.OFFLINE)
    assert "input/output error" in found.failure
