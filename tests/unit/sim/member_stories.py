"""Stories in which members change. ``FAULTY_MEMBERS`` maps each invariant of them to the stories that violate it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stelae.host.new_replica import LogStart, NewReplica
from stelae.host.superblock import PartitionBounds, Superblock
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.invariants import ObservedScan
from stelae.spi.consensus import Accepted, HardState, LogAppend, LogView, ReadReady
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import MemberType, TabletConfig, encode_config
from stelae.spi.wal import Append, Durable
from tests.unit.sim.rig import CONFIG, LOG, NAMES, Rig, begin, committed, done, entry, write

V, N, W = MemberType.VOTER, MemberType.NON_VOTER, MemberType.WITNESS


def config_entry(term: int, index: int, *types: MemberType) -> Entry:
    """An entry with a config in which the nodes have these types."""
    members = [msgspec.structs.replace(m, member_type=kind) for m, kind in zip(CONFIG.members, types, strict=False)]
    return Entry(
        OpId(term, index), EntryKind.CONFIG, 0, encode_config(TabletConfig(op_id=ZERO, members=tuple(members)))
    )


def leads_with_commits(rig: Rig) -> None:
    """Node 0 leads term 1, and its first entry is committed."""
    rig.lead(0, 1)
    for position in range(3):
        rig.append(position, entry(1, 1))
    rig.ready(0, commit=1)


def changes(rig: Rig, *changed: Entry) -> None:
    """Node 0 appends configs."""
    rig.ready(0, append=LogAppend(entries=changed))


def elected_by_one_of_three(rig: Rig) -> None:
    rig.vote(2, 3, 1, 2)
    rig.lead(0, 3)


def elected_by_a_learner(rig: Rig) -> None:
    changes(rig, config_entry(1, 1, V, V, N))
    rig.vote(1, 3, 1)
    rig.lead(0, 3)


def second_change_pending(rig: Rig) -> None:
    leads_with_commits(rig)
    changes(rig, config_entry(1, 2, V, V, N))
    changes(rig, config_entry(1, 3, V, V))


def two_changes_in_one_turn(rig: Rig) -> None:
    leads_with_commits(rig)
    changes(rig, config_entry(1, 2, V, V, N), config_entry(1, 3, V, V))


def two_voters_removed(rig: Rig) -> None:
    leads_with_commits(rig)
    changes(rig, config_entry(1, 2, V))


def change_before_its_term_commits(rig: Rig) -> None:
    leads_with_commits(rig)
    rig.lead(0, 2)
    rig.append(0, entry(2, 2))
    changes(rig, config_entry(2, 3, V, V, N))


def disk_is(rig: Rig, *states: ReplicaOnDisk) -> None:
    """The disk of node 2 goes through these states."""
    for state in states:
        rig.facts.replica_on_disk(rig.world.nodes[2], state)


def starts(rig: Rig, *, exists: bool) -> None:
    rig.facts.replica_found(rig.world.nodes[2], Superblock(tablet_id=LOG.tablet_id) if exists else None, exists=exists)


def creation_over_a_replica(rig: Rig) -> None:
    disk_is(rig, ReplicaOnDisk.BEGUN)


def creation_after_a_loss(rig: Rig) -> None:
    node = rig.world.nodes[2]
    node.given_up, node.on_disk = True, ReplicaOnDisk.NOTHING
    disk_is(rig, ReplicaOnDisk.BEGUN)


def created_replica_is_gone(rig: Rig) -> None:
    rig.world.nodes[2].on_disk = ReplicaOnDisk.NOTHING
    disk_is(rig, ReplicaOnDisk.BEGUN, ReplicaOnDisk.ENDING, ReplicaOnDisk.WHOLE)
    starts(rig, exists=True)
    assert rig.violated is None
    starts(rig, exists=False)


def replica_exists_without_a_whole_creation(rig: Rig) -> None:
    rig.world.nodes[2].on_disk = ReplicaOnDisk.NOTHING
    starts(rig, exists=False)
    disk_is(rig, ReplicaOnDisk.BEGUN)
    starts(rig, exists=True)


def without_rows(rig: Rig, base: OpId = ZERO) -> None:
    """Node 2 starts with a replica without rows, whose log begins at ``base``."""
    rig.facts.store_opened(rig.world.nodes[2], base)
    log = LogView(base=base, last=base, term_runs=(), log_only=True)
    rig.facts.restarted(rig.world.nodes[2], HardState(base.term), log, base.index, CONFIG)


def begins_at_an_uncommitted_entry(rig: Rig) -> None:
    rig.append(0, entry(1, 1))
    rig.append(1, entry(1, 1))
    without_rows(rig, OpId(1, 1))


def lets_a_log_begin_at_an_uncommitted_entry(rig: Rig) -> None:
    leads_with_commits(rig)
    leader = rig.world.nodes[0].node_id
    for base in (ZERO, OpId(1, 1), OpId(1, 2)):
        assert rig.violated is None
        new = NewReplica(
            tablet_id=LOG.tablet_id,
            table_name="",
            schema=b"",
            partition=PartitionBounds(),
            consensus="raft",
            config=ZERO,
            log_only=LogStart(base=base, committed=CONFIG, leader=leader, term=base.term, had_vote=False),
        )
        rig.facts.replica_asked(rig.world.nodes[0], new)


def caretaker_serves(rig: Rig) -> None:
    without_rows(rig)
    rig.lead(2, 1)
    assert rig.violated is None
    status = rig.world.nodes[2].status
    assert status is not None
    rig.facts.status(rig.world.nodes[2], msgspec.structs.replace(status, serving=True))


def caretaker_accepts_a_write(rig: Rig) -> None:
    without_rows(rig)
    rig.lead(2, 1)
    rig.ready(2, accepted=(Accepted(1, OpId(1, 1)),))


def witness_with_rows_answers_a_read(rig: Rig) -> None:
    leads_with_commits(rig)
    changes(rig, config_entry(1, 2, W, V, V))
    assert rig.violated is None
    rig.ready(0, reads_ready=(ReadReady(1, 2),))


def answer_without_rows(rig: Rig) -> None:
    without_rows(rig)
    operation = begin(rig, write(), 1)
    rig.facts.answered(operation, done(node=2))


def scan_without_rows(rig: Rig) -> None:
    without_rows(rig)
    rig.facts.scanned(rig.world.nodes[2], ObservedScan(1, 0, ()))


def applies_without_rows(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    without_rows(rig)
    rig.apply(2, entry(1, 1))


def witness_collects_what_a_voter_lacks(rig: Rig) -> None:
    rig.ready(0, hard_state=HardState(1, NAMES[0]))
    for position in (0, 2):
        rig.append(position, entry(1, 1), entry(1, 2))
    rig.append(1, entry(1, 1))
    rig.ready(0, commit=2)
    rig.world.copies = rig.world.nodes[2].log_only = True
    rig.world.nodes[2].flushed = OpId(1, 2)
    rig.facts.collect(rig.world.nodes[2], LOG, 1)
    assert rig.violated is None
    rig.facts.collect(rig.world.nodes[2], LOG, 2)


def voter_without_rows(rig: Rig) -> None:
    leads_with_commits(rig)
    without_rows(rig, OpId(1, 1))
    changes(rig, config_entry(1, 2, V, V, W))
    rig.append(1, msgspec.structs.replace(config_entry(1, 2, V, V, W), timestamp=2))
    rig.facts.wal(
        rig.world.nodes[0],
        Append(entries=(msgspec.structs.replace(config_entry(1, 2, V, V, W), timestamp=2),), replace_from=None),
        Durable(OpId(1, 2)),
    )
    rig.ready(0, commit=2)
    assert rig.violated is None
    changes(rig, config_entry(1, 3, V, V, V))


FAULTY_MEMBERS: dict[str, list[Callable[[Rig], None]]] = {
    "elected_by_majority": [elected_by_one_of_three, elected_by_a_learner],
    "one_change_pending": [
        second_change_pending,
        two_changes_in_one_turn,
        two_voters_removed,
        change_before_its_term_commits,
    ],
    "witness_log": [begins_at_an_uncommitted_entry, lets_a_log_begin_at_an_uncommitted_entry],
    "no_service_without_rows": [
        caretaker_serves,
        caretaker_accepts_a_write,
        witness_with_rows_answers_a_read,
        answer_without_rows,
        scan_without_rows,
        applies_without_rows,
    ],
    "voters_have_rows": [voter_without_rows],
    "witness_retention": [witness_collects_what_a_voter_lacks],
    "replica_creation": [
        creation_over_a_replica,
        creation_after_a_loss,
        created_replica_is_gone,
        replica_exists_without_a_whole_creation,
    ],
}


def creations_that_are_cut_short(rig: Rig) -> None:
    rig.world.nodes[2].on_disk = ReplicaOnDisk.NOTHING
    disk_is(rig, ReplicaOnDisk.BEGUN)
    starts(rig, exists=False)
    disk_is(rig, ReplicaOnDisk.BEGUN, ReplicaOnDisk.ENDING)
    starts(rig, exists=False)
    disk_is(rig, ReplicaOnDisk.BEGUN, ReplicaOnDisk.ENDING)
    starts(rig, exists=True)
    starts(rig, exists=True)


def one_change_after_the_other(rig: Rig) -> None:
    leads_with_commits(rig)
    changes(rig, config_entry(1, 2, V, V, N))
    stamped = msgspec.structs.replace(config_entry(1, 2, V, V, N), timestamp=2)
    append = Append(entries=(stamped,), replace_from=None)
    rig.facts.wal(rig.world.nodes[0], append, Durable(stamped.op_id))
    rig.append(1, stamped)
    rig.ready(0, commit=2)
    changes(rig, config_entry(1, 3, V, V))


def caretaker_that_serves_nobody(rig: Rig) -> None:
    """A replica without rows begins at a committed entry, flushes more, leads, and has no answers."""
    leads_with_commits(rig)
    without_rows(rig, OpId(1, 1))
    rig.append(2, entry(1, 2))
    block = Superblock(tablet_id=LOG.tablet_id, schemas=(), flushed=OpId(1, 1), log_only=True)
    rig.facts.saved(rig.world.nodes[2], block, ())
    rig.lead(2, 2)
