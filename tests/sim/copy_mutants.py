"""Planted bugs in copies, deletions and tombstones; the runs are those of the profile ``copies``."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim import copy_mutations as mutations
from tests.sim.planted_bug import Mutant

COPIES = ProfileKind.COPIES

COPY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="copies: no guard is applied to a request",
        rule="durability 17",
        target="stelae.lifecycle.tablet_copy:refusal",
        replacement=mutations.apply_no_guard,
        invariant="no_needless_deletion",
        kind=COPIES,
    ),
    Mutant(
        name="copies: the replica is set aside before the last guards",
        rule="durability 17",
        target="stelae.lifecycle.tablet_copy:gather",
        replacement=mutations.set_aside_before_the_guards,
        invariant="no_needless_deletion",
        kind=COPIES,
    ),
    Mutant(
        name="copies: a superblock COPYING drops the last op id of its tombstone",
        rule="durability 18, 19",
        target="stelae.lifecycle.copied_tablet:copying_block",
        replacement=mutations.drop_the_last_op_id,
        invariant="tombstone_promises",
        kind=COPIES,
    ),
    Mutant(
        name="copies: the superblock is READY before the log is durable",
        rule="durability 22",
        target="stelae.lifecycle.copied_tablet:append_piece",
        replacement=mutations.write_the_log_without_sync,
        invariant="log_base",
        kind=COPIES,
    ),
    Mutant(
        name="copies: the items are installed without their digests",
        rule="durability 21, 24",
        target="stelae.lifecycle.copy_stage:CopyStage.verify",
        replacement=mutations.verify_nothing,
        invariant="copied_items_verified",
        kind=COPIES,
    ),
    Mutant(
        name="copies: the session ends before the copied replica has caught up",
        rule="durability 25",
        target="stelae.lifecycle.copied_replicas:CopiedReplicas._is_done",
        replacement=mutations.end_the_session_at_once,
        invariant="copied_log_kept",
        kind=COPIES,
    ),
    Mutant(
        name="copies: a log is not replayed from where the rows that reach it end",
        rule="durability 22, 24",
        target="stelae.lifecycle.rows_copy:with_rows",
        replacement=mutations.keep_the_flushed_op_id_of_the_log,
        invariant="exactly_once",
        kind=COPIES,
    ),
    Mutant(
        name="copies: rows that reach a log forget the results of writes",
        rule="durability 16, 24",
        target="stelae.lifecycle.rows_copy:with_rows",
        replacement=mutations.copy_no_results,
        invariant="epochs_only_rise",
        kind=COPIES,
    ),
    Mutant(
        name="witnesses: one begins over a tombstone with the config in which it had a vote",
        rule="durability 12, 20",
        target="stelae.lifecycle.witness_over_tombstone:newer_config",
        replacement=mutations.begin_with_the_older_config,
        invariant="config_follows_log",
        kind=COPIES,
    ),
    Mutant(
        name="witnesses: the last op id of a tombstone is forgotten",
        rule="durability 18, 19",
        target="stelae.lifecycle.witness_over_tombstone:promising",
        replacement=mutations.promise_nothing,
        invariant="tombstone_promises",
        kind=COPIES,
    ),
    Mutant(
        name="witnesses: the bound for lagging replicas holds for a log without rows",
        rule="durability 4, 12",
        target="stelae.host.assembly:retention_of",
        replacement=mutations.bound_the_log_of_a_witness,
        invariant="witness_retention",
        kind=COPIES,
    ),
    Mutant(
        name="copies: the results of writes are not copied",
        rule="durability 16, 24",
        target="stelae.lifecycle.copied_tablet:ready_block",
        replacement=mutations.copy_no_results,
        invariant="epochs_only_rise",
        kind=COPIES,
    ),
    Mutant(
        name="tombstones: a replica is deleted whatever config the master has seen",
        rule="durability 27",
        target="stelae.lifecycle.tablet_manager:TabletManager._check_fence",
        replacement=mutations.delete_whatever_was_seen,
        invariant="no_needless_deletion",
        kind=COPIES,
    ),
    Mutant(
        name="copies: a damaged replica is taken for one that is offline",
        rule="durability 17",
        target="stelae.lifecycle.tablet_copy:refusal",
        replacement=mutations.refuse_for_damage,
        # Nothing replaces the replica, so the run does not come to rest.
        invariant="liveness",
        kind=COPIES,
    ),
    Mutant(
        name="retention: a config entry is collected before it is in the metadata",
        rule="durability 4",
        target="stelae.host.log_retention:LogRetentionLimit.config_appended",
        replacement=mutations.forget_the_config_entry,
        invariant="log_base",
        kind=COPIES,
    ),
    Mutant(
        name="tombstones: a merge clears the vote of the same term",
        rule="durability 20",
        target="stelae_consensus_raft.voter_core:VoterCore.step",
        replacement=mutations.clear_the_vote_at_a_merge,
        # The file of the metadata refuses the older vote, so the copy never ends.
        invariant="liveness",
        kind=COPIES,
    ),
    Mutant(
        name="tombstones: a merge adopts the vote of the source",
        rule="durability 20",
        target="stelae_consensus_raft.voter_core:VoterCore.step",
        replacement=mutations.adopt_the_vote_of_the_source,
        invariant="election_restriction",
        kind=COPIES,
    ),
    Mutant(
        name="tombstones: a tombstone is loaded without its term",
        rule="durability 9",
        target="stelae.lifecycle.tombstones:Tombstones._voter",
        replacement=mutations.load_the_voter_at_term_zero,
        invariant="terms_and_votes",
        kind=COPIES,
    ),
    Mutant(
        name="tombstones: every vote is refused",
        rule="durability 19",
        target="stelae_consensus_raft.voter_core:VoterCore._on_vote_request",
        replacement=mutations.refuse_as_if_the_log_were_unknown,
        invariant="tombstones_vote",
        kind=COPIES,
    ),
)
