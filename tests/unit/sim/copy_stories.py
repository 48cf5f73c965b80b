"""Stories of tombstones and copies. ``FAULTY_COPIES`` maps each invariant of them to the stories that violate it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stelae.host.start_copy import StartCopy
from stelae.host.superblock import DataState, Superblock
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.invariants.copied_replicas import SHUT_DOWN_US
from stelae.sim.log_model import LogModel
from stelae.sim.node_change import NodeChange
from stelae.sim.world import Needs
from stelae.spi.consensus import HardState, Outbound, Role
from stelae.spi.consensus_events import Received, StepDown
from stelae.spi.copy import CopySession
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry
from stelae.spi.members import MemberType
from stelae_consensus_raft.messages import VoteRefusal, VoteReply, VoteRequest
from tests.unit.sim.rig import CONFIG, LOG, NAMES, Rig, entry

READY = Superblock(tablet_id=LOG.tablet_id)


def tombstone(last: OpId | None) -> Superblock:
    return msgspec.structs.replace(READY, data_state=DataState.DELETED, tombstone=last)


def copying(last: OpId | None) -> Superblock:
    return msgspec.structs.replace(READY, data_state=DataState.COPYING, tombstone=last, generation=2)


def saved(rig: Rig, *blocks: Superblock, last: OpId = ZERO, after_us: int = SHUT_DOWN_US) -> None:
    """Node 2 has a replica with two entries, and saves these superblocks after some time. The copied log ends at
    ``last``."""
    rig.world.copies = True
    node = rig.world.nodes[2]
    node.block = READY
    rig.append(2, entry(1, 1), entry(1, 2))
    rig.now_us += after_us
    for block in blocks:
        log = LogModel(base=last) if block.generation == 2 else LogModel(base=OpId(1, 2))
        rig.facts.superblock_begins(node, block)
        rig.facts.superblock_saved(node, block, log, ())


def copy_is_asked(rig: Rig, log_base: OpId) -> None:
    """Node 0 asks node 2 for a copy, because its log begins there."""
    asked = StartCopy(
        to=NAMES[2],
        leader=NAMES[0],
        term=1,
        tablet_id=LOG.tablet_id,
        table_name="t",
        consensus="raft",
        config=ZERO,
        member_type=MemberType.VOTER,
        hosted=True,
        log_base=log_base,
        sources=CONFIG.members[:1],
    )
    rig.facts.copy_asked(rig.world.nodes[0], asked)


def lags(rig: Rig) -> None:
    copy_is_asked(rig, OpId(1, 9))


def tombstone_below_the_log(rig: Rig) -> None:
    lags(rig)
    saved(rig, tombstone(OpId(1, 1)))


def tombstone_without_op_id(rig: Rig) -> None:
    lags(rig)
    saved(rig, tombstone(None))


def copy_drops_the_op_id(rig: Rig) -> None:
    lags(rig)
    saved(rig, tombstone(OpId(1, 2)), copying(ZERO))


def copy_ends_below_the_tombstone(rig: Rig) -> None:
    lags(rig)
    ready = msgspec.structs.replace(READY, generation=2)
    saved(rig, tombstone(OpId(1, 2)), copying(OpId(1, 2)), ready, last=OpId(1, 1))


def set_aside_without_a_request(rig: Rig) -> None:
    saved(rig, tombstone(OpId(1, 2)))


def set_aside_although_it_has_the_entry(rig: Rig) -> None:
    copy_is_asked(rig, OpId(1, 2))
    saved(rig, tombstone(OpId(1, 2)))


def set_aside_while_the_entry_arrives(rig: Rig) -> None:
    copy_is_asked(rig, OpId(1, 2))
    saved(rig, tombstone(OpId(1, 2)), after_us=SHUT_DOWN_US - 1)


def deleted_for_another_config(rig: Rig) -> None:
    rig.facts.deletion_asked(rig.world.nodes[2], OpId(1, 1))
    saved(rig, tombstone(OpId(1, 2)))


def empty_replica_over_a_tombstone(rig: Rig) -> None:
    lags(rig)
    saved(rig, tombstone(OpId(1, 2)))
    rig.facts.replica_on_disk(rig.world.nodes[2], ReplicaOnDisk.BEGUN)


def damaged_item_is_installed(rig: Rig) -> None:
    rig.facts.damage_installed(rig.world.nodes[2], ["data/t/a.parquet"])


def copied_from_node_0(rig: Rig, commit: int) -> None:
    """Node 2 gets a copy up to the second entry from node 0, which has ``commit`` as its commit index by then."""
    source, target = rig.world.nodes[0], rig.world.nodes[2]
    lags(rig)
    rig.world.copies, target.block = True, READY
    rig.append(2, entry(1, 1), entry(1, 2))
    rig.now_us += SHUT_DOWN_US
    snapshot = CopySnapshot(
        tablet_id=LOG.tablet_id,
        log=LOG,
        base=ZERO,
        last=OpId(1, 2),
        term=1,
        committed_config=CONFIG,
        facts=b"",
        items=(),
    )
    rig.facts.copy_served(source, target.node_id, CopySession(id="copy-1", ttl_ms=1000, snapshot=snapshot))
    source.commit, source.committed_config = commit, CONFIG
    for block in (tombstone(OpId(1, 2)), copying(OpId(1, 2)), msgspec.structs.replace(READY, generation=2)):
        rig.facts.superblock_saved(target, block, LogModel(base=OpId(1, 2)), ())
    rig.status(2, Role.FOLLOWER, 1)


def session_ends_before_the_replica_has_caught_up(rig: Rig) -> None:
    copied_from_node_0(rig, commit=3)
    rig.facts.copy_ended(rig.world.nodes[0], "copy-1")


def session_ends_once_the_replica_has_caught_up(rig: Rig) -> None:
    copied_from_node_0(rig, commit=2)
    rig.facts.copy_ended(rig.world.nodes[0], "copy-1")


def session_of_another_copy_ends(rig: Rig) -> None:
    copied_from_node_0(rig, commit=3)
    rig.facts.copy_ended(rig.world.nodes[0], "copy-0")
    rig.facts.copy_ended(rig.world.nodes[1], "copy-1")


def session_ends_because_the_target_was_killed(rig: Rig) -> None:
    copied_from_node_0(rig, commit=3)
    rig.facts.node_changed(rig.world.nodes[2], NodeChange.KILLED)
    rig.facts.copy_ended(rig.world.nodes[0], "copy-1")


def session_ends_because_another_copy_is_asked_for(rig: Rig) -> None:
    copied_from_node_0(rig, commit=3)
    lags(rig)
    rig.facts.copy_ended(rig.world.nodes[0], "copy-1")


def tombstone_forgets_its_vote(rig: Rig) -> None:
    node = rig.world.nodes[2]
    node.expose(HardState(3, NAMES[0]))
    rig.facts.voter_restored(node, HardState(3))


def campaigns(rig: Rig, *entries: Entry) -> None:
    """Node 0 campaigns for term 3 with this log."""
    rig.append(0, *entries)
    rig.ready(0, hard_state=HardState(3, NAMES[0]))


def vote_for_a_shorter_log(rig: Rig) -> None:
    rig.append(2, entry(1, 1), entry(1, 2))
    campaigns(rig, entry(1, 1))
    rig.ready(2, hard_state=HardState(3, NAMES[0]))


def vote_that_nobody_asked_for(rig: Rig) -> None:
    node, vote = rig.world.nodes[2], HardState(3, NAMES[0])
    node.saved = vote
    rig.facts.sent(node, Outbound(NAMES[0], StepDown(), 3), Needs(vote))


def tombstone_votes(rig: Rig) -> None:
    """The tombstone on node 2, which has had two entries, votes for node 0."""
    lags(rig)
    saved(rig, tombstone(OpId(1, 2)))
    node, vote = rig.world.nodes[2], HardState(3, NAMES[0])
    node.saved = vote
    rig.facts.sent(node, Outbound(NAMES[0], StepDown(), 3), Needs(vote))


def tombstone_votes_for_a_shorter_log(rig: Rig) -> None:
    campaigns(rig, entry(1, 1))
    tombstone_votes(rig)


def tombstone_refuses(rig: Rig, refusal: VoteRefusal, candidate: OpId) -> None:
    """The tombstone on node 2, which has had two entries, refuses its vote to node 0."""
    lags(rig)
    saved(rig, tombstone(OpId(1, 2)))
    node = rig.world.nodes[2]
    node.saved = HardState(3)
    rig.facts.stepped(node, [Received(NAMES[0], VoteRequest(term=3, last=candidate, attempt=1))])
    reply = VoteReply(term=3, campaign_term=3, attempt=1, pre=False, refusal=refusal)
    rig.facts.sent(node, Outbound(NAMES[0], reply, 3), Needs(HardState(3)))


def tombstone_says_that_it_knows_no_log(rig: Rig) -> None:
    tombstone_refuses(rig, VoteRefusal.LOG_UNKNOWN, OpId(1, 2))


def tombstone_refuses_a_log_that_reaches_it(rig: Rig) -> None:
    tombstone_refuses(rig, VoteRefusal.LOG_BEHIND, OpId(1, 2))


FAULTY_COPIES: dict[str, list[Callable[[Rig], None]]] = {
    "tombstone_promises": [
        tombstone_below_the_log,
        tombstone_without_op_id,
        copy_drops_the_op_id,
        copy_ends_below_the_tombstone,
    ],
    "tombstones_vote": [tombstone_says_that_it_knows_no_log, tombstone_refuses_a_log_that_reaches_it],
    "copied_items_verified": [damaged_item_is_installed],
    "copied_log_kept": [session_ends_before_the_replica_has_caught_up],
    "no_needless_deletion": [
        set_aside_without_a_request,
        set_aside_although_it_has_the_entry,
        deleted_for_another_config,
    ],
    "election_restriction": [vote_for_a_shorter_log, tombstone_votes_for_a_shorter_log, vote_that_nobody_asked_for],
    "replica_creation": [empty_replica_over_a_tombstone],
    "terms_and_votes": [tombstone_forgets_its_vote],
}


def a_vote_of_a_tombstone(rig: Rig) -> None:
    campaigns(rig, entry(1, 1), entry(1, 2))
    tombstone_votes(rig)


def a_copy_over_a_tombstone(rig: Rig) -> None:
    lags(rig)
    saved(rig, tombstone(OpId(1, 2)), copying(OpId(1, 2)), tombstone(OpId(1, 2)), copying(OpId(1, 2)))
    rig.facts.replica_found(rig.world.nodes[2], copying(OpId(1, 2)), exists=False)


def a_copy_that_is_complete(rig: Rig) -> None:
    lags(rig)
    ready = msgspec.structs.replace(READY, generation=2)
    saved(rig, tombstone(OpId(1, 2)), copying(OpId(1, 2)), ready, last=OpId(1, 2))
    rig.facts.replica_found(rig.world.nodes[2], ready, exists=True)


def a_deletion_of_a_former_member(rig: Rig) -> None:
    rig.facts.deletion_asked(rig.world.nodes[2], ZERO)
    saved(rig, tombstone(OpId(1, 2)))


def a_vote_that_a_tombstone_refuses_a_shorter_log(rig: Rig) -> None:
    tombstone_refuses(rig, VoteRefusal.LOG_BEHIND, OpId(1, 1))


def a_vote_that_a_tombstone_refuses_while_a_leader_is_alive(rig: Rig) -> None:
    tombstone_refuses(rig, VoteRefusal.LEADER_ALIVE, OpId(1, 2))


FAULTLESS_COPIES = [
    a_vote_that_a_tombstone_refuses_a_shorter_log,
    a_vote_that_a_tombstone_refuses_while_a_leader_is_alive,
    a_vote_of_a_tombstone,
    set_aside_while_the_entry_arrives,
    a_copy_over_a_tombstone,
    a_copy_that_is_complete,
    session_ends_once_the_replica_has_caught_up,
    session_of_another_copy_ends,
    session_ends_because_the_target_was_killed,
    session_ends_because_another_copy_is_asked_for,
    a_deletion_of_a_former_member,
]
