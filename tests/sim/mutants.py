"""Planted bugs: each replaces one function and must be caught by the invariant it breaks.

``target`` is ``module:Class.function`` or ``module:function``. A mutant whose target is gone, is
never called, or is caught by anything but its invariant fails its test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.sim import mutations


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug.

    Attributes:
        rule: what it breaks: a rule of the design, or a section of the Raft paper.
        target: the function that is replaced.
        replacement: called with the original, then with the call's arguments.
        invariant: the one that must report it.
        seed: where the search for a run that shows it begins.
        seeds_max: how many seeds are tried; more for what needs a rare coincidence.
    """

    name: str
    rule: str
    target: str
    replacement: Callable[..., Any]
    invariant: str
    seed: int = 1
    seeds_max: int = 80


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="executor: replies do not wait for the hard state",
        rule="durability 1",
        target="stelae.host.executor:ReadyExecutor._begin",
        replacement=mutations.begin_without_waiting,
        invariant="persist_before_send",
    ),
    Mutant(
        name="executor: an append counts as durable once it is handed over",
        rule="durability 1",
        target="stelae.host.executor:ReadyExecutor._append",
        replacement=mutations.append_as_if_durable,
        invariant="persist_before_send",
    ),
    Mutant(
        name="executor: dependent replies leave with the append",
        rule="durability 1",
        target="stelae.host.executor:ReadyExecutor._append",
        replacement=mutations.reply_without_its_append,
        invariant="persist_before_send",
    ),
    Mutant(
        name="executor: a commit index overtakes the replacement it speaks of",
        rule="Raft 5.4.3",
        target="stelae.host.executor:ReadyExecutor.execute",
        replacement=mutations.commit_at_once,
        invariant="state_machine_safety",
        seed=109,
    ),
    Mutant(
        name="executor: entries are stamped by the wall clock",
        rule="durability 14",
        target="stelae.host.executor:ReadyExecutor._stamped",
        replacement=mutations.stamp_by_the_wall,
        invariant="hybrid_time",
        seed=5,
    ),
    Mutant(
        name="executor: every replica stamps entries anew",
        rule="Raft 5.3, durability 14",
        target="stelae.host.executor:ReadyExecutor._stamped",
        replacement=mutations.stamp_on_every_replica,
        invariant="log_matching",
    ),
    Mutant(
        name="log writer: groups are written and not synced",
        rule="durability 1, behaviour W2",
        target="stelae.host.log_writer:LogWriter.perform",
        replacement=mutations.commit_without_sync,
        invariant="persist_before_send",
    ),
    Mutant(
        name="log writer: a failed group is reported durable",
        rule="durability 7, behaviour W8",
        target="stelae.host.log_writer:LogWriter._settle",
        replacement=mutations.failures_are_durable,
        invariant="persist_before_send",
        seed=13,
    ),
    Mutant(
        name="log writer: completions come before the commit",
        rule="durability 1, behaviour W2",
        target="stelae.host.log_writer:LogWriter.perform",
        replacement=mutations.answer_then_commit,
        invariant="persist_before_send",
        seed=200,
    ),
    Mutant(
        name="log writer: the hint says more than is committed",
        rule="durability 3",
        target="stelae.host.log_writer:_merge",
        replacement=mutations.hint_beyond_the_commit,
        invariant="state_machine_safety",
    ),
    Mutant(
        name="apply: entries are applied when they are appended",
        rule="Raft 5.3",
        target="stelae.host.replica:Replica.entries_changed",
        replacement=mutations.apply_when_appended,
        invariant="state_machine_safety",
    ),
    Mutant(
        name="results: a second entry of an identity is applied again",
        rule="durability 16",
        target="stelae.host.results:ResultsTable.admit",
        replacement=mutations.admit_everything,
        invariant="exactly_once",
    ),
    Mutant(
        name="results: a run of which a part is known is skipped whole",
        rule="durability 16",
        target="stelae.host.results:ResultsTable.admit",
        replacement=mutations.skip_runs_whole,
        invariant="exactly_once",
    ),
    Mutant(
        name="results: a run of which a part is new is applied whole",
        rule="durability 16",
        target="stelae.host.results:ResultsTable.admit",
        replacement=mutations.admit_runs_whole,
        invariant="exactly_once",
    ),
    Mutant(
        name="results: the answers of a run that is taken apart belong to the next operations",
        rule="durability 16, behaviour C17",
        target="stelae.host.results:_answers",
        replacement=mutations.answer_the_next,
        invariant="exactly_once",
    ),
    Mutant(
        name="results: a fault belongs to the operation that is numbered as its row",
        rule="behaviour C17",
        target="stelae.host.results:_by_operation",
        replacement=mutations.blame_by_row,
        invariant="exactly_once",
    ),
    Mutant(
        name="results: rows that did not fit do not count in the place of a fault",
        rule="behaviour C17",
        target="stelae.host.results:_by_operation",
        replacement=mutations.count_only_owned_rows,
        invariant="exactly_once",
    ),
    Mutant(
        name="writes: the hash of an operation depends on its company",
        rule="durability 16, behaviour C17",
        target="stelae.host.writes:digests_of",
        replacement=mutations.hash_the_company,
        invariant="exactly_once",
    ),
    Mutant(
        name="writes: of a run of which a part is known the rest is answered, too",
        rule="behaviour C2",
        target="stelae.host.writes:WritePath._take",
        replacement=mutations.answer_the_unknown_too,
        invariant="acknowledged_writes",
    ),
    Mutant(
        name="writes: an undecided write is answered as done",
        rule="behaviour C2",
        target="stelae.host.writes:_Request.fail",
        replacement=mutations.failure_is_success,
        invariant="acknowledged_writes",
        seed=10,
    ),
    Mutant(
        name="clock: peers' timestamps are not observed",
        rule="durability 14",
        target="stelae.host.hybrid_clock:HybridClock.observe",
        replacement=mutations.observe_nothing,
        invariant="hybrid_time",
    ),
    Mutant(
        name="clock: a timestamp from too far ahead moves the clock",
        rule="durability 14",
        target="stelae.host.hybrid_clock:HybridClock.observe",
        replacement=mutations.observe_anything,
        invariant="hybrid_time",
    ),
    Mutant(
        name="metadata: votes are not written",
        rule="durability 9",
        target="stelae.host.consensus_meta:ConsensusMetadata.save",
        replacement=mutations.keep_votes_in_memory,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="core: a vote is not handed out to be saved",
        rule="durability 9",
        target="stelae_consensus_raft.replica:Replica.vote_for",
        replacement=mutations.vote_unsaved,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="core: a new term is not handed out to be saved",
        rule="durability 9",
        target="stelae_consensus_raft.replica:Replica.set_term",
        replacement=mutations.enter_term_unsaved,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="core: answers to another campaign count as votes",
        rule="durability 9 (late and repeated answers)",
        target="stelae_consensus_raft.election:Elections.on_reply",
        replacement=mutations.count_late_votes,
        invariant="election_safety",
        seed=10,
    ),
    Mutant(
        name="core: a candidate with an older log gets votes",
        rule="Raft 5.4.1",
        target="stelae_consensus_raft.election:judge",
        replacement=mutations.judge_without_the_log,
        invariant="leader_completeness",
    ),
    Mutant(
        name="core: entries of older terms commit by counting copies",
        rule="durability 9, Raft figure 8",
        target="stelae_consensus_raft.leader:Leader._advance_commit",
        replacement=mutations.commit_older_terms,
        invariant="commit_rule",
    ),
    Mutant(
        name="core: the leader commits what it has appended",
        rule="Raft 5.3",
        target="stelae_consensus_raft.leader:Leader._advance_commit",
        replacement=mutations.commit_alone,
        invariant="commit_rule",
        seed=2,
    ),
    Mutant(
        name="core: an append fits wherever there is an entry before it",
        rule="Raft 5.3",
        target="stelae_consensus_raft.follower:Follower._disagreement",
        replacement=mutations.agree_by_index,
        invariant="log_matching",
        seed=209,
    ),
    Mutant(
        name="core: reads are confirmed without a majority",
        rule="behaviour C14",
        target="stelae_consensus_raft.leader:Leader._confirm_reads",
        replacement=mutations.confirm_reads_alone,
        invariant="linearizability",
        seed=45,
        seeds_max=200,
    ),
    Mutant(
        name="heartbeats: nobody notices that a peer runs anew",
        rule="durability 15",
        target="stelae.host.heartbeats:HeartbeatService.acknowledged",
        replacement=mutations.miss_that_a_peer_runs_anew,
        invariant="liveness",
    ),
    Mutant(
        name="raft: a lost probe of a peer that lacks nothing is never repeated",
        rule="durability 15",
        target="stelae_consensus_raft.leader:Leader.on_peer_alive",
        replacement=mutations.never_repeat_a_lost_probe,
        invariant="liveness",
    ),
    Mutant(
        name="core: a config counts only once it is committed",
        rule="durability 11",
        target="stelae_consensus_raft.configs:ConfigHistory.append",
        replacement=mutations.config_only_at_commit,
        invariant="config_follows_log",
    ),
    Mutant(
        name="log engine: groups are not synced",
        rule="behaviour W2",
        target="stelae_wal_segmented.writer:SegmentWriter.write",
        replacement=mutations.write_without_sync,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: a begun write is not synced",
        rule="behaviour W2",
        target="stelae.spi.wal:Write.failure",
        replacement=mutations.make_a_begun_write_without_sync,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: a commit is finished before it is written",
        rule="durability 1",
        target="stelae_wal_segmented.engine:SegmentedWal.begin",
        replacement=mutations.finish_before_it_is_written,
        invariant="log_durability",
        seed=110,
    ),
    Mutant(
        name="log engine: a collected log forgets its base",
        rule="durability 4",
        target="stelae_wal_segmented.base:Base.changed",
        replacement=mutations.forget_the_base,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: a replacement leaves no trace on disk",
        rule="durability 5",
        target="stelae_wal_segmented.writer:encode_group",
        replacement=mutations.replace_without_a_trace,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: damage before a synced offset passes for a torn tail",
        rule="durability 6",
        target="stelae_wal_segmented.recovery:judge_last",
        replacement=mutations.take_damage_for_a_tail,
        invariant="log_durability",
        seed=14,
    ),
    Mutant(
        name="log engine: more is collected than may be",
        rule="durability 4",
        target="stelae_wal_segmented.engine:collect",
        replacement=mutations.collect_everything,
        invariant="log_base",
    ),
    Mutant(
        name="log engine: a base is not durable before what it replaces is removed",
        rule="durability 4",
        target="stelae_wal_segmented.log:write_base",
        replacement=mutations.write_base_later,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: bodies are read without their checksum",
        rule="durability 6",
        target="stelae_wal_segmented.reader:decode_entry",
        replacement=mutations.skip_the_checksum,
        invariant="log_durability",
        seed=31,
    ),
    Mutant(
        name="shared log engine: groups are not synced",
        rule="behaviour W2",
        target="stelae_wal_shared.writer:Writer.write",
        replacement=mutations.write_all_logs_without_sync,
        invariant="log_durability",
    ),
    Mutant(
        name="shared log engine: a collected log forgets its base",
        rule="durability 4",
        target="stelae_wal_shared.upkeep:write_control",
        replacement=mutations.write_no_base,
        invariant="log_durability",
    ),
    Mutant(
        name="flush: a store flushes past what the log holds durably",
        rule="durability 3",
        target="stelae.host.flush:Flusher.flush",
        replacement=mutations.flush_past_the_log,
        invariant="flush_durability",
        seed=6,
    ),
    Mutant(
        name="flush: the results of an older flush are saved with it",
        rule="durability 16",
        target="stelae.host.flush:Flusher._with",
        replacement=mutations.keep_the_results_of_before,
        invariant="exactly_once",
        seed=3,
    ),
    Mutant(
        name="flush: what an edit obsoletes goes before the superblock is durable",
        rule="durability 24",
        target="stelae.host.flush:Flusher._save",
        replacement=mutations.remove_then_save,
        invariant="flush_durability",
        seed=3,
    ),
    Mutant(
        name="flush: the superblock has a new flushed op id and the old manifest",
        rule="contract store, 3",
        target="stelae.host.flush:Flusher._with",
        replacement=mutations.keep_the_manifest_of_before,
        invariant="replica_checksums",
        seed=3,
    ),
    Mutant(
        name="retention: more of the log is collected than is flushed",
        rule="durability 4",
        target="stelae.host.retention:Retention.collectable",
        replacement=mutations.collect_what_is_not_flushed,
        invariant="log_base",
        seed=3,
    ),
    Mutant(
        name="bootstrap: the first entry behind what is flushed is not replayed",
        rule="durability 3",
        target="stelae.lifecycle.bootstrap:_Replay.run",
        replacement=mutations.replay_from_behind,
        invariant="state_machine_safety",
        seed=17,
    ),
    Mutant(
        name="columnar store: a manifest names blocks that are not synced",
        rule="contract store, 3",
        target="stelae_store_columnar.block_writer:BlockWriter._close_block",
        replacement=mutations.close_blocks_unsynced,
        invariant="flush_durability",
        seed=3,
    ),
    Mutant(
        name="columnar store: a manifest names blocks whose names are not durable",
        rule="contract store, 3",
        target="stelae_store_columnar.directory:BlockDirectory.sync",
        replacement=mutations.do_nothing,
        invariant="flush_durability",
        seed=3,
    ),
    Mutant(
        name="columnar store: a merge drops deletions that still hide a row",
        rule="contract store, 5",
        target="stelae_store_columnar.resolving:Resolver.needed",
        replacement=mutations.drop_every_deletion,
        invariant="snapshot_repeatability",
        seed=17,
    ),
    Mutant(
        name="columnar store: reads below the history floor are answered",
        rule="durability 32",
        target="stelae_store_columnar.store:ColumnarStore._refuse_below_floor",
        replacement=mutations.do_nothing,
        invariant="snapshot_repeatability",
        seed=3,
    ),
    Mutant(
        name="columnar store: a manifest forgets the history floor",
        rule="durability 32",
        target="stelae_store_columnar.upkeep:Upkeep.propose",
        replacement=mutations.forget_the_floor,
        invariant="snapshot_repeatability",
        seed=18,
    ),
    Mutant(
        name="columnar store: a flush keeps the newest version of each row only",
        rule="contract store, 5",
        target="stelae_store_columnar.resolving:Resolver.needed",
        replacement=mutations.keep_only_the_newest,
        invariant="snapshot_repeatability",
        seed=3,
    ),
    Mutant(
        name="columnar store: what an entry says was applied before is applied again",
        rule="durability 16",
        target="stelae_store_columnar.store:rows_of",
        replacement=mutations.skip_nothing,
        invariant="exactly_once",
        seed=6,
    ),
    Mutant(
        name="columnar store: an insert replaces what is there",
        rule="behaviour D1",
        target="stelae_store_columnar.applying:Applier._insert",
        replacement=mutations.insert_over_what_is_there,
        invariant="linearizability",
        seed=3,
    ),
    Mutant(
        name="columnar store: a new block that meets others is taken for one that does not",
        rule="contract store, 5",
        target="stelae_store_columnar.levels:Live.overlaps",
        replacement=mutations.settle_what_overlaps,
        invariant="snapshot_repeatability",
        seed=7,
    ),
)
