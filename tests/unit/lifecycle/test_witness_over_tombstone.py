"""A witness begins over a tombstone with its log alone: what the tombstone has promised holds, whatever crash comes."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.new_replica import LogStart
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle import witness_over_tombstone
from stelae.lifecycle.deletion import tombstone_of
from stelae.lifecycle.log_only_creation import LogOnlyCreation
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.lifecycle.witness_over_tombstone import newer_config
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.errors import Full, StelaeError
from stelae.spi.ids import ZERO, LogId, NodeId, OpId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term
from stelae.spi.wal import Append
from stelae_consensus_raft.messages import VoteRefusal
from tests.unit.lifecycle.copy_node import (
    CONFIG,
    LEADER,
    CopyNode,
    FakeNetwork,
    KillAt,
    Killed,
    check_never,
    check_others,
    check_tombstone,
    never_disk,
    tombstone_disk,
)
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, NODE, TABLET, DiskNode, row

VOTED, ADOPTED = HardState(4, NODE), HardState(6, None)
NO_CONFIG = TabletConfig(op_id=ZERO, members=())
KNOWN = TabletConfig(
    op_id=OpId(3, 18), members=(Member(node_id=NODE, address="a:1", member_type=MemberType.PRE_WITNESS),)
)
AHEAD = LogStart(base=OpId(3, 20), committed=KNOWN, leader=LEADER, term=6, had_vote=True)
"""The log begins after everything that the tombstone had."""
BEHIND = LogStart(base=OpId(1, 5), committed=NO_CONFIG, leader=LEADER, term=6, had_vote=True)
"""The leader has flushed less than the tombstone had: it still lacks the entries 1.6 to 1.9."""
STARTS = pytest.mark.parametrize("start", [AHEAD, BEHIND], ids=["base ahead", "base behind"])
LOG = LogId(TABLET, 2)


def on(disk: VirtualDisk, crash: KillAt | None = None) -> CopyNode:
    return CopyNode(disk, FakeNetwork({}), crash)


def begun(node: CopyNode, start: LogStart, config: OpId = CONFIG.op_id) -> StelaeError | None:
    """Begin the witness as a leader asks, and return the error."""
    ended: list[StelaeError | None] = []
    node.begin_witness(start, ended.append, config)
    node.pass_all_time()
    (error,) = ended
    return error


def check_witness(node: CopyNode, start: LogStart, voted: HardState = ADOPTED) -> None:
    """The tablet is a replica without rows, which has kept what the log has not reached, also after a restart."""
    kept = None if start.base >= LAST else LAST
    again = on(node.disk.clone())
    assert not again.loader.failed
    recovered = again.recovered[TABLET]
    block = recovered.superblock
    assert (block.data_state, block.log_only, block.tombstone) == (DataState.READY, True, kept)
    assert block.generation >= LOG.generation and block.quarantine is None
    assert recovered.log.base == recovered.log.last == recovered.applied == start.base
    assert recovered.log.vote_floor == (kept or ZERO)
    assert recovered.consensus.hard_state == voted
    assert recovered.consensus.committed_config == start.committed
    assert [log for log in again.wal.logs() if log.tablet_id == TABLET] == [block.log_id], "none of another time"
    check_others(again)


@STARTS
def test_a_witness_begins_over_a_tombstone_in_the_term_of_its_leader(start: LogStart) -> None:
    node = on(tombstone_disk())
    assert begun(node, start) is None
    assert node.hosted[TABLET].hard_state == ADOPTED and TABLET not in node.peers.voters
    check_witness(node, start)
    assert begun(node, start) is None, "it can be repeated"


def test_the_vote_of_the_tombstone_is_kept_in_its_term() -> None:
    node = on(tombstone_disk())
    assert begun(node, msgspec.structs.replace(AHEAD, term=4)) is None
    check_witness(node, AHEAD, VOTED)


def test_a_vote_that_the_tombstone_gives_meanwhile_is_kept() -> None:
    node, other = on(tombstone_disk()), NodeId("c" * 32)
    assert (answer := node.vote(6, other)) is not None and answer.refusal is None
    assert begun(node, AHEAD) is None
    check_witness(node, AHEAD, HardState(6, other))


# -- crashes -------------------------------------------------------------------------------------


def points_of(start: LogStart) -> list[str]:
    crash = KillAt()
    node = on(tombstone_disk(), crash)
    crash.passed.clear()
    assert begun(node, start) is None
    return crash.passed


def check_after(disk: VirtualDisk, start: LogStart) -> str:
    """What a crash has left is the tombstone, which votes as it did, or the witness. Then the witness can begin."""
    node = on(disk)
    assert not node.loader.failed
    if TABLET in node.recovered:
        check_witness(node, start)
        return "witness"
    found = node.loader.inspect(TABLET, node.wal.logs())
    assert found.decision.action is StartupAction.TOMBSTONE
    hard_state = node.metadata()[0]
    assert hard_state in (VOTED, ADOPTED), "term and vote never go back"
    check_tombstone(node, hard_state)
    assert node.block().quarantine == "quarantine/t.1", "what it had can be restored"
    assert (answer := node.vote(7, last=OpId(1, 8))) is not None and answer.refusal is VoteRefusal.LOG_BEHIND
    later = msgspec.structs.replace(start, term=7)
    assert begun(node, later) is None
    check_witness(node, later, HardState(7, None))
    return "tombstone"


STEPS = ("witness.after_begin", "witness.after_log", "witness.after_metadata")


@STARTS
def test_a_process_that_is_killed_at_a_step_leaves_the_tombstone_or_the_witness(start: LogStart) -> None:
    points = points_of(start)
    assert set(STEPS) <= set(points)
    ready = len(points) - 1 - points[::-1].index("superblock.after_replace")
    for number, point in enumerate(points):
        node = on(tombstone_disk(), KillAt(point, points[: number + 1].count(point)))
        with pytest.raises(Killed):
            begun(node, start)
        assert (check_after(node.disk.clone(), start) == "witness") == (number >= ready), point


@STARTS
def test_power_lost_at_any_operation_leaves_the_tombstone_or_the_witness(start: LogStart) -> None:
    clean = on(tombstone_disk())
    before = clean.disk.faults.operations
    assert begun(clean, start) is None
    count = clean.disk.faults.operations - before
    seen = set()
    for number in range(1, count + 1):
        node = on(tombstone_disk())
        node.disk.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            begun(node, start)
        seen.add(check_after(node.disk.crash(random.Random(number)), start))
    assert count > 10 and seen == {"tombstone", "witness"}


class FullAt(KillAt):
    """The disk has no space at a step, once."""

    def hit(self, point: str) -> None:
        if point == self.point:
            self.point = ""
            raise Full("no space")


@pytest.mark.parametrize("point", STEPS)
def test_after_an_error_the_witness_begins_without_a_restart(point: str) -> None:
    node = on(tombstone_disk(), FullAt(point))
    assert isinstance(begun(node, BEHIND), Full)
    assert TABLET not in node.peers.replicas and node.block().tombstone == LAST
    assert (answer := node.vote(5, last=OpId(1, 8))) is not None and answer.refusal is not None, "it votes on"
    assert begun(node, BEHIND) is None
    check_witness(node, BEHIND)


def test_a_node_without_a_tombstone_begins_no_witness_for_a_member_that_had_a_vote() -> None:
    """It has lost what it acknowledged (rule 19)."""
    node = on(never_disk())
    error = begun(node, AHEAD)
    assert error is not None and "neither a replica of it nor its tombstone" in str(error)
    check_never(node)
    assert begun(node, msgspec.structs.replace(AHEAD, had_vote=False)) is None


# -- the committed config of the tombstone -------------------------------------------------------


def told(index: int, member_type: MemberType = MemberType.VOTER) -> TabletConfig:
    """A committed config that the tombstone knows."""
    return TabletConfig(
        op_id=OpId(1, index),
        members=(Member(node_id=NODE, address="a:1", member_type=member_type), *CONFIG.members[1:]),
    )


@pytest.mark.parametrize("base", [ZERO, OpId(1, 3), OpId(1, 7), OpId(1, 8)])
def test_a_config_that_is_newer_than_the_one_at_the_base_keeps_its_op_id_and_gives_no_vote(base: OpId) -> None:
    """The log does not have its entry yet, or no longer. What this node voted as in it does not count any more."""
    node = on(tombstone_disk())
    ConsensusMetadata(node.disk, LAYOUT, TABLET).save(VOTED, told(7))
    assert begun(node, msgspec.structs.replace(BEHIND, base=base)) is None
    again = on(node.disk.clone())
    assert not again.loader.failed
    recovered = again.recovered[TABLET]
    assert recovered.consensus.committed_config == TabletConfig(op_id=OpId(1, 7), members=())
    assert (recovered.log.base, recovered.log.vote_floor) == (base, LAST)


def test_which_config_a_witness_begins_with() -> None:
    joins = told(7, MemberType.PRE_WITNESS)
    assert newer_config(KNOWN, told(7), NODE) == KNOWN
    assert newer_config(NO_CONFIG, joins, NODE) == joins, "in which it has no vote"
    assert newer_config(NO_CONFIG, told(7), NODE).members == ()
    assert newer_config(NO_CONFIG, CONFIG, NodeId("e" * 32)).members == (), "in which it is no member"


def test_a_config_beyond_the_last_op_id_counts_as_had_too() -> None:
    """A crash after the merge of an earlier beginning leaves it. The next one may begin further behind."""
    node = on(tombstone_disk(), KillAt("witness.after_metadata"))
    with pytest.raises(Killed):
        begun(node, AHEAD)
    again = on(node.disk.clone())
    assert again.metadata()[1] == KNOWN.op_id > LAST
    assert begun(again, BEHIND) is None
    last = on(again.disk.clone())
    assert not last.loader.failed and last.recovered[TABLET].log.vote_floor == KNOWN.op_id


# -- refusals ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], OpId, dict[str, Any]]] = {
    "BAD_TERM": ({"term": 3}, CONFIG.op_id, {}),
    "TERM_TOO_HIGH": ({"term": first_term(EPOCHS_AHEAD_MAX + 1, 0)}, CONFIG.op_id, {}),
    "OLD_CONFIG": ({}, OpId(0, -1), {}),
    "REMOVED": ({}, CONFIG.op_id, {"removed": True}),
    "LAST_OP_ID_UNKNOWN": ({}, CONFIG.op_id, {"tombstone": "UNKNOWN"}),
    "NOT_A_MEMBER": ({}, ZERO, {}),
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_a_copy_is_refused_for_a_witness_is_refused_for_and_nothing_changes(code: str) -> None:
    changed, config, block = REFUSED[code]
    node = on(tombstone_disk())
    SuperblockFile(node.disk, LAYOUT, TABLET).save(msgspec.structs.replace(node.block(), **block))
    before = node.disk.faults.operations, node.block(), node.metadata()
    error = begun(node, msgspec.structs.replace(BEHIND, **changed), config)
    assert error is not None and f"no witness begins over it: {code}: " in str(error)
    assert (node.block(), node.metadata()) == before[1:] and TABLET not in node.peers.replicas


# -- the last op id of the tombstone -------------------------------------------------------------


def test_a_witness_that_is_deleted_before_its_log_has_reached_the_tombstone_leaves_the_same_last_op_id() -> None:
    node = on(tombstone_disk())
    assert begun(node, BEHIND) is None
    node.wal.commit({LOG: Append(entries=(row(6), row(7)), commit_hint=6)}, sync=True)
    again = DiskNode(node.disk.clone())
    found = again.loader.inspect(TABLET, again.wal.logs())
    assert found.log is not None and found.superblock is not None and found.log.last == OpId(1, 7)
    assert tombstone_of(found.superblock, found.log.last).tombstone == LAST
    assert tombstone_of(found.superblock, OpId(3, 8)).tombstone == OpId(3, 8)
    assert tombstone_of(found.superblock, "UNKNOWN").tombstone == "UNKNOWN"


# -- planted bugs --------------------------------------------------------------------------------


def forgets_at_once(creation: LogOnlyCreation) -> Superblock:
    """The last op id of the tombstone is dropped before the log has reached it."""
    ready = msgspec.structs.replace(creation.block, data_state=DataState.READY, tombstone=None)
    creation._superblock.save(ready)
    return ready


def keeps_no_op_id(known: OpId, tombstone: Superblock) -> Superblock:
    """What the tombstone knew as committed beyond its last op id is not kept."""
    return tombstone


def votes_as_before(given: TabletConfig, known: TabletConfig, node_id: NodeId) -> TabletConfig:
    """The witness begins as the voter that it was."""
    return max(given, known, key=lambda config: config.op_id)


def test_a_last_op_id_that_is_dropped_early_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogOnlyCreation, "finish", forgets_at_once)
    with pytest.raises(AssertionError):
        test_a_witness_begins_over_a_tombstone_in_the_term_of_its_leader(BEHIND)


def test_a_last_op_id_below_a_known_config_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness_over_tombstone, "promising", keeps_no_op_id)
    with pytest.raises(AssertionError):
        test_a_config_beyond_the_last_op_id_counts_as_had_too()


def test_a_witness_that_begins_as_the_voter_that_it_was_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness_over_tombstone, "newer_config", votes_as_before)
    with pytest.raises(AssertionError):
        test_a_config_that_is_newer_than_the_one_at_the_base_keeps_its_op_id_and_gives_no_vote(OpId(1, 3))
